"""A window over a sorted bucket: the rows from `start`, without the first `skip`, at most `limit`.

    lo, hi    the first and the last position inside; both move with the rows
    left      − rows inside of the old [lo, hi] that are removed, and those between the old and the new bounds
    entered   + rows inside of the new [lo, hi] that are added, and those between the new and the old bounds

So a limit, a skip, a start and a window that is moved are one rule, and nothing is read but the rows that cross a
bound: never a re-query. Cost: O(changes · log n).
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sortedcontainers import SortedList

from eddy.operators.views.dataflow import Schedule
from eddy.operators.views.values import Flat

__all__ = ["Bounds", "BucketDelta", "Owner", "SortedBucket", "Window", "WindowDelta", "in_order"]

_LIST = 1_000
_RUN = 50_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """`start` is a position in the order, of which rows are shown from there on: at it only if `inclusive`."""

    start: Flat | None = None
    inclusive: bool = False
    skip: int = 0
    limit: int | None = None


@dataclass(slots=True)
class BucketDelta:
    """A bucket's changes: positions that go, that come, and whose row is another at the same position."""

    removed: list[Flat]
    added: list[Flat]
    changed: list[Flat]


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
    if len(positions) <= _RUN:
        return sorted(positions)
    runs = [sorted(positions[begin : begin + _RUN]) for begin in range(0, len(positions), _RUN)]
    return list(heapq.merge(*runs))


class Owner(Protocol):
    """The bucket of a view that a window belongs to."""

    def told(self, delta: WindowDelta, schedule: Schedule) -> None:
        """The rows of the window have changed."""

    def warned(self, *, is_short: bool, schedule: Schedule) -> None:
        """The rows that are kept for the window are few, or fewer than it needs: then it is of no use any more."""


_NOTHING = WindowDelta([], [], [])


class SortedBucket:
    """The positions of a bucket's rows, in order, and the windows over it.

    `positions` is a list; from `_LIST` rows on a SortedList, so that an insertion costs O(log n).
    """

    __slots__ = ("positions", "windows")

    def __init__(self, positions: list[Flat]) -> None:
        """Of sorted positions."""
        self.positions: Any = positions if len(positions) < _LIST else SortedList(positions)
        self.windows: dict[Window, None] = {}

    def add(self, position: Flat) -> None:
        """A row comes."""
        positions = self.positions
        if type(positions) is list:
            insort(positions, position)
            if len(positions) >= _LIST:
                self.positions = SortedList(positions)
        else:
            positions.add(position)

    def remove(self, position: Flat) -> None:
        """A row goes."""
        positions = self.positions
        if type(positions) is list:
            del positions[bisect_left(positions, position)]
        else:
            positions.remove(position)

    def move(self, before: Flat, after: Flat, delta: BucketDelta) -> None:
        """A row changes, and perhaps its position; `delta` is told."""
        if before == after:
            delta.changed.append(before)
            return
        self.remove(before)
        self.add(after)
        delta.removed.append(before)
        delta.added.append(after)

    def rank(self, position: Flat) -> int:
        """The number of positions before this one."""
        positions = self.positions
        at: int = bisect_left(positions, position) if type(positions) is list else positions.bisect_left(position)
        return at


class Window:
    """One window of one bucket, for `owner`. `first` is the index of `lo` in the bucket, `size` the rows inside."""

    __slots__ = ("bounds", "bucket", "first", "hi", "lo", "owner", "size")

    def __init__(self, bucket: SortedBucket, bounds: Bounds, owner: Owner) -> None:
        self.bucket, self.bounds, self.owner = bucket, bounds, owner
        self._place()

    def _place(self) -> None:
        """Find the rows inside."""
        bounds, positions = self.bounds, self.bucket.positions
        first, count = bounds.skip, len(positions)
        if bounds.start is not None:
            at = self.bucket.rank(bounds.start)
            if not bounds.inclusive and at < count and positions[at] == bounds.start:
                at += 1
            first += at
        end = count if bounds.limit is None else min(count, first + bounds.limit)
        self.first, self.size = first, max(0, end - first)
        self.lo: Any = positions[first] if self.size else None
        self.hi: Any = positions[end - 1] if self.size else None

    def rows(self) -> Sequence[Flat]:
        """The positions inside."""
        found: Sequence[Flat] = self.bucket.positions[self.first : self.first + self.size]
        return found

    def moved(self, bounds: Bounds) -> WindowDelta:
        """The same rows through other bounds."""
        self.bounds = bounds
        return self._step(BucketDelta([], [], []), moved=True)

    def step(self, delta: BucketDelta) -> WindowDelta:
        """The rows that left, entered and changed, now that the bucket has its delta."""
        return self._step(delta) if self._reaches(delta) else _NOTHING

    def _step(self, delta: BucketDelta, *, moved: bool = False) -> WindowDelta:
        removed, added = delta.removed, delta.added
        if not removed and not added and not moved:
            return WindowDelta([], [], self._changed(delta.changed))
        positions, rank = self.bucket.positions, self.bucket.rank
        lo, hi, old_first = self.lo, self.hi, self.first
        self._place()
        fresh = set(added)
        left = [key for key in removed if lo is not None and lo <= key <= hi]
        entered = [key for key in added if self.lo is not None and self.lo <= key <= self.hi]
        first, end = self.first, self.first + self.size
        if lo is None:
            entered += [key for key in positions[first:end] if key not in fresh]
        else:
            kept, stop = rank(lo), rank(hi)
            stop += stop < len(positions) and positions[stop] == hi
            for a, b in ((kept, min(stop, first)), (max(kept, end), stop)) if self.size else ((kept, stop),):
                left += [key for key in positions[a:b] if key not in fresh] if a < b else []
            for a, b in ((first, min(end, kept)), (max(first, stop), end)) if kept < stop else ((first, end),):
                entered += [key for key in positions[a:b] if key not in fresh] if a < b else []
        stayed = [key for key in delta.changed if lo is not None and lo <= key <= hi]
        before = _before(rank, sorted(removed), sorted(added), old_first)
        return WindowDelta(
            sorted((before(key), key) for key in left),
            sorted((rank(key) - first, key) for key in entered),
            self._changed(stayed),
        )

    def _changed(self, positions: list[Flat]) -> list[tuple[int, Flat]]:
        """Of rows that changed at their positions: those inside, with their index."""
        lo, hi, rank, first = self.lo, self.hi, self.bucket.rank, self.first
        return [(rank(key) - first, key) for key in positions if lo is not None and lo <= key <= hi]

    def _reaches(self, delta: BucketDelta) -> bool:
        """Whether a change can matter: those beyond the last row of a full window do not."""
        limit, hi = self.bounds.limit, self.hi
        if limit is None or self.size < limit or hi is None:
            return limit != 0
        for positions in (delta.removed, delta.added, delta.changed):
            for position in positions:
                if position <= hi:
                    return True
        return False


def _before(rank: Callable[[Flat], int], removed: list[Flat], added: list[Flat], first: int) -> Callable[[Flat], int]:
    """The index in a window that a position had before the batch."""

    def index(key: Flat) -> int:
        return rank(key) - bisect_left(added, key) + bisect_left(removed, key) - first

    return index
