"""KTable: every method, by example, on the test driver."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy import TopologyTestDriver
from tests import oracle
from tests.topology.programs import S, rows_of, shown

records = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.sampled_from("123")), max_size=6)


def changes(build: Any, story: list[tuple[str, str | None]]) -> list[tuple[Any, Any]]:
    """What `build(table)` writes while the records of `story` come one by one."""
    topology = eddy.Topology("app")
    build(topology.table("in", key=S, value=S)).to("out")
    with TopologyTestDriver(topology) as driver:
        for key, value in story:
            driver.input("in").pipe(key, value)
        return driver.output("out").read_key_values()


def test_a_table_writes_its_changes_and_a_tombstone_for_what_goes() -> None:
    story = [("a", "1"), ("a", "2"), ("a", "2"), ("a", None), ("a", None)]
    assert changes(lambda t: t, story) == [("a", "1"), ("a", "2"), ("a", None)]


def test_filter_deletes_a_key_whose_new_value_does_not_pass() -> None:
    story = [("a", "1"), ("a", "2"), ("b", "2"), ("a", "3")]
    assert changes(lambda t: t.filter(lambda key, value: value != "2"), story) == [("a", "1"), ("a", None), ("a", "3")]


def test_filter_not_is_the_opposite() -> None:
    assert changes(lambda t: t.filter_not(lambda key, value: value == "2"), [("a", "1"), ("a", "2")]) == [
        ("a", "1"),
        ("a", None),
    ]


def test_map_values_follows_the_value() -> None:
    story = [("a", "x"), ("a", "y"), ("a", None)]
    assert changes(lambda t: t.map_values(str.upper, value=S), story) == [("a", "X"), ("a", "Y"), ("a", None)]


def test_to_stream_shows_changes_as_records() -> None:
    story = [("a", "1"), ("a", None)]
    assert changes(lambda t: t.to_stream().map(lambda key, value: (key, f"now {value}"), key=S), story) == [
        ("a", "now 1"),
        ("a", "now None"),
    ]


def test_to_relation_has_the_rows_of_the_table() -> None:
    topology = eddy.Topology("app")
    rows_of(topology.table("in", key=S, value=S).to_relation())
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe_all([("a", "1"), ("b", "1")])
        driver.input("in").pipe("a", "2")
        assert shown(driver) == {("a", "2"): 1, ("b", "1"): 1}


def test_group_by_counts_rows_where_they_are_now() -> None:
    topology = eddy.Topology("app")
    topology.table("in", key=S, value=S).group_by(lambda key, value: (value, key), key=S).count("sizes")
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe_all([("a", "x"), ("b", "x"), ("c", "y")])
        driver.input("in").pipe("c", "x")
        assert driver.store("sizes").all() == {"x": 3}


def test_a_table_is_read_by_its_topic_or_by_its_name() -> None:
    topology = eddy.Topology("app")
    topology.table("in", key=S, value=S, name="latest")
    topology.table("other", key=S, value=S)
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe_all([("a", "1"), ("b", "2")])
        store = driver.store("latest")
        assert (store.get("a"), store.get("x"), len(store), sorted(store)) == ("1", None, 2, ["a", "b"])
        assert len(driver.store("other")) == 0


def both(kind: str) -> eddy.Topology:
    topology = eddy.Topology("app")
    left, right = topology.table("left", key=S, value=S), topology.table("right", key=S, value=S)
    join: Any = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[kind]
    join(right, lambda one, other: f"{one}+{other}", value=S).to("out")
    return topology


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("inner", [("a", "1+2"), ("a", "1+3"), ("a", None)]),
        ("left", [("a", "1+None"), ("a", "1+2"), ("a", "1+3"), ("a", None)]),
        ("outer", [("a", "1+None"), ("a", "1+2"), ("a", "1+3"), ("a", "None+3"), ("a", None)]),
    ],
)
def test_joins_of_tables_follow_both_sides(kind: str, expected: list[Any]) -> None:
    with TopologyTestDriver(both(kind)) as driver:
        steps = [("left", "1"), ("right", "2"), ("right", "3"), ("left", None), ("right", None)]
        for topic, value in steps:
            driver.input(topic).pipe("a", value)
        assert driver.output("out").read_key_values() == expected


@pytest.mark.parametrize("kind", ["inner", "left", "outer"])
@given(left=records, right=records)
def test_a_joined_table_is_the_join_of_the_tables(kind: str, left: Any, right: Any) -> None:
    with TopologyTestDriver(both(kind)) as driver:
        driver.input("left").pipe_all(left)
        driver.input("right").pipe_all(right)
        wanted = oracle.table_joined(oracle.latest(left), oracle.latest(right), lambda x, y: f"{x}+{y}", kind)
        assert driver.output("out").read_map() == wanted


def test_a_table_can_be_joined_with_what_was_made_of_it() -> None:
    topology = eddy.Topology("app")
    table = topology.table("in", key=S, value=S)
    table.join(table.map_values(str.upper, "upper", value=S), lambda one, other: one + other, value=S).to("out")
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe("a", "x")
        driver.input("in").pipe("a", "y")
        assert driver.output("out").read_key_values() == [("a", "xX"), ("a", "yY")]
