"""Passes the first record of each `by` value within a span of event time, and drops the duplicates.

    a record at t passes    unless an earlier record (`record_order.py`) with the same `by` value has passed, whose
                            timestamp is less than `within` before or after t

So the records that have passed for one `by` value are at least `within` apart, and each duplicate is less than `within`
from one of them, unless it is late. A record waits until the order of records is final up to it. So the rows are a
function of each source partition's records, however the input is cut into epochs, and whichever workers read it at
whatever pace. With a single source partition no record waits.

The timestamp of a passed record is stored until the event time of all source partitions is 2 `within` + grace later.
After that, each record near it is late.
"""

from bisect import insort
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, NamedTuple

from eddy.errors import DataError
from eddy.join_windows import JoinSide
from eddy.operators.batch import EMPTY, Batch, keys_of
from eddy.operators.context import Context, FirstOf, Moment
from eddy.operators.errors.set_aside import Aside, refused
from eddy.operators.operator import ClocksRead, Operator, State
from eddy.operators.windows.due_keys import DueKeys
from eddy.operators.windows.frontier import SourceFrontier
from eddy.operators.windows.record_order import KnownOrder, event_time_of, is_known
from eddy.operators.windows.windowed_fold import OpenWindow
from eddy.state.calendar import MOST_MS, Calendar
from eddy.state.partitioned_map import PartitionedMap
from eddy.state.table_state import Table

__all__ = ["Deduplicate", "PassedMoments", "WaitingRecords"]

_ALL = 1 << 62
_WEIGHT = 4
"""The index of the weight in the stored tuple of a waiting record."""


class _Candidate(NamedTuple):
    """A record that has not passed yet. `at_ms` is its timestamp, `time` is the time for its output row."""

    order: bytes
    by: Any
    at_ms: int
    key: Any
    value: Any
    weight: int
    headers: Any
    time: int


class WaitingRecords:
    """The records that wait until the order of records is final up to them, by partition.

    `rows` maps the order of a record to (by, timestamp, key, value, weight, headers). `calendar` has the orders by
    event time.
    """

    def __init__(self, rows: PartitionedMap[bytes, Any], calendar: Calendar[bytes], known: KnownOrder) -> None:
        self.rows, self.calendar, self.known = rows, calendar, known

    def first(self, partition: int, up_to_ms: int = MOST_MS) -> bytes | None:
        """Return the order of the first waiting record of a partition, of the records from earlier epochs.

        Returns None if there is none, or if its event time is after `up_to_ms`.
        Cost: a scan of one row, and of the rows that the epoch has removed.
        """
        first = self.calendar.first(partition)
        if first is None or first > up_to_ms:
            return None
        return next((order for _, order in self.calendar.due(partition, up_to_ms, 1)), None)

    def add(self, home: int, record: _Candidate) -> None:
        """Let a record wait. If a waiting record has the same order, it is an equal row, so their weights are added."""
        order, by, at_ms, key, value, weight, headers, _ = record
        there = self.rows.partition(home)
        if (equal := there.value(order)) is not None:
            weight += equal[_WEIGHT]
        there.put(order, (by, at_ms, key, value, weight, headers))
        self.calendar.move_encoded([home], [order], [None], [event_time_of(order)])

    def take(self, home: int, up_to: bytes) -> list[_Candidate]:
        """Remove and return the waiting records of earlier epochs whose order is final: at or before `up_to`."""
        if not up_to or self.first(home, event_time_of(up_to)) is None:
            return []
        due = self.calendar.due(home, event_time_of(up_to), _ALL)
        there = self.rows.partition(home)
        found: list[_Candidate] = []
        for time, order in due:
            if is_known(order, up_to):
                waited: Any = there.value(order)
                found.append(_Candidate._make((order, *waited, 0)))
                there.put(order, None)
                self.calendar.move_encoded([home], [order], [time], [None])
        return found


