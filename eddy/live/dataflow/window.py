"""A window over a sorted bucket: the rows from `start`, without the first `skip`, at most `limit`.

    lo, hi    the first and the last position inside; both move with the rows
    left      rows inside the old [lo, hi] that are removed from the bucket, or that are outside the new [lo, hi]
    entered   rows inside the new [lo, hi] that are added to the bucket, or that were outside the old [lo, hi]

So one rule suffices for a limit, a skip, a start and a window that is moved. Only the rows that cross a bound are read;
the query is never evaluated again. Cost: O(changes · log n).
"""

import heapq
import sys
from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

import msgspec

from eddy.live.dataflow.dataflow import Schedule
from eddy.live.dataflow.row_positions import RowPositions
from eddy.live.dataflow.values import Flat, key_of

__all__ = ["Bounds", "BucketDelta", "Owner", "SortedBucket", "Window", "WindowDelta", "in_order"]

_SORTED = 50_000
_FEW = 8
"""A bucket keeps up to this many windows in a tuple, which is small, and more in a dictionary, which is fast.
"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a window: it shows rows after the position `start`, and the row at `start` only if `inclusive`."""

    start: Flat | None = None
    inclusive: bool = False
    skip: int = 0
    limit: int | None = None

    @property
    def needed(self) -> int | None:
        """The number of positions that the window needs from `start` on; None for all.

        The position `start` counts, too, if it is not shown.
        """
        if self.limit is None:
            return None
        return self.skip + self.limit + (self.start is not None and not self.inclusive)


class BucketDelta(msgspec.Struct):
    """The changes of a bucket: positions that are removed, positions that are added, and positions with another row.

    It has only changes that matter to a window: those up to the `edge` of the bucket.
    """

    removed: list[Flat] = []
    added: list[Flat] = []
    changed: list[Flat] = []

    def __bool__(self) -> bool:
        return bool(self.removed or self.added or self.changed)

    def least(self) -> Flat:
        """Return the first position in the delta."""
        return min([*self.removed, *self.added, *self.changed])


class WindowDelta(msgspec.Struct):
    """The changes of a window, as pairs (index, position). The index is the old one in `left`, otherwise the new one.

    `left` are the rows that have left the window, `entered` the rows that have entered it, `changed` the rows with
    other values. `stayed` are the rows whose position changed within the window: old index, new index, new position.
    """

    left: list[tuple[int, Flat]] = []
    entered: list[tuple[int, Flat]] = []
    stayed: list[tuple[int, int, Flat]] = []
    changed: list[tuple[int, Flat]] = []

    def __bool__(self) -> bool:
        return bool(self.left or self.entered or self.stayed or self.changed)


def in_order(positions: list[Flat]) -> list[Flat]:
    """Sort positions. Many positions are sorted in runs, so that other threads run in between."""
    if len(positions) <= _SORTED:
        return sorted(positions)
    runs = [sorted(positions[begin : begin + _SORTED]) for begin in range(0, len(positions), _SORTED)]
    return list(heapq.merge(*runs))


class Owner(Protocol):
    """The bucket of a view that a window belongs to."""

    @property
    def most_rows(self) -> int:
        """The greatest number of rows that the bucket's view may have."""

    def rows_changed(self, delta: WindowDelta, schedule: Schedule) -> None:
        """Note that the rows of the window have changed, by `delta`."""

    def warned(self, *, is_short: bool, schedule: Schedule) -> None:
        """Note that few rows are kept for the window.

        With `is_short` the window has fewer rows than it needs, and is not updated any more.
        """


