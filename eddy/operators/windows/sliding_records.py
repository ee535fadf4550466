"""Sliding windows: gives each record all windows that contain its timestamp.

    a record at t     enters the existing windows of its key that contain t, and creates two: one from t - difference
                      to t, and one that begins just after t; stored records in these two enter them

Further steps fold these rows as they fold the rows of other windows. A record is stored while it can enter a window
that is not over.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from struct import Struct
from typing import Any

from eddy.operators.batch import EMPTY, Batch, Row, keys_of
from eddy.operators.context import Context
from eddy.operators.errors.set_aside import Aside, refused
from eddy.operators.operator import ClocksRead, Operator, State
from eddy.operators.windows.due_keys import DueKeys
from eddy.operators.windows.frontier import Frontier
from eddy.serde import Serde
from eddy.state.arrangement import Arrangement, pairs_of
from eddy.state.calendar import Calendar
from eddy.windows import SlidingWindows, Span, Windowed

__all__ = ["SlidingRecords"]

_TIMES = Struct(">qq")
_Kept = tuple[int, int, bytes]
"""A record: its time, the first end of a window for which it is not late, and the bytes of time, end and value."""


class SlidingRecords(Operator):
    """Input: records (Windowed(K, t, first end), V). Output: rows (Windowed(K, start, end), V).

    `records` has, by K, the records that can enter further windows: t, first end, and value, in bytes. `calendar` has
    K at the end of the window that begins just after t. When this window is over, the record is removed.

    Cost: O(records of the key within twice the difference) for each record.
    """

    def __init__(
        self,
        name: str,
        records: Arrangement[Any, bytes],
        calendar: Calendar[Any],
        windows: SlidingWindows,
        frontier: Frontier,
        due: DueKeys[Any],
        value: Serde[Any],
    ) -> None:
        self.name, self.records, self.calendar = name, records, calendar
        self._windows, self._frontier, self.due, self._value = windows, frontier, due, value

    def states(self) -> Sequence[State]:
        """The records, and the calendar."""
        return (self.records, self.calendar)

    @property
    def reads(self) -> ClocksRead:
        """The clocks of the frontier."""
        return self._frontier.reads

    def wakes_at(self) -> Any:
        """Return the moment at which the first stored record can enter no window any more."""
        return self.due.wakes_at()

    def end_epoch(self) -> None:
        """Drop the epoch's list of partitions with due work."""
        self.left_due = ()

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Add the records, in the order of the rows; then remove the records that can enter no window any more."""
        (batch,) = inputs
        made = self._added(batch) if batch.rows else EMPTY
        moments = dict.fromkeys((self._windows.after(time)[1], key) for key, time, _ in keys_of(batch.rows))
        self.calendar.move([key for _, key in moments], repeat(None, len(moments)), [moment for moment, _ in moments])
        frontiers = self.due.frontiers(context)
        earlier, self.left_due = self.due.due(frontiers)
        self._remove(dict.fromkeys([*self._over([*moments], frontiers), *earlier]))
        return made

    def _over(self, moments: list[tuple[int, Any]], frontiers: Mapping[int, int]) -> Iterator[tuple[int, Any]]:
        """Yield the new moments that the frontiers have passed already, with their keys."""
        passed = max(frontiers.values(), default=-1)
        moments = [moment for moment in moments if moment[0] <= passed]
        spec = self.calendar.spec
        homes = spec.partitions_of(spec.key.identify_many([key for _, key in moments]))
        return (moment for home, moment in zip(homes, moments, strict=True) if moment[0] <= frontiers.get(home, -1))

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the records that cannot be stored."""
        batch = aside.without_kept(inputs[0])
        errors = {index: error for index, row in enumerate(batch.rows) if (error := self._refused(row)) is not None}
        return self.step(context, aside.without(batch, errors))

    def _refused(self, row: Row) -> Exception | None:
        (key, time, end), value = row
        try:
            data = self._data(time, end, value)
        except Exception as error:
            return error
        return refused(self.records.spec, (key, data))

    def _data(self, time: int, end: int, value: Any) -> bytes:
        return _TIMES.pack(time, end) + self._value.encode(value)

    def _added(self, batch: Batch) -> Batch:
        keys = list(dict.fromkeys(key[0] for key in keys_of(batch.rows)))
        there = {
            key: _Records(self._windows, pairs_of(bag))
            for key, bag in zip(keys, self.records.get_many(keys), strict=True)
        }
        delta: dict[tuple[Any, bytes], int] = {}
        rows: list[Row] = []
        weights: list[int] = []
        places: list[int] = []
        for place, (((key, time, end), value), weight) in enumerate(zip(batch.rows, batch.weights, strict=True)):
            data = self._data(time, end, value)
            delta[key, data] = delta.get((key, data), 0) + weight
            before = len(rows)
            for span, kept, times in there[key].add((time, end, data), weight):
                rows.append((Windowed(key, *span), value if kept is None else self._value.decode(kept[_TIMES.size :])))
                weights.append(times)
            places += [place] * (len(rows) - before)
        self.records.integrate(delta)
        base = batch.at(places)
        return Batch(rows, weights, base.time, base.times, base.headers)

    def _remove(self, due: Collection[tuple[int, Any]]) -> None:
        """Remove the records whose last window ends at these moments."""
        if not due:
            return
        keys = list(dict.fromkeys(key for _, key in due))
        self.records.integrate(
            {
                (key, data): -weight
                for key, bag in zip(keys, self.records.get_many(keys), strict=True)
                for data, weight in pairs_of(bag)
                if (self._windows.after(_TIMES.unpack_from(data)[0])[1], key) in due
            }
        )
        self.calendar.move([key for _, key in due], [moment for moment, _ in due], repeat(None, len(due)))


