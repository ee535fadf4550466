"""A window over a sorted bucket: the rows from `start`, without the first `skip`, at most `limit`.

    lo, hi    the first and the last position inside; both move with the rows
    left      − rows inside of the old [lo, hi] that are removed, and those between the old and the new bounds
    entered   + rows inside of the new [lo, hi] that are added, and those between the new and the old bounds

So a limit, a skip, a start and a window that is moved are one rule, and nothing is read but the rows that cross a
bound: never a re-query. Cost: O(changes · log n).
"""

import heapq
import sys
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from eddy.operators.views.dataflow import Schedule
from eddy.operators.views.positions import Positions
from eddy.operators.views.values import Flat

__all__ = ["Bounds", "BucketDelta", "Owner", "SortedBucket", "Window", "WindowDelta", "in_order"]

_SORTED = 50_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """`start` is a position in the order, of which rows are shown from there on: at it only if `inclusive`."""

    start: Flat | None = None
    inclusive: bool = False
    skip: int = 0
    limit: int | None = None


class BucketDelta:
    """A bucket's changes: positions that go, that come, and whose row is another at the same position.

    Only those that matter to a window: up to the `edge` of the bucket.
    """

    __slots__ = ("added", "changed", "removed")

    def __init__(self) -> None:
        self.removed: list[Flat] = []
        self.added: list[Flat] = []
        self.changed: list[Flat] = []

    def __bool__(self) -> bool:
        return bool(self.removed or self.added or self.changed)

    def least(self) -> Flat:
        """The first position in it."""
        return min([*self.removed, *self.added, *self.changed])


@dataclass(slots=True)
class WindowDelta:
    """Rows that left, with their index before; that entered, and that changed, with their index now."""

    left: list[tuple[int, Flat]]
    entered: list[tuple[int, Flat]]
    changed: list[tuple[int, Flat]]

    def __bool__(self) -> bool:
        return bool(self.left or self.entered or self.changed)


def in_order(positions: list[Flat]) -> list[Flat]:
    """Sorted: many of them in runs, so that other threads go on meanwhile."""
    if len(positions) <= _SORTED:
        return sorted(positions)
    runs = [sorted(positions[begin : begin + _SORTED]) for begin in range(0, len(positions), _SORTED)]
    return list(heapq.merge(*runs))


class Owner(Protocol):
    """The bucket of a view that a window belongs to."""

    @property
    def most_rows(self) -> int:
        """The rows that its view may have."""

    def told(self, delta: WindowDelta, schedule: Schedule) -> None:
        """The rows of the window have changed."""

    def warned(self, *, is_short: bool, schedule: Schedule) -> None:
        """The rows that are kept for the window are few, or fewer than it needs: then it is of no use any more."""


_NO_WINDOWS: "dict[Window, None]" = {}
"""That of all buckets without windows: never changed."""


class SortedBucket(Positions):
    """The positions of a bucket's rows, in order, and the windows over it.

    `edge` is the last position at which a change matters to one of the windows; None where all do.
    """

    __slots__ = ("edge", "windows")

    def __init__(self, positions: list[Flat]) -> None:
        """Of sorted positions."""
        super().__init__(positions)
        self.windows: dict[Window, None] = _NO_WINDOWS
        self.edge: Flat | None = b""

    def change(self, before: Flat | None, after: Flat | None, delta: BucketDelta) -> None:
        """A row goes, comes, or changes, and perhaps its position; `delta` is told where it matters."""
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
        """A window that is told of changes until it is closed."""
        window = Window(self, bounds, owner)
        if not self.windows:
            self.windows = {}
        self.windows[window] = None
        self.find_edge()
        return window

    def close(self, window: "Window") -> None:
        """Tell it of no more changes."""
        del self.windows[window]
        self.find_edge()

    def find_edge(self) -> None:
        """Note the last of the windows' edges."""
        edge = b""
        for window in self.windows:
            if window.edge is None:
                self.edge = None
                return
            if window.edge > edge:
                edge = window.edge
        self.edge = edge

    def tell(self, delta: BucketDelta, schedule: Schedule) -> None:
        """Tell the windows of changes."""
        least = delta.least() if len(self.windows) > 1 else b""
        for window in self.windows:
            if window.edge is None or window.edge >= least:
                found = window.step(delta)
                if found.left or found.entered or found.changed:
                    window.owner.told(found, schedule)
        if delta.removed or delta.added:
            self.find_edge()


