"""Bags of rows by their identity, for the evaluation of a plan from scratch."""

from collections.abc import Callable, Iterable, Iterator
from math import isfinite
from typing import Any, NamedTuple

from eddy.topology.plan.facts import Fact

__all__ = ["Addend", "Bag", "Row", "Way", "Weighted", "groups", "identity", "is_grouped", "mean_addends"]

Row = tuple[Any, Any]
Weighted = Iterable[tuple[Row, int]]
Way = list[tuple[int, Row]]
"""The rows from which a row is made, each with the number of its input, or -1 for a row of the step itself."""


class Addend(NamedTuple):
    """A number in a row's value that is a sum over the input rows of its key.

    Args:
        name: its name; empty if the value is the number.
        of_row: the number that one copy of an input row adds.
        of_value: the number in the value.
    """

    name: str
    of_row: Callable[[Row], Any]
    of_value: Callable[[Any], Any]


def mean_addends(
    number: Callable[[Row], Any], counts: Callable[[Row], int], mean: Callable[[Any], Any]
) -> tuple[Addend, Addend]:
    """The sum and the count of a mean: `number` of a row, whether it `counts`, and the `mean` in a value.

    Neither number is in the value. A mean that is infinite or NaN has none, since infinity has no parts.
    """

    def whole(value: Any) -> Any:
        found = mean(value)
        return 0 if found is not None and isfinite(found) else None

    return Addend("sum", number, whole), Addend("count", lambda row: int(counts(row)), whole)


def identity(value: Any) -> Any:
    """A value that identifies equal ones: the value itself if it can be hashed, otherwise its text."""
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


def is_grouped(row: Row) -> bool:
    """Whether a row is in the group of its key: it has one and, if it is a fact, a value."""
    return row[0] is not None and (row[1] is not None or not isinstance(row, Fact))


def groups(rows: Bag) -> dict[Any, list[tuple[Row, int]]]:
    """The rows grouped by key: by the key's identity, the key and its rows."""
    found: dict[Any, list[tuple[Row, int]]] = {}
    for row, weight in rows:
        if is_grouped(row):
            found.setdefault(identity(row[0]), []).append((row, weight))
    return found