@dataclass(frozen=True)
class PassedMoments:
    """The timestamps of the records that have passed, sorted, for each `by` value.

    `calendar` has the `by` values in the order of moments: at its moment, the first timestamp of a `by` value is to be
    removed. `due` finds the values whose moment the frontier has reached.
    """

    times: Table[Any, tuple[int, ...]]
    calendar: Calendar[Any]
    frontier: SourceFrontier
    due: DueKeys[Any]


class Deduplicate(Operator):
    """Input: records (B, (order, timestamp, K, V)). Output: the records (K, V) that are not duplicates.

    `duplicates` is the number of records that the epoch has dropped as duplicates. Cost: constant for each record; a
    record that waits is also written to the store, and removed from it.
    """

    duplicates = 0

    def __init__(
        self,
        name: str,
        waiting: WaitingRecords,
        passed: PassedMoments,
        windows: JoinSide,
        owned: Callable[[], Collection[int]],
    ) -> None:
        self.name, self._waiting, self._passed = name, waiting, passed
        self._windows, self._owned = windows, owned
        self._kept_ms = windows.lag_ms + windows.later_ms + 1

    def states(self) -> Sequence[State]:
        """The waiting records, and the timestamps of passed records, each with their calendar."""
        waiting, passed = self._waiting, self._passed
        return (waiting.rows, waiting.calendar, passed.times, passed.calendar)

    @property
    def reads(self) -> ClocksRead:
        """The clocks of the frontier."""
        return self._passed.frontier.reads

    def wakes_at(self) -> Moment | None:
        """Return the moment at which the order of a waiting record may become final, or a timestamp can be removed."""
        firsts = {partition: self._waiting.first(partition) for partition in self._owned()}
        known = self._waiting.known.reaches({p: first for p, first in firsts.items() if first is not None})
        found = [moment for moment in (known, self._passed.due.wakes_at()) if moment is not None]
        return FirstOf(found) if found else None

    def first_open(self, context: Context) -> OpenWindow | None:
        """Describe the first waiting record, between epochs; None if no record waits."""
        firsts = [(order, p) for p in self._owned() if (order := self._waiting.first(p)) is not None]
        if not firsts:
            return None
        order, partition = min(firsts)
        latest = max(context.event_time.values(), default=-1)
        slowest = self._passed.frontier.slowest(context, partition)
        return OpenWindow(self.name, *slowest, max(0, latest - event_time_of(order)))

    def end_epoch(self) -> None:
        """Set the count to 0, and drop the epoch's list of partitions with due work."""
        self.duplicates = 0
        self.left_due = ()

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the records that the states cannot write."""
        batch = aside.without_kept(inputs[0])
        return self.step(context, aside.without(batch, self._errors(batch)))

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Process the records up to which the order is final; the others wait. Then remove old timestamps.

        Raises: DataError for a record that the states cannot write.
        """
        (batch,) = inputs
        for error in self._errors(batch).values():
            raise error
        records = self._next(context, batch)
        frontiers = self._passed.due.frontiers(context)
        due, self.left_due = self._passed.due.due(frontiers)
        moments = _Moments(self._passed, [*(record.by for record in records), *(by for _, by in due)])
        made = [record for record in records if self._passes(moments, record)]
        moments.write(frontiers, self._kept_ms)
        return self._batch(made, numbered=context.timestamps is not None)

    def _next(self, context: Context, batch: Batch) -> list[_Candidate]:
        """Return the records to process now, sorted by their order, and let the other records of the batch wait."""
        waiting = self._waiting
        up_to = {home: waiting.known.up_to(context, home) for home in self._owned()}
        found = [record for home, known in up_to.items() for record in waiting.take(home, known)]
        spec = self._passed.times.spec
        hashed = spec.partitions_of(spec.key.identify_many(list(keys_of(batch.rows))))
        homes = waiting.known.homes([value[0] for _, value in batch.rows], hashed)
        columns = zip(batch.rows, batch.weights, batch.headers_of_rows(), batch.times_of_rows(), homes, strict=True)
        for (by, (order, at_ms, key, value)), weight, headers, time, home in columns:
            record = _Candidate(order, by, at_ms, key, value, weight, headers, time)
            if is_known(order, up_to.get(home, b"")):
                found.append(record)
            else:
                waiting.add(home, record)
        return sorted(found, key=itemgetter(0))

    def _passes(self, moments: "_Moments", record: _Candidate) -> bool:
        """Return whether a record passes. If it passes, its timestamp is added to `moments`."""
        first, last = self._windows.others(record.at_ms)
        times = moments.of[record.by]
        passes = not any(first <= time <= last for time in times)
        if passes:
            insort(times, record.at_ms)
        self.duplicates += record.weight - passes
        return passes

    def _batch(self, records: Sequence[_Candidate], numbered: bool) -> Batch:
        """Make the output. `numbered`: the times of rows are numbers of records, 0 for a record of an earlier epoch."""
        if not records:
            return EMPTY
        return Batch(
            [(record.key, record.value) for record in records],
            [1] * len(records),
            max(record.at_ms for record in records),
            [record.time if numbered else record.at_ms for record in records],
            [record.headers for record in records] if any(record.headers for record in records) else None,
            self._waiting.known.places([record.order for record in records]),
        )

    def _errors(self, batch: Batch) -> Mapping[int, Exception]:
        """Return the errors of the records that the states cannot write, by index."""
        spec = replace(self._passed.times.spec, value=self._waiting.rows.spec.value)
        rows = [(by, (by, at_ms, key, value, 1, ())) for by, (_, at_ms, key, value) in batch.rows]
        try:
            list(map(hash, keys_of(rows)))
            spec.key.identify_many(list(keys_of(rows)))
            spec.value.encode_many([value for _, value in rows])
        except Exception:
            found = ((index, self._unhashable(row[0]) or refused(spec, row)) for index, row in enumerate(rows))
            return {index: error for index, error in found if error is not None}
        return {}

    def _unhashable(self, by: Any) -> DataError | None:
        try:
            hash(by)
        except TypeError as error:
            told = DataError(
                f"deduplicate '{self.name}': by= returned {by!r}, which cannot be compared by hash; a value that can "
                "is needed. Return a text, a number or a tuple of them"
            )
            told.__cause__ = error
            return told
        return None


