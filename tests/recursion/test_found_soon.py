"""What has no finite answer is found soon on small data, and what meets a key again for good reason is not."""

import itertools
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy import LoopLimitError, TopologyTestDriver
from eddy.operators.waves.body import Explored
from eddy.operators.waves.survey import survey

N, S = eddy.Native, eddy.String
SOON_S = 5.0
"""Found within a second on a quiet machine; by the old bounds none of these is found within minutes."""


@contextmanager
def found_soon(match: str) -> Iterator[None]:
    began = time.process_time()
    with pytest.raises(LoopLimitError, match=match):
        yield
    assert time.process_time() - began < SOON_S


class Line(msgspec.Struct, frozen=True):
    assembly: str
    part: str


def bill() -> eddy.Topology:
    topology = eddy.Topology("bill")
    lines = topology.table("lines", key=eddy.Struct(Line), value=eddy.Int64)
    uses = lines.to_relation().map(lambda line, number: (line.assembly, (line.part, number)))
    needs = lines.to_relation().map(lambda line, number: (line.part, (line.assembly, number)))
    needs.recursively(
        lambda rows: rows.join(uses, lambda part, top, use: (use[0], (top[0], top[1] * use[1])), "down"), "explosion"
    ).group_by(lambda part, top: (f"{top[0]}/{part}", top[1]), key=S).reduce(
        lambda total, number: total + number, lambda total, number: total - number, "needs"
    )
    return topology


def test_numbers_that_a_cycle_multiplies() -> None:
    lines = [("bike", "wheel", 2), ("wheel", "spoke", 32), ("bike", "spare", 1), ("spare", "spoke", 3)]
    with TopologyTestDriver(bill()) as driver:
        driver.input("lines").pipe_all([(Line(a, p), n) for a, p, n in lines])
        began = time.process_time()
        driver.input("lines").pipe(Line("spoke", "bike"), 1)
        assert time.process_time() - began < SOON_S
        (why,) = driver.held().values()
        assert re.search("the path bike → (spare|wheel) → spoke → bike returns to its key with ever new rows", why)
        assert not driver.store("needs").all()
        driver.input("lines").pipe(Line("tube", "rubber"), 5)
        assert not driver.store("needs").all()
        driver.input("lines").pipe(Line("spoke", "bike"), None)
        assert driver.store("needs").all()["tube/rubber"] == 5
        assert driver.store("needs").all()["bike/spoke"] == 67


def nested(op: Any, **config: Any) -> TopologyTestDriver:
    topology = eddy.Topology("nested")
    topology.table("seeds", N, N).to_relation().recursively(op, "x").group_by_key().count("rows")
    return TopologyTestDriver(topology, eddy.Config(**config))


@contextmanager
def held_soon(driver: TopologyTestDriver, match: str) -> Iterator[None]:
    """What is done inside is held, the worker goes on, and it is mended when the first seed goes."""
    began = time.process_time()
    yield
    assert time.process_time() - began < SOON_S
    (why,) = driver.worker.circuit.held().values()
    assert re.search(match, why)
    assert not driver.store("rows").all()


def test_weights_that_a_join_with_itself_squares() -> None:
    op = lambda x: x.join(x, lambda key, a, b: (key, a), "squared", keeps_key=True)  # noqa: E731
    with nested(op) as driver:
        with held_soon(driver, "its weight is too large, e.g. by row"):
            driver.input("seeds").pipe(1, 1)
        driver.input("seeds").pipe(1, None)
        assert not driver.worker.circuit.held()


def test_rows_that_a_join_with_itself_squares_within_one_iteration() -> None:
    op = lambda x: x.join(x, lambda key, a, b: (key, a * 100 + b), "pairs", keeps_key=True).distinct("once")  # noqa: E731
    with (
        nested(op, max_nested_rows=100_000) as driver,
        held_soon(driver, r"join 'pairs': [\d,]+ matches in iteration \d"),
    ):
        driver.input("seeds").pipe_all([(0, n) for n in range(1)])
        driver.input("seeds").pipe(0, 7)


def test_the_pairs_of_many_rows_with_one_another() -> None:
    topology = eddy.Topology("many")
    rows = topology.table("rows", N, N).to_relation().map(lambda id, value: (0, value))
    rows.recursively(
        lambda x: x.join(x, lambda key, a, b: (key, (a, b)), "pairs", keeps_key=True).distinct("once"), "x"
    ).group_by_key().count("counted")
    config = eddy.Config(max_nested_rows=10_000)
    with TopologyTestDriver(topology, config) as driver:
        driver.input("rows").pipe_all([(n, n) for n in range(300)])
        assert re.search(r"join 'pairs': 10,\d+ matches in iteration", driver.worker.circuit.held()["x", 0])
        driver.input("rows").pipe_all([(n, None) for n in range(1, 300)])
        assert re.search("", driver.worker.circuit.held().get(("x", 0), ""))


