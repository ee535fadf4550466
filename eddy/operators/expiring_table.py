"""A table whose rows expire, from a stream of records.

    deadline(row)      = the timestamp of its record + `after`
    clock(partition)   = the event time of the source's partition, or the tick of the epoch
    row of a key       = the value of its last record, while clock < deadline

So the rows are a function of the last record of each key and of the clocks, however the input was cut into epochs.
Clocks never decrease. The last record of a key decides alone, even if an earlier record has a later timestamp.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Any, NamedTuple

from eddy.operators.batch import Batch, keys_of
from eddy.operators.context import Context, Moment
from eddy.operators.operator import ClocksRead, State
from eddy.operators.row_clocks import ExpiryClock, RowClock, homes_of
from eddy.operators.upsert import Upsert, by_key, replacement, settled
from eddy.operators.windows.due_keys import MOST_A_STEP, DueKeys
from eddy.state.calendar import MOST_MS, Calendar
from eddy.state.table_state import Table

__all__ = ["ExpiringTable", "Expiry"]


class Expiry(NamedTuple):
    """Says when rows expire: `after_ms` milliseconds after the timestamp of their record, by a clock.

    `source` is the topic whose event time is the clock; empty for the wall clock.
    """

    after_ms: int
    clock: ExpiryClock
    source: str = ""

    def deadline(self, timestamp: int) -> int:
        """Return the first moment at which a row with this timestamp has expired."""
        return min(max(timestamp + self.after_ms, 0), MOST_MS)


class ExpiringTable(Upsert):
    """Input: records (K, V or None). Output: the delta of the table of the latest values that have not expired.

    A step removes at most `most` expired rows; the next step removes further ones.

    Invariant: `table` has the rows, `deadlines` and `calendar` the deadline of each of them.
    Cost: O(log n) for each changed or expired row of n.
    """

    def __init__(
        self,
        name: str,
        table: Table[Any, Any],
        deadlines: Table[Any, int],
        calendar: Calendar[Any],
        expiry: Expiry,
        owned: Callable[[], Collection[int]],
        most: int = MOST_A_STEP,
    ) -> None:
        super().__init__(name, table)
        self.deadlines, self.calendar, self._expiry = deadlines, calendar, expiry
        self._clock = RowClock(expiry.source)
        self.due = DueKeys(calendar, self._clock, owned, most)

    def states(self) -> Sequence[State]:
        """The states: the rows, their deadlines, and the keys in the order of the deadlines."""
        return (self.table, self.deadlines, self.calendar)

    @property
    def reads(self) -> ClocksRead:
        """Either the event time of its source or the wall clock."""
        return self._clock.reads

    def wakes_at(self) -> Moment | None:
        """Return the first deadline of the owned partitions, None if there is no row."""
        return self.due.wakes_at()

    def end_epoch(self) -> None:
        """Drop the epoch's counts and its list of partitions with due work."""
        super().end_epoch()
        self.left_due = ()

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Apply the last record of each key; then remove the rows that are due."""
        batch = self.with_keys(inputs[0])
        latest = self.latest(batch)
        stamps = batch.times_of_rows()
        if context.timestamps is not None:  # the times of rows are numbers of records
            stamps = [context.timestamps[number - 1] for number in stamps]
        deadline = self._expiry.deadline
        deadlines: dict[Any, int | None] = {
            key: deadline(stamp) for key, stamp in zip(keys_of(batch.rows), stamps, strict=True)
        }
        for (key, value), home in zip(latest.items(), homes_of(self.table.spec, latest), strict=True):
            if value is None or deadlines[key] <= self._clock.at(context, home):  # type: ignore[operator]
                latest[key] = deadlines[key] = None
        self._replace_deadlines(deadlines)
        due, self.left_due = self.due.due(self.due.frontiers(context))
        expired = {key: moment for moment, key in due}
        self._replace_deadlines(dict.fromkeys(expired))
        news = latest | dict.fromkeys(expired)
        olds = self.table.get_many(list(news))
        news = settled(news, olds, news.items())
        self.table.put_many(news, olds)
        times = dict(zip(keys_of(batch.rows), batch.times_of_rows(), strict=True))
        time = max(chain([batch.time], expired.values()))
        if context.timestamps is None:
            times |= expired
        else:  # an expired row's retraction derives from no record
            time, times = batch.time, times | dict.fromkeys(expired, 0)
        headers = None if batch.headers is None else by_key(batch, batch.headers) | dict.fromkeys(expired, ())  # type: ignore[operator]
        return replacement(news, olds, time, times, headers)

    def _replace_deadlines(self, news: dict[Any, int | None]) -> None:
        keys = list(news)
        olds = self.deadlines.get_many(keys)
        self.deadlines.put_many(news, olds)
        self.calendar.move(keys, olds, news.values())
