"""Bags of rows, in which equal rows share an identity, for the evaluation of a plan from scratch."""

from collections.abc import Iterable, Iterator
from typing import Any

from eddy.topology.plan.facts import Fact

__all__ = ["Bag", "Row", "Way", "Weighted", "groups", "identity", "is_grouped"]

Row = tuple[Any, Any]
Weighted = Iterable[tuple[Row, int]]
Way = list[tuple[int, Row]]
"""The rows from which a row is made, each with the number of its input, or -1 for a row of the step itself."""


def identity(value: Any) -> Any:
    """Return a value that is the same for equal values: the value itself if it can be hashed, else its text."""
    try:
        hash(value)
    except TypeError:
        return ("", repr(value))
    return value


class Bag:
    """Rows with weights other than 0. Equal rows are stored once, with the sum of their weights."""

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
        """Return how often a row is present; 0 if it is not."""
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
        """Return whether both bags have the same rows with the same weights."""
        return len(self) == len(other) and all(other.weight(row) == weight for row, weight in self)


def is_grouped(row: Row) -> bool:
    """Return whether a row belongs to the group of its key: if it has a key and, if it is a fact, a value."""
    return row[0] is not None and (row[1] is not None or not isinstance(row, Fact))


def groups(rows: Bag) -> dict[Any, list[tuple[Row, int]]]:
    """Return the rows with weights, grouped by the identity of their keys."""
    found: dict[Any, list[tuple[Row, int]]] = {}
    for row, weight in rows:
        if is_grouped(row):
            found.setdefault(identity(row[0]), []).append((row, weight))
    return found
