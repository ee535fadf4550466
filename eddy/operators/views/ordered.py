"""The ordered arrangement: rows in buckets by some columns, sorted within each; shared by all queries that sort alike.

A bucket is a list of positions; from `_LIST` rows on a SortedList, so that an insertion costs O(log n). A position ends
with the row's key, so that the order is total and a position leads to its row. Rows with a null in the bucket's columns
are in none: null equals nothing. Queries that differ in the constant of an equality are buckets of one arrangement.

Without columns there is one bucket, of the key ().
"""

from collections.abc import Callable, Sequence
from typing import Any

from sortedcontainers import SortedList

from eddy.operators.views.dataflow import Operator, Schedule, TableRows
from eddy.operators.views.filter import Filter, rows_of
from eddy.operators.views.values import Flat, Row, flat_key, has_null, order_key
from eddy.operators.views.window import Bounds, BucketDelta, Owner, Positions, Window, rank

__all__ = ["Ordered"]

_LIST = 1_000


class Ordered(Operator):
    """Rows of `source` by the columns `by`, sorted by `order`: (column, whether descending), and by the table's key."""

    def __init__(
        self,
        source: "TableRows | Filter",
        table: TableRows,
        key_columns: Sequence[str],
        by: Sequence[str],
        order: Sequence[tuple[str, bool]],
    ) -> None:
        super().__init__([source])
        self._source, self.table = source, table
        self._bucket: Callable[[Row], Flat] = flat_key(by) if by else lambda row: ()
        self.position = order_key(order, flat_key(key_columns))
        self._tail = 2 * len(key_columns)
        self.buckets: dict[Flat, Positions] = {}
        self.windows: dict[Flat, list[Window]] = {}
        filled: dict[Flat, list[Flat]] = {}
        for _, row in rows_of(source):
            bucket = self._bucket(row)
            if not has_null(bucket):
                filled.setdefault(bucket, []).append(self.position(row))
        for bucket, positions in filled.items():
            positions.sort()
            self.buckets[bucket] = positions if len(positions) < _LIST else SortedList(positions)

    def key_of(self, position: Flat) -> Flat:
        """The key of the row at a position."""
        return position[-self._tail :]

    def row(self, position: Flat) -> Row:
        """The row at a position, as it is now."""
        return self.table.rows[position[-self._tail :]]

    def was(self, position: Flat) -> Row:
        """The row at a position, as it was before the batch."""
        row = self.table.was(position[-self._tail :])
        assert row is not None
        return row

    def open(self, bucket: Flat, bounds: Bounds, owner: Owner) -> Window:
        """A window that is told of changes until it is closed."""
        window = Window(self.buckets.get(bucket, []), bounds, owner)
        self.windows.setdefault(bucket, []).append(window)
        return window

    def close(self, bucket: Flat, window: Window) -> None:
        """Tell it of no more changes."""
        windows = self.windows[bucket]
        windows.remove(window)
        if not windows:
            del self.windows[bucket]

    def step(self, schedule: Schedule) -> None:
        """Move positions, and tell the windows of buckets that changed."""
        deltas: dict[Flat, BucketDelta] = {}
        for _, old, new in self._source.out:
            self._move(old, new, deltas)
        for bucket, delta in deltas.items():
            windows = self.windows.get(bucket)
            if windows:
                positions: Any = self.buckets.get(bucket, [])
                for window in windows:
                    found = window.step(positions, delta)
                    if found:
                        window.owner.told(found, schedule)

    def _move(self, old: Row | None, new: Row | None, deltas: dict[Flat, BucketDelta]) -> None:
        one = None if old is None else self._bucket(old)
        two = None if new is None else self._bucket(new)
        before = None if old is None or (one and has_null(one)) else self.position(old)
        after = None if new is None or (two and has_null(two)) else self.position(new)
        if before is not None and one == two and before == after:
            assert one is not None
            _delta(deltas, one).changed.append(before)
            return
        if before is not None:
            assert one is not None
            self._remove(one, before)
            _delta(deltas, one).removed.append(before)
        if after is not None:
            assert two is not None
            self._add(two, after)
            _delta(deltas, two).added.append(after)

    def _remove(self, bucket: Flat, position: Flat) -> None:
        positions = self.buckets[bucket]
        if type(positions) is list:
            del positions[rank(positions, position)]
        else:
            positions.remove(position)
        if not positions:
            del self.buckets[bucket]

    def _add(self, bucket: Flat, position: Flat) -> None:
        positions = self.buckets.get(bucket)
        if positions is None:
            self.buckets[bucket] = [position]
        elif type(positions) is list:
            positions.insert(rank(positions, position), position)
            if len(positions) >= _LIST:
                self.buckets[bucket] = SortedList(positions)
        else:
            positions.add(position)


def _delta(deltas: dict[Flat, BucketDelta], bucket: Flat) -> BucketDelta:
    found = deltas.get(bucket)
    if found is None:
        found = deltas[bucket] = BucketDelta()
    return found
