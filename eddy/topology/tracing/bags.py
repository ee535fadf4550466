"""Bags of rows by their identity, and the rules that make a step's bag of those of its inputs.

A rule is a function (step, bags of its inputs) → rows with weights. It computes from all rows, without deltas or
states, so that its answer is a second opinion on that of the operators.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from eddy.topology.plan import Aggregate, Join, Node, OneRow, Reduce, TableJoin, TopK, Transform, WeightFunction

__all__ = ["RULES", "Bag", "Row", "groups", "made_of", "pairs"]

Row = tuple[Any, Any]
Weighted = Iterable[tuple[Row, int]]


def identity(value: Any) -> Any:
    """The value if it can be hashed, else its text."""
    try:
        hash(value)
    except TypeError:
        return ("", repr(value))
    return value


class Bag:
    """Rows with weights other than 0. Equal rows are one."""

    def __init__(self, rows: Weighted = ()) -> None:
        self._rows: dict[Any, tuple[Row, int]] = {}
        self.add(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[Row, int]]:
        return iter(self._rows.values())

    def __contains__(self, row: Row) -> bool:
        return identity(row) in self._rows

    def weight(self, row: Row) -> int:
        """How often a row is present."""
        return self._rows.get(identity(row), (row, 0))[1]

    def add(self, rows: Weighted) -> None:
        """Add the weights of rows."""
        found = self._rows
        for row, weight in rows:
            key = identity(row)
            total = weight + (found[key][1] if key in found else 0)
            if total:
                found[key] = row, total
            else:
                found.pop(key, None)

    def same(self, other: "Bag") -> bool:
        """Whether both hold the same rows, as often."""
        return len(self) == len(other) and all(other.weight(row) == weight for row, weight in self)


def groups(rows: Bag) -> dict[Any, list[tuple[Row, int]]]:
    """The rows of each key that is there, by the key's identity."""
    found: dict[Any, list[tuple[Row, int]]] = {}
    for row, weight in rows:
        if row[0] is not None:
            found.setdefault(identity(row[0]), []).append((row, weight))
    return found


def made_of(step: Transform, row: Row) -> list[Row]:
    """The rows that a stateless step makes of a row."""
    key, value = row
    function: Any = step.function
    match step.verb:
        case "filter":
            made = [row] if function(key, value) else []
        case "filter-not":
            made = [] if function(key, value) else [row]
        case "map":
            made = [tuple(function(key, value))]
        case "map-values":
            made = [(key, function(value))]
        case "flat-map":
            made = [(new, other) for new, other in function(key, value)]
        case "flat-map-values":
            made = [(key, new) for new in function(value)]
        case "select-key":
            made = [(function(key, value), value)]
        case _:
            made = [row]
    return [new for new in made if new[1] is not None] if step.kind == "table" else made


def pairs(step: Join, left: Bag, right: Bag) -> Iterator[tuple[Row, Row, Row, int]]:
    """The rows of a join: (row made, left row, right row, weight)."""
    matches = groups(right)
    for row, weight in left:
        for other, factor in matches.get(identity(row[0]), ()) if row[0] is not None else ():
            yield tuple(step.merge(row[0], row[1], other[1])), row, other, weight * factor


def _transform(step: Transform, rows: Bag) -> Weighted:
    sign = -1 if step.verb == "negate" else 1
    return ((new, sign * weight) for row, weight in rows for new in made_of(step, row))


def _join(step: Join, left: Bag, right: Bag) -> Weighted:
    return ((made, weight) for made, _, _, weight in pairs(step, left, right))


def _table_join(step: TableJoin, left: Bag, right: Bag) -> Weighted:
    ours, theirs = ({identity(row[0]): row for row, _ in side} for side in (left, right))
    for key in {**ours, **theirs}:
        one, other = ours.get(key), theirs.get(key)
        if (one is None and step.join != "outer") or (other is None and step.join == "inner"):
            continue
        value = step.joiner(None if one is None else one[1], None if other is None else other[1])
        if value is not None:
            yield ((one or other or (None, None))[0], value), 1


def _count(step: Node, rows: Bag) -> Weighted:
    for found in groups(rows).values():
        yield (found[0][0][0], sum(weight for _, weight in found)), 1


def _aggregate(step: Aggregate, rows: Bag) -> Weighted:
    for found in groups(rows).values():
        key, total = found[0][0][0], step.initial()
        for (_, value), weight in found:
            for _ in range(weight):
                total = step.adder(key, value, step.initial() if total is None else total)
        if total is not None:
            yield (key, total), 1


def _reduce(step: Reduce, rows: Bag) -> Weighted:
    for found in groups(rows).values():
        key = found[0][0][0]
        for value in step.function(key, {value: weight for (_, value), weight in found}):
            yield (key, value), 1


def _selection(step: TopK | OneRow, rows: Bag) -> Weighted:
    for found in groups(rows).values():
        key = found[0][0][0]
        for value, weight in step.grouping.function(key, {value: weight for (_, value), weight in found}).items():
            yield (key, value), weight


def _weight_function(step: WeightFunction, rows: Bag) -> Weighted:
    once = step.form == "distinct"
    return ((row, 1 if once else weight) for row, weight in rows if weight > 0 and row[0] is not None)


def _merge(step: Node, *inputs: Bag) -> Weighted:
    return (item for rows in inputs for item in rows)


RULES: dict[str, Callable[..., Weighted]] = {
    "Transform": _transform,
    "Merge": _merge,
    "Exchange": _merge,
    "Sink": _merge,
    "Join": _join,
    "TableJoin": _table_join,
    "Count": _count,
    "Aggregate": _aggregate,
    "Reduce": _reduce,
    "TopK": _selection,
    "OneRow": _selection,
    "WeightFunction": _weight_function,
}
"""By the class of a step, its rule. Others are evaluated by `evaluation.py`, or not at all."""
