"""The first record of each `by` value within a span of event time.

    a record at t passes    unless an earlier record (`record_order.py`) with the same `by` value has passed, whose
                            timestamp is less than `within` before or after t

So records that have passed are at least `within` apart, and each duplicate, unless it is late, is near one of them.
A record waits until its order is known, so the rows are a function of each source partition's records, whatever the
epochs, the paces and the workers. With a single source partition nothing waits.

The timestamp of a passed record is kept until the event time of all source partitions is 2 `within` + grace later:
after that, each record near it is late.
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
"""The place of the weight in a record that waits."""


class _Candidate(NamedTuple):
    """A record in its order: its `by` value, timestamp, key and value, weight, headers, and the time of its row."""

    order: bytes
    by: Any
    at_ms: int
    key: Any
    value: Any
    weight: int
    headers: Any
    time: int


class WaitingRecords:
    """The records whose order is not known yet, in the order of records, by partition of their `by` values.

    `rows` has (by, timestamp, key, value, weight, headers) under each order, `calendar` the orders by event time.
    """

    def __init__(self, rows: PartitionedMap[bytes, Any], calendar: Calendar[bytes], known: KnownOrder) -> None:
        self.rows, self.calendar, self.known = rows, calendar, known

    def first(self, partition: int, up_to_ms: int = MOST_MS) -> bytes | None:
        """The first order of a partition since earlier epochs, if its event time is not after a moment.

        Cost: a scan of one row, and of the rows that the epoch has removed.
        """
        first = self.calendar.first(partition)
        if first is None or first > up_to_ms:
            return None
        return next((order for _, order in self.calendar.due(partition, up_to_ms, 1)), None)

    def add(self, home: int, record: _Candidate) -> None:
        """Let a record wait; equal rows that one record has made, and an exchange has parted, have one order."""
        order, by, at_ms, key, value, weight, headers, _ = record
        there = self.rows.partition(home)
        if (equal := there.value(order)) is not None:
            weight += equal[_WEIGHT]
        there.put(order, (by, at_ms, key, value, weight, headers))
        self.calendar.move_encoded([home], [order], [None], [event_time_of(order)])

    def take(self, home: int, up_to: bytes) -> list[_Candidate]:
        """Remove the records of earlier epochs whose order is known."""
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
    """The timestamps of the records that have passed, sorted, by `by` value.

    `calendar` has each `by` value at the moment at which its first timestamp is removed, `due` its entries by the
    frontier.
    """

    times: Table[Any, tuple[int, ...]]
    calendar: Calendar[Any]
    frontier: SourceFrontier
    due: DueKeys[Any]


class Deduplicate(Operator):
    """Input: records (B, (order, timestamp, K, V)). Output: records (K, V). `duplicates` counts the records that the
    epoch has dropped as duplicates.

    Cost: constant for each record, unless it waits: then it is written to the store, and removed.
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
        """The records that wait, and the moments that have passed."""
        waiting, passed = self._waiting, self._passed
        return (waiting.rows, waiting.calendar, passed.times, passed.calendar)

    @property
    def reads(self) -> ClocksRead:
        """The clocks of the frontier."""
        return self._passed.frontier.reads

    def wakes_at(self) -> Moment | None:
        """When the order of a record can be known, or a moment be removed."""
        firsts = {partition: self._waiting.first(partition) for partition in self._owned()}
        known = self._waiting.known.reaches({p: first for p, first in firsts.items() if first is not None})
        found = [moment for moment in (known, self._passed.due.wakes_at()) if moment is not None]
        return FirstOf(found) if found else None

    def first_open(self, context: Context) -> OpenWindow | None:
        """The first record that waits, between epochs; None if there is none."""
        firsts = [(order, p) for p in self._owned() if (order := self._waiting.first(p)) is not None]
        if not firsts:
            return None
        order, partition = min(firsts)
        latest = max(context.event_time.values(), default=-1)
        slowest = self._passed.frontier.slowest(context, partition)
        return OpenWindow(self.name, *slowest, max(0, latest - event_time_of(order)))

    def end_epoch(self) -> None:
        """Count anew; drop what is reported."""
        self.duplicates = 0
        self.left_due = ()

    def step_apart(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the records that the states cannot write."""
        batch = aside.without_kept(inputs[0])
        return self.step(context, aside.without(batch, self._errors(batch)))

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Take the records that are next in the order; the others wait. Then remove moments.

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
        """The records whose order is known, in this order."""
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
        """Whether a record passes; then it is noted."""
        first, last = self._windows.others(record.at_ms)
        times = moments.of[record.by]
        passes = not any(first <= time <= last for time in times)
        if passes:
            insort(times, record.at_ms)
        self.duplicates += record.weight - passes
        return passes

    def _batch(self, records: Sequence[_Candidate], numbered: bool) -> Batch:
        """Records as they came. `numbered`: the times of rows are numbers of records, 0 for one of an earlier epoch."""
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
        """The records that the states cannot write, by index, each with its error."""
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
    """The moments that have passed, by `by` value, while records are taken. `of` has them for the values given."""

    def __init__(self, passed: PassedMoments, values: Sequence[Any]) -> None:
        self._passed, self._keys = passed, list(dict.fromkeys(values))
        self._olds = passed.times.get_many(self._keys)
        self.of = {key: list(old or ()) for key, old in zip(self._keys, self._olds, strict=True)}

    def write(self, frontiers: Mapping[int, int], kept_ms: int) -> None:
        """Write the moments that are not `kept_ms` before the frontiers."""
        times, calendar = self._passed.times, self._passed.calendar
        homes = times.spec.partitions_of(times.spec.key.identify_many(self._keys))
        news = {
            key: tuple(at_ms for at_ms in self.of[key] if at_ms + kept_ms > frontiers.get(home, -1)) or None
            for key, home in zip(self._keys, homes, strict=True)
        }
        changed = [(key, old) for key, old in zip(self._keys, self._olds, strict=True) if news[key] != old]
        times.put_many({key: news[key] for key, _ in changed}, [old for _, old in changed])
        firsts = [[_until(moments, kept_ms) for moments in (old, news[key])] for key, old in changed]
        calendar.move([key for key, _ in changed], [old for old, _ in firsts], [new for _, new in firsts])


def _until(moments: Sequence[int] | None, kept_ms: int) -> int | None:
    """The moment at which the first one of some moments is removed."""
    return min(moments[0] + kept_ms, MOST_MS) if moments else None
