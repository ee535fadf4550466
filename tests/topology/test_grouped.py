"""KGroupedStream and KGroupedTable: every aggregate, by example."""

from collections.abc import Callable
from typing import Any

import pytest

import eddy
from eddy import TopologyTestDriver
from eddy.errors import TopologyError
from tests.topology.programs import S

N = eddy.Int64


def table_of(build: Callable[[eddy.Topology], object], name: str, *steps: tuple[str, list[Any]]) -> dict[Any, Any]:
    topology = eddy.Topology("app")
    build(topology)
    with TopologyTestDriver(topology) as driver:
        for topic, records in steps:
            driver.input(topic).pipe_all(records)
        return dict(driver.store(name).all())


def test_reduce_of_a_stream_begins_with_the_first_value() -> None:
    def build(t: eddy.Topology) -> object:
        return t.stream("in", key=S, value=S).group_by_key().reduce(lambda old, new: old + new, "joined")

    assert table_of(build, "joined", ("in", [("a", "1"), ("b", "2")]), ("in", [("a", "3")])) == {"a": "13", "b": "2"}


def test_aggregate_of_a_stream_begins_with_the_initializer() -> None:
    def build(t: eddy.Topology) -> object:
        grouped = t.stream("in", key=S, value=S).group_by_key()
        return grouped.aggregate(list, lambda key, value, seen: [*seen, value], "seen", value=eddy.Json())

    assert table_of(build, "seen", ("in", [("a", "1"), ("a", "2")]), ("in", [("a", "3")])) == {"a": ["1", "2", "3"]}


def test_count_of_a_stream() -> None:
    def build(t: eddy.Topology) -> object:
        return t.stream("in", key=S, value=S).group_by_key().count("counts")

    assert table_of(build, "counts", ("in", [("a", "1"), ("a", "1")]), ("in", [("b", "1")])) == {"a": 2, "b": 1}


def by_team(t: eddy.Topology) -> eddy.KGroupedTable[str, int]:
    """A table of person -> "team points", grouped by team."""
    people = t.table("in", key=S, value=S)
    return people.group_by(lambda _, value: (value.split()[0], int(value.split()[1])), key=S, value=N)


MOVES: list[tuple[str, list[Any]]] = [
    ("in", [("ann", "red 1"), ("bob", "red 2"), ("cid", "blue 4")]),
    ("in", [("bob", "blue 3")]),
    ("in", [("cid", None)]),
]


def test_count_of_a_table_follows_moves_and_deletes() -> None:
    assert table_of(lambda t: by_team(t).count("sizes"), "sizes", *MOVES) == {"red": 1, "blue": 1}


def test_reduce_of_a_table_takes_values_back() -> None:
    def build(t: eddy.Topology) -> object:
        return by_team(t).reduce(lambda total, points: total + points, lambda total, points: total - points, "points")

    assert table_of(build, "points", *MOVES) == {"red": 1, "blue": 3}


def test_aggregate_of_a_table_takes_rows_back() -> None:
    def build(t: eddy.Topology) -> object:
        return by_team(t).aggregate(
            lambda: 100, lambda key, points, total: total + points, lambda key, points, total: total - points,
            "points", value=N,
        )  # fmt: skip

    assert table_of(build, "points", *MOVES) == {"red": 101, "blue": 103}


def test_a_group_that_empties_and_fills_again_begins_anew() -> None:
    def build(t: eddy.Topology) -> object:
        return by_team(t).reduce(lambda total, points: total + points, lambda total, points: total - points, "points")

    steps: list[Any] = [("in", [("ann", "red 1")]), ("in", [("ann", None)]), ("in", [("ann", "red 7")])]
    assert table_of(build, "points", *steps[:2]) == {}
    assert table_of(build, "points", *steps) == {"red": 7}


def test_reduce_is_right_when_both_sides_of_a_join_come_in_one_epoch() -> None:
    """The delta says +9 +9 -9; a reducer has no zero to begin with, so that -9 must not come first."""
    topology = eddy.Topology("app")
    a, b = topology.table("a", key=S, value=N), topology.table("b", key=S, value=N)
    products = a.to_relation().join(b, lambda key, x, y: ("all", x * y), key=S, value=N)
    products.group_by_key().reduce(lambda total, n: total + n, lambda total, n: total - n, "sum")
    with TopologyTestDriver(topology) as driver:
        producer = driver.log.producer(None)
        producer.begin()
        for topic in ("a", "b"):
            producer.send(topic, 0, [b"k"], [N.encode(3)], [0])
        producer.commit({}, None)
        driver.run()
        assert driver.store("sum").all() == {"all": 9}


def test_an_aggregate_of_a_table_needs_a_subtractor() -> None:
    grouped: Any = by_team(eddy.Topology("app"))
    with pytest.raises(
        eddy.TopologyError, match=r"reduce 'x': rows of a table are removed, and None cannot retract them"
    ):
        grouped.reduce(lambda total, n: total + n, None, "x")
    with pytest.raises(
        eddy.TopologyError, match=r"aggregate 'x': rows of a table are removed, and 7 cannot retract them"
    ):
        grouped.aggregate(int, lambda key, n, total: total + n, 7, "x")


class TestCogroup:
    def test_what_is_no_grouped_stream_is_named(self) -> None:
        topology = eddy.Topology("sums")
        grouped = topology.stream("a").group_by_key()
        with pytest.raises(TopologyError, match=r"cogroup: KStream is not a KGroupedStream.*group_by_key\(\)"):
            grouped.cogroup(lambda key, value, total: total).cogroup(topology.stream("b"), lambda key, value, total: 0)  # type: ignore[arg-type]
        with pytest.raises(TopologyError, match=r"cogroup: aggregator=.* is called with \(key, value, aggregate\)"):
            grouped.cogroup(lambda value: value)  # type: ignore[misc]

    def test_records_without_a_value_are_in_no_group_and_none_deletes_one(self) -> None:
        topology = eddy.Topology("sums")
        one = topology.stream("one", key=eddy.String, value=eddy.Int64).group_by_key()
        two = topology.stream("two", key=eddy.String, value=eddy.String).group_by_key()
        both = one.cogroup(lambda key, value, total: total + value)
        both.cogroup(two, lambda key, value, total: None if value == "end" else total + len(value)).aggregate(
            int, "sums", eddy.Int64
        )
        with eddy.TopologyTestDriver(topology) as driver:
            driver.input("one").pipe_all([("a", 5), ("b", None), ("c", 1)])
            driver.input("two").pipe_all([("a", "xyz"), ("c", "end")])
            assert driver.store("sums").all() == {"a": 8}
            driver.input("two").pipe("c", "z")
            assert driver.store("sums").all() == {"a": 8, "c": 1}
