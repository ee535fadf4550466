"""Filters, and counts of rows for `exists`: one rule for every change of a condition.

    Filter       has the rows for which the condition is true: −old if it was true, +new if it is true
    MatchCount   count[key] += Σ weights, by the columns that an `exists` compares; `flipped` are keys where 0 ↔ > 0
    RowIndex     the keys of a table's rows by some columns: it finds the rows whose condition a flipped key decides

The whole condition is evaluated for the old and the new row, whichever parts have changed: `and`, `or` and `not exists`
need no rules of their own. A null in the columns matches nothing.

One key may decide many rows. If they are on disk, they are read page by page. Each operator downstream reads the rows
whose condition changed once more.

A new filter evaluates the condition for every row of its table (parent-first). If the condition requires an `exists`,
and the counts show that fewer rows have a match, the filter evaluates only the rows with a match (child-first).
"""

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from itertools import islice
from typing import Any

from eddy.live.dataflow.dataflow import Change, QueryOperator, Schedule, TableRows
from eddy.live.dataflow.stored_map import StoredMap, map_in
from eddy.live.dataflow.values import Flat, Row, flat_key, join_key
from eddy.state.spaces import Spaces

__all__ = ["MANY_KEYS", "READ_ROWS", "ConditionFilter", "MatchCount", "RowIndex", "rows_of"]

_PAGE, _ALL = 1_000, 1 << 62
READ_ROWS, MANY_KEYS = 100, 10_000
"""The number of rows that are read at a time, and the number of keys above which changes are on disk."""
_SHARE = 20
"""A look-up of a key on disk takes no longer than reading and evaluating this number of rows in sequence."""


class ConditionFilter(QueryOperator):
    """The rows of a table for which `test` is true.

    Args:
        matches: the counts that the test reads, each with the index of this table's rows by the same columns.
        required: the indexes in `matches` of the counts that have to be more than 0 in each row that passes.

    Attributes:
        start: the index in `matches` by which the first rows were found; None if all rows were evaluated.
        evaluated: the number of rows for which the condition was evaluated at the beginning.
    """

    def __init__(
        self,
        table: TableRows,
        test: Callable[[Row], bool],
        matches: "Sequence[tuple[MatchCount, RowIndex]]" = (),
        required: Sequence[int] = (),
    ) -> None:
        super().__init__([table, *(each for pair in matches for each in pair)])
        self.table, self._test, self.matches, self.spaces = table, test, matches, table.spaces
        self.start: int | None = None
        self.evaluated = len(table.rows)
        self._passing = map_in(self.spaces if matches else None)
        self._count = 0
        if matches:
            self._begin(required)

    def _begin(self, required: Sequence[int]) -> None:
        """Find the rows that pass when the operator is made."""
        rows, test = self.table.rows, self._test
        found: Iterable[tuple[Flat, Row]] = rows.items()
        for number in required:
            count, index = self.matches[number]
            led_to = count.led_to(index, self.evaluated)
            if led_to is not None and led_to < self.evaluated:
                self.start, self.evaluated = number, led_to
        if self.start is not None:
            count, index = self.matches[self.start]
            found = ((key, rows[key]) for value in count.counts for key in index.of(value))
        _fill(self._passing, ((key, True) for key, row in found if test(row)))

    def row_count(self) -> int:
        """Return the number of rows that pass. Cost: without `exists` each row in memory is evaluated."""
        if self.matches:
            return len(self._passing)
        return self._count if self.spaces is not None else sum(map(self._test, self.table.rows.values()))

    def rows(self) -> Iterator[tuple[Flat, Row]]:
        """Return the rows with their keys."""
        if self.matches:
            return ((key, self.table.rows[key]) for key in self._passing)
        return self._evaluated()

    def _evaluated(self) -> Iterator[tuple[Flat, Row]]:
        count = 0
        for key, row in self.table.rows.items():
            if self._test(row):
                count += 1
                yield key, row
        self._count = count

    def step(self, schedule: Schedule) -> None:
        """Pass on changes of rows for which the condition was or is true."""
        if self.matches:
            self._step_matches()
            return
        test = self._test
        out: list[Change] = []
        self.out = out
        for change in self.table.out:
            key, old, new = change
            was = old is not None and test(old)
            if new is not None and test(new):
                out.append(change if was else (key, None, new))
            elif was:
                out.append((key, old, None))
        if self.spaces is not None:
            self._count += sum((new is not None) - (old is not None) for _, old, new in out)

    def _step_matches(self) -> None:
        test, passing = self._test, self._passing
        out: list[Change] = []
        for key, old, new in self.table.out:
            was, now = key in passing, new is not None and test(new)
            if was and now:
                out.append((key, old, new))
            elif now:
                passing[key] = True
                out.append((key, None, new))
            elif was:
                del passing[key]
                out.append((key, old, None))
        self.out = found = out if self.spaces is None else StoredChanges(out, self.table.stored, self.spaces)
        for key, row in self._decided():
            was, now = key in passing, test(row)
            if now and not was:
                passing[key] = True
                found.append((key, None, row))
            elif was and not now:
                del passing[key]
                found.append((key, row, None))

    def _decided(self) -> Iterator[tuple[Flat, Row]]:
        """Yield the rows whose condition depends on a flipped key, with their keys.

        A row that depends on several flipped keys is yielded several times.
        """
        rows = self.table.rows
        keys = (key for count, index in self.matches for value in count.flipped for key in index.of(value))
        while page := list(islice(keys, READ_ROWS)):
            for each in (rows, self._passing):
                if isinstance(each, StoredMap):
                    each.fetch(page)
            yield from ((key, rows[key]) for key in page)

    def end(self) -> None:
        """Drop the changes, because the batch is over."""
        if isinstance(self.out, StoredChanges):
            self.out.close()
        super().end()


