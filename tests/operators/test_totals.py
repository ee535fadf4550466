"""Totals over subtrees: right in any order, under moves, and after a cycle is mended."""

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.operators.batch import Batch
from eddy.operators.graph.totals import CYCLE, TOTAL
from eddy.operators.upsert import Upsert
from eddy.serde import Native
from eddy.topology.plan import plan
from eddy.topology.plan.graph import tree_totals
from tests import oracle
from tests.operators.bench import MEMORIES, Bench, Build, Wiring, built, facts, live, stories


def totals(include_self: bool = True) -> Build:
    """Values are (parent, own)."""

    def build(wiring: Wiring) -> int:
        source = plan.Source(name="in", label="in", kind="table", topic="in", key=Native)
        node = plan.TreeTotals(
            name="t",
            label="t",
            kind="relation",
            inputs=(source,),
            parent=lambda node, value: value[0],
            own=lambda node, value: value[1],
            include_self=include_self,
        )
        table = wiring.add(Upsert("nodes", wiring.table("nodes")), wiring.source("nodes"))
        return wiring.add(tree_totals(node, "app", wiring.store), table)

    return build


def around(parents: Mapping[Any, Any], node: Any) -> tuple[Any, ...] | None:
    """The way round from a node that is on a cycle, from its least node."""
    way = [node]
    while (above := parents.get(way[-1])) is not None and above not in way:
        way.append(above)
    if above != node:
        return None
    at = way.index(min(way))
    return (*way[at:], *way[:at], min(way))


def wanted(table: Mapping[Any, Any], include_self: bool = True) -> oracle.Bag:
    """By walking down from every node."""
    parents = {node: value[0] for node, value in table.items() if value[0] is not None}
    found: list[Any] = []
    for node in {*table, *parents.values()}:
        if way := around(parents, node):
            if node == way[0]:
                found.append((node, (CYCLE, way)))
            continue
        below, frontier = [], [node]
        while frontier:
            frontier = [child for child, parent in parents.items() if parent in frontier]
            below += frontier
        sum_below = sum(table[other][1] for other in below)
        if include_self:
            found.append((node, (TOTAL, sum_below + (table[node][1] if node in table else 0))))
        elif below:
            found.append((node, (TOTAL, sum_below)))
    return Counter(found)


def bench_of(include_self: bool = True) -> Bench:
    return Bench(built(totals(include_self)))


def sums(bench: Bench) -> dict[Any, Any]:
    return {node: value for node, (what, value) in bench.integral if what == TOTAL}


def test_a_move_reaches_no_further_than_both_places_have_in_common() -> None:
    bench = bench_of()
    bench.epoch(nodes=facts([(n, (n - 1, 1)) for n in range(1, 100)] + [(n, (50, 1)) for n in (200, 300)]))
    bench.epoch(nodes=facts([(400, (200, 1))]))
    bench.epoch(nodes=facts([(400, (300, 1))]))
    asked: list[Any] = []
    table = bench.circuit.states["t"]
    get = table.get  # type: ignore[attr-defined]
    table.get = lambda node: asked.append(node) or get(node)  # type: ignore[attr-defined]
    delta = bench.epoch(nodes=facts([(400, (200, 1))]))
    assert {node for node, _ in delta} == {200, 300}
    assert not [node for node in asked if node < 45], "the way above is not walked"


def test_children_may_come_before_their_parents() -> None:
    bench = bench_of()
    for node in (4, 3, 2, 1):
        bench.epoch(nodes=facts([(node, (node - 1, 1))]))
    assert sums(bench) == {0: 4, 1: 4, 2: 3, 3: 2, 4: 1}


def test_a_passing_cycle_of_two_moves_in_one_epoch_is_none() -> None:
    bench = bench_of()
    bench.epoch(nodes=facts([(1, (0, 1)), (2, (1, 1)), (3, (2, 1))]))
    delta = bench.epoch(nodes=facts([(1, (2, 1)), (2, (0, 1))]))
    assert sums(bench) == {0: 3, 1: 1, 2: 3, 3: 1}
    assert not [row for row in delta if row[1][0] == CYCLE]


def test_a_cycle_is_held_and_mended() -> None:
    bench = bench_of()
    bench.epoch(nodes=facts([(1, (0, 1)), (2, (1, 1)), (3, (2, 1)), (4, (3, 5)), (5, (4, 1))]))
    delta = bench.epoch(nodes=facts([(1, (3, 1))]))
    assert delta[1, (CYCLE, (1, 3, 2, 1))] == 1
    assert sums(bench) == {4: 6, 5: 1}
    bench.epoch(nodes=facts([(6, (3, 1))]))
    assert sums(bench) == {4: 6, 5: 1, 6: 1}
    bench.epoch(nodes=facts([(3, (0, 1))]))
    assert bench.integral == wanted({1: (3, 1), 2: (1, 1), 3: (0, 1), 4: (3, 5), 5: (4, 1), 6: (3, 1)})


