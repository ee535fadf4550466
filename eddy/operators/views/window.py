"""A window over a sorted bucket: the rows from `start`, without the first `skip`, at most `limit`.

    lo, hi    the first and the last position inside; both move with the rows
    left      − rows inside of the old [lo, hi] that are removed, and those between the old and the new bounds
    entered   + rows inside of the new [lo, hi] that are added, and those between the new and the old bounds

So a limit, a skip, a start and a window that is moved are one rule, and nothing is read but the rows that cross a
bound: never a re-query. Cost: O(changes · log n).
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from eddy.operators.views.dataflow import Schedule
from eddy.operators.views.values import Flat

__all__ = ["Bounds", "BucketDelta", "Owner", "Positions", "Window", "WindowDelta", "rank"]

Positions = Any
"""The sort positions of a bucket's rows, in order: a list, or a SortedList where they are many."""


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

    removed: list[Flat] = field(default_factory=list)
    added: list[Flat] = field(default_factory=list)
    changed: list[Flat] = field(default_factory=list)


@dataclass(slots=True)
class WindowDelta:
    """Rows that left, with their index before; that entered, and that changed, with their index now."""

    left: list[tuple[int, Flat]]
    entered: list[tuple[int, Flat]]
    changed: list[tuple[int, Flat]]

    def __bool__(self) -> bool:
        return bool(self.left or self.entered or self.changed)


class Owner(Protocol):
    """The bucket of a view that a window belongs to."""

    def told(self, delta: WindowDelta, schedule: Schedule) -> None:
        """The rows of the window have changed."""


_NOTHING = WindowDelta([], [], [])


def rank(positions: Positions, position: Flat) -> int:
    """The number of positions before this one."""
    return bisect_left(positions, position) if type(positions) is list else positions.bisect_left(position)


class Window:
    """One window of one bucket, for `owner`. `first` is the index of `lo` in the bucket, `size` the rows inside."""

    __slots__ = ("bounds", "first", "hi", "lo", "owner", "size")

    def __init__(self, positions: Positions, bounds: Bounds, owner: Owner) -> None:
        self.bounds, self.owner = bounds, owner
        self._place(positions)

    def _place(self, positions: Positions) -> None:
        """Find the rows inside."""
        bounds, count = self.bounds, len(positions)
        first = bounds.skip
        if bounds.start is not None:
            at = rank(positions, bounds.start)
            if not bounds.inclusive and at < count and positions[at] == bounds.start:
                at += 1
            first += at
        end = count if bounds.limit is None else min(count, first + bounds.limit)
        self.first, self.size = first, max(0, end - first)
        self.lo: Any = positions[first] if self.size else None
        self.hi: Any = positions[end - 1] if self.size else None

    def rows(self, positions: Positions) -> Sequence[Flat]:
        """The positions inside."""
        found: Sequence[Flat] = positions[self.first : self.first + self.size]
        return found

    def index(self, positions: Positions, position: Flat) -> int | None:
        """Where a position is inside; None where it is not."""
        if self.lo is None or not self.lo <= position <= self.hi:
            return None
        return rank(positions, position) - self.first

    def moved(self, positions: Positions, bounds: Bounds) -> WindowDelta:
        """The same rows through other bounds."""
        self.bounds = bounds
        return self.step(positions, BucketDelta(), moved=True)

    def step(self, positions: Positions, delta: BucketDelta, *, moved: bool = False) -> WindowDelta:
        """The rows that left, entered and changed, given the bucket after its delta."""
        removed, added = delta.removed, delta.added
        lo, hi, old_first = self.lo, self.hi, self.first
        if not moved and not self._reaches(delta):
            return _NOTHING
        if removed or added or moved:
            self._place(positions)
        fresh = set(added)
        left = [key for key in removed if lo is not None and lo <= key <= hi]
        entered = [key for key in added if self.lo is not None and self.lo <= key <= self.hi]
        first, end = self.first, self.first + self.size
        if lo is None:
            entered += [key for key in positions[first:end] if key not in fresh]
        else:
            kept, stop = rank(positions, lo), rank(positions, hi)
            stop += stop < len(positions) and positions[stop] == hi
            for a, b in ((kept, min(stop, first)), (max(kept, end), stop)) if self.size else ((kept, stop),):
                left += [key for key in positions[a:b] if key not in fresh] if a < b else []
            for a, b in ((first, min(end, kept)), (max(first, stop), end)) if kept < stop else ((first, end),):
                entered += [key for key in positions[a:b] if key not in fresh] if a < b else []
        changed = [(at, key) for key in delta.changed if (at := self.index(positions, key)) is not None]
        if moved or left or entered:
            changed = [(at, key) for at, key in changed if lo is not None and lo <= key <= hi]
        before = _before(positions, sorted(removed), sorted(added), old_first)
        return WindowDelta(
            sorted((before(key), key) for key in left),
            sorted((rank(positions, key) - first, key) for key in entered),
            changed,
        )

    def _reaches(self, delta: BucketDelta) -> bool:
        """Whether a change can matter: those beyond the last row of a full window do not."""
        if self.bounds.limit is None or self.size < self.bounds.limit or self.size == 0:
            return self.bounds.limit != 0
        hi = self.hi
        return any(key <= hi for keys in (delta.removed, delta.added, delta.changed) for key in keys)


def _before(positions: Positions, removed: list[Flat], added: list[Flat], first: int) -> Any:
    """The index in a window that a position had before the batch."""

    def index(key: Flat) -> int:
        return rank(positions, key) - bisect_left(added, key) + bisect_left(removed, key) - first

    return index
