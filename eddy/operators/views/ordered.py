"""The ordered arrangement: rows in buckets by some columns, sorted within each; shared by all queries that sort alike.

A position ends with the row's key, so that the order is total and a position leads to its row. Rows with a null in the
bucket's columns are in none: null equals nothing. Queries that differ in the constant of an equality are buckets of one
arrangement.

Without columns there is one bucket, of the key ().
"""

from collections.abc import Sequence

from eddy.operators.views.dataflow import Operator, Schedule, TableRows
from eddy.operators.views.filter import Filter, rows_of
from eddy.operators.views.values import Flat, Row, flat_key, join_key, order_key, order_of
from eddy.operators.views.window import Bounds, BucketDelta, Owner, SortedBucket, Window, in_order

__all__ = ["Ordered"]


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
        self.source, self.table = source, table
        self._bucket, self._order = join_key(by), order_of(order)
        self.position = order_key(order, flat_key(key_columns))
        self._tail = 2 * len(key_columns)
        self.buckets: dict[Flat, SortedBucket] = {}
        filled: dict[Flat, list[Flat]] = {}
        for key, row in rows_of(source):
            values = self._bucket(row)
            if values is not None:
                filled.setdefault(values, []).append(self._order(row) + key)
        for values, positions in filled.items():
            positions = in_order(positions)
            self.buckets[values] = SortedBucket(positions)

    def row_count(self) -> int:
        """The number of positions, in all buckets."""
        return sum(len(bucket.positions) for bucket in self.buckets.values())

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

    def open(self, values: Flat, bounds: Bounds, owner: Owner) -> Window:
        """A window that is told of changes until it is closed."""
        bucket = self._opened(values)
        window = Window(bucket, bounds, owner)
        bucket.windows[window] = None
        return window

    def close(self, values: Flat, window: Window) -> None:
        """Tell it of no more changes."""
        bucket = window.bucket
        del bucket.windows[window]
        if not bucket.positions and not bucket.windows:
            del self.buckets[values]

    def covers(self, bounds: Bounds) -> bool:
        """Whether a window can be moved to these bounds."""
        return True

    def _opened(self, values: Flat) -> SortedBucket:
        bucket = self.buckets.get(values)
        if bucket is None:
            bucket = self.buckets[values] = SortedBucket([])
        return bucket

    def step(self, schedule: Schedule) -> None:
        """Move positions, and tell the windows of buckets that changed."""
        deltas: dict[SortedBucket, BucketDelta] = {}
        values_of, order_of = self._bucket, self._order
        for key, old, new in self.source.out:
            one = None if old is None else values_of(old)
            two = None if new is None else values_of(new)
            before = None if old is None or one is None else order_of(old) + key
            after = None if new is None or two is None else order_of(new) + key
            if one is not None and before is not None:
                bucket = self.buckets[one]
                delta = deltas.get(bucket) or _delta(deltas, bucket)
                if one == two and after is not None:
                    bucket.move(before, after, delta)
                    continue
                bucket.remove(before)
                delta.removed.append(before)
                if not bucket.positions and not bucket.windows:
                    del self.buckets[one]
            if two is not None and after is not None:
                bucket = self._opened(two)
                bucket.add(after)
                (deltas.get(bucket) or _delta(deltas, bucket)).added.append(after)
        for bucket, delta in deltas.items():
            for window in bucket.windows:
                found = window.step(delta)
                if found:
                    window.owner.told(found, schedule)


def _delta(deltas: dict[SortedBucket, BucketDelta], bucket: SortedBucket) -> BucketDelta:
    made = deltas[bucket] = BucketDelta([], [], [])
    return made
