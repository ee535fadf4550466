"""Sorts rows on disk: the positions are on disk, too, and only the stretches of open buckets are in memory.

    entries   on disk, for each row: the values of the bucket's columns and the position
    stretch   positions of an open bucket, from a start up to `end`, or all of them: as many as its windows need, and
              some more, the slack

A change beyond `end` only changes the entries. A stretch with fewer positions than its windows need reads the next
entries, which already have the batch's changes; a stretch with too many positions drops its last ones.

Cost: a bucket without windows has only its entries; a bucket that is opened is read from its start.
"""

from eddy.errors import StateError
from eddy.live.dataflow.dataflow import Schedule
from eddy.live.dataflow.filter import rows_of
from eddy.live.dataflow.ordered import Ordered
from eddy.live.dataflow.stored_map import StoredMap
from eddy.live.dataflow.values import Flat, Row
from eddy.live.dataflow.window import Bounds, BucketDelta, Owner, SortedBucket, Window

__all__ = ["LEAST_SLACK", "StoredOrdered"]

LEAST_SLACK, _MOST_SLACK = 8, 1_000
"""The fewest and the most rows that a window keeps beyond the rows that it shows."""
_MOVED = 20_000
"""The most positions that moving a window may read; a window that needs more is opened anew instead."""


class Stretch(SortedBucket):
    """The positions of one bucket from `start` on that are in memory.

    They are at least `needed` positions, if the bucket has so many; if `needed` is None, all positions.
    """

    __slots__ = ("end", "needed", "start", "values")

    def __init__(self, values: Flat, start: Flat | None, needed: int | None, positions: list[Flat]) -> None:
        super().__init__(positions)
        self.values, self.start, self.needed = values, start, needed
        self.end: Flat | None = None
        """The position after which nothing is known; None where there is no such position."""

    @property
    def slack(self) -> int:
        """The number of positions that are kept in addition to `needed`."""
        return min(max(LEAST_SLACK, (self.needed or 0) // 4), _MOST_SLACK)

    def has(self, position: Flat) -> bool:
        """Return whether a position is within the bounds of the stretch."""
        return (self.start is None or position >= self.start) and (self.end is None or position <= self.end)

    def serves(self, needed: int | None) -> bool:
        """Return whether the stretch has the positions that another window needs. If so, they are kept from now on."""
        if self.end is None and _covers(needed, self.needed):
            self.needed = needed
        return _covers(self.needed, needed)

    def change(self, before: Flat | None, after: Flat | None, delta: BucketDelta) -> None:
        """Move a row from position `before` to position `after`.

        None for `before` means that the row was not in this bucket, None for `after` that it is not there any more.
        """
        before = None if before is None or not self.has(before) else before
        super().change(before, None if after is None or not self.has(after) else after, delta)

    def trim(self) -> None:
        """Drop the last positions if there are many more than needed."""
        if self.needed is not None and len(self) > self.needed + 2 * self.slack:
            kept = self.needed + self.slack
            for position in self.between(kept, len(self)):
                self.remove(position)
            self.end = self.at(kept - 1)


class StoredOrdered(Ordered):
    """Rows of `source` by the columns `by`, sorted by `order`; only positions near open windows are in memory."""

    def _fill(self) -> None:
        """Write the entries of the rows that the source has at the beginning."""
        assert self.table.spaces is not None
        self._stretches: dict[Flat, list[Stretch]] = {}
        self._changed: dict[Stretch, BucketDelta] = {}
        self._entries: StoredMap[bool] = StoredMap(self.table.spaces.make())
        self._entries.fill(
            (values + self._order(row) + key, True)
            for key, row in rows_of(self.source)
            if (values := self._values(row)) is not None
        )

    def row_count(self) -> int:
        """Return the number of positions, in all buckets."""
        return len(self._entries)

    @property
    def kept(self) -> int:
        """The number of positions in memory."""
        return sum(len(each) for found in self._stretches.values() for each in found)

    def open(self, values: Flat, bounds: Bounds, owner: Owner) -> Window:
        """Open a window, which is updated until it is closed."""
        needed = bounds.needed
        found = self._stretches.setdefault(values, [])
        for stretch in found:
            if stretch.start == bounds.start and stretch.serves(needed):
                break
        else:
            stretch = self._read(values, bounds, owner.most_rows)
            found.append(stretch)
        return stretch.open(bounds, owner)

    def _read(self, values: Flat, bounds: Bounds, most_rows: int) -> Stretch:
        """Read the positions that a window needs.

        For a window without a limit, at most a few more positions are read than its view may have rows.
        """
        needed, most = bounds.needed, bounds.skip + most_rows + 2
        stretch = Stretch(values, bounds.start, most if needed is None else min(needed, most), [])
        self._extend(stretch, stretch.needed or 0, bounds.start or b"", after=False)
        if needed is None and stretch.end is None:
            stretch.needed = None
        return stretch

    def close(self, values: Flat, window: Window) -> None:
        """Close a window, which is not updated any more."""
        stretch = window.bucket
        assert isinstance(stretch, Stretch)
        stretch.close(window)
        if stretch.windows:
            needs = [each.bounds.needed for each in stretch.windows]
            if None not in needs:
                stretch.needed = max(need for need in needs if need is not None)
        else:
            found = self._stretches[values]
            found[:] = [each for each in found if each is not stretch]
            if not found:
                del self._stretches[values]

    def covers(self, bounds: Bounds) -> bool:
        """Return whether a window can be moved to these bounds without much reading."""
        needed = bounds.needed
        return needed is not None and needed <= _MOVED

    def widen(self, window: Window, bounds: Bounds) -> None:
        """Read the positions that the window needs at these bounds."""
        stretch, needed = window.bucket, bounds.needed
        assert isinstance(stretch, Stretch)
        if not _covers(stretch.needed, needed):
            former, stretch.needed = stretch.needed, needed
            try:
                self._refill(stretch)
            except StateError:
                stretch.needed = former
                raise

    def held_before(self, bounds: Bounds) -> int:
        """Return the number of rows that the window skips, because their positions are in memory."""
        return bounds.skip

    def step(self, schedule: Schedule) -> None:
        """Update the positions, and the windows of the changed buckets."""
        for key, old, new in self.source.out:
            one, before = self._place(key, old)
            two, after = self._place(key, new)
            if one != two or before != after:
                if one is not None:
                    self._entries.remove(one + before)
                if two is not None:
                    self._entries.add(two + after, True)
            if one is not None:
                self._change(one, before, after if one == two else None)
            if two is not None and one != two:
                self._change(two, None, after)
        for stretch in self._changed:
            self._refill(stretch)
        for stretch, delta in self._changed.items():
            if delta:
                stretch.tell(delta, schedule)

    def _place(self, key: Flat, row: Row | None) -> tuple[Flat | None, Flat]:
        """Return a row's bucket, None if the row is in no bucket, and the row's position."""
        values = None if row is None else self._values(row)
        return (None, b"") if row is None or values is None else (values, self._order(row) + key)

    def _change(self, values: Flat, before: Flat | None, after: Flat | None) -> None:
        for stretch in self._stretches.get(values, ()):
            delta = self._changed.get(stretch)
            if delta is None:
                delta = self._changed[stretch] = BucketDelta()
            stretch.change(before, after, delta)

    def _refill(self, stretch: Stretch) -> None:
        """Read the next positions of a stretch if it has fewer than its windows need."""
        if stretch.end is not None and stretch.needed is not None and len(stretch) < stretch.needed:
            self._extend(stretch, stretch.needed, stretch.end, after=True)

    def _extend(self, stretch: Stretch, needed: int, start: Flat, *, after: bool) -> None:
        """Read further positions of a stretch, up to `needed` and the slack.

        The first one read is at `start` or later; with `after`, it is after `start`.
        """
        room = needed + stretch.slack - len(stretch)
        entries = list(self._entries.beginning(stretch.values, start, after=after, limit=room + 1))
        for entry in entries[:room]:
            stretch.add(entry[len(stretch.values) :])
        stretch.end = entries[room - 1][len(stretch.values) :] if len(entries) > room else None

    def end(self) -> None:
        """End the batch: trim the stretches that have too many positions."""
        super().end()
        for stretch in self._changed:
            stretch.trim()
        self._changed = {}


def _covers(one: int | None, other: int | None) -> bool:
    """Return whether one number of positions is at least the other; None means all positions."""
    return one is None or (other is not None and one >= other)