class Window:
    """One window of one bucket, for `owner`. `first` is the index of `lo` in the bucket, `size` the rows inside."""

    __slots__ = ("bounds", "bucket", "edge", "first", "hi", "lo", "owner", "size")

    def __init__(self, bucket: SortedBucket, bounds: Bounds, owner: Owner) -> None:
        self.bucket, self.bounds, self.owner = bucket, bounds, owner
        self._place()

    def _place(self) -> None:
        """Find the rows inside."""
        bounds, bucket = self.bounds, self.bucket
        first, limit = bounds.skip, bounds.limit
        if bounds.start is not None:
            at = bucket.rank(bounds.start)
            first += at if bounds.inclusive or bucket.at(at) != bounds.start else at + 1
        hi = bucket.at(first + limit - 1) if limit else None
        self.first, self.edge = first, hi  # changes after the edge do not matter; all do where it is None
        if hi is None:
            size = max(0, len(bucket) - first) if limit != 0 else 0
            hi = bucket.at(first + size - 1) if size else None
        else:
            assert limit is not None
            size = limit
        self.size, self.hi = size, hi
        self.lo = bucket.at(first) if size else None

    def rows(self) -> list[Flat]:
        """The positions inside."""
        return self.bucket.between(self.first, self.first + self.size)

    def moved(self, bounds: Bounds) -> WindowDelta:
        """The same rows through other bounds."""
        self.bounds = bounds
        delta = self._moved([], [])
        self.bucket.find_edge()
        return WindowDelta(*delta, [])

    def step(self, delta: BucketDelta) -> WindowDelta:
        """The rows that left, entered and changed, now that the bucket has its delta."""
        lo, hi, removed, added, changed = self.lo, self.hi, delta.removed, delta.added, delta.changed
        if not removed and not added:
            return WindowDelta([], [], self._changed(changed))
        is_one = len(removed) < 2 and len(added) < 2 and self.bounds.start is None and self.size
        left, entered = self._one_moved(removed, added) if is_one else self._moved(sorted(removed), sorted(added))
        stayed = _inside(changed, lo, hi) if changed else changed  # others have entered, as they are now
        return WindowDelta(left, entered, self._changed(stayed) if stayed else [])

    def _changed(self, positions: list[Flat]) -> list[tuple[int, Flat]]:
        """Of rows that changed at their positions those inside, with their index."""
        rank, first = self.bucket.rank, self.first
        return [(rank(key) - first, key) for key in _inside(positions, self.lo, self.hi)]

    def _moved(self, removed: list[Flat], added: list[Flat]) -> tuple[list[tuple[int, Flat]], list[tuple[int, Flat]]]:
        """The rows that left, with their index before, and those that entered, with their index now.

        Both lists of positions are sorted.
        """
        lo, hi, old_first, bucket = self.lo, self.hi, self.first, self.bucket
        rank = bucket.rank
        self._place()
        first, end = self.first, self.first + self.size
        kept, stop = self._now(lo, hi)
        shift = bisect_left  # how many of the changes are before a position
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

    def _one_moved(
        self, removed: list[Flat], added: list[Flat]
    ) -> tuple[list[tuple[int, Flat]], list[tuple[int, Flat]]]:
        """The same for one row at most that goes and one that comes, in a window whose first index is fixed.

        Of the others only the row beside a bound crosses it: what one change pulls in at the end the other pushes out.
        """
        bucket, first, limit = self.bucket, self.first, self.bounds.limit
        end = sys.maxsize if limit is None else first + limit
        gone = come = end
        if added:
            come = bucket.rank(added[0])
        if removed:
            gone = bucket.rank(removed[0])
            gone -= bool(added) and added[0] < removed[0]
        self._place()
        if (gone >= end and come >= end) or (gone < first and come < first):
            return [], []
        left: Flat | None
        entered: Flat | None
        if gone < end:
            leaving = max(gone, first)
            left = removed[0] if gone >= first else bucket.at(first - 1)
        else:
            leaving, left = end - 1, None if limit is None else bucket.at(end)
        if come < end:
            entering = max(come, first)
            entered = added[0] if come >= first else bucket.at(first)
        else:
            entering, entered = end - 1, self.edge
        return (
            [] if left is None else [(leaving - first, left)],
            [] if entered is None else [(entering - first, entered)],
        )

    def _now(self, lo: Flat | None, hi: Flat | None) -> tuple[int, int]:
        """Where the rows from `lo` to `hi` begin and end in the bucket as it is now."""
        bucket = self.bucket
        if lo is None or hi is None:
            return 0, 0
        kept = self.first if lo == self.lo else bucket.rank(lo)
        if hi == self.hi:
            return kept, self.first + self.size
        stop = bucket.rank(hi)
        return kept, stop + (bucket.at(stop) == hi)

    def _others(self, one: tuple[int, int], two: tuple[int, int], fresh: set[Flat]) -> Iterator[tuple[int, Flat]]:
        """The rows in two stretches of the bucket, with their index in it, that have not come just now."""
        for begin, end in (one, two):
            if begin < end:
                for now, key in enumerate(self.bucket.between(begin, end), begin):
                    if key not in fresh:
                        yield now, key


def _inside(positions: list[Flat], lo: Flat | None, hi: Flat | None) -> list[Flat]:
    """Those within bounds; none where there are no bounds."""
    return [] if lo is None or hi is None else [key for key in positions if lo <= key <= hi]
