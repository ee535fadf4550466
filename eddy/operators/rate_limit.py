"""A table whose rows change at most once in a span of time: changes wait, and the last one of them is passed on.

    a key's first change at t     waits until the wall clock is at t + limit
    further changes until then    replace it
    then                          the row before the first change is replaced by the row of now, if they differ

So a reader sees each row as it was at some moment of the last `limit`.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from eddy.operators.batch import EMPTY, Batch, Row
from eddy.operators.context import Context, Moment
from eddy.operators.errors.set_aside import Aside, only_written
from eddy.operators.keyed import Keyed
from eddy.operators.operator import ClocksRead, State
from eddy.operators.row_clocks import RowClock
from eddy.operators.windows.due import MOST_A_STEP, DueKeys
from eddy.state.calendar import Calendar
from eddy.state.spec import StateSpec
from eddy.state.table_state import Table

__all__ = ["RateLimit", "Waiting"]

Waiting = tuple[int, Any, Any]
"""The moment until which a change waits, the value that was passed on before, and the value of now; None for none."""


class RateLimit(Keyed):
    """The delta of a table in and out. `rows` is the spec of its rows.

    Invariant: `waiting` has the keys whose row differs from the one that was passed on, `calendar` their moments.
    Cost: O(log n) for each changed or due key of n that wait.
    """

    def __init__(
        self,
        name: str,
        waiting: Table[Any, Waiting],
        calendar: Calendar[Any],
        rows: StateSpec,
        limit_ms: int,
        owned: Callable[[], Collection[int]],
        most: int = MOST_A_STEP,
    ) -> None:
        self.name, self.waiting, self.calendar, self._rows, self._limit_ms = name, waiting, calendar, rows, limit_ms
        self._clock = RowClock("")
        self.due = DueKeys(calendar, self._clock, owned, most)

    def states(self) -> Sequence[State]:
        """The changes that wait, and their calendar."""
        return self.waiting, self.calendar

    @property
    def reads(self) -> ClocksRead:
        """The wall clock."""
        return self._clock.reads

    def wakes_at(self) -> Moment | None:
        """The first moment of a change that waits."""
        return self.due.wakes_at()

    def end_epoch(self) -> None:
        """Drop what is reported."""
        super().end_epoch()
        self.left_due = ()

    def step_apart(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the rows that the state cannot write."""
        return self.step(context, only_written(aside, self.with_keys(inputs[0]), self._rows))

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Let the changes wait, and pass on the ones whose moment has come."""
        batch = self.with_keys(inputs[0])
        due, self.left_due = self.due.due(self.due.frontiers(context))
        gone, came = _sides(batch)
        over = {key: moment for moment, key in due}
        keys = list(dict.fromkeys([*gone, *came, *over]))
        olds = self.waiting.get_many(keys)
        limit = max(self._clock.at(context, 0), 0) + self._limit_ms
        news: dict[Any, Waiting | None] = {}
        retracted: list[Row] = []
        inserted: list[Row] = []
        for key, old in zip(keys, olds, strict=True):
            moment, shown, value = (limit, gone.get(key), None) if old is None else old
            if key in gone or key in came:
                value = came.get(key)
            news[key] = None if key in over or shown == value else (moment, shown, value)
            if key in over and shown != value:
                retracted += [] if shown is None else [(key, shown)]
                inserted += [] if value is None else [(key, value)]
        self.waiting.put_many(news, olds)
        self.calendar.move(keys, [None if one is None else one[0] for one in olds], map(_moment, news.values()))
        rows = retracted + inserted
        if not rows:
            return EMPTY
        time = max([batch.time, *over.values()]) if context.timestamps is None else 0  # of no record of the epoch
        return Batch(rows, [-1] * len(retracted) + [1] * len(inserted), time)


def _sides(batch: Batch) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The values by key that the delta of a table retracts, and those that it inserts."""
    gone: dict[Any, Any] = {}
    came: dict[Any, Any] = {}
    for (key, value), weight in zip(batch.rows, batch.weights, strict=True):
        (came if weight > 0 else gone)[key] = value
    return gone, came


def _moment(waiting: Waiting | None) -> int | None:
    return None if waiting is None else waiting[0]
