"""Verify: what is right is found right, and each kind of wrong is found and named."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.spark.session import ONE_TASK
from eddy.connectors.spark.verification.verifying import last_cut
from eddy.runtime.quiescence import Cut
from tests.seeds import in_turn
from tests.spark.rig import TREE, Rig, family, plant

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S = eddy.String


@pytest.fixture(params=[*in_turn([0, ONE_TASK], 2)], ids=["step-by-step", "in-one-task"])
def rig(tmp_path: Path, spark: Any, request: pytest.FixtureRequest) -> Iterator[Rig]:
    topics = [TopicSpec("nodes", 3), TopicSpec("descendants", 3), TopicSpec("notes", 3), TopicSpec("loud", 3)]
    rig = Rig(tmp_path, family, topics, spark)
    rig.one_task = request.param
    rig.write("nodes", TREE)
    rig.write("notes", [(b"1", b"x"), (b"2", b""), (b"1", b"y"), (None, b"z")])
    rig.work()
    yield rig
    rig.close()


def test_what_a_worker_did_is_equal(rig: Rig) -> None:
    verdict = rig.verify()
    assert (verdict.status, verdict.word, verdict.undetermined) == (0, "equal", {})
    assert {(part.what, part.name) for part in verdict.compared} >= {
        ("sink", "descendants"),
        ("sink", "loud"),
        ("store", "nodes"),
        ("store", "descendants"),
    }
    assert sum(part.keys for part in verdict.compared if part.name == "loud") == 3


def test_it_works_while_the_worker_goes_on(rig: Rig) -> None:
    stages: list[str] = []

    def go_on(stage: str) -> None:
        stages.append(stage)
        if stage == "compute":  # the cut has been read
            rig.write("nodes", [(b"g", b"f"), (b"b", b"x"), (b"h", b"g")])
            rig.write("notes", [(b"3", b"more")])
            rig.work()

    assert rig.verify(stage=go_on).status == 0
    assert stages[:3] == ["checks", "cut", "compute"]
    assert rig.verify().status == 0


def test_what_is_wrong_is_found_and_named(rig: Rig, tmp_path: Path) -> None:
    plant(rig, "UPDATE records SET value = ?", "descendants", b"a", (7).to_bytes(8, "big"))
    plant(rig, "DELETE FROM records", "family-nodes-changelog", b"e")
    plant(rig, "UPDATE records SET key = ?", "family-descendants-changelog", b"d", b"dd")
    rig.write("loud", [(b"1", b"x")])
    ends = {"loud": [rig.log.end_offsets([TopicPartition("loud", p)])[TopicPartition("loud", p)] for p in range(3)]}
    cut = last_cut(rig.log, "family-cuts")
    assert cut is not None
    verdict = rig.verify(mismatches=str(tmp_path / "mismatches"), cut=Cut(cut.inputs, cut.outputs | ends))
    assert verdict.status == 1
    told = {(part.what, part.name): part.differing for part in verdict.compared if part.differing}
    assert told == {
        ("sink", "descendants"): 1,
        ("store", "nodes"): 1,
        ("store", "descendants"): 2,
        ("sink", "loud"): 1,
    }
    lines = "\n".join(verdict.lines())
    for said in (
        "sink descendants: 4 keys, 1 differ\n    'a': expected 4, found 7",
        "    'e': expected 'd', found nothing",
        "    'd': expected 2, found nothing\n    'dd': expected nothing, found 2",
        "    '1': expected 'x', found 'x', 2 times",
    ):
        assert said in lines
    rows = rig.spark.read.parquet(str(tmp_path / "mismatches")).collect()
    assert sorted((row["part"], row["name"], bytes(row["key"])) for row in rows) == [
        ("sink", "descendants", b"a"),
        ("sink", "loud", b"1"),
        ("store", "descendants", b"d"),
        ("store", "descendants", b"dd"),
        ("store", "nodes", b"e"),
    ]


def three_generations() -> eddy.Topology:
    topology = eddy.Topology("generations")
    parents = topology.table("nodes", S, S)
    above = parents.to_relation().map(lambda node, parent: (parent, 1))
    above = above.recursively(
        lambda rows: rows.join(parents, lambda _, one, parent: (parent, one)), "ancestors", max_depth=2
    )
    above.group_by_key().count("descendants").to("descendants")
    return topology


def test_what_a_bounded_recursion_remembers_by_depth_is_equal(tmp_path: Path, spark: Any) -> None:
    rig = Rig(tmp_path, three_generations, [TopicSpec("nodes", 2), TopicSpec("descendants", 2)], spark)
    rig.write("nodes", [(str(n).encode(), str(n + 1).encode()) for n in range(6)])
    rig.work()
    rig.write("nodes", [(b"2", None), (b"9", b"1")])
    rig.work()
    verdict = rig.verify()
    assert (verdict.status, verdict.undetermined) == (0, {}), list(verdict.lines())
    assert {part.name: part.keys for part in verdict.compared}["ancestors"] > 4
    rig.close()


def first_values() -> eddy.Topology:
    topology = eddy.Topology("first")
    nodes = topology.table("nodes", S, S)
    children = nodes.group_by(lambda node, parent: (parent, node), key=S, value=S)
    children.top_k(2, "last-two")
    children.min("first-one")
    children.sum("sizes", of=len)
    children.collect("alone", max=1)
    children.distinct_count("kinds", of=len)
    by_parent = nodes.to_relation().map(lambda node, parent: (parent, node), key=S, value=S)
    by_parent.to_table("only-child").errors.to("descendants", value=S)
    notes = topology.stream("notes", S, S).group_by_key()
    notes.max("last-note").to("loud")
    notes.avg("mean", of=len)
    notes.collect("texts", max=2)
    return topology


def test_states_of_first_values_and_single_rows_are_compared(tmp_path: Path, spark: Any) -> None:
    topics = [TopicSpec(name, 3) for name in ("nodes", "descendants", "notes", "loud")]
    rig = Rig(tmp_path, first_values, topics, spark)
    rig.one_task = 0
    rig.write("nodes", [*TREE, (b"g", b"e")])
    rig.write("notes", [(b"1", b"x"), (b"2", b""), (b"1", b"y"), (None, b"z")])
    rig.work()
    verdict = rig.verify()
    rig.close()
    assert (verdict.status, verdict.undetermined) == (0, {}), verdict.lines()
    keys = {part.name: part.keys for part in verdict.compared if part.what == "store"}
    expected = {"last-two": 4, "last-two-rows": 5, "only-child": 3, "only-child-several": 2, "last-note": 2}
    expected |= {"sizes": 4, "sizes-totals": 4, "alone": 3, "alone-rows": 5, "kinds": 4, "kinds-distinct": 4}
    expected |= {"mean": 2, "mean-totals": 2, "texts": 2, "texts-rows": 3}
    assert expected.items() <= keys.items()
