"""Traces of selections: the rows that were chosen, in their order, each as the sum that it is."""

import random
from typing import Any

import pytest

import eddy
from eddy.topology.tracing.text import text_of
from tests.topology.tracing.traced import Traced

S = eddy.String


def shop(verb: str, **settings: Any) -> eddy.Topology:
    """The sums of each customer, and the first of them."""
    topology = eddy.Topology("shop")
    orders = topology.table("orders", key=S, value=eddy.Json())
    sums = orders.group_by(lambda _, order: (order["by"], order["cost"])).sum("sums", value=eddy.Int64)
    grouped = sums.group_by(lambda by, total: ("all", {"by": by, "total": total}), value=eddy.Json())
    getattr(grouped, verb)(name="best", by=lambda row: (row["total"], row["by"]), **settings)
    return topology


@pytest.mark.parametrize(("verb", "most"), [("top_k", 1), ("top_k", 3), ("top_k", 99), ("max", 1), ("min", 1)])
@pytest.mark.parametrize("seed", range(4))
def test_chosen_rows_are_shown_in_their_order_with_their_receipts(seed: int, verb: str, most: int) -> None:
    draw = random.Random(f"{seed} {verb} {most}")
    rows = {f"o{n}": {"by": draw.choice("abcdef"), "cost": draw.randrange(-5, 20)} for n in range(25)}
    totals: dict[str, int] = {}
    for row in rows.values():
        totals[row["by"]] = totals.get(row["by"], 0) + row["cost"]
    ordered = sorted(((total, by) for by, total in totals.items()), reverse=verb != "min")[:most]
    settings = {"n": most} if verb == "top_k" else {}
    made, _ = Traced(shop(verb, **settings), "best", {"orders": rows}).trace("all")
    expected = [{"by": by, "total": total} for total, by in ordered]
    assert made.value == (tuple(expected) if verb == "top_k" else expected[0])
    chosen = [way[0] for way in made.of]
    assert [each.value for each in chosen] == expected
    for each, (total, by) in zip(chosen, ordered, strict=True):
        (one,) = each.of
        (receipt,) = one[0].sums
        parts = {part.key: part.number for part in receipt.parts}
        assert (receipt.key, receipt.number, receipt.rest + sum(parts.values())) == (by, total, total)
        assert all(rows[key]["by"] == by and rows[key]["cost"] == number for key, number in parts.items())


def test_value_of_several_rows_counts_for_each() -> None:
    topology = eddy.Topology("shop")
    orders = topology.table("orders", key=S, value=eddy.Json())
    orders.to_relation().map(lambda _, cost: ("all", cost)).group_by_key().top_k(2, "best")
    made, _ = Traced(topology, "best", {"orders": {"o1": 5, "o2": 5, "o3": 3}}).trace("all")
    assert made.value == (5, 5)
    assert [(way[0].value, way[0].weight) for way in made.of] == [(5, 2)]
    assert "3" not in text_of(made)
