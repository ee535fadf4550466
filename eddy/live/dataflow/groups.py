"""Groups with aggregates: a table with one row for each combination of the grouping columns.

    count     Σ weights                     sum, avg   Σ weight · value, exactly: the order of changes does not matter
    min, max  the ends of a sorted list of the values, which is on disk if the rows are

Sums are integers in units of 2^-1074. Every finite float is a multiple of this unit, so a retracted value is subtracted
exactly. Sums and means ignore values that are not finite numbers; all aggregates ignore null. Without values all
aggregates except `count` are None. A group without rows has no row.

Equal values may be spelled differently, such as 1 and 1.0, or 0.0 and -0.0. A group counts its rows by the spelling of
its columns. It shows the first spelling that has rows, in the order of `spelling`, so that the order of arrival does
not matter. Among equal values `min` shows the first spelling, `max` the last.
"""

import math
import sys
from collections.abc import Iterable, MutableMapping, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from sortedcontainers import SortedList

from eddy.live.dataflow.dataflow import Schedule, TableRows
from eddy.live.dataflow.filter import ConditionFilter, rows_of
from eddy.live.dataflow.flat_numbers import INVERTED
from eddy.live.dataflow.stored_map import StoredMap, map_in
from eddy.live.dataflow.values import Flat, Row, ascending, flat, flat_key, restored, spelling
from eddy.state.spaces import Spaces

__all__ = ["Groups", "hidden"]

_SHIFT = 1074
_FETCHED = 5_000
_VALUE_BYTES = 150
"""The approximate bytes of a value in a sorted list, as a tuple."""

Spelled = dict[str, tuple[int, Row]]
"""For each spelling of a group's columns: the number of rows with this spelling, and the columns with their values."""
Measure = tuple[str, str, str | None]
"""The name of an aggregate, its function, and its column; without a column (None) it counts rows."""


def hidden(column: str) -> str:
    """Return the name of the hidden column for a column's value, which a nest compares."""
    return f"\0{column}"


class Groups(TableRows):
    """Makes a row for each group of the rows of `source`. The columns are `by`, which a nest compares, and `group`.

    Only the columns `group` are shown.
    """

    def __init__(
        self,
        source: "TableRows | ConditionFilter",
        by: Sequence[str],
        group: Sequence[str],
        measures: Sequence[Measure],
    ) -> None:
        name = f"groups of {source.table.name if isinstance(source, ConditionFilter) else source.name}"
        super().__init__(map_in(source.spaces), name, source.spaces)
        self.inputs = [source]
        self.source, self._measures = source, measures
        self._names = [*((column, hidden(column)) for column in by), *((column, column) for column in group)]
        columns = [*by, *group]
        self._key = flat_key(columns)
        self._groups: MutableMapping[Flat, _RowGroup] = {}
        self._values: StoredMap[tuple[int, int, Any]] | None = None
        if self.spaces is None:
            for _, row in rows_of(source):
                key = self._key(row)
                if key not in self._groups:
                    self._groups[key] = self._new(key)
                self._count(self._groups[key], row, 1)
            self.rows = {key: self._row(group) for key, group in self._groups.items()}
        else:
            self._values = StoredMap(self.spaces.make())
            self._begin_on_disk(self.spaces)

    def _begin_on_disk(self, spaces: Spaces) -> None:
        """Make the groups of rows on disk: sort the rows by group, then make one group after the other."""
        groups = self._groups = StoredMap(spaces.make(), _RowGroup.frozen, self._thawed)
        rows: StoredMap[Row] = self.stored
        columns = {column for column, _ in self._names} | {column for _, _, column in self._measures if column}
        ordered: StoredMap[tuple[Flat, Row]] = StoredMap(spaces.make())
        ordered.fill(
            ((of := self._key(row)) + key, (of, {column: row.get(column) for column in columns}))
            for key, row in rows_of(self.source)
        )
        for key, found in groupby(ordered.values(), itemgetter(0)):
            group: _RowGroup | None = None
            for _, row in found:
                group = group or self._new(key)
                self._count(group, row, 1)
            assert group is not None
            groups.add(key, group)
            rows.add(key, self._row(group))
        ordered.close()

    @property
    def key_columns(self) -> list[str]:
        """The columns that are the key of the groups' rows."""
        return [shown for _, shown in self._names]

    def _new(self, key: Flat) -> "_RowGroup":
        return _RowGroup(key, self._totals(key))

    def _count(self, group: "_RowGroup", row: Row, weight: int) -> None:
        group.rows += weight
        spelled = "".join([spelling(row.get(column)) for column, _ in self._names])
        count, named = group.spelled.get(spelled) or (0, {shown: row.get(column) for column, shown in self._names})
        if count + weight:
            group.spelled[spelled] = count + weight, named
        else:
            del group.spelled[spelled]
        for total, (_, _, column) in zip(group.totals, self._measures, strict=True):
            total.add(1 if column is None else row.get(column), weight)

    def _fetch(self, keys: Iterable[Flat]) -> None:
        """Read the groups with these keys from disk together, before they are used."""
        if isinstance(self._groups, StoredMap):
            self._groups.fetch(keys)

    def _totals(self, key: Flat) -> list[Any]:
        """Return new totals for a group, one for each aggregate.

        Totals on disk have the values of all groups in one map.
        """
        if self._values is None:
            return [_TOTALS[function]() for _, function, _ in self._measures]
        return [
            _STORED[function](self._values, flat(number) + key) if function in _STORED else _TOTALS[function]()
            for number, (_, function, _) in enumerate(self._measures)
        ]

    def _thawed(self, cell: tuple[Flat, Spelled, int, list[Any]]) -> "_RowGroup":
        key, spelled, rows, states = cell
        group = _RowGroup(key, self._totals(key))
        group.rows = rows
        group.spelled.update(spelled)
        for total, state in zip(group.totals, states, strict=True):
            total.resume(state)
        return group

    def _row(self, group: "_RowGroup") -> Row:
        found = {name: total.value() for total, (name, _, _) in zip(group.totals, self._measures, strict=True)}
        return group.named() | found

    def step(self, schedule: Schedule) -> None:
        """Update the groups of the changed rows; the changes of this table are the groups' new rows."""
        touched: dict[Flat, _RowGroup | None] = {}
        groups, changed = self._groups, {}
        if self.spaces is not None:
            first = islice(self.source.out, _FETCHED)
            self._fetch(self._key(row) for _, old, new in first for row in (old, new) if row is not None)
        for _, old, new in self.source.out:
            # The new row first, so that a group with one row is not removed and made anew.
            for row, weight in ((new, 1), (old, -1)):
                if row is not None:
                    key = self._key(row)
                    group = touched[key] if key in touched else groups.get(key)
                    group = group or self._new(key)
                    self._count(group, row, weight)
                    touched[key] = group if group.rows else None
        for key, group in touched.items():
            changed[key] = None if group is None else self._row(group)
            if group is not None:
                groups[key] = group
            elif key in groups:
                del groups[key]
        self.take(changed)


