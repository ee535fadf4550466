"""Cycles are held: what they reach has no rows, all else is exact, and what is mended is that from scratch."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import eddy
from eddy import TopologyTestDriver
from eddy.operators.batch import Batch
from tests import oracle
from tests.operators.bench import MEMORIES, Bench, live, run_to_rest, stories
from tests.operators.test_recursion import OPS, Cluster, Tables, as_facts, maker, program, seed_records

N = eddy.Native
FINITE = ("join", "filter, join", "union of a join and a flat_map", "two joins", "map, join: an exchange inside op")
"""Those of which no row outgrows its cycle."""
any_edges = st.lists(
    st.tuples(st.sampled_from("stuvw"), st.none() | st.tuples(st.integers(0, 4), st.integers(0, 4))), max_size=4
)
MOVED_BELOW_ITSELF = [
    ("commit", {"seeds": [("p", (0, 0))], "edges": [("s", (0, 1)), ("t", (1, 2))]}),
    ("commit", {"seeds": [], "edges": [("s", (2, 1))]}),
]


CUT = ("commit", {"seeds": [], "edges": [("s", None)]})
"""The edge goes that leads to the cycle."""


def answer(tables: Tables, name: str) -> tuple[Any, bool]:
    """X from scratch without what is held, and whether something is."""
    seeds, edges = (oracle.bag((row, 1) for row in table.values()) for table in (tables.seeds, tables.edges))
    rows, reached = oracle.held_recursion(seeds, lambda x: OPS[name].naive(x, edges))
    return rows, bool(reached)


@pytest.mark.parametrize("memory", MEMORIES)
@given(name=st.sampled_from(FINITE), story=stories(seeds=seed_records, edges=any_edges))
@example(name="join", story=MOVED_BELOW_ITSELF)
def test_after_each_epoch_x_is_that_from_scratch(memory: str, name: str, story: Any) -> None:
    tables = Tables()

    def check(bench: Bench, inputs: dict[str, Batch]) -> None:
        tables.take(inputs)
        rows, holds = answer(tables, name)
        assert bench.states()["rows"] == rows
        assert bool(bench.circuit.held()) == holds

    live(maker(program(OPS[name])), MEMORIES[memory], as_facts(story), check, wired=False)


@given(name=st.sampled_from(FINITE), budget=st.integers(1, 4), story=stories(seeds=seed_records, edges=any_edges))
@example(name="join", budget=1, story=MOVED_BELOW_ITSELF)
def test_it_is_so_where_rows_leave_through_the_gate_and_come_back(name: str, budget: int, story: Any) -> None:
    bench, tables = Bench(maker(program(OPS[name]), budget)), Tables()
    for _, inputs in as_facts(story):
        tables.take(inputs)
        run_to_rest(bench, **inputs)
        assert bench.states()["rows"] == answer(tables, name)[0]


@given(
    name=st.sampled_from(FINITE),
    workers=st.integers(2, 3),
    each=st.integers(1, 2),
    story=stories(seeds=seed_records, edges=any_edges),
    turns=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=12),
)
@example(name=FINITE[-1], workers=2, each=2, story=MOVED_BELOW_ITSELF, turns=[])
def test_several_workers_hold_the_same_in_whichever_order_rows_cross(
    name: str, workers: int, each: int, story: Any, turns: list[tuple[int, int]]
) -> None:
    cluster, tables = Cluster(program(OPS[name]), workers, each), Tables()
    for what, inputs in as_facts(story):
        tables.take(inputs)
        for topic, batch in inputs.items():
            for record in batch.rows:
                cluster.give(topic, record)
        for index, room in turns:
            if any(cluster.inboxes[index % workers].values()):
                cluster.work(index % workers, room)
        if what == "commit":
            cluster.rest()
            rows, holds = answer(tables, name)
            assert cluster.rows() == rows
            assert any(bench.circuit.held() for bench in cluster.workers) == holds
    cluster.rest()
    assert cluster.rows() == answer(tables, name)[0]


def ever_new() -> eddy.Topology:
    """Rows (node, steps): around a cycle no row comes back."""
    topology = eddy.Topology("app")
    seeds = topology.table("seeds", N, N).to_relation().map(lambda id, row: row, key=N, value=N)
    edges = topology.table("edges", N, N).to_relation().map(lambda id, edge: edge, key=N, value=N)
    x = seeds.recursively(lambda rows: rows.join(edges, lambda _, steps, to: (to, steps + 1), "j"), name="x", limit=8)
    x.map(lambda node, steps: ((node, steps), 1), key=N, value=N).group_by_key().count("rows")
    return topology


def counted_steps(tables: Tables) -> oracle.Bag | None:
    """X of `ever_new` from scratch, None where it has no end."""
    seeds, edges = (oracle.bag((row, 1) for row in table.values()) for table in (tables.seeds, tables.edges))
    try:
        return oracle.recursion(seeds, lambda x: oracle.joined(x, edges, lambda _, steps, to: (to, steps + 1)))
    except RecursionError:
        return None


@pytest.mark.parametrize("memory", MEMORIES)
@given(story=stories(seeds=seed_records, edges=any_edges))
@example(story=[*MOVED_BELOW_ITSELF, ("restart", {"seeds": [("q", (3, 0))], "edges": []})])
@example(story=[("commit", {"seeds": [("p", (1, 0))], "edges": [("s", (1, 2)), ("t", (2, 2))]}), CUT])
def test_nothing_leaves_while_rows_are_ever_new(memory: str, story: Any) -> None:
    tables = Tables()

    def check(bench: Bench, inputs: dict[str, Batch]) -> None:
        tables.take(inputs)
        rows = counted_steps(tables)
        assert bench.states()["rows"] == (rows or {})
        told = list(bench.circuit.held().values())
        assert told == [] if rows is not None else "returns to its key with ever new rows" in told[0]

    live(maker(ever_new()), MEMORIES[memory], as_facts(story), check, wired=False)


def test_access_ends_when_a_folder_moves_below_one_of_its_own() -> None:
    topology = eddy.Topology("access")
    folders = topology.table("folders", N, N)  # folder -> the folder that it lies in
    inside = folders.to_relation().map(lambda folder, outer: (outer, folder))
    grants = topology.table("grants", N, N).to_relation()
    grants.recursively(
        lambda rows: rows.join(inside, lambda _, user, folder: (folder, user), "down"), "access"
    ).group_by_key().count("users")
    with TopologyTestDriver(topology) as driver:
        driver.input("folders").pipe_all([("a", "root"), ("b", "a"), ("c", "b")])
        driver.input("grants").pipe("root", "ada")
        assert driver.store("users").all() == dict.fromkeys(["root", "a", "b", "c"], 1)
        driver.input("folders").pipe("a", "c")
        assert driver.store("users").all() == {"root": 1}
        driver.input("folders").pipe("a", "root")
        assert driver.store("users").all() == dict.fromkeys(["root", "a", "b", "c"], 1)
