"""Values that are equal but of other forms, such as 1, 1.0 and true in JSON: rows are retracted as inserted."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import eddy
from tests.seeds import of_today

S, J = eddy.String, eddy.Json()
FORMS: list[Any] = [0, 0.0, -0.0, False, 1, 1.0, True, [1, 0], [True, -0.0], "1"]

Build = Callable[[eddy.Topology], Any]
Rows = dict[str, dict[str, Any]]


def source(topology: eddy.Topology, topic: str = "one") -> Any:
    return topology.table(topic, key=S, value=J)


def latest(topology: eddy.Topology) -> Any:
    return topology.stream("one", key=S, value=J).to_table("latest")


def moved(topology: eddy.Topology) -> Any:
    rows = source(topology).to_relation().map(lambda key, value: (f"{key}!", str(value)), key=S, value=S)
    return rows.to_table("moved")


def last(topology: eddy.Topology) -> Any:
    """A fold of facts: its value is another one of the same form after each record."""
    return topology.stream("one", key=S, value=J).group_by_key().reduce(lambda _, new: new, "last")


def foreign(topology: eddy.Topology) -> Any:
    left = source(topology).foreign_key_left_join(source(topology, "two"), lambda value: "a", pair, name="foreign")
    return left.map_values(repr)


def inner(topology: eddy.Topology) -> Any:
    return source(topology).join(source(topology, "two"), pair, name="both")


def outer(topology: eddy.Topology) -> Any:
    return source(topology).outer_join(source(topology, "two"), pair, name="either")


def pair(one: Any, two: Any) -> list[Any]:
    return [one, two]


def joined(kind: str) -> Callable[[Rows], list[Any]]:
    """Return the values of a join by key of the tables one and two."""

    def values(rows: Rows) -> list[Any]:
        one, two = rows["one"], rows["two"]
        keys = one.keys() & two.keys() if kind == "inner" else one.keys() | two.keys()
        return [[one.get(key), two.get(key)] for key in keys]

    return values


def own(rows: Rows) -> list[Any]:
    return list(rows["one"].values())


CASES: dict[str, tuple[Build, Callable[[Rows], list[Any]]]] = {
    "source": (source, own),
    "latest": (latest, own),
    "moved": (moved, lambda rows: list(map(str, own(rows)))),
    "foreign": (foreign, lambda rows: [repr([value, rows["two"].get("a")]) for value in own(rows)]),
    "inner": (inner, joined("inner")),
    "outer": (outer, joined("outer")),
}


def counting(build: Build) -> eddy.Topology:
    """Counts the values of a table by their form, which equal values do not share."""
    topology = eddy.Topology("forms")
    build(topology).group_by(lambda key, value: (repr(value), 1), key=S).count("forms")
    return topology


def settled(rows: dict[str, Any], key: str, value: Any) -> None:
    """Of equal values in a row the first one counts."""
    if value is None:
        rows.pop(key, None)
    elif key not in rows or rows[key] != value:
        rows[key] = value


@pytest.mark.parametrize("seed", of_today(4))
@pytest.mark.parametrize("case", CASES)
def test_each_row_is_retracted_as_it_was_inserted(case: str, seed: int) -> None:
    build, expected = CASES[case]
    dice = random.Random(seed)
    topology = counting(build)
    topics = [node.topic for node in topology.plan.sources()]
    rows: Rows = {"one": {}, "two": {}}
    with eddy.TopologyTestDriver(topology, partitions=dice.randrange(1, 3)) as driver:
        for _ in range(40):
            topic = dice.choice(topics)
            records = [(dice.choice("ab"), dice.choice([None, *FORMS])) for _ in range(dice.choice((1, 1, 5)))]
            driver.input(topic).pipe_all(records)
            for key, value in records:
                settled(rows[topic], key, value)
            assert driver.store("forms").all() == Counter(map(repr, expected(rows)))
            if dice.random() < 0.1:
                driver.restart(lose_state=dice.random() < 0.5)


@pytest.mark.parametrize("seed", of_today(4))
def test_an_aggregate_that_becomes_an_equal_value_is_a_change(seed: int) -> None:
    dice, rows = random.Random(seed), dict[str, Any]()
    with eddy.TopologyTestDriver(counting(last)) as driver:
        for _ in range(40):
            key, value = dice.choice("ab"), dice.choice(FORMS)
            driver.input("one").pipe(key, value)
            rows[key] = value
            assert driver.store("forms").all() == Counter(map(repr, rows.values()))
            if dice.random() < 0.1:
                driver.restart(lose_state=dice.random() < 0.5)


def test_a_foreign_key_join_goes_on_after_equal_values_of_other_forms() -> None:
    topology = eddy.Topology("shop")
    orders, prices = source(topology, "orders"), source(topology, "prices")
    orders.foreign_key_join(prices, lambda order: order["of"], pair, name="priced").to("priced", value=J)
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("prices").pipe("tea", 1)
        driver.input("orders").pipe("o1", {"of": "tea"})
        driver.input("prices").pipe("tea", 1.0)
        driver.input("prices").pipe("tea", None)
        driver.input("prices").pipe("tea", 2)
        driver.input("orders").pipe("o1", {"of": "tea", "n": 1})
        driver.input("orders").pipe("o1", {"of": "tea", "n": True})
        driver.input("orders").pipe("o1", None)
        assert driver.output("priced").read_key_values() == [
            ("o1", [{"of": "tea"}, 1]),
            ("o1", None),
            ("o1", [{"of": "tea"}, 2]),
            ("o1", [{"of": "tea", "n": 1}, 2]),
            ("o1", None),
        ]
