"""Conformance cases of records and rows without a key or a value, with serdes and without."""

from typing import Any

import eddy
from eddy.serde import Serde
from tests.conformance.case import N, Native, S, case, of, plus

__all__ = ["RECORDS"]

RECORDS = [
    of("in", ("a", 1), (None, 2), ("a", None), ("b", 8), (None, None)),
    of("in", ("b", None), ("a", 4), (None, 16)),
]


@case(RECORDS, counts={"a": 2, "b": 1}, sums={"a": 5, "b": 8}, texts={"a": "14", "b": "8"}, latest={"a": 4})
def records_without_a_key_or_a_value(t: eddy.Topology) -> None:
    records = t.stream("in", S, N)
    groups = records.group_by_key()
    groups.count("counts").to("counts")
    groups.reduce(plus, "sums").to("sums")
    groups.aggregate(str, lambda key, n, text: f"{text}{n}", "texts", S).to("texts")
    records.to_table("latest").to("latest")


def rekeyed(t: eddy.Topology, serde: Serde[Any] | None) -> None:
    records = t.stream("in", S, N)
    records.group_by(lambda key, n: "big" if n and n > 3 else None, key=serde).count("counts").to("counts", S)
    records.select_key(lambda key, n: key and key.upper(), key=serde).repartition(name="moved").to("moved", S)


REKEYED: dict[str, Any] = {"counts": {"big": 3}, "moved": [("A", 1), ("A", None), ("A", 4), ("B", 8), ("B", None)]}


@case(RECORDS, **REKEYED)
def records_that_lose_their_key(t: eddy.Topology) -> None:
    rekeyed(t, S)


@case(RECORDS, **REKEYED)
def records_that_lose_their_key_without_serdes(t: eddy.Topology) -> None:
    rekeyed(t, None)


def joins(t: eddy.Topology, serde: Serde[Any] | None) -> None:
    records, names = t.stream("in", S, N), t.table("names", S, S)
    again = records.select_key(lambda key, n: key, key=serde)
    again.join(names, lambda n, name: f"{name} {n}", "inner", S).to("inner", S)
    again.left_join(names, lambda n, name: f"{name} {n}", "left", S).to("left", S)


JOINED: dict[str, Any] = {
    "inner": [("a", "Ann 1"), ("a", "Ann 4")],
    "left": [("a", "Ann 1"), ("a", "Ann 4"), ("b", "None 8"), (None, "None 2"), (None, "None 16")],
}


@case([of("names", ("a", "Ann")), *RECORDS], **JOINED)
def joins_of_records_without_a_key_or_a_value(t: eddy.Topology) -> None:
    joins(t, S)


@case([of("names", ("a", "Ann")), *RECORDS], **JOINED)
def joins_of_records_without_a_key_or_a_value_without_serdes(t: eddy.Topology) -> None:
    joins(t, None)


def rows(t: eddy.Topology, serde: Serde[Any] | None) -> None:
    """Rows under their values, or under no key."""
    one, other = (
        t.table(name, S, S).to_relation().map(lambda key, value: (None if value == "-" else value, key), None, serde, S)
        for name in ("one", "other")
    )
    one.group_by_key().count("counts").to("counts", S)
    one.join(other, lambda key, left, right: (key, left + right), "joined", S, S).group_by_key().count("j").to("joins")
    one.distinct("once").map(lambda key, value: (value, key), key=S).group_by_key().count("d").to("distinct")
    one.minus(other, "less").map(lambda key, value: (value, key), key=S).group_by_key().count("m").to("minus")
    least = one.reduce(lambda key, values: [min(values)], "least", value=S)
    least.map(lambda key, value: (value, key), key=S).group_by_key().count("l").to("least")


ROWS = [
    of("one", ("a", "x"), ("b", "-"), ("c", "x"), ("d", "y")) + of("other", ("a", "-"), ("b", "-"), ("c", "x")),
    of("one", ("d", "-"), ("b", "y"), (None, "z")) + of("other", ("c", None), ("a", "x")),
]
OF_ROWS: dict[str, Any] = {
    "counts": {"x": 2, "y": 1}, "joins": {"x": 2}, "distinct": {"a": 1, "b": 1, "c": 1}, "minus": {"b": 1, "c": 1},
    "least": {"a": 1, "b": 1},
}  # fmt: skip


@case(ROWS, **OF_ROWS)
def rows_without_a_key(t: eddy.Topology) -> None:
    rows(t, S)


@case(ROWS, **OF_ROWS)
def rows_without_a_key_without_serdes(t: eddy.Topology) -> None:
    rows(t, None)


@case(
    [of("nodes", ("b", "a"), ("c", "b"), ("a", "-")), of("nodes", ("d", "c"), ("c", "-"))],
    below={"a": 1, "c": 1},
    reached={"c": 1, "d": 1},
)
def recursions_over_rows_without_a_key(t: eddy.Topology) -> None:
    up = t.table("nodes", S, S).map_values(lambda parent: (None if parent == "-" else parent,), value=Native)
    above = up.to_relation().map(lambda node, parent: (parent[0], 1))
    above = above.recursively(lambda x: x.join(up, lambda _, one, parent: (parent[0], 1), "on"), "above")
    above.group_by_key().count("below").to("below", S)
    down = up.to_relation().map(lambda node, parent: (parent[0], node))
    tops = up.to_relation().filter(lambda node, parent: parent == (None,)).map(lambda node, _: (node, 0))
    reached = tops.filter(lambda node, _: node == "c").recursively(
        lambda x: x.join(down, lambda _, n, node: (None if node == "b" else node, 0), "down").distinct("once"), "all"
    )
    reached.group_by_key().count("reached").to("reached", S)


@case(
    [of("in", ("a", 1), ("a", 0), ("b", 2), ("b", 0)) + of("rows", ("1", ("x", 3)), ("2", ("x", -3)), ("3", ("y", 1))),
     of("in", ("c", 0), ("c", 0), ("a", 4)) + of("rows", ("2", ("y", -1)))],
    sums={"a": 4},
    totals={"x": 3},
)  # fmt: skip
def aggregates_that_are_none(t: eddy.Topology) -> None:
    """The last record of "a" is its last by time as well: a batch begins at 1 again, and Spark folds by time."""
    groups = t.stream("in", S, N).group_by_key()
    groups.aggregate(int, lambda key, n, total: total + n if n else None, "sums", N).to("sums")
    rows = t.table("rows", S, Native).group_by(lambda key, row: row, key=S, value=N)
    totals = rows.aggregate(int, lambda _, n, sum: sum + n or None, lambda _, n, sum: sum - n or None, "totals", N)
    totals.to("totals")