class _RowGroup:
    """One group: its key, its columns by their spelling, the number of its rows, and a total for each aggregate."""

    __slots__ = ("key", "rows", "spelled", "totals")

    def __init__(self, key: Flat, totals: list[Any]) -> None:
        self.key, self.totals, self.rows = key, totals, 0
        self.spelled: Spelled = {}

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + sys.getsizeof(self.spelled) + sum(map(sys.getsizeof, self.totals))

    def named(self) -> Row:
        """Return the group's columns in their first spelling."""
        return self.spelled[min(self.spelled)][1]

    def frozen(self) -> Any:
        """Return the group as plain data."""
        return self.key, self.spelled, self.rows, [total.state() for total in self.totals]


class _Count:
    """Counts values. As in all totals, `state` is plain data, and `resume` continues a total from such data."""

    def __init__(self) -> None:
        self._count = 0

    def state(self) -> Any:
        return self._count

    def resume(self, state: Any) -> None:
        self._count = state

    def add(self, value: Any, weight: int) -> None:
        self._count += weight * (value is not None)

    def value(self) -> Any:
        return self._count


class _Sum:
    """Adds numbers. `_count` is the number of numbers, `_floats` the number of floats among them."""

    def __init__(self) -> None:
        self._sum = self._count = self._floats = 0

    def state(self) -> Any:
        return self._sum, self._count, self._floats

    def resume(self, state: Any) -> None:
        self._sum, self._count, self._floats = state

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
    """Return the float nearest to a quotient of integers; infinity if the quotient exceeds the largest float."""
    try:
        return one / other
    except OverflowError:
        return math.inf if one > 0 else -math.inf


class _Least:
    """Finds the least value, in its first spelling. 1 and 1.0 are equal, but removing one does not remove the other."""

    def __init__(self) -> None:
        self._values = SortedList()

    def __sizeof__(self) -> int:
        return _VALUE_BYTES * (4 + len(self._values))

    def add(self, value: Any, weight: int) -> None:
        if value is None:
            return
        if weight > 0:
            self._values.add((*ascending(value), spelling(value)))
        else:
            self._values.remove((*ascending(value), spelling(value)))

    def value(self) -> Any:
        return restored(*self._values[0][:2]) if self._values else None


class _Greatest(_Least):
    """The greatest value."""

    def value(self) -> Any:
        return restored(*self._values[-1][:2]) if self._values else None


class _StoredLeast:
    """Finds the least value of a group on disk. A key in the map is `group`, the value and its spelling, as flat bytes.

    Invariant: the group has no value before `_first`. So a search does not read deleted values, which would take long.
    """

    def __init__(self, values: StoredMap[tuple[int, int, Any]], group: Flat) -> None:
        self._values, self._group, self._first = values, group, group

    def state(self) -> Any:
        return self._first

    def resume(self, state: Any) -> None:
        self._first = state

    def _place(self, value: Any) -> Flat:
        return self._group + flat(value) + flat(spelling(value))

    def add(self, value: Any, weight: int) -> None:
        if value is None:
            return
        place = self._place(value)
        count = self._values.get(place, (0,))[0] + weight
        if count:
            self._values[place] = (count, *ascending(value))
            self._first = min(self._first, place)
        else:
            del self._values[place]

    def value(self) -> Any:
        found = self._values.get(self._first)
        if found is None:
            for place in self._values.beginning(self._group, self._first[len(self._group) :], limit=1):
                self._first, found = place, self._values[place]
        return None if found is None else restored(*found[1:])


class _StoredGreatest(_StoredLeast):
    """Finds the greatest value of a group on disk, as the first value in the opposite order."""

    def _place(self, value: Any) -> Flat:
        return self._group + (flat(value) + flat(spelling(value))).translate(INVERTED)


_STORED: dict[str, Any] = {"min": _StoredLeast, "max": _StoredGreatest}
_TOTALS: dict[str, Any] = {"count": _Count, "sum": _Sum, "avg": _Mean, "min": _Least, "max": _Greatest}
