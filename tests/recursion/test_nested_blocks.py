"""Blocks inside blocks: what an inner limit means, in which iteration it counts, and where a block may lie."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import eddy
from eddy.topology.plan.plan import Block
from tests.recursion import nested_blocks
from tests.recursion.programs import PROGRAMS, Edit
from tests.recursion.rig import Rig, watch

assert nested_blocks
N = eddy.Native
Relation = eddy.Relation[Any, Any]
CHAIN: list[Edit] = [("roots", 0, 0), *(("edges", n, (n, n + 1, 1)) for n in range(5))]
"""0 → 1 → 2 → 3 → 4 → 5."""


def rig(name: str) -> Rig:
    topology, watched = PROGRAMS[name].topology()
    watch(topology, watched)
    return Rig(topology)


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_an_inner_block_begins_empty_in_every_iteration_and_takes_all_its_iterations(
    limit: int, iterations: int
) -> None:
    """It reaches limit - 1 steps from what the iteration before held, and so iterations times as many."""
    topology = eddy.Topology("steps")
    roots = topology.table("roots", N, N).to_relation().map(lambda _, node: (node, 0))
    edges = topology.table("edges", N, N).to_relation().map(lambda _, edge: (edge[0], edge[1]))

    def outer(found: Relation) -> tuple[Relation, ...]:
        def inner(at: Relation) -> tuple[Relation, ...]:
            moved = at.join(edges, lambda a, _, b: (b, 0), "step")
            return (roots.union(found, moved).distinct("once"),)

        at = topology.mutually_recursive(inner, limit=limit, on_limit="return", name="inner").at
        return (at.distinct("ats"),)

    found = topology.mutually_recursive(outer, limit=iterations, on_limit="return", name="outer").found
    watch(topology, {"found": found})
    running = Rig(topology)
    running.epoch(CHAIN)
    assert set(running.left["watch-found"]) == {(n, 0) for n in range(min(iterations * (limit - 1), 5) + 1)}


class TestError:
    def test_it_is_one_in_whichever_iteration_and_goes_when_the_data_is_mended(self) -> None:
        """Only the first iteration begins from the root; its inner block needs a third one that changes nothing."""
        running = rig("errors-that-come-and-go")
        running.epoch(CHAIN[:2])
        assert set(running.left["watch-taken"]) == {(0, 0)}
        assert not running.left["watch-errors"]
        running.epoch(CHAIN[2:])
        assert running.left["watch-errors"] == Counter({("inner.at", (2, 0)): 1})
        out = running.epoch([("roots", 1, 9)])
        assert not out["watch-taken"].rows, "withheld"
        assert not running.left["watch-taken"], "withheld"
        running.replay()
        running.epoch([("edges", 1, None)])
        assert not running.left["watch-errors"]
        assert set(running.left["watch-taken"]) == {(0, 0), (9, 0)}

    def test_the_outer_limit_and_the_inner_one_are_told_apart(self) -> None:
        running = rig("stepwise-hold-at-3-hold-in-2-rounds")
        running.epoch(CHAIN)
        assert {name for name, _ in running.left["watch-errors"]} == {"found", "far", "near.at"}

    def test_a_limit_that_returns_makes_none_around_one_that_is_an_error(self) -> None:
        running = rig("stepwise-hold-at-3-in-1-rounds")
        running.epoch(CHAIN[:2])
        assert not running.left["watch-errors"]
        assert dict(running.left["watch-found"]) == {(0, 0): 1, (1, 1): 1}


def nest(build: Callable[[eddy.Topology, Relation], Relation]) -> eddy.Topology:
    """What `build` makes of a table's rows."""
    topology = eddy.Topology("nest")
    rows = topology.table("rows", key=N, value=N).to_relation()
    build(topology, rows).group_by_key().count("counted")
    return topology


def in_a_recursion(**limit: Any) -> Callable[[eddy.Topology, Relation], Relation]:
    def build(topology: eddy.Topology, rows: Relation) -> Relation:
        def op(x: Relation) -> Relation:
            return topology.mutually_recursive(lambda y: (y.union(x).distinct("y"),), "inner", **limit).y

        return rows.recursively(op, "loop", max_depth=3)

    return build


class TestWhereItMayLie:
    def test_an_error_inside_a_recursion_is_refused_by_name(self) -> None:
        with pytest.raises(eddy.TopologyError, match=r"recursively 'loop': block 'inner' inside it has limit=4"):
            nest(in_a_recursion(limit=4))
        nest(in_a_recursion(limit=4, on_limit="return"))
        nest(in_a_recursion())

    def test_it_is_refused_in_a_recursion_in_a_block_too(self) -> None:
        def build(topology: eddy.Topology, rows: Relation) -> Relation:
            def outer(z: Relation) -> tuple[Relation, ...]:
                return (in_a_recursion(limit=4)(topology, rows.union(z).distinct("z")),)

            return topology.mutually_recursive(outer, "outer").z

        with pytest.raises(eddy.TopologyError, match=r"recursively 'loop': block 'inner' inside it has limit=4"):
            nest(build)

    def test_blocks_that_keep_their_keys_stay_with_their_owners(self) -> None:
        topology, _ = PROGRAMS["a-block-that-keeps-its-keys-in-one-that-does"].topology()
        blocks = [node for node in topology.plan.nodes if isinstance(node, Block)]
        assert len(blocks) == 2
        assert not any(
            block.single_partition or variable.single_partition for block in blocks for variable in block.variables
        )
        assert topology.describe().count("each owner its keys, which no step inside changes") == 2

    def test_a_block_that_does_not_depend_on_the_loop_around_withholds_for_itself(self) -> None:
        topology = eddy.Topology("apart")
        rows = topology.table("rows", key=N, value=N).to_relation()

        def outer(z: Relation) -> tuple[Relation, ...]:
            def inner(y: Relation) -> tuple[Relation, ...]:
                return (rows.union(y.map_values(lambda n: n - 1).filter(lambda _, n: n > 0)).distinct("y"),)

            return (topology.mutually_recursive(inner, "inner", limit=3).y.union(z).distinct("z"),)

        block = topology.mutually_recursive(outer, "outer")
        watch(topology, {"z": block.z, "errors": block.errors})
        running = Rig(topology)
        running.epoch([("rows", "a", 2)])
        assert set(running.left["watch-z"]) == {("a", 1), ("a", 2)}
        running.epoch([("rows", "a", 9)])
        assert not running.left["watch-z"], "withheld"
        assert not running.left["watch-errors"]
        running.epoch([("rows", "a", 1)])
        assert set(running.left["watch-z"]) == {("a", 1)}
