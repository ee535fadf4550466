"""Joins each record of a stream with the value that another stream had for the record's key at the record's time.

    out    (k, (v, w)) for each left record (k, v) at t, where w is the value of the last right record of k at u ≤ t,
           or None if there is none, or if it has no value

A left record waits until the right frontier has reached t. Then no right record up to t can arrive any more, and w is
final. A right record, or *version*, is the value of its key until the key's next right record. It is removed once both
frontiers have reached that next record, because all left records that still wait are later. Both frontiers, and which
records are late, are functions of the input. So are the rows and the states, however the input is cut into epochs, and
whichever workers read it at whatever pace.

The author's joiner is the next step. Left records without a key do not reach this step.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import itemgetter
from typing import Any, NamedTuple

from eddy.operators.batch import Batch
from eddy.operators.context import Context, FirstOf, Moment
from eddy.operators.errors.set_aside import Aside
from eddy.operators.operator import ClocksRead, Operator, State
from eddy.operators.windows.due_keys import DueKeys
from eddy.operators.windows.frontier import Frontier
from eddy.operators.windows.timed_batches import Arrived, JoinedRows
from eddy.operators.windows.windowed_fold import OpenWindow
from eddy.state.calendar import Calendar
from eddy.state.timed_rows import TimedRows
from eddy.windows import Windowed

__all__ = ["AsOfJoin", "DueRecords"]


@dataclass(frozen=True)
class DueRecords:
    """The records of one side of the join, by key and time, with the frontier that must reach a record's time.

    A record is processed once the frontier has reached its time. `calendar` has the times of the records that are not
    processed yet, and `due` finds the times that the frontier has reached. The frontier reaches a time when event time
    is `lag_ms` after it.
    """

    rows: TimedRows[Any, Any]
    calendar: Calendar[Any]
    frontier: Frontier
    due: DueKeys[Any]
    lag_ms: int

    @property
    def states(self) -> tuple[State, State]:
        """The states of this side."""
        return self.rows, self.calendar

    def note(self, keys: Sequence[Windowed[Any]]) -> None:
        """Add keys to the calendar."""
        self.calendar.move(keys, [None] * len(keys), [key[1] for key in keys])

    def strike(self, keys: Sequence[Windowed[Any]]) -> None:
        """Remove keys from the calendar."""
        self.calendar.move(keys, [key[1] for key in keys], [None] * len(keys))


class _Asked(NamedTuple):
    """A left record that can be joined now: its time, key, value and weight, and the time for its output row."""

    at_ms: int
    key: Any
    value: Any
    weight: int
    time: int


class AsOfJoin(Operator):
    """Input: records (Windowed(K, t, t), V) and (Windowed(K, u, u), (W | None,)). Output: records (K, (V, W | None)).

    - `left`: the join is a left join, so a left record without a right value is sent, too.
    - `ordered`: right values are (W | None, order). Of right records with the same key and time the last one by this
      order counts, not the last one to arrive.
    - `waiting` has the left records whose time the right frontier has not reached.
    - `versions` has, for each key, the last right record up to both frontiers, unless its value is None, and all later
      right records. Its calendar has only the later ones.

    Cost: one scan of a key's versions for all left records of the key that an epoch joins.
    """

    def __init__(self, name: str, waiting: DueRecords, versions: DueRecords, left: bool, ordered: bool) -> None:
        self.name, self._waiting, self._versions, self._left = name, waiting, versions, left
        self._ordered = ordered

    def states(self) -> Sequence[State]:
        """The states of both sides."""
        return (*self._waiting.states, *self._versions.states)

    @property
    def reads(self) -> ClocksRead:
        """The clocks of both frontiers."""
        return self._versions.frontier.reads

    def wakes_at(self) -> Moment | None:
        """Return the moment at which records can be joined, or versions removed."""
        moments = (side.due.wakes_at() for side in (self._waiting, self._versions))
        found = [moment for moment in moments if moment is not None]
        return FirstOf(found) if found else None

    def first_open(self, context: Context) -> OpenWindow | None:
        """Return the first time at which a left record waits, between epochs; None if no record waits."""
        first, waiting = self._waiting.due.first(), self._waiting
        if first is None:
            return None
        latest = max(context.event_time.values(), default=-1)
        slowest = waiting.frontier.slowest(context, first[1])
        return OpenWindow(self.name, *slowest, max(0, latest - first[0] - waiting.lag_ms))

    def end_epoch(self) -> None:
        """Drop the epoch's list of partitions with due work."""
        self.left_due = ()

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the records that the states cannot write."""
        left, right = map(aside.without_kept, inputs)
        return self.step(
            context,
            aside.without(left, Arrived.errors(self._waiting.rows, left)),
            aside.without(right, Arrived.errors(self._versions.rows, right)),
        )

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Store the new versions, join the left records whose versions are final, and remove versions.

        Raises: DataError for a record that a state cannot write.
        """
        made = JoinedRows(context.timestamps is not None)
        left = Arrived.at(self._waiting.rows, inputs[0])
        fresh = self._take_versions(inputs[1])
        asked, left_due = self._asked(context, left, made)
        self._join(asked, made)
        self.left_due = {*left_due, *self._remove(context, fresh, left_due)}
        return made.batch()

    def _take_versions(self, batch: Batch) -> Sequence[tuple[Windowed[Any], int]]:
        """Store the last right record of each key and time. Returns the keys with times, and their partitions."""
        state = self._versions.rows
        if self._ordered:
            batch = self._latest_versions(batch)
        arrived = Arrived.at(state, batch)
        last = {data: index for index, data in enumerate(arrived.encoded.keys)}
        if len(last) < len(batch):
            arrived = Arrived.at(state, batch.at(list(last.values())))
        for key, home, plain in zip(arrived.keys, arrived.encoded.homes, arrived.encoded.plain, strict=True):
            state.take(home, plain, key[1])
        state.add(arrived.encoded, [1] * len(arrived.keys))
        return list(zip(arrived.keys, arrived.encoded.homes, strict=True))

    def _latest_versions(self, batch: Batch) -> Batch:
        """Sort right records by their order, and drop each record if a later one for its key and time is stored."""
        state = self._versions.rows
        batch = batch.at(sorted(range(len(batch)), key=lambda index: batch.rows[index][1][1]))
        arrived, decode = Arrived.at(state, batch), state.spec.value.decode
        kept: list[bool] = []
        for (_, (_, order)), key, home, plain in zip(
            batch.rows, arrived.keys, arrived.encoded.homes, arrived.encoded.plain, strict=True
        ):
            there = state.scan(home, plain, key[1], key[1])
            kept.append(not there or decode(there[0][1])[1] < order)
        return batch if all(kept) else batch.select(kept)

    def _asked(
        self, context: Context, arrived: Arrived, made: JoinedRows
    ) -> tuple[dict[tuple[int, bytes], list[_Asked]], Collection[int]]:
        """Collect the left records that can be joined now, and let all other left records wait.

        Returns two values: the records, by partition and bytes of their keys, and the partitions in which more records
        are due than a step takes.
        """
        waiting = self._waiting
        frontiers = waiting.due.frontiers(context)
        earlier, left_due = waiting.due.due(frontiers)
        asked: dict[tuple[int, bytes], list[_Asked]] = defaultdict(list)
        spec, keys = waiting.rows.spec, [key for _, key in earlier]
        encoded = spec.key.identify_many(keys)
        decode, numbered = spec.value.decode, made.numbered
        for key, data, home in zip(keys, encoded, spec.partitions_of(encoded), strict=True):
            plain, at_ms = data[: -spec.key.tail], key[1]
            for value, weight in waiting.rows.take(home, plain, at_ms):
                asked[home, plain].append(_Asked(at_ms, key[0], decode(value), weight, 0 if numbered else at_ms))
        waiting.strike(keys)
        waits = [
            key[1] > frontiers.get(home, -1) for key, home in zip(arrived.keys, arrived.encoded.homes, strict=True)
        ]
        for (key, value, weight, time, home, plain), waits_ in zip(arrived.rows(), waits, strict=True):
            if not waits_:
                asked[home, plain].append(_Asked(key[1], key[0], value, weight, time if numbered else key[1]))
        if any(waits):
            kept = Arrived.at(waiting.rows, arrived.batch.select(waits))
            waiting.rows.add(kept.encoded, kept.batch.weights)
            waiting.note(kept.keys)
        return asked, left_due

    def _join(self, asked: Mapping[tuple[int, bytes], list[_Asked]], made: JoinedRows) -> None:
        """Make the output rows of left records, for each key in the order of time."""
        rows, left = self._versions.rows, self._left
        decode = rows.spec.value.decode
        for (home, plain), records in asked.items():
            records.sort(key=itemgetter(0))
            versions = rows.scan(home, plain, 0, records[-1].at_ms)
            times, values = [version[0] for version in versions], dict[int, Any]()
            for at_ms, key, value, weight, time in records:
                index = bisect_right(times, at_ms) - 1
                if index not in values:
                    values[index] = decode(versions[index][1])[0] if index >= 0 else None
                if left or values[index] is not None:
                    made.add(key, (value, values[index]), weight, time)

    def _remove(
        self, context: Context, fresh: Sequence[tuple[Windowed[Any], int]], left_due: Collection[int]
    ) -> Collection[int]:
        """Remove the versions that no left record can need any more. Add the new versions, `fresh`, to the calendar.

        `left_due`: the partitions in which due left records still wait for their join. Returns the partitions with more
        versions to remove.
        """
        versions = self._versions
        frontiers = {p: at for p, at in versions.due.frontiers(context).items() if p not in left_due}
        earlier, left = versions.due.due(frontiers)
        passed = [key[1] <= frontiers.get(home, -1) for key, home in fresh]
        versions.note([key for (key, _), over in zip(fresh, passed, strict=True) if not over])
        old = [key for _, key in earlier]
        versions.strike(old)
        spec = versions.rows.spec
        keys = [*old, *(key for key, _ in compress(fresh, passed))]
        encoded = spec.key.identify_many(keys)
        last: dict[tuple[int, bytes], int] = {}
        for key, data, home in zip(keys, encoded, spec.partitions_of(encoded), strict=True):
            place = home, data[: -spec.key.tail]
            last[place] = max(key[1], last.get(place, 0))
        for (home, plain), at_ms in last.items():
            self._leave_one(home, plain, at_ms)
        return left

    def _leave_one(self, home: int, plain: bytes, at_ms: int) -> None:
        """Remove the versions of a key up to a time, except the last of them if it has a value."""
        rows = self._versions.rows
        found = rows.scan(home, plain, 0, at_ms)
        gone = found[:-1]
        if found and rows.spec.value.decode(found[-1][1])[0] is None:
            gone = found
        for time, _, _ in gone:
            rows.take(home, plain, time)
