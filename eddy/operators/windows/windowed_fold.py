"""Aggregates windows: records are folded by windowed key, and windows close.

    emit = update    each change of a window's row
    emit = close     the row of each window once, when the window closes

A window closes when the frontier of its partition reaches its end. After that no record for it can arrive, so its row
is final and never retracted. The row is in the table until the frontier is `retention` after the end.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import compress, repeat
from operator import itemgetter, not_
from typing import Any, Literal, NamedTuple, TypeVar

from eddy.operators.batch import EMPTY, Batch, Row, keys_of
from eddy.operators.context import Context, Moment
from eddy.operators.errors.set_aside import Aside
from eddy.operators.operator import ClocksRead, Operator, State
from eddy.operators.windows.due_keys import MOST_A_STEP, DueKeys
from eddy.operators.windows.frontier import Frontier
from eddy.state.calendar import Calendar
from eddy.state.table_state import Table
from eddy.windows import Windowed, Windows

__all__ = ["Emit", "OpenWindow", "WindowedFold"]

K = TypeVar("K")

Emit = Literal["update", "close"]
_Moved = tuple[int, Windowed[K]]
"""A moment, and a window that is due at this moment."""
_Come = tuple[list[Windowed[Any]], list[Windowed[Any]]]
"""The windows that get their first row, and the windows that lose their row."""
_end_of = itemgetter(2)


class OpenWindow(NamedTuple):
    """The first open window of a step, by its end with the grace, and the source partition that keeps the window open.

    `behind_ms` is the distance from that end to the latest event time; 0 if no partition has reached the end.
    """

    step: str
    source: str
    partition: int
    behind_ms: int

    def __str__(self) -> str:
        return (
            f"windows of '{self.step}' wait for partition {self.partition} of '{self.source}', "
            f"{self.behind_ms / 1000:,g} s of event time after the end of the first one"
        )


class WindowedFold(Operator):
    """Input: records (Windowed K, V). Output: rows (Windowed K, aggregate).

    - `table`: the rows of open windows, which `fold` changes, and of closed windows within the retention.
    - `calendar`: the next moment of each window: its end if its row is still to be sent, else the end of its retention.
    - `forget` is called with windows that have closed or are removed.
    - `beside`: further tables from which the row of a removed window is removed.
    - `moved` returns the windows that a delta of `fold` begins and ends. By default these are the windows that get
      their first row, or lose their row. An aggregate whose windows can exist without a row has its own function.

    A window whose aggregate cannot be written has no row, but is in the calendar, and is withheld until it is removed.
    A step closes or removes at most `most` windows; the next step continues.
    """

    def __init__(
        self,
        name: str,
        fold: Operator,
        table: Table[Any, Any],
        calendar: Calendar[Any],
        windows: Windows,
        frontier: Frontier,
        owned: Callable[[], Collection[int]],
        emit: Emit,
        retention_ms: int,
        beside: Sequence[Table[Any, Any]] = (),
        forget: Callable[[Sequence[Windowed[Any]]], None] = lambda keys: None,
        most: int = MOST_A_STEP,
        moved: Callable[[Batch], _Come] | None = None,
    ) -> None:
        self.name, self._fold, self.table, self.calendar = name, fold, table, calendar
        self._windows, self._frontier, self.due = windows, frontier, DueKeys(calendar, frontier, owned, most)
        self._closes, self._retention_ms = emit == "close", retention_ms
        self._forget, self._beside, self._moved = forget, beside, moved or moved_rows

    def states(self) -> Sequence[State]:
        """The table, and the calendar."""
        return (*self._fold.states(), self.calendar)

    @property
    def reads(self) -> ClocksRead:
        """The clocks of the frontier."""
        return self._frontier.reads

    def wakes_at(self) -> Moment | None:
        """Return the moment at which a frontier reaches the first moment of its partition."""
        return self.due.wakes_at()

    def first_open(self, context: Context) -> OpenWindow | None:
        """Return the first window, between epochs; None if there is none. `context` has the event times."""
        first = self.due.first()
        if first is None:
            return None
        end, partition = first
        latest = max(context.event_time.values(), default=-1)
        source = self._frontier.slowest(context, partition)
        return OpenWindow(self.name, *source, max(0, latest - end - self._windows.lag_ms))

    def end_epoch(self) -> None:
        """Drop the reports of the fold, and the list of partitions with due work."""
        self._fold.end_epoch()
        self.left_due = ()

    @property
    def tells_failures(self) -> bool:
        """Whether the fold's `failures` can find the failing rows."""
        return self._fold.tells_failures

    def failures(self, *inputs: Batch) -> Mapping[int, Exception]:
        """Return the fold's `failures`."""
        return self._fold.failures(*inputs)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Fold the records into the rows of their windows; then close the windows that are due."""
        (batch,) = inputs
        return self._closing(context, batch, self._fold.step(context, batch) if batch.rows else EMPTY)

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Step as `step` does, and let the fold set rows aside."""
        (batch,) = inputs
        return self._closing(
            context, batch, self._fold.step_setting_aside(context, aside, batch) if batch.rows else EMPTY, aside
        )

    def _closing(self, context: Context, batch: Batch, delta: Batch, aside: Aside | None = None) -> Batch:
        frontiers = self.due.frontiers(context)
        new = self._new(delta, frontiers, aside.withheld_anew() if aside else ())
        earlier, self.left_due = self.due.due(frontiers)
        due = list(dict.fromkeys([*new, *earlier]))  # a withheld window may be in both
        if not due:
            return EMPTY if self._closes else delta
        if not self._closes:
            self._remove(due, aside)
            return delta
        closes_at = self._windows.closes_at
        self._remove([(moment, key) for moment, key in due if moment != closes_at(key.end_ms)], aside)
        rows = self._close([key for moment, key in due if moment == closes_at(key.end_ms)], aside)
        if context.timestamps is not None:  # times are numbers of records, and these rows derive from no record
            return Batch(rows, [1] * len(rows), batch.time, [0] * len(rows))
        times = [self._windows.final_ms(key.end_ms) for key in keys_of(rows)]
        return Batch(rows, [1] * len(rows), max([batch.time, *times]), times)

    def _new(self, delta: Batch, frontiers: Mapping[int, int], withheld: Sequence[Windowed[Any]]) -> list[_Moved[Any]]:
        """Add new windows and newly withheld windows to the calendar, and remove windows that have no row any more.

        Returns the new windows that are due already, because this epoch has their records and the end of their grace.
        """
        come, gone = self._moved(delta)
        self.calendar.move(gone, self._moments(gone), repeat(None, len(gone)))
        news = [*come, *withheld]
        moments = self._moments(news)
        self.calendar.move(news, repeat(None, len(news)), moments)
        if not news or min(moments) > max(frontiers.values(), default=-1):
            return []
        spec = self.table.spec
        homes = spec.partitions_of(spec.key.identify_many(news))
        found = zip(homes, moments, news, strict=True)
        return [(moment, key) for home, moment, key in found if moment <= frontiers.get(home, -1)]

    def _moments(self, keys: Sequence[Windowed[Any]]) -> list[int]:
        """Return the first moment of each window. Cost: one call for all windows with the same end."""
        first = self._windows.closes_at if self._closes else self._removal
        moment_of = {end: first(end) for end in set(map(_end_of, keys))}
        return list(map(moment_of.__getitem__, map(_end_of, keys)))

    def _removal(self, end_ms: int) -> int:
        """Return the end for the calendar at which the retention is over, for a window that ends at `end_ms`."""
        end = self._windows.closes_at(end_ms)
        return self._windows.next_end(end + self._retention_ms) if self._retention_ms else end

    def _close(self, closed: list[Windowed[Any]], aside: Aside | None) -> list[Row]:
        """Close windows, and return their rows. Without retention they are removed from the table."""
        values = self.table.get_many(closed)
        ends = [self._windows.closes_at(key.end_ms) for key in closed]
        if self._retention_ms:
            self._forget(closed)
            self.calendar.move(closed, ends, map(self._removal, map(_end_of, closed)))
        else:
            self._remove(list(zip(ends, closed, strict=True)), aside)
        return [(key, value) for key, value in zip(closed, values, strict=True) if value is not None]

    def _remove(self, due: list[_Moved[Any]], aside: Aside | None) -> None:
        """Remove the rows of windows from the tables, without a retraction, and stop withholding the windows."""
        keys = [key for _, key in due]
        self._forget(keys)
        if aside is not None:
            for key in keys:
                aside.release(key)
        for table in (self.table, *self._beside):
            table.put_many(dict.fromkeys(keys), table.get_many(keys))
        self.calendar.move(keys, [moment for moment, _ in due], [None] * len(due))


def moved_rows(delta: Batch) -> _Come:
    """Return two lists: the windows that get their first row, and the windows that lose their row.

    A window whose row is replaced is in neither list.
    """
    keys, inserted = list(keys_of(delta.rows)), [weight > 0 for weight in delta.weights]
    if all(inserted):
        return keys, []
    there, left = dict.fromkeys(compress(keys, inserted)), dict.fromkeys(compress(keys, map(not_, inserted)))
    return [key for key in there if key not in left], [key for key in left if key not in there]
