"""Fixpoints by ranked supports: after every epoch the rows are those of a search from scratch."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eddy.errors import DataError
from eddy.operators.batch import Batch
from eddy.operators.graph.cycles import first_cycle
from eddy.operators.graph.reached import Child, Reached, least, reached_serde
from eddy.serde import Native, Struct
from eddy.state.cache import Cache
from eddy.topology.plan import plan
from eddy.topology.plan.graph import reachable
from tests import oracle
from tests.operators.bench import MEMORIES, Bench, Build, Wiring, batch, built, live, stories
from tests.seeds import share

Links = Mapping[tuple[Any, Any], list[tuple[Any, Any]]]
"""(node, child) to the (cost, order) of each edge between them."""


def ranked(**choices: Any) -> Build:
    def build(wiring: Wiring) -> int:
        source = plan.Source(name="in", label="in", kind="table", topic="in")
        node = plan.Reachable(
            name="f", label="f", kind="relation", inputs=(source, source), **({"node": Native} | choices)
        )
        return wiring.add(reachable(node, "app", wiring.store), wiring.source("roots"), wiring.source("edges"))

    return build


# The oracle: the definition, from scratch


def links_of(edges: Iterable[tuple[Any, Any]], expand: Any = None, weight: Any = None) -> Links:
    found: dict[tuple[Any, Any], list[tuple[Any, Any]]] = {}
    for node, edge in edges:
        for child in [edge] if expand is None else expand(node, edge):
            end, order = (child.node, child.order) if isinstance(child, Child) else (child, child)
            found.setdefault((node, end), []).append((1 if weight is None else weight(node, edge), order))
    return found


def distances(root: Any, links: Links, max_depth: Any) -> dict[Any, Any]:
    found = {root: 0}
    while True:
        after = dict(found)
        for (node, child), ties in links.items():
            if node in found:
                far = found[node] + min(cost for cost, _ in ties)
                if (max_depth is None or far <= max_depth) and far < after.get(child, float("inf")):
                    after[child] = far
        if after == found:
            return found
        found = after


def rows_from(root: Any, links: Links, max_depth: Any = None) -> list[Reached]:
    depths = distances(root, links, max_depth)
    rows = []
    for node, depth in depths.items():
        if node == root:
            rows.append(Reached(root, node, 0, None, node))
            continue
        supports = [
            (parent, min(order for cost, order in ties if cost == min(cost for cost, _ in ties)))
            for (parent, child), ties in links.items()
            if child == node and parent in depths and depths[parent] + min(cost for cost, _ in ties) == depth
        ]
        parent, order = min(supports)
        rows.append(Reached(root, node, depth, parent, order))
    return rows


def cycle_from(root: Any, links: Links, max_depth: Any = None) -> list[Reached]:
    """The row of the first cycle that a recursive search meets."""
    depths = distances(root, links, max_depth)
    below: dict[Any, list[Any]] = {}
    for node, child in links:
        if node in depths and (max_depth is None or depths[node] < max_depth):
            below.setdefault(node, []).append(child)
    done: set[Any] = set()

    def search(way: list[Any]) -> tuple[Any, ...] | None:
        for child in sorted(below.get(way[-1], [])):
            if child in way:
                return (*way[way.index(child) :], child)
            if child not in done and (found := search([*way, child])):
                return found
        done.add(way[-1])
        return None

    way = search([root])
    return [Reached(root, way[0], -1, cycle=way)] if way else []


def wanted(
    roots: oracle.Bag, edges: oracle.Bag, max_depth: Any = None, cycles: bool = False, **functions: Any
) -> oracle.Bag:
    links = links_of([row for row, weight in edges.items() if weight > 0], **functions)
    found = []
    for (key, root), weight in roots.items():
        if weight > 0:
            rows = rows_from(root, links, max_depth) + (cycle_from(root, links, max_depth) if cycles else [])
            found += [(key, row) for row in rows]
    return Counter(found)


class Follow:
    """Adds up what comes in, and compares what went out with the oracle."""

    def __init__(self, **question: Any) -> None:
        self.roots: oracle.Bag = Counter()
        self.edges: oracle.Bag = Counter()
        self.question = question

    def __call__(self, bench: Bench, inputs: Mapping[str, Batch]) -> None:
        for name, one in inputs.items():
            total = oracle.plus(getattr(self, name), oracle.bag(zip(one.rows, one.weights, strict=True)))
            setattr(self, name, total)
        assert bench.integral == wanted(self.roots, self.edges, **self.question)


# Examples


def edges(*pairs: tuple[Any, Any], weight: int = 1) -> Batch:
    return batch([(pair, weight) for pair in pairs])


def from_one(**choices: Any) -> Bench:
    bench = Bench(built(ranked(**choices)))
    bench.epoch(roots=edges(("k", 1)))
    return bench


def depths_in(bench: Bench) -> dict[Any, Any]:
    return {row.node: (row.depth, row.parent) for _, row in bench.integral}


def test_a_shorter_way_takes_over_and_the_longer_one_comes_back() -> None:
    bench = from_one()
    bench.epoch(edges=edges((1, 2), (2, 3), (3, 4)))
    assert depths_in(bench) == {1: (0, None), 2: (1, 1), 3: (2, 2), 4: (3, 3)}
    bench.epoch(edges=edges((1, 3)))
    assert depths_in(bench) == {1: (0, None), 2: (1, 1), 3: (1, 1), 4: (2, 3)}
    bench.epoch(edges=edges((1, 3), weight=-1))
    assert depths_in(bench) == {1: (0, None), 2: (1, 1), 3: (2, 2), 4: (3, 3)}


def test_a_cycle_does_not_hold_itself_when_it_is_cut_off() -> None:
    bench = from_one()
    bench.epoch(edges=edges((1, 2), (2, 3), (3, 2)))
    bench.epoch(edges=edges((1, 2), weight=-1))
    assert depths_in(bench) == {1: (0, None)}


def test_a_node_met_at_the_bound_is_expanded_when_a_shorter_way_comes() -> None:
    bench = from_one(max_depth=3)
    bench.epoch(edges=edges((1, 2), (2, 3), (3, 4), (4, 5), (5, 6)))
    assert set(depths_in(bench)) == {1, 2, 3, 4}
    bench.epoch(edges=edges((1, 4)))
    assert set(depths_in(bench)) == {1, 2, 3, 4, 5, 6}
    bench.epoch(edges=edges((1, 4), weight=-1))
    assert set(depths_in(bench)) == {1, 2, 3, 4}


def test_a_subtree_moves() -> None:
    bench = from_one()
    bench.epoch(edges=edges((1, 2), (1, 3), (2, 4), (4, 5), (4, 6)))
    delta = bench.epoch(edges=batch([((2, 4), -1), ((3, 4), 1)]))
    assert delta == {("k", Reached(1, 4, 2, 2, 4)): -1, ("k", Reached(1, 4, 2, 3, 4)): 1}, "what keeps its row is still"
    delta = bench.epoch(edges=batch([((3, 4), -1), ((1, 4), 1)]))
    assert {row.node for _, row in delta} == {4, 5, 6}


@pytest.mark.parametrize("counted", [False, True])
def test_an_edge_that_goes_and_comes_in_one_epoch_changes_nothing(counted: bool) -> None:
    bench = from_one(counted=counted)
    bench.epoch(edges=edges((1, 2), (2, 3)))
    assert bench.epoch(edges=batch([((1, 2), -1), ((1, 2), 1)])) == {}
    assert bench.epoch(edges=batch([((1, 2), 1)])) == {}, "once is as good as twice"
    assert bench.epoch(edges=batch([((1, 2), -1)])) == {}


def test_keys_share_a_root_and_come_and_go_alone() -> None:
    bench = from_one()
    bench.epoch(edges=edges((1, 2), (2, 3)))
    assert len(bench.epoch(roots=edges(("other", 1)), edges=edges((3, 4)))) == 4 + 1
    assert {key for key, _ in bench.epoch(roots=edges(("k", 1), weight=-1), edges=edges((3, 4), weight=-1))} == {
        "k",
        "other",
    }
    assert {key for key, _ in bench.integral} == {"other"}
    assert len(bench.integral) == 3


def test_a_cycle_is_named_while_it_is_there_and_rows_stay() -> None:
    bench = from_one(cycles=True)
    bench.epoch(edges=edges((1, 2), (2, 3)))
    assert bench.epoch(edges=edges((3, 2))) == {("k", Reached(1, 2, -1, cycle=(2, 3, 2))): 1}
    assert bench.epoch(edges=edges((2, 2))) == {
        ("k", Reached(1, 2, -1, cycle=(2, 3, 2))): -1,
        ("k", Reached(1, 2, -1, cycle=(2, 2))): 1,
    }
    assert bench.epoch(edges=edges((2, 2), (3, 2), weight=-1)) == {("k", Reached(1, 2, -1, cycle=(2, 2))): -1}


def test_a_cycle_counts_from_where_its_last_node_comes_within_the_bound() -> None:
    bench = from_one(cycles=True, max_depth=3)
    bench.epoch(edges=edges((1, 2), (2, 3), (3, 4), (4, 2)))
    assert not [row for _, row in bench.integral if row.cycle], "nothing goes on from 4, which lies at the bound"
    assert bench.epoch(edges=edges((1, 4)))["k", Reached(1, 2, -1, cycle=(2, 3, 4, 2))] == 1
    assert bench.epoch(edges=edges((1, 4), weight=-1))["k", Reached(1, 2, -1, cycle=(2, 3, 4, 2))] == -1


def test_a_long_search_for_a_cycle_needs_no_call_stack() -> None:
    assert first_cycle([0], lambda node: [node + 1] if node < 5_000 else [4_999]) == (4_999, 5_000, 4_999)


def test_a_root_beyond_its_limit_has_no_rows_and_is_named() -> None:
    bench = from_one(limit=2)
    bench.epoch(edges=edges((1, 2), (2, 3)))
    assert bench.epoch(edges=edges((3, 4))) == {
        ("k", Reached(1, 1, 0, None, 1)): -1,
        ("k", Reached(1, 2, 1, 1, 2)): -1,
        ("k", Reached(1, 3, 2, 2, 3)): -1,
    }
    assert "'f': from root 1: 1 of the nodes that it reaches lie beyond limit 2;" in bench.circuit.held()["f", 0]
    assert bench.epoch(edges=edges((1, 3))) == {
        ("k", Reached(1, 1, 0, None, 1)): 1,
        ("k", Reached(1, 2, 1, 1, 2)): 1,
        ("k", Reached(1, 3, 1, 1, 3)): 1,
        ("k", Reached(1, 4, 2, 3, 4)): 1,
    }
    assert not bench.circuit.held()


def test_too_many_nodes_are_withheld_until_the_data_is_mended() -> None:
    bench = from_one(max_nodes=3)
    bench.epoch(edges=edges((1, 2), (2, 3)))
    bench.epoch(edges=edges((2, 4)))
    assert "from root 1: it reaches 4 nodes, more than max_nodes=3;" in bench.circuit.held()["f", 0]
    bench.epoch(edges=batch([((2, 3), -1)]))
    assert set(depths_in(bench)) == {1, 2, 4}
    assert bench.states()["f-sizes"] == {1: 3}
    assert not bench.circuit.held()


def test_a_weight_that_is_not_above_zero_names_the_edge() -> None:
    bench = from_one(weight=lambda node, edge: edge - 2)
    with pytest.raises(DataError, match=r"f: edge 2 of node 1 has weight 0; a number above 0 is needed"):
        bench.epoch(edges=edges((1, 2)))


def test_nodes_of_all_kinds_are_in_one_order() -> None:
    class Pair(msgspec.Struct, frozen=True):
        a: int

    kinds = [None, 1.5, 2, "a", "b", b"a", (1, 2), (1, "x"), ("a", 0), Pair(1), Pair(2)]
    mixed = kinds.copy()
    for seed in range(20):
        random.Random(seed).shuffle(mixed)
        found = mixed.copy()
        order = []
        while found:
            first = found[0]
            for other in found[1:]:
                first = least(first, other)
            order.append(first)
            found.remove(first)
        assert order == kinds


def test_the_least_parent_is_taken_among_nodes_of_any_kind() -> None:
    bench = Bench(built(ranked()))
    bench.epoch(roots=edges(("k", 0)), edges=edges((0, "b"), (0, 7), (0, (1, 2)), ("b", "x"), (7, "x"), ((1, 2), "x")))
    assert depths_in(bench)["x"] == (2, 7)
    bench.epoch(edges=edges((7, "x"), weight=-1))
    assert depths_in(bench)["x"] == (2, "b")


def test_rows_have_a_serde() -> None:
    class Place(msgspec.Struct, frozen=True):
        name: str

    rows = [Reached(1, "x", 2, (1, 2), 0), Reached(1, 1, 0, None, 1), Reached(1, 2, -1, cycle=(2, 3, 2))]
    assert [reached_serde(Native).decode(reached_serde(Native).encode(row)) for row in rows] == rows
    assert reached_serde(Native).identify_many([Reached(1, 2, 1, 1)]) == reached_serde(Native).identify_many(
        [Reached(1.0, 2, True, 1)]
    )
    of = reached_serde(Struct(Place))
    row = Reached(Place("a"), Place("b"), 1, Place("a"), 3)
    assert of.decode(of.encode(row)) == row


# Laws


def children(node: Any, edge: Any) -> list[Any]:
    """Parallel edges, several children, some with an order."""
    return [edge, Child((edge + 1) % 5, (node + edge) % 3), Child(edge, 9 - edge)][: 1 + edge % 3]


def heavy(node: Any, edge: Any) -> int:
    return 1 + (node * 7 + edge) % 3


FUNCTIONS: dict[str, dict[str, Callable[..., Any]]] = {
    "plain": {},
    "expanded": {"expand": children},
    "weighed": {"weight": heavy},
    "both": {"expand": children, "weight": heavy},
}

numbers = st.integers(0, 4)
edge_deltas = st.lists(st.tuples(st.tuples(numbers, numbers), st.sampled_from([1, 1, 1, -1, -1, 2, -2])), max_size=10)
root_deltas = st.lists(st.tuples(st.tuples(st.sampled_from("kl"), numbers), st.sampled_from([1, 1, -1])), max_size=3)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("functions", FUNCTIONS)
@given(
    story=stories(roots=root_deltas, edges=edge_deltas),
    max_depth=st.none() | st.integers(0, 4),
    cycles=st.booleans(),
    counted=st.booleans(),
    max_nodes=st.sampled_from([None, 1_000]),
)
def test_rows_are_those_of_a_search_from_scratch(
    memory: str, functions: str, story: Any, max_depth: Any, cycles: bool, counted: bool, max_nodes: Any
) -> None:
    question = {"max_depth": max_depth, "cycles": cycles, **FUNCTIONS[functions]}
    live(
        ranked(counted=counted, max_nodes=max_nodes, **question),
        MEMORIES[memory],
        [(what, {name: batch(delta) for name, delta in each.items()}) for what, each in story],
        Follow(**question),
    )


def without_zero(value: Any) -> Any:
    """The same with None for 0, which is the least node as well."""
    if isinstance(value, Reached):
        root, node, parent = map(without_zero, (value.root, value.node, value.parent))
        order = node if value.order == value.node else value.order
        return Reached(root, node, value.depth, parent, order, tuple(map(without_zero, value.cycle)))
    if isinstance(value, tuple):
        return tuple(map(without_zero, value))
    return None if value == 0 else value


class FollowWithNone(Follow):
    """The oracle goes on with 0, and its answer is translated."""

    def __call__(self, bench: Bench, inputs: Mapping[str, Batch]) -> None:
        for name, one in inputs.items():
            rows = [tuple(0 if item is None else item for item in row) for row in one.rows]
            setattr(self, name, oracle.plus(getattr(self, name), oracle.bag(zip(rows, one.weights, strict=True))))
        answer = wanted(self.roots, self.edges, **self.question)
        assert bench.integral == Counter({without_zero(row): weight for row, weight in answer.items()})


def heavy_none(node: Any, edge: Any) -> int:
    return heavy(node or 0, edge or 0)


def ranked_children(node: Any, edge: Any) -> list[Any]:
    """Parallel edges, each with an order."""
    return [Child(edge, 3 + edge % 3), Child((edge + 1) % 5, (node + edge) % 3)][: 1 + edge % 2]


def ranked_none(node: Any, edge: Any) -> list[Any]:
    return [Child(child.node or None, child.order) for child in ranked_children(node or 0, edge or 0)]


WITH_NONE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "weighed": ({"weight": heavy_none}, {"weight": heavy}),
    "expanded": ({"expand": ranked_none}, {"expand": ranked_children}),
}


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("functions", WITH_NONE)
@settings(max_examples=share(3))
@given(
    story=stories(roots=root_deltas, edges=edge_deltas),
    max_depth=st.none() | st.integers(0, 4),
    cycles=st.booleans(),
    counted=st.booleans(),
)
def test_none_is_a_node_as_any_other(
    memory: str, functions: str, story: Any, max_depth: Any, cycles: bool, counted: bool
) -> None:
    asked, naive = ({"max_depth": max_depth, "cycles": cycles, **chosen} for chosen in WITH_NONE[functions])
    story = [
        (what, {name: batch([(without_zero(row), weight) for row, weight in delta]) for name, delta in each.items()})
        for what, each in story
    ]
    live(ranked(counted=counted, **asked), MEMORIES[memory], story, FollowWithNone(**naive))


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_root_none_is_taken_back_after_a_restart(memory: str) -> None:
    bench = Bench(built(ranked()), MEMORIES[memory])
    bench.epoch(roots=edges(("k", None)), edges=edges((None, 2)))
    bench = bench.restarted()
    bench.epoch(roots=edges(("k", None), weight=-1))
    assert not bench.integral
    assert bench.states()["f-roots"] == {}


def test_a_cache_that_does_not_look_for_none_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cache, "_stores_none", False)  # private: planted
    with pytest.raises(AssertionError):
        test_a_root_none_is_taken_back_after_a_restart("evicted")


def swaps(seed: int, nodes: int, links: int) -> Iterable[list[tuple[tuple[Any, Any], int]]]:
    """A random graph, cyclic, and then changes of it in epochs of any size."""
    rng = random.Random(seed)
    there = [(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(links)]
    yield [(link, 1) for link in there]
    for _ in range(40):
        epoch = []
        for _ in range(rng.choice((1, 1, 2, 8))):
            if rng.random() < 0.5 and there:
                epoch.append((there.pop(rng.randrange(len(there))), -1))
            else:
                there.append((rng.randrange(nodes), rng.randrange(nodes)))
                epoch.append((there[-1], 1))
        yield epoch
    yield [(link, -1) for link in there]


@pytest.mark.parametrize("functions", FUNCTIONS)
@pytest.mark.parametrize(("seed", "nodes", "links"), [(1, 12, 14), (2, 12, 24), (3, 5, 20), (4, 30, 60), (5, 30, 35)])
def test_both_ways_to_delete_agree_and_leave_nothing_behind(functions: str, seed: int, nodes: int, links: int) -> None:
    question = {"max_depth": [None, 3, 8][seed % 3], "cycles": True, **FUNCTIONS[functions]}
    if "expand" in question:
        nodes = 5
    roots = edges(("k", 0), ("k", 1), ("l", 1), ("m", 4))
    benches = [Bench(built(ranked(counted=counted, **question)), max_cells) for counted, max_cells in
               [(False, None), (True, None), (False, 5), (True, 5)]]  # fmt: skip
    follows = [Follow(**question) for _ in benches]
    for epoch in swaps(seed, nodes, links):
        inputs = {"edges": batch(epoch)} | ({"roots": roots} if roots.rows else {})
        for bench, follow in zip(benches, follows, strict=True):
            bench.step(inputs)
            ((*rows,),) = [one.rows for one in bench.circuit.outputs["out"].batches] or [[]]
            assert len(set(rows)) == len(rows), "a row comes or goes once an epoch"
            bench.end()
            follow(bench, inputs)
        roots = edges()
    for bench in benches:
        bench.epoch(roots=edges(("k", 0), ("k", 1), ("l", 1), ("m", 4), weight=-1))
        assert not bench.integral
        assert not any(bench.states().values())
        assert not [state.cells for state in bench.circuit.states.values() if state.cells]
        assert not list(bench.store.scan(b""))


@pytest.mark.parametrize("seed", range(8))
def test_counts_of_supports_are_those_of_the_links(seed: int) -> None:
    bench = Bench(built(ranked(counted=True)))
    there: Counter[Any] = Counter()
    for epoch in swaps(seed, 10, 20):
        bench.epoch(edges=batch(epoch), roots=edges(("k", 0)))
        for link, weight in epoch:
            there[link] += weight
        depths = distances(0, links_of([link for link, weight in there.items() if weight > 0]), None)
        found = {node: cell[3] for (node, _), cell in bench.states()["f"].items()}
        supports = Counter(
            child for (node, child), n in there.items() if n > 0 and depths.get(node, -9) + 1 == depths.get(child)
        )
        assert found == {node: supports[node] for node in depths}


def test_a_new_link_to_a_node_that_is_lost_supports_it_once() -> None:
    bench = from_one(counted=True)
    bench.epoch(edges=edges((1, 2), (2, 3), (3, 4)))
    bench.epoch(edges=batch([((3, 4), -1), ((1, 4), 1)]))
    assert bench.states()["f"][4, 1] == (1, 1, None, 1)


# Shapes


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.slow
def test_a_chain_of_5000_needs_no_call_stack(counted: bool) -> None:
    bench = Bench(built(ranked(counted=counted, cycles=True)))
    bench.epoch(roots=edges(("k", 0)), edges=edges(*((n, n + 1) for n in range(5_000))))
    assert max(row.depth for _, row in bench.integral) == 5_000
    bench.epoch(edges=edges((2_500, 2_501), weight=-1))
    assert len(bench.integral) == 2_501
    bench.epoch(edges=edges((2_500, 2_501), (5_000, 0)))
    assert len(bench.integral) == 5_002, "with the row of the cycle"
    bench = bench.restarted()
    bench.epoch(roots=edges(("k", 0), weight=-1))
    assert not bench.integral


@pytest.mark.slow
def test_a_wide_tree_of_50000_moves_a_child_in_a_few_steps() -> None:
    bench = from_one()
    bench.epoch(edges=edges(*((1, n) for n in range(2, 50_002)), (2, 60_000)))
    delta = bench.epoch(edges=batch([((2, 60_000), -1), ((3, 60_000), 1)]))
    assert len(delta) == 2
    assert len(bench.epoch(edges=edges((1, 50_001), weight=-1))) == 1