class StoredChanges:
    """The changes that a filter makes over rows on disk. The changes of the table itself, `own`, are in memory.

    Other rows pass, or pass no more, because a key flipped. These rows have not changed themselves. So only their keys
    are stored, on disk if there are many, and the rows are read again.
    """

    def __init__(self, own: list[Change], rows: StoredMap[Row], spaces: Spaces) -> None:
        self._own, self._rows, self._spaces = own, rows, spaces
        self._has_come: MutableMapping[Flat, bool] = {}

    def __bool__(self) -> bool:
        return bool(self._own or self._has_come)

    def append(self, change: Change) -> None:
        """Note that a flipped key adds or removes a row; the row itself is unchanged."""
        self._has_come[change[0]] = change[1] is None
        if len(self._has_come) == MANY_KEYS and isinstance(self._has_come, dict):
            stored: StoredMap[bool] = StoredMap(self._spaces.make())
            stored.fill(self._has_come.items())
            self._has_come = stored

    def __iter__(self) -> Iterator[Change]:
        yield from self._own
        items = iter(self._has_come.items())
        while page := list(islice(items, READ_ROWS)):
            self._rows.fetch(key for key, _ in page)
            for key, has_come in page:
                row = self._rows[key]
                yield (key, None, row) if has_come else (key, row, None)

    def close(self) -> None:
        """Remove the keys that are on disk."""
        if isinstance(self._has_come, StoredMap):
            self._has_come.close()