def test_a_node_may_be_its_own_parent_and_is_told() -> None:
    bench = bench_of()
    assert bench.epoch(nodes=facts([(1, (1, 1))])) == {(1, (CYCLE, (1, 1))): 1}
    assert bench.epoch(nodes=facts([(1, None)])) == {(1, (CYCLE, (1, 1))): -1}


def test_a_chain_of_5000_needs_no_call_stack() -> None:
    bench = bench_of(include_self=False)
    nodes = list(range(1, 5_001))
    random.Random(1).shuffle(nodes)
    bench.epoch(nodes=facts((node, (node - 1, 1)) for node in nodes))
    assert sums(bench)[0] == 5_000
    bench.epoch(nodes=facts([(2_500, None)]))
    assert sums(bench)[0] == 2_499
    bench.epoch(nodes=facts([(0, (5_000, 1)), (2_500, (2_499, 1))]))
    assert not sums(bench)
    bench.epoch(nodes=facts([(0, None)]))
    assert sums(bench)[0] == 5_000


@pytest.mark.slow
def test_a_wide_tree_of_50000_adds_up() -> None:
    bench = bench_of()
    bench.epoch(nodes=facts((node, (0, node)) for node in range(1, 50_001)))
    assert sums(bench)[0] == sum(range(50_001))
    assert bench.epoch(nodes=facts([(7, (8, 7))])) == {(8, (TOTAL, 8)): -1, (8, (TOTAL, 15)): 1}


def test_floats_that_do_not_cancel_are_near() -> None:
    bench = bench_of()
    bench.epoch(nodes=facts([(1, (0, 0.1)), (2, (1, 0.2)), (3, (1, 0.3)), (4, (2, 0.7))]))
    for parent in (3, 2, 3, 1):
        bench.epoch(nodes=facts([(4, (parent, 0.7))]))
    assert sums(bench)[0] == pytest.approx(1.3)


nodes_ = st.integers(0, 6)
owns = st.sampled_from([0, 0.0, False, True, 2, -1])


@given(table=st.dictionaries(nodes_, st.tuples(st.none() | nodes_, owns), min_size=1), include_self=st.booleans())
def test_new_trees_are_stored_as_if_their_nodes_came_one_by_one(table: Any, include_self: bool) -> None:
    at_once, one_by_one = bench_of(include_self), bench_of(include_self)
    at_once.epoch(nodes=facts(table.items()))
    for row in table.items():
        one_by_one.epoch(nodes=facts([row]))
    assert at_once.integral == one_by_one.integral == wanted(table, include_self)
    assert sorted(at_once.store.scan(b"")) == sorted(one_by_one.store.scan(b""))


records = st.lists(st.tuples(nodes_, st.none() | st.tuples(st.none() | nodes_, st.integers(-1, 2))), max_size=8)


@pytest.mark.parametrize("memory", MEMORIES)
@given(story=stories(nodes=records), include_self=st.booleans())
def test_totals_are_those_from_scratch_through_cycles_too(memory: str, story: Any, include_self: bool) -> None:
    table: dict[Any, Any] = {}

    def check(bench: Bench, inputs: Mapping[str, Batch]) -> None:
        nonlocal table
        table = oracle.latest(inputs["nodes"].rows, table)
        assert bench.integral == wanted(table, include_self)

    epochs = [(what, {"nodes": facts(each["nodes"])}) for what, each in story]
    live(totals(include_self), MEMORIES[memory], epochs, check)


@pytest.mark.parametrize("seed", range(6))
def test_many_moves_are_right_and_leave_nothing_behind(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.choice((4, 12, 40))
    bench, table = bench_of(seed % 2 == 0), dict[Any, Any]()
    for _ in range(120):
        epoch = [
            (rng.randrange(size), rng.choice([None, (rng.randrange(size), rng.randrange(3))]) if rng.random() < 0.9
             else (None, 1))
            for _ in range(rng.choice((1, 1, 2, 6)))
        ]  # fmt: skip
        bench.epoch(nodes=facts(epoch))
        table = oracle.latest(epoch, table)
        assert bench.integral == wanted(table, seed % 2 == 0)
    bench.epoch(nodes=facts((node, None) for node in table))
    assert not bench.integral
    assert not any(bench.states().values())
    assert not list(bench.store.scan(b""))
