"""Recursion of each other kind: at one owner, where Spark makes what a worker remembers, and by bindings in turn."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicSpec
from eddy.connectors.spark.session import ONE_TASK
from tests.seeds import in_turn, on_days
from tests.spark.rig import Rig, check_backfill

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64
SINKS = ("sizes", "ways", "totals", "even", "odd")
FIRST: dict[str, list[tuple[bytes, bytes | None]]] = {
    "edges": [(b"1", b"ab"), (b"2", b"bc"), (b"3", b"ca"), (b"4", b"cd"), (b"5", b"xy")],
    "roots": [(b"first", b"a"), (b"second", b"x")],
    "nodes": [(b"c", b"b"), (b"d", b"c"), (b"b", b"a"), (b"e", b"d"), (b"y", b"x"), (b"x", b"y")],
}
THEN: dict[str, list[tuple[bytes, bytes | None]]] = {
    "edges": [(b"2", None), (b"6", b"ad"), (b"7", b"dc")],
    "roots": [(b"second", b"c"), (b"third", b"d")],
    "nodes": [(b"c", b"a"), (b"e", None), (b"x", b"a")],
}


def graph() -> eddy.Topology:
    """What is reached over edges and by how many simple paths, totals of a tree, and parity by two bindings."""
    topology = eddy.Topology("graph")
    edges = topology.table("edges", S, S).to_relation().map(lambda _, edge: (edge[0], edge[1]), key=S, value=S)
    roots = topology.table("roots", S, S).to_relation()
    reached = topology.recursive_fixpoint(roots=roots, edges=edges, name="reached")
    reached.group_by_key().count("sizes").to("sizes")
    paths = topology.recursive_fixpoint(roots=roots, edges=edges, name="paths", cycle_policy="allow-paths")
    paths.group_by_key().count("ways").to("ways")
    topology.table("nodes", S, S).tree_totals("totals", value=N).to("totals")

    start = topology.constant([("a", 0)], "start", S, N)

    def step(even: Any, odd: Any) -> tuple[Any, Any]:
        even = start.union(odd.join(edges, lambda a, _, b: (b, 0), "to-even", S, N)).distinct("evens")
        return even, even.join(edges, lambda a, _, b: (b, 0), "to-odd", S, N).distinct("odds")

    found = topology.mutually_recursive(step, name="parity", serdes={"even": (S, N), "odd": (S, N)})
    found.even.group_by_key(S, N).count("even-of").to("even")
    found.odd.group_by_key(S, N).count("odd-of").to("odd")
    return topology


def fed(folder: Path, spark: Any) -> Rig:
    rig = Rig(folder, graph, [TopicSpec(topic, 2) for topic in (*FIRST, *SINKS)], spark)
    for topic, records in FIRST.items():
        rig.write(topic, records)
    return rig


@pytest.fixture(params=[*in_turn([0, ONE_TASK], 2)], ids=["step-by-step", "in-one-task"])
def scratch(tmp_path: Path, spark: Any, request: pytest.FixtureRequest) -> Iterator[Rig]:
    rig = fed(tmp_path / "scratch", spark)
    rig.one_task = request.param
    rig.work()
    yield rig
    rig.close()


@on_days({0, 1}, 4)
def test_they_are_verified_with_their_states(scratch: Rig) -> None:
    scratch.go_on(THEN)
    verdict = scratch.verify()
    assert (verdict.status, verdict.undetermined) == (0, {}), list(verdict.lines())
    loops = {"reached", "reached-out", "reached-in", "reached-roots", "paths", "totals", "evens", "odds"}
    assert {part.name for part in verdict.compared} >= {*SINKS, *loops}, list(verdict.lines())


@on_days({2, 3}, 4)
def test_a_worker_goes_on_behind_their_backfill_as_from_scratch(scratch: Rig, tmp_path: Path, spark: Any) -> None:
    rig = fed(tmp_path / "backfilled", spark)
    rig.one_task = scratch.one_task
    check_backfill(rig, scratch, THEN)
    rig.close()