class MatchCount(QueryOperator):
    """Counts rows by the values of some columns, for `exists`."""

    def __init__(self, source: "TableRows | ConditionFilter", columns: Sequence[str]) -> None:
        super().__init__([source])
        self.source, self._key = source, join_key(columns)
        self.counts = map_in(source.spaces)
        self.flipped: set[Flat] = set()
        found = (self._key(row) for _, row in rows_of(source))
        while page := list(islice(found, _PAGE)):
            keys = [key for key in page if key is not None]
            if isinstance(self.counts, StoredMap):
                self.counts.fetch(keys)
            for key in keys:
                self._add(key, 1)

    def led_to(self, index: "RowIndex", most: int) -> int | None:
        """Return the number of rows in `index` that have a match.

        The smaller map is read, of the counts and the index. If the maps are on disk, None is returned unless counting
        takes much less time than reading `most` rows.
        """
        one, two = self.counts, index.keys
        if isinstance(one, StoredMap) or isinstance(two, StoredMap):
            return None if len(one) > most // _SHARE else self._few_led_to(index, most)
        if len(one) < len(two):
            return sum(len(two[key]) for key in one if key in two)
        return sum(len(keys) for key, keys in two.items() if key in one)

    def _few_led_to(self, index: "RowIndex", most: int) -> int | None:
        count = 0
        for key in self.counts:
            count += sum(1 for _ in islice(index.of(key), most - count))
            if count >= most:
                return None
        return count

    def _add(self, key: Flat, weight: int) -> None:
        count = self.counts.get(key, 0) + weight
        if count:
            self.counts[key] = count
        else:
            del self.counts[key]

    def step(self, schedule: Schedule) -> None:
        """Update the counts, and note in `flipped` the keys whose count became 0 or is no longer 0."""
        before: dict[Flat, bool] = {}
        for _, old, new in self.source.out:
            one = None if old is None else self._key(old)
            two = None if new is None else self._key(new)
            if one == two:
                continue
            for key, weight in ((one, -1), (two, 1)):
                if key is not None:
                    before.setdefault(key, key in self.counts)
                    self._add(key, weight)
        self.flipped = {key for key, was in before.items() if was is not (key in self.counts)}
        if self.flipped:
            for dependent in self.dependents:
                schedule(dependent)

    def end(self) -> None:
        """Forget the flipped keys, because the batch is over."""
        self.flipped = set()


class RowIndex(QueryOperator):
    """Finds the keys of a table's rows by the values of some columns."""

    def __init__(self, table: TableRows, columns: Sequence[str]) -> None:
        super().__init__([table])
        self._table, self._key = table, flat_key(columns)
        self.keys: Any = map_in(table.spaces)
        """In memory, the rows' keys by the columns' values; on disk, the values with the row's key after them."""
        if isinstance(self.keys, StoredMap):
            self.keys.fill((self._key(row) + key, True) for key, row in table.rows.items())
            return
        for key, row in table.rows.items():
            self.keys.setdefault(self._key(row), {})[key] = None

    def of(self, value: Flat) -> Iterable[Flat]:
        """Return the keys of the rows with these values."""
        if isinstance(self.keys, StoredMap):
            return (found[len(value) :] for found in self.keys.beginning(value, limit=_ALL))
        found: Iterable[Flat] = self.keys.get(value, ())
        return found

    def step(self, schedule: Schedule) -> None:
        """Put the keys of changed rows under the rows' new values."""
        keys = self.keys
        for key, old, new in self._table.out:
            one = None if old is None else self._key(old)
            two = None if new is None else self._key(new)
            if one == two:
                continue
            if isinstance(keys, StoredMap):
                if one is not None:
                    keys.remove(one + key)
                if two is not None:
                    keys.add(two + key, True)
                continue
            if one is not None:
                bucket = keys[one]
                del bucket[key]
                if not bucket:
                    del keys[one]
            if two is not None:
                keys.setdefault(two, {})[key] = None


def rows_of(source: "TableRows | ConditionFilter") -> Iterable[tuple[Flat, Row]]:
    """Return the rows of an operator with their keys."""
    return source.rows.items() if isinstance(source, TableRows) else source.rows()


def _fill(found: MutableMapping[Flat, Any], items: Iterable[tuple[Flat, Any]]) -> None:
    """Put items into an empty map."""
    if isinstance(found, StoredMap):
        found.fill(items)
    else:
        found.update(items)