def test_values_that_grow_iteration_by_iteration() -> None:
    op = lambda x: x.map_values(lambda n: n * 3).filter(lambda k, n: n, "all").distinct("once")  # noqa: E731
    with nested(op) as driver, held_soon(driver, "after 40 iterations it can no longer be encoded"):
        driver.input("seeds").pipe(1, 1)


def chased(limit: int = 10_000) -> eddy.Topology:
    topology = eddy.Topology("chased")
    edges = topology.table("edges", N, N)
    starts = topology.table("starts", N, N).to_relation()
    starts.recursively(lambda x: x.join(edges, lambda node, v, to: (to, v), "hop"), "x", limit=limit).group_by_key(
    ).count("rows")  # fmt: skip
    return topology


@given(tail=st.integers(0, 80), cycle=st.integers(1, 40), starts=st.integers(1, 3))
def test_a_cycle_is_named_row_by_row(tail: int, cycle: int, starts: int) -> None:
    edges = [(n, n + 1) for n in range(tail + cycle - 1)] + [(tail + cycle - 1, tail)]
    with TopologyTestDriver(chased()) as driver:
        driver.input("edges").pipe_all(edges)
        driver.input("starts").pipe_all([(n, n) for n in range(starts)])
        (message,) = driver.held().values()
        way = message.partition("the path ")[2].partition(" came around")[0].split(" → ")
        assert way[0] == way[-1] == str(tail)
        assert (len(way) - 1 == cycle) if "…" not in way else cycle > 11


class TestNotAccused:
    def test_a_countdown(self) -> None:
        topology = eddy.Topology("countdown")
        numbers = topology.table("numbers", S, eddy.Int64).to_relation()
        rows = numbers.recursively(lambda x: x.filter(lambda k, n: n > 0).map_values(lambda n: n - 1), "down")
        rows.group_by_key().count("rows")
        with TopologyTestDriver(topology) as driver:
            driver.input("numbers").pipe("a", 9_000)
            assert driver.store("rows").all() == {"a": 9_001}

    def test_a_walk_of_many_steps_around_a_cycle(self) -> None:
        topology = eddy.Topology("walk")
        edges = topology.table("edges", N, N)
        starts = topology.table("starts", N, N).to_relation().map(lambda node, _: (node, (node,)))
        starts.recursively(
            lambda x: x.filter(lambda node, way: len(way) < 700).join(
                edges, lambda n, way, to: (to, (*way, to)), "hop"
            ),
            "x",
        ).group_by_key().count("rows")
        with TopologyTestDriver(topology) as driver:
            driver.input("edges").pipe_all([(0, 1), (1, 2), (2, 0)])
            driver.input("starts").pipe(0, 0)
            assert sum(driver.store("rows").all().values()) == 700

    def test_a_chain_as_deep_as_the_limit_allows(self) -> None:
        with TopologyTestDriver(chased()) as driver:
            driver.input("edges").pipe_all([(n, n + 1) for n in range(9_000)])
            driver.input("starts").pipe(0, 0)
            assert len(driver.store("rows").all()) == 9_001

    def test_many_ways_of_different_lengths_to_the_same_rows(self) -> None:
        topology = eddy.Topology("ways")
        edges = topology.table("edges", N, N).to_relation().map(lambda id, edge: edge)
        starts = topology.table("starts", N, N).to_relation()
        starts.recursively(lambda x: x.join(edges, lambda n, v, to: (to, v), "hop"), "x", max_depth=None).group_by_key(
        ).count("rows")  # fmt: skip
        with TopologyTestDriver(topology) as driver:
            ladder = [(n, n + 1) for n in range(90)] + [(0, 40), (10, 80)]
            driver.input("edges").pipe_all(list(enumerate(ladder)))
            driver.input("starts").pipe(0, 0)
            assert driver.store("rows").get(90) == 3


graphs = st.dictionaries(st.integers(0, 7), st.lists(st.integers(0, 7), max_size=3), max_size=8)


@given(graph=graphs, starts=st.lists(st.integers(0, 7), max_size=3))
def test_a_cycle_is_found_if_and_only_if_one_is_reached(graph: dict[int, list[int]], starts: list[int]) -> None:
    def look(row: Any) -> list[Any]:
        return [(to, None) for to in graph.get(row[0], [])]

    reached, todo = set(), list(starts)
    while todo:
        if (node := todo.pop()) not in reached:
            reached.add(node)
            todo += graph.get(node, [])
    left = {node: [to for to in graph.get(node, []) if to in reached] for node in reached}
    while ends := [node for node, nexts in left.items() if not any(to in left for to in nexts)]:
        for node in ends:
            del left[node]
    found = survey(lambda row: Explored(look(row), [], []), [(node, None) for node in starts])
    assert bool(found.closings) == bool(found.cyclic) == bool(left)
    path = found.closing_path
    assert path[:1] == path[-1:]
    assert all(to in look(row) for row, to in itertools.pairwise(path))
