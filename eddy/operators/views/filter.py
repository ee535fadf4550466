"""Filters, and counts of rows for `exists`: one rule for every change of a condition.

    Filter       a row is there as long as the condition is true: −old where it was, +new where it is
    MatchCount   count[key] += Σ weights, by the columns that an `exists` compares; `flipped` are keys where 0 ↔ > 0
    RowIndex     the keys of a table's rows by some columns: the rows whose condition a flipped key decides

The whole condition is evaluated before and after, whichever parts have changed: and, or, not exists need no rule of
their own. A null in the columns matches nothing.

A filter that begins evaluates the condition for every row of its table (parent-first), or only for the rows that an
`exists` leads to which has to hold (child-first), where the exact counts say that those are fewer.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from eddy.operators.views.dataflow import Change, Operator, Schedule, TableRows
from eddy.operators.views.values import Flat, Row, flat_key, join_key

__all__ = ["Filter", "MatchCount", "RowIndex", "rows_of"]


class Filter(Operator):
    """The rows of a table for which `test` is true.

    Args:
        matches: the counts that the test reads, each with the index of this table's rows by the same columns.
        required: of these the numbers of those that have to be more than 0.

    Attributes:
        start: the number of the match that the first rows were found by; None where all rows were evaluated.
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
        self.table, self._test, self.matches = table, test, matches
        self.start: int | None = None
        self.evaluated = 0 if matches else len(table.rows)
        self._passing = self._first(required) if matches else set()

    def _first(self, required: Sequence[int]) -> set[Flat]:
        """The keys of the rows that pass at the beginning."""
        rows, test = self.table.rows, self._test
        candidates: Collection[Flat] = rows.keys()
        for number in required:
            count, index = self.matches[number]
            if count.led_to(index) < len(candidates):
                found = [key for value in count.counts for key in index.keys.get(value, ())]
                self.start, candidates = number, found
        self.evaluated = len(candidates)
        return {key for key in candidates if test(rows[key])}

    def row_count(self) -> int:
        """The number of rows that pass. Cost: without `exists` each row is evaluated."""
        return len(self._passing) if self.matches else sum(map(self._test, self.table.rows.values()))

    def rows(self) -> Iterable[tuple[Flat, Row]]:
        """The rows with their keys."""
        if self.matches:
            return [(key, self.table.rows[key]) for key in self._passing]
        return [(key, row) for key, row in self.table.rows.items() if self._test(row)]

    def step(self, schedule: Schedule) -> None:
        """Changes of rows that were or are there."""
        if self.matches:
            self._step_matches()
            return
        test, out = self._test, self.out
        for change in self.table.out:
            key, old, new = change
            was = old is not None and test(old)
            if new is not None and test(new):
                out.append(change if was else (key, None, new))
            elif was:
                out.append((key, old, None))

    def _step_matches(self) -> None:
        touched: dict[Flat, Change] = {change[0]: change for change in self.table.out}
        for count, index in self.matches:
            for value in count.flipped:
                for key in index.keys.get(value, ()):
                    if key not in touched:
                        row = self.table.rows[key]
                        touched[key] = (key, row, row)
        test, passing, out = self._test, self._passing, self.out
        for key, (_, old, new) in touched.items():
            was, now = key in passing, new is not None and test(new)
            if was and now:
                if old is not new:
                    out.append((key, old, new))
            elif now:
                passing.add(key)
                out.append((key, None, new))
            elif was:
                passing.discard(key)
                out.append((key, old, None))


class MatchCount(Operator):
    """The number of rows by the values of some columns."""

    def __init__(self, source: "TableRows | Filter", columns: Sequence[str]) -> None:
        super().__init__([source])
        self.source, self._key = source, join_key(columns)
        self.counts: dict[Flat, int] = {}
        self.flipped: set[Flat] = set()
        for _, row in rows_of(source):
            key = self._key(row)
            if key is not None:
                self._add(key, 1)

    def led_to(self, index: "RowIndex") -> int:
        """The number of rows of an index that have a match, counted over the fewer keys."""
        one, two = self.counts, index.keys
        if len(one) < len(two):
            return sum(len(two[key]) for key in one if key in two)
        return sum(len(keys) for key, keys in two.items() if key in one)

    def _add(self, key: Flat, weight: int) -> None:
        count = self.counts.get(key, 0) + weight
        if count:
            self.counts[key] = count
        else:
            del self.counts[key]

    def step(self, schedule: Schedule) -> None:
        """Count, and note keys that have come or gone."""
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
        """The batch is over."""
        self.flipped = set()


class RowIndex(Operator):
    """The keys of a table's rows by the values of some columns."""

    def __init__(self, table: TableRows, columns: Sequence[str]) -> None:
        super().__init__([table])
        self._table, self._key = table, flat_key(columns)
        self.keys: dict[Flat, dict[Flat, None]] = {}
        for key, row in table.rows.items():
            self.keys.setdefault(self._key(row), {})[key] = None

    def step(self, schedule: Schedule) -> None:
        """Move keys to where their rows are now."""
        for key, old, new in self._table.out:
            one = None if old is None else self._key(old)
            two = None if new is None else self._key(new)
            if one == two:
                continue
            if one is not None:
                bucket = self.keys[one]
                del bucket[key]
                if not bucket:
                    del self.keys[one]
            if two is not None:
                self.keys.setdefault(two, {})[key] = None


def rows_of(source: "TableRows | Filter") -> Iterable[tuple[Flat, Row]]:
    """The rows of an operator with their keys."""
    return source.rows.items() if isinstance(source, TableRows) else source.rows()
