"""Relation: every method, by example, and against the oracle under any records in any epochs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy import TopologyTestDriver
from tests import oracle
from tests.topology.programs import S, rows_of, shown

Rel = eddy.Relation[Any, Any]


def vowel(key: str, value: str) -> bool:
    return key in "ae"


def swap(key: str, value: str) -> tuple[str, str]:
    return value, key


def letters(key: str, value: str) -> list[tuple[str, str]]:
    return [(key, "x")] * int(value)


def pair(key: str, one: str, other: str) -> tuple[str, str]:
    return one, key + other


METHODS: dict[str, tuple[Any, Any]] = {
    "filter": (lambda a, b: a.filter(vowel), lambda a, b: oracle.selected(a, vowel)),
    "filter_not": (
        lambda a, b: a.filter_not(vowel),
        lambda a, b: oracle.selected(a, lambda k, v: not vowel(k, v)),
    ),
    "map": (lambda a, b: a.map(swap), lambda a, b: oracle.mapped(a, swap)),
    "map_values": (
        lambda a, b: a.map_values(lambda v: v > "1"),
        lambda a, b: oracle.mapped(a, lambda k, v: (k, v > "1")),
    ),
    "flat_map": (lambda a, b: a.flat_map(letters), lambda a, b: oracle.flat_mapped(a, letters)),
    "select_key": (
        lambda a, b: a.select_key(lambda k, v: v),
        lambda a, b: oracle.mapped(a, lambda k, v: (v, v)),
    ),
    "union": (lambda a, b: a.union(b, a), lambda a, b: oracle.plus(a, b, a)),
    "distinct": (
        lambda a, b: a.flat_map(letters).distinct("d"),
        lambda a, b: oracle.distinct(oracle.flat_mapped(a, letters)),
    ),
    "minus": (
        lambda a, b: a.flat_map(letters).minus(b.flat_map(letters), "m"),
        lambda a, b: oracle.minus(oracle.flat_mapped(a, letters), oracle.flat_mapped(b, letters)),
    ),
    "join": (lambda a, b: a.join(b, pair), lambda a, b: oracle.joined(a, b, pair)),
    "join after re-keying": (
        lambda a, b: a.map(swap, key=S, value=S).join(b.map(swap, key=S, value=S), pair, "j"),
        lambda a, b: oracle.joined(oracle.mapped(a, swap), oracle.mapped(b, swap), pair),
    ),
    "join with itself": (lambda a, b: a.join(a, pair), lambda a, b: oracle.joined(a, a, pair)),
}


def program(name: str) -> eddy.Topology:
    topology = eddy.Topology("app")
    a, b = (topology.table(topic, key=S, value=S).to_relation() for topic in "ab")
    rows_of(METHODS[name][0](a, b))
    return topology


EXAMPLES: dict[str, dict[Any, int]] = {
    "filter": {("a", "1"): 1},
    "filter_not": {("c", "2"): 1},
    "map": {("1", "a"): 1, ("2", "c"): 1},
    "map_values": {("a", False): 1, ("c", True): 1},
    "flat_map": {("a", "x"): 1, ("c", "x"): 2},
    "select_key": {("1", "1"): 1, ("2", "2"): 1},
    "union": {("a", "1"): 2, ("c", "2"): 2, ("a", "3"): 1},
    "distinct": {("a", "x"): 1, ("c", "x"): 1},
    "minus": {("c", "x"): 2},
    "join": {("1", "a3"): 1},
    "join after re-keying": {},
    "join with itself": {("1", "a1"): 1, ("2", "c2"): 1},
}


@pytest.mark.parametrize("name", METHODS)
def test_by_example(name: str) -> None:
    with TopologyTestDriver(program(name)) as driver:
        driver.input("a").pipe_all([("a", "1"), ("c", "2")])
        driver.input("b").pipe("a", "3")
        assert shown(driver) == EXAMPLES[name]


records = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("ace"), st.none() | st.sampled_from("0123")), max_size=8
)


@pytest.mark.parametrize("name", METHODS)
@given(story=records, partitions=st.sampled_from([1, 3]))
def test_a_relation_is_what_the_oracle_says_after_every_record(name: str, story: Any, partitions: int) -> None:
    tables: dict[str, dict[str, str]] = {"a": {}, "b": {}}
    with TopologyTestDriver(program(name), partitions=partitions) as driver:
        for topic, key, value in story:
            driver.input(topic).pipe(key, value)
            tables[topic] = oracle.latest([(key, value)], tables[topic])
        wanted = METHODS[name][1](oracle.rows_of(tables["a"]), oracle.rows_of(tables["b"]))
        assert shown(driver) == wanted


def test_group_by_counts_by_another_key() -> None:
    topology = eddy.Topology("app")
    relation = topology.table("in", key=S, value=S).to_relation()
    relation.group_by(lambda key, value: (value, key), key=S).count("sizes")
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe_all([("a", "x"), ("b", "x"), ("c", "y")])
        driver.input("in").pipe("a", "y")
        assert driver.store("sizes").all() == {"x": 1, "y": 2}


def test_a_relation_can_be_joined_with_a_table() -> None:
    topology = eddy.Topology("app")
    orders, prices = topology.table("orders", key=S, value=S), topology.table("prices", key=S, value=S)
    by_item = orders.to_relation().map(lambda order, item: (item, order), key=S, value=S)
    rows_of(by_item.join(prices, lambda item, order, price: (order, price), "priced"))
    with TopologyTestDriver(topology) as driver:
        driver.input("orders").pipe_all([("o1", "tea"), ("o2", "tea"), ("o3", "rum")])
        driver.input("prices").pipe("tea", "5")
        driver.input("prices").pipe("tea", "6")
        assert shown(driver) == {("o1", "6"): 1, ("o2", "6"): 1}
