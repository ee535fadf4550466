"""Cycles in the data of linear recursions: what a worker holds, Spark holds."""

import functools
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicSpec
from eddy.connectors.spark.session import ONE_TASK
from eddy.errors import LoopLimitError
from tests.seeds import in_turn, on_days
from tests.spark.rig import Rig

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S = eddy.String
TOPICS = [TopicSpec("nodes", 3), TopicSpec("below", 3)]
DEEP = [(b"%d" % n, b"%d" % (n + 1)) for n in range(4)]
ROUND = [(b"a", b"b"), (b"b", b"c"), (b"c", b"a"), (b"d", b"a"), (b"e", b"d"), (b"f", b"x"), (b"l", b"l"), (b"x", b"y")]
"""A cycle with two rows that lead to it, a row that leads to itself, and a way without a cycle."""


def family(mapped: bool) -> eddy.Topology:
    """How many are below each node: by an op that joins its rows as they are, or by one that joins what it makes."""
    topology = eddy.Topology("family")
    parents = topology.table("nodes", S, S)
    rows = parents.to_relation().map(lambda node, parent: (parent, 1))

    def up(x: Any) -> Any:
        x = x.map(lambda node, one: (node, one)) if mapped else x
        return x.join(parents, lambda _, one, parent: (parent, one))

    rows.recursively(up, "above").group_by_key().count("below").to("below")
    return topology


def counting(limit: int = 5) -> eddy.Topology:
    """How far above each node is: in a cycle ever farther."""
    topology = eddy.Topology("counting")
    parents = topology.table("nodes", S, S)
    rows = parents.to_relation().map(lambda node, parent: (parent, 1))
    rows = rows.recursively(lambda x: x.join(parents, lambda _, far, up: (up, far + 1)), "far", limit=limit)
    rows.group_by_key().count("below").to("below")
    return topology


@pytest.fixture(params=[*in_turn([0, ONE_TASK], 2)], ids=["step-by-step", "in-one-task"])
def one_task(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_worker_with_a_lasting_cycle_is_equal(tmp_path: Path, spark: Any, one_task: int) -> None:
    rig = Rig(tmp_path, functools.partial(family, False), TOPICS, spark)
    rig.one_task = one_task
    for batch in (DEEP, ROUND[2:], ROUND[:2]):
        rig.write("nodes", batch)
        rig.work()
    verdict = rig.verify()
    assert (verdict.status, verdict.undetermined) == (0, {}), list(verdict.lines())
    keys = {(part.what, part.name): part.keys for part in verdict.compared}
    assert keys["sink", "below"] == 7  # 1 to 4, d, x, y
    assert {name for what, name in keys if what == "store"} == {"nodes", "above", "below"}
    rig.close()


@on_days({2, 3}, 4)
def test_a_worker_goes_on_behind_a_backfill_and_mends(tmp_path: Path, spark: Any, one_task: int) -> None:
    rig = Rig(tmp_path / "rig", functools.partial(family, True), TOPICS, spark)
    scratch = Rig(tmp_path / "scratch", rig.topology, TOPICS)
    for each in (rig, scratch):
        each.write("nodes", DEEP + ROUND)
    scratch.work()
    rig.backfill(one_task=one_task)
    assert rig.latest("below") == scratch.latest("below")
    assert rig.latest("family-above-held-changelog")
    for record in ((b"f", b"d"), (b"c", None), (b"l", None)):
        for each in (rig, scratch):
            each.write("nodes", [record])
            each.work()
        assert rig.latest("below") == scratch.latest("below"), record
    assert rig.held() == scratch.held()
    assert not rig.latest("family-above-held-changelog")
    for each in (rig, scratch):
        each.close()


@on_days({0, 1}, 4)
def test_rows_that_are_ever_new_are_refused(tmp_path: Path, spark: Any, one_task: int) -> None:
    rig = Rig(tmp_path, counting, TOPICS, spark)
    rig.one_task = one_task
    rig.write("nodes", ROUND[:3])
    topics = set(rig.log.topics())
    with pytest.raises(LoopLimitError, match=r"recursively 'far': key '.'.* (does|until)"):
        rig.backfill()
    assert set(rig.log.topics()) == topics
    rig.close()