class _Records:
    """The stored records of one key, in the order of time. A step adds records to them."""

    def __init__(self, windows: SlidingWindows, bag: Iterable[tuple[bytes, int]]) -> None:
        self._windows = windows
        self._weights = dict(bag)
        self._sorted: list[_Kept] = sorted((*_TIMES.unpack_from(data), data) for data in self._weights)

    def add(self, record: _Kept, weight: int) -> Iterator[tuple[Span, bytes | None, int]]:
        """Add a record. Yields (window, record, weight) for each record that enters a window, by the window's start.

        The record is None for the added record, which enters the windows that contain its time. Stored records enter
        the windows that the added record creates.
        """
        time, _, data = record
        near = list(self._between(time - 1 - self._windows.difference_ms, time + 1 + self._windows.difference_ms))
        there = {span for kept in near for span in self._made_by(kept)}
        for span in sorted(there.union(self._made_by(record))):
            if span not in there:
                for kept in near:
                    if _has(span, kept):
                        yield span, kept[2], self._weights[kept[2]]
            if _has(span, record):
                yield span, None, weight
        if data not in self._weights:
            self._sorted.insert(bisect_left(self._sorted, record), record)
        self._weights[data] = self._weights.get(data, 0) + weight

    def _between(self, first: int, last: int) -> Iterator[_Kept]:
        """Yield the records from one time to another, both included."""
        for place in range(bisect_left(self._sorted, (first,)), len(self._sorted)):
            if self._sorted[place][0] > last:
                return
            yield self._sorted[place]

    def _made_by(self, record: _Kept) -> Iterator[Span]:
        """Yield the windows that a record creates, without windows for which it is late."""
        own = self._windows.ending_with(record[0])
        if own[1] >= record[1]:
            yield own
        yield self._windows.after(record[0])


def _has(span: Span, record: _Kept) -> bool:
    """Whether a window contains a record's time, and the record is not late for it."""
    return span[0] <= record[0] <= span[1] and record[1] <= span[1]