class _Moments:
    """The timestamps of passed records during a step. `of` has the list of them for each of the given `by` values."""

    def __init__(self, passed: PassedMoments, values: Sequence[Any]) -> None:
        self._passed, self._keys = passed, list(dict.fromkeys(values))
        self._olds = passed.times.get_many(self._keys)
        self.of = {key: list(old or ()) for key, old in zip(self._keys, self._olds, strict=True)}

    def write(self, frontiers: Mapping[int, int], kept_ms: int) -> None:
        """Write the timestamps to the states, without those that are `kept_ms` or more before the frontiers."""
        times, calendar = self._passed.times, self._passed.calendar
        homes = times.spec.partitions_of(times.spec.key.identify_many(self._keys))
        news = {
            key: tuple(at_ms for at_ms in self.of[key] if at_ms + kept_ms > frontiers.get(home, -1)) or None
            for key, home in zip(self._keys, homes, strict=True)
        }
        changed = [(key, old) for key, old in zip(self._keys, self._olds, strict=True) if news[key] != old]
        times.put_many({key: news[key] for key, _ in changed}, [old for _, old in changed])
        firsts = [[_removal_moment(moments, kept_ms) for moments in (old, news[key])] for key, old in changed]
        calendar.move([key for key, _ in changed], [old for old, _ in firsts], [new for _, new in firsts])


def _removal_moment(moments: Sequence[int] | None, kept_ms: int) -> int | None:
    """Return the moment at which the earliest of some timestamps is to be removed; None if there are none."""
    return min(moments[0] + kept_ms, MOST_MS) if moments else None
