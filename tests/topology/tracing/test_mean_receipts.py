"""Receipts of means: the sum and the count, by plain Python over the rows of the tables."""

import random
from fractions import Fraction
from typing import Any

import msgspec
import pytest

import eddy
from eddy.topology.tracing.text import text_of
from tests.topology.tracing.traced import NAMES, Traced, below, check

S = eddy.String


class Order(msgspec.Struct, frozen=True):
    id: str
    by: str | None
    cost: int | None


def means() -> eddy.Topology:
    """The mean cost of all nodes below each one."""
    topology = eddy.Topology("means")
    nodes = topology.table("nodes", key=S, value=eddy.Json()).to_relation()
    costs = nodes.map(lambda node, row: (row["of"], row["cost"]))
    above = costs.recursively(lambda rows: rows.join(nodes, lambda _, cost, row: (row["of"], cost)), name="above")
    above.group_by_key().avg("means")
    return topology


@pytest.mark.parametrize("seed", range(8))
def test_mean_of_a_recursion_is_its_sum_and_its_count_and_both_open(seed: int) -> None:
    draw = random.Random(seed)
    tree: dict[str, Any] = {}
    for at, name in enumerate(NAMES):
        cost = draw.choice([None, draw.randrange(-3, 9), draw.random(), 2**70])
        tree[name] = {"of": draw.choice(["root", *NAMES[:at]]), "cost": cost}
    traced = Traced(means(), "means", {"nodes": tree})

    def costs(node: str) -> list[Any]:
        found: list[Any] = []
        for child in below(tree, node):
            found += [tree[child]["cost"], *costs(child)]
        return [cost for cost in found if cost is not None]

    def number(child: str, kind: str) -> Fraction:
        own = costs(child)
        return sum(map(Fraction, own), Fraction(0)) if kind == "sum" else Fraction(len(own))

    for node in {row["of"] for row in tree.values() if costs(row["of"])}:
        made, _ = traced.trace(node)
        assert [receipt.name for receipt in made.sums] == ["sum", "count"]
        total, count = (Fraction(receipt.number) for receipt in made.sums)
        assert made.value == float(sum(map(Fraction, costs(node))) / len(costs(node)))
        assert float(total) == float(sum(map(Fraction, costs(node))))
        assert count == len(costs(node))
        children = below(tree, node)
        own = [tree[child]["cost"] for child in children if tree[child]["cost"] is not None]
        check(made.sums[1], {child: int(number(child, "count")) for child in children}, len(own))
        for receipt, kind in zip(made.sums, ["sum", "count"], strict=True):
            shown = {part.key: part.number for part in receipt.parts if not part.word}
            assert {child: float(part) for child, part in shown.items()} == {
                child: float(number(child, kind)) for child in children if number(child, kind)
            }
        deep = [child for child in children if number(child, "count")]
        if deep:
            opened, receipts = traced.trace(node, draw.choice(deep))
            assert receipts.opened
            assert opened.sums[1].opened is not None


def test_mean_of_rows_of_a_table_names_the_rows() -> None:
    topology = eddy.Topology("shop")
    orders = topology.table("orders", key=S, value=eddy.Json())
    orders.group_by(lambda _, order: (order["by"], order["cost"])).avg("means")
    rows = {"o1": {"by": "ann", "cost": 3}, "o2": {"by": "ann", "cost": 2}, "o3": {"by": "bob", "cost": 9}}
    made, _ = Traced(topology, "means", {"orders": rows}).trace("ann")
    assert text_of(made) == ('"ann" = 2.5   means (avg)\n  ann sum 5 = o1 3 + o2 2\n  ann count 2 = o1 1 + o2 1\n')
    (one, two) = Traced(topology, "means", {"orders": rows}).trace("bob")[0].sums  # a mean of one row is one, too
    assert (one.name, one.number, two.name, two.number) == ("sum", 9, "count", 1)


@pytest.mark.parametrize("odd", [float("inf"), float("nan")])
def test_mean_that_is_no_finite_number_has_no_receipt(odd: float) -> None:
    topology = eddy.Topology("shop")
    orders = topology.table("orders", key=S, value=eddy.Json())
    orders.group_by(lambda _, order: ("all", order["cost"])).avg("means")
    made, _ = Traced(topology, "means", {"orders": {"o1": {"cost": odd}, "o2": {"cost": 2}}}).trace("all")
    assert made.sums == []


@pytest.mark.parametrize("also", ["", ", MAX(cost) AS most"], ids=["folded", "reduced"])
@pytest.mark.parametrize("seed", range(4))
def test_average_of_sql_is_its_sum_and_its_count(seed: int, also: str) -> None:
    draw = random.Random(seed)
    topology = eddy.Topology("view")
    orders = topology.table("orders", key=S, value=eddy.Struct(Order))
    text = f"SELECT by, AVG(cost) AS mean, SUM(cost) AS cost{also} FROM orders GROUP BY by"
    topology.sql(text, name="view", tables={"orders": orders}, key="by")
    rows = {f"o{n}": Order(f"o{n}", draw.choice("abc"), draw.choice([None, 1, 2, 40])) for n in range(12)}
    traced = Traced(topology, "view-group", {"orders": rows})
    for by in {row.by for row in rows.values()}:
        costs = [row.cost for row in rows.values() if row.by == by and row.cost is not None]
        if costs:
            found = {receipt.name: receipt.number for receipt in traced.trace((by,))[0].sums}
            assert found == {"sum of avg": sum(costs), "count of avg": len(costs), "sum": sum(costs)}
