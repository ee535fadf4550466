"""Divides rows into buckets by some columns, and sorts the rows of each bucket. All queries that sort alike share it.

A position ends with the row's key. So no two rows have the same position, and a row is found by its position. Rows with
a null in the bucket's columns are in no bucket: null equals nothing. Queries that differ in the constant of an equality
use buckets of one arrangement.

Without columns all rows are in one bucket, with the key `EMPTY`.
"""

from collections.abc import Sequence

from eddy.live.dataflow.dataflow import QueryOperator, Schedule, TableRows
from eddy.live.dataflow.filter import ConditionFilter, rows_of
from eddy.live.dataflow.stored_map import StoredMap
from eddy.live.dataflow.values import EMPTY, Flat, Row, flat_key, join_key, key_of, order_key, order_of
from eddy.live.dataflow.window import Bounds, BucketDelta, Owner, SortedBucket, Window, in_order

__all__ = ["Ordered"]


class Ordered(QueryOperator):
    """Sorts the rows of `source` in buckets by the columns `by`: by `order`, then by the row's key.

    `order` has pairs (column, whether descending).
    """

    def __init__(
        self,
        source: "TableRows | ConditionFilter",
        table: TableRows,
        key_columns: Sequence[str],
        by: Sequence[str],
        order: Sequence[tuple[str, bool]],
    ) -> None:
        super().__init__([source])
        self.source, self.table = source, table
        self._values, self._has_buckets, self._order = join_key(by), bool(by), order_of(order)
        self.position = order_key(order, flat_key(key_columns))
        self._delta = BucketDelta()
        self.buckets: dict[Flat, SortedBucket] = {}
        self._fill()

    def _fill(self) -> None:
        """Add the rows that the source has at the beginning."""
        filled: dict[Flat, list[Flat]] = {}
        for key, row in rows_of(self.source):
            values = self._values(row)
            if values is not None:
                filled.setdefault(values, []).append(self._order(row) + key)
        for values, positions in filled.items():
            self.buckets[values] = SortedBucket(in_order(positions))

    def row_count(self) -> int:
        """Return the number of positions, in all buckets."""
        return sum(len(bucket) for bucket in self.buckets.values())

    def row(self, position: Flat) -> Row:
        """Return the row at a position, as it is now."""
        size = position[-1]
        return self.table.rows[position[-size:] if size else key_of(position)]

    def was(self, position: Flat) -> Row:
        """Return the row at a position, as it was before the batch."""
        row = self.table.was(key_of(position))
        assert row is not None
        return row

    def fetch(self, positions: Sequence[Flat]) -> None:
        """Prepare to read the rows at these positions. Rows on disk are read many at a time."""
        if isinstance(self.table.rows, StoredMap):
            self.table.rows.fetch(map(key_of, positions))

    def open(self, values: Flat, bounds: Bounds, owner: Owner) -> Window:
        """Open a window, which is updated until it is closed."""
        return self._opened(values).open(bounds, owner)

    def close(self, values: Flat, window: Window) -> None:
        """Close a window, which is not updated any more."""
        bucket = window.bucket
        bucket.close(window)
        self._close_if_empty(values, bucket)

    def covers(self, bounds: Bounds) -> bool:
        """Return whether a window can be moved to these bounds."""
        return True

    def widen(self, window: Window, bounds: Bounds) -> None:
        """Prepare to move a window to these bounds."""

    def held_before(self, bounds: Bounds) -> int:
        """Return the number of rows that are in memory only because a window with these bounds skips them."""
        return 0

    def _opened(self, values: Flat) -> SortedBucket:
        bucket = self.buckets.get(values)
        if bucket is None:
            bucket = self.buckets[values] = SortedBucket([])
        return bucket

    def _close_if_empty(self, values: Flat, bucket: SortedBucket) -> None:
        if not bucket and not bucket.windows:
            del self.buckets[values]

    def step(self, schedule: Schedule) -> None:
        """Update the positions, and the windows of the changed buckets."""
        if self._has_buckets:
            self._step_buckets(schedule)
            return
        order_of, delta, bucket = self._order, self._delta, self.buckets.get(EMPTY)
        if bucket is None:
            bucket = self._opened(EMPTY)
        for key, old, new in self.source.out:
            bucket.change(
                None if old is None else order_of(old) + key, None if new is None else order_of(new) + key, delta
            )
        if delta.removed or delta.added or delta.changed:
            self._delta = BucketDelta()
            bucket.tell(delta, schedule)
        if not bucket.windows:
            self._close_if_empty(EMPTY, bucket)

    def _step_buckets(self, schedule: Schedule) -> None:
        """Do what `step` does, if there are several buckets."""
        order_of, values_of = self._order, self._values
        deltas: dict[SortedBucket, BucketDelta] = {}
        for key, old, new in self.source.out:
            one = None if old is None else values_of(old)
            two = None if new is None else values_of(new)
            before = None if old is None or one is None else order_of(old) + key
            after = None if new is None or two is None else order_of(new) + key
            if one is not None and one == two:
                bucket = self.buckets[one]
                bucket.change(before, after, deltas.get(bucket) or _delta(deltas, bucket))
                continue
            if one is not None:
                bucket = self.buckets[one]
                bucket.change(before, None, deltas.get(bucket) or _delta(deltas, bucket))
                self._close_if_empty(one, bucket)
            if two is not None:
                bucket = self._opened(two)
                bucket.change(None, after, deltas.get(bucket) or _delta(deltas, bucket))
        for bucket, delta in deltas.items():
            if delta:
                bucket.tell(delta, schedule)


def _delta(deltas: dict[SortedBucket, BucketDelta], bucket: SortedBucket) -> BucketDelta:
    """Return the delta of a bucket in `deltas`. If there is none, an empty one is added."""
    if bucket not in deltas:
        deltas[bucket] = BucketDelta()
    return deltas[bucket]
