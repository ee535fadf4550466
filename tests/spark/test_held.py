"""Cycles in the data of linear recursions: what a worker holds, Spark holds."""

import functools
import random
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicSpec
from eddy.connectors.spark.loops import linear_loops
from eddy.connectors.spark.session import ONE_TASK
from eddy.errors import LoopLimitError
from tests.seeds import DAY, in_turn, on_days
from tests.spark.rig import Rig

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64
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


def ways() -> eddy.Topology:
    """The starts that lead to each node, and how far each node is from its start."""
    topology = eddy.Topology("ways")
    edges = topology.table("edges", S, S).to_relation().map(lambda _, edge: tuple(edge.split(">")), key=S, value=S)
    starts = topology.table("starts", S, N).to_relation()
    for name, step in (("kept", 0), ("far", 1)):
        seed = starts.filter(lambda _, chosen, step=step: chosen == step)
        rows = seed.recursively(
            lambda rows, step=step: rows.join(edges, lambda _, far, to: (to, far + step), key=S, value=N),
            f"{name}-loop",
            limit=64,
        )
        rows.group_by_key(S, N).sum(f"{name}-sum", lambda far: far).to(name)
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


def test_cycles_are_searched_for_where_rows_repeat(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[tuple[str, bool]] = []
    search = linear_loops.reached_by_cycles

    def reached(frames: Any, frontier: Any, *rest: Any) -> Any:
        found = search(frames, frontier, *rest)
        searched.append((frontier.first()["k"].decode()[0], found is not None and found[1] > 0))
        return found

    monkeypatch.setattr(linear_loops, "reached_by_cycles", reached)
    dice = random.Random(f"{DAY} ways")
    around, levels = dice.randint(17, 20), dice.randint(18, 30)
    cycle = [(f"c{at}", f"c{(at + 1) % around}") for at in range(around)]  # so long that no row repeats at iteration 16
    chord = (f"c{around - 2}", "c0")  # the weights grow with each turn, so that no wave equals an earlier one
    chain = [(f"d{at}", f"d{at + 1}") for at in range(levels)]
    edges = [*cycle, chord, ("b0", "b1"), ("b1", "c0"), *chain]
    dice.shuffle(edges)
    rig = Rig(tmp_path, ways, [TopicSpec(name, 1) for name in ("edges", "starts", "kept", "far")], spark)
    rig.write("edges", [(b"%d" % at, f"{one}>{other}".encode()) for at, (one, other) in enumerate(edges)])
    rig.write("starts", [(b"b0", N.encode(0)), (b"d0", N.encode(1))])
    rig.work()
    verdict = rig.verify()
    assert (verdict.status, verdict.undetermined) == (0, {}), list(verdict.lines())
    assert rig.latest("kept").keys() == {b"b0", b"b1"}
    found = {key.decode(): N.decode(value) for key, (_, value) in rig.latest("far").items()}
    assert found == {f"d{at}": at + 1 for at in range(levels + 1)}
    assert searched == [("c", True)]
    rig.close()
