"""Groups with aggregates: a table of its own, of one row for each combination of the columns that it groups by.

    count     Σ weights                     sum, avg   Σ weight · value, exactly: the order of changes does not matter
    min, max  the ends of a sorted list of the values

Sums are integers in units of 2^-1074, of which every finite float is a whole number: what is taken back leaves nothing.
Values that are no finite numbers do not count for sums and means; null counts for nothing. Without values all but
`count` are None. A group without rows has no row.
"""

import math
from collections.abc import Sequence
from typing import Any

from sortedcontainers import SortedList

from eddy.operators.views.dataflow import Schedule, TableRows
from eddy.operators.views.filter import Filter, rows_of
from eddy.operators.views.values import Flat, Row, ascending, flat_key, restored

__all__ = ["Groups", "hidden"]

_SHIFT = 1074

Measure = tuple[str, str, str | None]
"""The name of an aggregate, its function, and the column; None for rows."""


def hidden(column: str) -> str:
    """The name under which a group keeps the column that a nest compares."""
    return f"\0{column}"


class Groups(TableRows):
    """The groups of `source` by `by`, which a nest compares, and by `group`, which are shown."""

    def __init__(
        self, source: "TableRows | Filter", by: Sequence[str], group: Sequence[str], measures: Sequence[Measure]
    ) -> None:
        super().__init__({}, f"groups of {source.table.name if isinstance(source, Filter) else source.name}")
        self.inputs = [source]
        self.source, self._measures = source, measures
        self._names = [*((column, hidden(column)) for column in by), *((column, column) for column in group)]
        columns = [*by, *group]
        self._key = flat_key(columns) if columns else lambda row: ()
        self._groups: dict[Flat, _Group] = {}
        for _, row in rows_of(source):
            self._add(self._key(row), row, 1)
        self.rows = {key: self._row(group) for key, group in self._groups.items()}

    @property
    def key_columns(self) -> list[str]:
        """The columns of its rows that are their key."""
        return [shown for _, shown in self._names]

    def _add(self, key: Flat, row: Row, weight: int) -> None:
        group = self._groups.get(key)
        if group is None:
            named = {shown: row.get(column) for column, shown in self._names}
            group = self._groups[key] = _Group(named, self._measures)
        group.rows += weight
        for total, (_, _, column) in zip(group.totals, self._measures, strict=True):
            total.add(1 if column is None else row.get(column), weight)
        if not group.rows:
            del self._groups[key]

    def _row(self, group: "_Group") -> Row:
        found = {name: total.value() for total, (name, _, _) in zip(group.totals, self._measures, strict=True)}
        return group.named | found

    def step(self, schedule: Schedule) -> None:
        """The rows of the groups that changed."""
        touched: dict[Flat, None] = {}
        for _, old, new in self.source.out:
            for row, weight in ((new, 1), (old, -1)):  # first what comes: a group that stays keeps its name
                if row is not None:
                    key = self._key(row)
                    touched[key] = None
                    self._add(key, row, weight)
        groups = self._groups
        self.take({key: self._row(groups[key]) if key in groups else None for key in touched})


class _Group:
    """A group: its columns, the number of its rows, and a total for each aggregate."""

    __slots__ = ("named", "rows", "totals")

    def __init__(self, named: Row, measures: Sequence[Measure]) -> None:
        self.named, self.rows = named, 0
        self.totals = [_TOTALS[function]() for _, function, _ in measures]


class _Count:
    """The number of values."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, value: Any, weight: int) -> None:
        self._count += weight * (value is not None)

    def value(self) -> Any:
        return self._count


class _Sum:
    """The sum of numbers. `_count` are the numbers, `_floats` those of them that are floats."""

    def __init__(self) -> None:
        self._sum = self._count = self._floats = 0

    def add(self, value: Any, weight: int) -> None:
        kind = type(value)
        if kind is int:
            scaled = value << _SHIFT
        elif kind is float and abs(value) < float("inf"):
            numerator, denominator = value.as_integer_ratio()
            scaled = numerator << (_SHIFT + 1 - denominator.bit_length())
            self._floats += weight
        else:
            return
        self._sum += weight * scaled
        self._count += weight

    def value(self) -> Any:
        if not self._count:
            return None
        return _quotient(self._sum, 1 << _SHIFT) if self._floats else self._sum >> _SHIFT


class _Mean(_Sum):
    """The mean of numbers."""

    def value(self) -> Any:
        return _quotient(self._sum, self._count << _SHIFT) if self._count else None


def _quotient(one: int, other: int) -> float:
    """The nearest float; infinite where it is beyond the largest one."""
    try:
        return one / other
    except OverflowError:
        return math.inf if one > 0 else -math.inf


class _Least:
    """The least value. 1 and 1.0 are equal, and yet two values: each goes with its own row."""

    def __init__(self) -> None:
        self._values = SortedList()

    def add(self, value: Any, weight: int) -> None:
        if value is None:
            return
        if weight > 0:
            self._values.add((*ascending(value), type(value) is float))
        else:
            self._values.remove((*ascending(value), type(value) is float))

    def value(self) -> Any:
        return restored(*self._values[0][:2]) if self._values else None


class _Greatest(_Least):
    """The greatest value."""

    def value(self) -> Any:
        return restored(*self._values[-1][:2]) if self._values else None


_TOTALS: dict[str, Any] = {"count": _Count, "sum": _Sum, "avg": _Mean, "min": _Least, "max": _Greatest}