class SortedBucket(RowPositions):
    """The positions of a bucket's rows, in order, and the windows over it.

    `edge` is the last position at which a change matters to one of the windows; None if all changes matter.
    """

    __slots__ = ("edge", "windows")

    def __init__(self, positions: list[Flat]) -> None:
        """`positions` are sorted."""
        super().__init__(positions)
        self.windows: Collection[Window] = ()
        self.edge: Flat | None = b""

    def change(self, before: Flat | None, after: Flat | None, delta: BucketDelta) -> None:
        """Move a row of the bucket from position `before` to position `after`.

        The same position: the row has other values. None for `before` means that the row is new here, None for `after`
        that it is removed. The change is added to `delta` if it matters to a window.
        """
        edge = self.edge
        if before == after:
            if before is not None and (edge is None or before <= edge):
                delta.changed.append(before)
            return
        if before is not None:
            self.remove(before)
            if edge is None or before <= edge:
                delta.removed.append(before)
        if after is not None:
            self.add(after)
            if edge is None or after <= edge:
                delta.added.append(after)

    def open(self, bounds: Bounds, owner: Owner) -> "Window":
        """Open a window, which is updated until it is closed."""
        window = Window(self, bounds, owner)
        if isinstance(self.windows, dict):
            self.windows[window] = None
        else:
            windows = (*self.windows, window)
            self.windows = windows if len(windows) <= _FEW else dict.fromkeys(windows)
        if self.edge is not None and (window.edge is None or window.edge > self.edge):
            self.edge = window.edge
        return window

    def close(self, window: "Window") -> None:
        """Close a window, which is not updated any more."""
        if isinstance(self.windows, dict):
            del self.windows[window]
        else:
            self.windows = tuple(each for each in self.windows if each is not window)
        if window.edge == self.edge:
            self.find_edge()

    def find_edge(self) -> None:
        """Set `edge` to the last edge of the windows."""
        edge = b""
        for window in self.windows:
            if window.edge is None:
                self.edge = None
                return
            if window.edge > edge:
                edge = window.edge
        self.edge = edge

    def tell(self, delta: BucketDelta, schedule: Schedule) -> None:
        """Pass the changes to the windows' owners."""
        windows = self.windows
        least = delta.least() if len(windows) > 1 else b""
        for window in windows:
            if window.edge is None or window.edge >= least:
                found = window.step(delta)
                if found.left or found.entered or found.stayed or found.changed:
                    window.owner.rows_changed(found, schedule)
        if len(windows) == 1:
            self.edge = window.edge
        elif delta.removed or delta.added:
            self.find_edge()


