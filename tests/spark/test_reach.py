"""Steps that are one operator at one owner: Spark makes and remembers what a worker does that came to it by and by."""

from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicSpec
from tests.spark.rig import Rig

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S = eddy.String


def graph() -> eddy.Topology:
    topology = eddy.Topology("graph")
    edges = topology.table("edges", S, S).to_relation().map(lambda _, edge: (edge[0], edge[1]), key=S, value=S)
    roots = topology.table("roots", S, S).to_relation()
    reached = topology.recursive_fixpoint(roots=roots, edges=edges, name="reached")
    reached.group_by_key().count("sizes").to("sizes")
    return topology


def test_a_fixpoint_is_verified_with_its_states(tmp_path: Path, spark: Any) -> None:
    rig = Rig(tmp_path, graph, [TopicSpec("edges", 2), TopicSpec("roots", 2), TopicSpec("sizes", 2)], spark)
    rig.write("edges", [(b"1", b"ab"), (b"2", b"bc"), (b"3", b"ca"), (b"4", b"cd"), (b"5", b"xy")])
    rig.write("roots", [(b"first", b"a"), (b"second", b"x")])
    rig.work()
    rig.write("edges", [(b"2", None), (b"6", b"ad"), (b"7", b"dc")])
    rig.work()
    verdict = rig.verify()
    assert (verdict.status, verdict.untold) == (0, {}), list(verdict.lines())
    assert {part.name for part in verdict.compared} >= {
        "sizes",
        "reached",
        "reached-out",
        "reached-in",
        "reached-roots",
    }
    rig.close()
