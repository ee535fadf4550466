"""The first rows of an order, for windows over a table that is not in memory.

    kept    the rows up to a position `end`, in order: as many as a window needs, and some more, the slack
    beyond  all other rows: they are not known, and their changes have no effect

A change beyond `end` is ignored; a row whose new position is `end` or before it is kept. So the kept rows are correct
without the rows beyond, as long as there are enough of them for the windows. Each removed row uses up slack, and so
does each place by which a window moves on. Once more than a fifth of the slack is used up, the kept rows are *spent*:
the owners of the windows are notified to open them anew over a `KeptOrder`. Meanwhile the other four fifths serve the
windows. A window that needs more rows than are kept is *short*, and is not updated any more.

A change needs only the new row, because the former row is either kept here or beyond `end`.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from eddy.errors import NotReadyError
from eddy.live.dataflow.dataflow import QueryOperator, Schedule, TableRows
from eddy.live.dataflow.ordered import Ordered
from eddy.live.dataflow.values import EMPTY, Flat, Row, flat_key, key_of, order_key, order_of, same_row
from eddy.live.dataflow.window import Bounds, BucketDelta, Owner, SortedBucket, Window

__all__ = ["FirstRows", "PassingRows", "slack_of"]

_SLACK, _MOST_SLACK = 100, 30_000


def slack_of(limit: int, scanned: int) -> int:
    """Return the number of rows to keep in addition to a window of `limit` rows, over a table of `scanned` rows.

    At least a tenth of the table's rows, up to 30,000.
    """
    return min(max(limit, _SLACK, scanned // 10), _MOST_SLACK)


class PassingRows(TableRows):
    """A table whose rows are not in memory: the operator only passes changes on, and does not know the former rows.

    `scan` reads the rows with all changes of former batches. The new row of a change may equal the former one.
    """

    def __init__(self, scan: "Callable[[], Iterable[tuple[Flat, Row]]]", name: str = "") -> None:
        super().__init__({}, name)
        self.scan = scan
        self.losses = 0
        """How often changes of the table were lost."""

    def take(self, delta: "dict[Flat, Row | None]") -> None:  # type: ignore[override]
        """Pass changes on."""
        self.out, self._olds = [(key, None, new) for key, new in delta.items()], None
        for journal in self.journals:
            journal.update(delta)


class FirstRows(Ordered):
    """The first rows of `table` for which `test` is true, sorted as `Ordered` sorts rows. All are in one bucket.

    `bounds` are the bounds of the first window, which has a limit. Rows before the start of this window are not kept.
    Other windows with the same start may show other rows among the kept rows.
    """

    def __init__(
        self,
        table: PassingRows,
        test: Callable[[Row], bool],
        key_columns: Sequence[str],
        order: Sequence[tuple[str, bool]],
        bounds: Bounds,
        sorts: Hashable = None,
    ) -> None:
        """`sorts` is equal for operators that differ only in their bounds."""
        QueryOperator.__init__(self, [table])
        assert bounds.limit is not None
        assert bounds.needed is not None
        self.source = self.table = table
        self.sorts, self.is_lost = sorts, False
        self._test, self._order, self._from = test, order_of(order), bounds.start
        self.position = order_key(order, flat_key(key_columns))
        self.needed = bounds.needed
        self.scanned = 0
        found = heapq.nsmallest(self.needed + _MOST_SLACK + 1, self._passing(table.scan()))
        self._slack = slack_of(bounds.limit, self.scanned)
        size = self._size
        self._kept = {key_of(position): row for position, row in found[:size]}
        self._olds: dict[Flat, Row | None] = {}
        self.bucket = SortedBucket([position for position, _ in found[:size]])
        self._end = found[size - 1][0] if len(found) > size else None
        self.buckets = {EMPTY: self.bucket}

    @property
    def _size(self) -> int:
        """The number of rows to keep."""
        return max(1, self.needed + self._slack)

    def _passing(self, rows: Iterable[tuple[Flat, Row]]) -> Iterator[tuple[Flat, Row]]:
        for key, row in rows:
            self.scanned += 1
            if self._test(row):
                position = self._order(row) + key
                if self._from is None or position >= self._from:
                    yield position, row

    def row_count(self) -> int:
        """Return the number of rows that are kept."""
        return len(self._kept)

    def row(self, position: Flat) -> Row:
        """Return the row at a position, as it is now."""
        return self._kept[key_of(position)]

    def was(self, position: Flat) -> Row:
        """Return the row at a position, as it was before the batch."""
        key = key_of(position)
        row = self._olds[key] if key in self._olds else self._kept[key]
        assert row is not None
        return row

    @property
    def _left(self) -> int:
        """The number of rows that are kept beyond the need of the windows."""
        return len(self._kept) - self.needed

    def covers(self, bounds: Bounds) -> bool:
        """Return whether there are enough rows here for a window with these bounds."""
        if bounds.needed is None or bounds.start != self._from or self.is_spent:
            return False
        return self._end is None or bounds.needed <= len(self._kept)

    def open(self, values: Flat, bounds: Bounds, owner: Owner) -> Window:
        """Open a window, which is updated until it is closed. `values` are ignored: they are part of the test.

        Raises: NotReadyError if these rows do not suffice.
        """
        if not self.covers(bounds):
            raise NotReadyError("live query: too few rows are kept for its window. Try again")
        window = self.bucket.open(bounds, owner)
        self._find_needed(bounds)
        return window

    def close(self, values: Flat, window: Window) -> None:
        """Close a window, which is not updated any more."""
        self.bucket.close(window)
        self._find_needed()

    def widen(self, window: Window, bounds: Bounds) -> None:
        """Keep the rows that a window needs at these bounds."""
        self._find_needed(bounds)

    def _find_needed(self, *others: Bounds) -> None:
        """Set `needed` to the greatest number of rows that one of these bounds, or an open window, needs."""
        bounds = [*others, *(window.bounds for window in self.bucket.windows)]
        self.needed = max((each.needed or 0 for each in bounds), default=0)

    def exhaust(self) -> None:
        """Mark the rows as lost, because changes were missed.

        The windows are short from now on, and not updated any more.
        """
        self.is_lost = True
        self._warn(lambda operator: None, is_short=True)

    def step(self, schedule: Schedule) -> None:
        """Apply the changes of positions, and send them to the windows."""
        delta = BucketDelta()
        for key, _, new in self.table.out:
            self._change(key, new, delta)
        left = self._left
        if self._end is not None and left < 0:
            self._warn(schedule, is_short=True)
            return
        if self._end is not None and left < self._slack * 4 // 5 and not self.is_spent:
            self._warn(schedule, is_short=False)
        if delta:
            self.bucket.tell(delta, schedule)

    def _warn(self, schedule: Schedule, *, is_short: bool) -> None:
        self.is_spent = True
        for window in self.bucket.windows:
            window.owner.warned(is_short=is_short, schedule=schedule)

    def _change(self, key: Flat, new: Row | None, delta: BucketDelta) -> None:
        old = self._kept.get(key)
        after = self._place(key, new)
        if old is None and after is None:
            return
        if old is not None and new is not None and same_row(old, new):
            return
        self._olds[key] = old
        before = None if old is None else self._order(old) + key
        if after is None or new is None:
            del self._kept[key]
        else:
            self._kept[key] = new
        self.bucket.change(before, after, delta)

    def _place(self, key: Flat, row: Row | None) -> Flat | None:
        """Return the position of a row if it is one of the rows to keep.

        Returns None for no row, for a row that fails the test, and for a row before the start or beyond `end`.
        """
        if row is None or not self._test(row):
            return None
        position = self._order(row) + key
        if (self._from is not None and position < self._from) or (self._end is not None and position > self._end):
            return None
        return position

    def end(self) -> None:
        """End the batch.

        If too many rows are kept, the last ones are dropped, and `end` moves to the last row that is left.
        """
        super().end()
        self._olds = {}
        count, size = len(self._kept), self._size
        if count > size + self._slack:
            for position in self.bucket.between(size, count):
                self.bucket.remove(position)
                del self._kept[key_of(position)]
            self._end = self.bucket.at(size - 1)