class Window:
    """One window over one bucket, for `owner`.

    `first` is the index of `lo` in the bucket, `size` the number of rows.
    """

    __slots__ = ("bounds", "bucket", "edge", "first", "hi", "lo", "owner", "size")

    def __init__(self, bucket: SortedBucket, bounds: Bounds, owner: Owner) -> None:
        self.bucket, self.bounds, self.owner = bucket, bounds, owner
        self._place()

    def _place(self) -> None:
        """Find the rows inside the window."""
        bounds, bucket = self.bounds, self.bucket
        first, limit = bounds.skip, bounds.limit
        if bounds.start is not None:
            at = bucket.rank(bounds.start)
            first += at if bounds.inclusive or bucket.at(at) != bounds.start else at + 1
        hi = bucket.at(first + limit - 1) if limit else None
        self.first, self.edge = first, hi  # changes after `edge` do not matter; if it is None, all changes matter
        if hi is None:
            size = max(0, len(bucket) - first) if limit != 0 else 0
            hi = bucket.at(first + size - 1) if size else None
        else:
            assert limit is not None
            size = limit
        self.size, self.hi = size, hi
        self.lo = bucket.at(first) if size else None

    def rows(self) -> list[Flat]:
        """Return the positions inside the window."""
        return self.bucket.between(self.first, self.first + self.size)

    def move_to(self, bounds: Bounds) -> WindowDelta:
        """Move the window to other bounds. Returns the changes of its rows."""
        self.bounds = bounds
        delta = self._move([], [])
        self.bucket.find_edge()
        return WindowDelta(*delta)

    def step(self, delta: BucketDelta) -> WindowDelta:
        """Return the rows that left, entered or changed. The bucket already has the delta."""
        lo, hi, removed, added, changed = self.lo, self.hi, delta.removed, delta.added, delta.changed
        if not removed and not added:
            return WindowDelta(changed=self._changed(changed))
        is_one = len(removed) < 2 and len(added) < 2 and self.bounds.start is None and self.size
        found = self._move_by_one(removed, added) if is_one else None
        if found is None:
            found = _split_stayed(*self._move(sorted(removed), sorted(added)))
        if changed:
            # The other changed rows are among those that have entered.
            found.changed = self._changed(_inside(changed, lo, hi))
        return found

    def _changed(self, positions: list[Flat]) -> list[tuple[int, Flat]]:
        """Return (index, position) of the rows inside the window, among `positions`: rows with other values."""
        rank, first = self.bucket.rank, self.first
        return [(rank(key) - first, key) for key in _inside(positions, self.lo, self.hi)]

    def _move(self, removed: list[Flat], added: list[Flat]) -> tuple[list[tuple[int, Flat]], list[tuple[int, Flat]]]:
        """Find the rows inside the window anew.

        Returns two lists of (index, position): rows that left, with their old index, and rows that entered, with their
        new index. `removed` and `added` are sorted.
        """
        lo, hi, old_first, bucket = self.lo, self.hi, self.first, self.bucket
        rank = bucket.rank
        self._place()
        first, end = self.first, self.first + self.size
        kept, stop = self._current_range(lo, hi)
        shift = bisect_left  # the number of changes before a position
        left = [
            (rank(key) - shift(added, key) + shift(removed, key) - old_first, key) for key in _inside(removed, lo, hi)
        ]
        entered = [(rank(key) - first, key) for key in _inside(added, self.lo, self.hi)]
        if kept != first or stop != end:
            fresh = set(added)
            for now, key in self._others((kept, min(stop, first)), (max(kept, end), stop), fresh):
                left.append((now - shift(added, key) + shift(removed, key) - old_first, key))
            for now, key in self._others((first, min(end, kept)), (max(first, stop), end), fresh):
                entered.append((now - first, key))
            left.sort()
            entered.sort()
        return left, entered

    def _move_by_one(self, removed: list[Flat], added: list[Flat]) -> WindowDelta | None:
        """Return the changes of a window without a start, in the cheap case of at most one removed and one added row.

        Of all other rows, only a row beside a bound can cross the bound. Returns None if the window and the rows beside
        it are not in one run. Local indexes are indexes in the run.
        """
        first, limit = self.first, self.bounds.limit
        end = sys.maxsize if limit is None else first + limit
        found = self.bucket.run_with(first - 1 if first else 0, end + 1)
        if found is None:
            return None
        run, begin = found
        first, end = first - begin, end - begin
        gone = come = end
        left = entered = None
        if added:
            entered = added[0]
            come = bisect_left(run, entered)
        if removed:
            left = removed[0]
            gone = bisect_left(run, left)
            if entered is not None and entered < left:
                gone -= 1
        self._place_in(run, first, end)
        if (gone >= end and come >= end) or (gone < first and come < first):
            return WindowDelta()
        if gone >= end:
            gone, left = end - 1, run[end] if end < len(run) else None
        elif gone < first:
            gone, left = first, run[first - 1]
        if come >= end:
            come, entered = end - 1, self.edge
        elif come < first:
            come, entered = first, self.lo
        if left is None or entered is None:
            return WindowDelta(
                [] if left is None else [(gone - first, left)], [] if entered is None else [(come - first, entered)]
            )
        if left.endswith(key_of(entered)):
            return WindowDelta([], [], [(gone - first, come - first, entered)])
        return WindowDelta([(gone - first, left)], [(come - first, entered)])

    def _place_in(self, run: list[Flat], first: int, end: int) -> None:
        """Set the window to the rows of the run from index `first` to before `end`."""
        count = len(run)
        if count >= end:
            self.edge = self.hi = run[end - 1]
            self.size = end - first
        else:
            self.edge, self.size = None, max(0, count - first)
            self.hi = run[-1] if self.size else None
        self.lo = run[first] if self.size else None

    def _current_range(self, lo: Flat | None, hi: Flat | None) -> tuple[int, int]:
        """Return the index of `lo` in the bucket, and the index after `hi`, as they are now."""
        bucket = self.bucket
        if lo is None or hi is None:
            return 0, 0
        kept = self.first if lo == self.lo else bucket.rank(lo)
        if hi == self.hi:
            return kept, self.first + self.size
        stop = bucket.rank(hi)
        return kept, stop + (bucket.at(stop) == hi)

    def _others(self, one: tuple[int, int], two: tuple[int, int], fresh: set[Flat]) -> Iterator[tuple[int, Flat]]:
        """Yield (index, position) of the rows in two ranges of the bucket, without the rows in `fresh`."""
        for begin, end in (one, two):
            if begin < end:
                for now, key in enumerate(self.bucket.between(begin, end), begin):
                    if key not in fresh:
                        yield now, key


def _split_stayed(left: list[tuple[int, Flat]], entered: list[tuple[int, Flat]]) -> WindowDelta:
    """Return the delta for rows that left and rows that entered. A row that is in both lists is put into `stayed`."""
    if not left or not entered:
        return WindowDelta(left, entered)
    by_key = {key_of(each[1]): each for each in left}
    found = WindowDelta()
    for index, position in entered:
        before = by_key.pop(key_of(position), None)
        if before is None:
            found.entered.append((index, position))
        else:
            found.stayed.append((before[0], index, position))
    found.left = list(by_key.values())
    return found


def _inside(positions: list[Flat], lo: Flat | None, hi: Flat | None) -> list[Flat]:
    """Return the positions from `lo` to `hi`, both included; empty if `lo` or `hi` is None."""
    return [] if lo is None or hi is None else [key for key in positions if lo <= key <= hi]
