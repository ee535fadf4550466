"""Makes rows valid for a while: each row is in the output between its two moments, by the clock of its partition.

    true(row)    = from(row) ≤ clock(partition) < until(row)
    output       = the rows that are true, with their weights

So the output is a function of the input and of the clocks, however the input was cut into epochs. Both moments are
functions of the row, so they are the same for a retraction, and no timestamp of a record is needed.

A row is stored until the clock reaches its last moment. Let m be the next moment at which a row of a key begins or
ends. Then exactly the stored rows of the key with from < m are in the output. So one moment is stored for each key.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from eddy.errors import DataError
from eddy.operators.batch import Batch, Row, ZSet, keys_of
from eddy.operators.context import Context, Moment
from eddy.operators.errors.set_aside import Aside, only_written
from eddy.operators.keyed import Keyed
from eddy.operators.operator import ClocksRead, State
from eddy.operators.row_clocks import RowClock, homes_of
from eddy.operators.windows.due_keys import MOST_A_STEP, DueKeys
from eddy.source_lines import line_of
from eddy.state.arrangement import Arrangement, pairs_of
from eddy.state.calendar import MOST_MS, Calendar
from eddy.state.table_state import Table

__all__ = ["LATEST_MS", "Lifetime", "Span", "ValidRows"]

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999. A later moment is refused, because it is surely not in milliseconds."""
_NEVER = MOST_MS
_ALWAYS = -1

MomentOf = Callable[[Any, Any], int | None]


class Span(NamedTuple):
    """The moment from which on a row is valid, and the moment from which on it is not valid any more."""

    from_ms: int
    until_ms: int

    def is_valid_at(self, clock: int) -> bool:
        """Whether the row is valid at this time."""
        return self.from_ms <= clock < self.until_ms

    def next_ms(self, clock: int) -> int | None:
        """Return the next moment at which the row begins or ends to be valid; None if there is none."""
        if self.from_ms >= self.until_ms:
            return None
        if clock < self.from_ms:
            return self.from_ms
        return self.until_ms if clock < self.until_ms < _NEVER else None


class Lifetime(NamedTuple):
    """The author's functions that return the two moments of a row.

    If a function returns None, the row is valid from the beginning of time, or without end.
    """

    name: str
    from_: MomentOf | None
    until: MomentOf | None

    def of(self, row: Row) -> Span:
        """Return the moments of a row. Raises: DataError for a moment that is not a time."""
        return Span(self._moment("from_", self.from_, row, _ALWAYS), self._moment("until", self.until, row, _NEVER))

    def _moment(self, word: str, function: MomentOf | None, row: Row, unbounded: int) -> int:
        moment = None if function is None else function(*row)
        if moment is None:
            return unbounded
        if type(moment) is not int or not 0 <= moment <= LATEST_MS:
            raise DataError(
                f"valid '{self.name}': {word}={line_of(function)} returned {moment!r} for row {row!r}; milliseconds "
                f"since 1970 as an int, from 0 to {LATEST_MS} (the end of the year 9999), or None for no bound are "
                "needed"
            )
        return moment


class ValidRows(Keyed):
    """Input: rows of (K, V) with any weights. Output: the rows that are valid now, by the clock of their partition.

    A step takes at most `most` due keys out of the calendar; the next step takes further ones.

    Invariant: `arrangement` has the rows with a future moment, `moments` and `calendar` the next moment of each key.
    Cost: proportional to the rows of the changed keys and of the keys that are due.
    """

    def __init__(
        self,
        arrangement: Arrangement[Any, Any],
        moments: Table[Any, int],
        calendar: Calendar[Any],
        lifetime: Lifetime,
        clock: RowClock,
        owned: Callable[[], Collection[int]],
        most: int = MOST_A_STEP,
    ) -> None:
        self.name = lifetime.name
        self.arrangement, self.moments, self.calendar = arrangement, moments, calendar
        self._lifetime, self._clock = lifetime, clock
        self.due = DueKeys(calendar, clock, owned, most)

    def states(self) -> Sequence[State]:
        """The rows, the next moment of each key, and the keys in the order of these moments."""
        return (self.arrangement, self.moments, self.calendar)

    @property
    def reads(self) -> ClocksRead:
        """The clock."""
        return self._clock.reads

    def wakes_at(self) -> Moment | None:
        """Return the first moment in the owned partitions, None if there is none."""
        return self.due.wakes_at()

    def end_epoch(self) -> None:
        """Drop the epoch's counts and its list of partitions with due work."""
        super().end_epoch()
        self.left_due = ()

    @property
    def tells_failures(self) -> bool:
        """True, because a row whose moments fail in one batch fails in every batch."""
        return True

    def failures(self, *inputs: Batch) -> Mapping[int, Exception]:
        """The rows whose moments are not times."""
        found: dict[int, Exception] = {}
        for index, row in enumerate(inputs[0].rows):
            try:
                if row[0] is not None:
                    self._lifetime.of(row)
            except Exception as error:
                found[index] = error
        return found

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the rows whose moments are not times, and the rows that the arrangement cannot write."""
        batch = only_written(aside, self.with_keys(inputs[0]), self.arrangement.spec)
        return self.step(context, aside.without(batch, self.failures(batch)) if aside.care.on else batch)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Apply the delta, and emit the rows that have become valid or invalid by the clocks of their partitions.

        Raises: DataError for a row whose moments are not times, or that cannot be hashed.
        """
        batch = self.with_keys(inputs[0])
        due, self.left_due = self.due.due(self.due.frontiers(context))
        arrived: dict[Any, ZSet] = defaultdict(dict)
        for row, weight in batch.zset(self.name).items():
            arrived[row[0]][row] = weight
        keys = list(dict.fromkeys([*arrived, *(key for _, key in due)]))
        homes = homes_of(self.arrangement.spec, keys)
        olds, bags = self.moments.get_many(keys), self.arrangement.get_many(keys)
        out: ZSet = {}
        kept: ZSet = {}
        news: dict[Any, int | None] = {}
        for key, home, old, bag in zip(keys, homes, olds, bags, strict=True):
            rows = {(key, value): weight for value, weight in pairs_of(bag)}
            clock = self._clock.at(context, home)
            news[key] = self._bring(rows, arrived.get(key, {}), old, clock, out, kept)
        self.arrangement.integrate(kept)
        self.moments.put_many(news, olds)
        self.calendar.move(keys, olds, news.values())
        return self._made(context, batch, out, [moment for moment, _ in due])

    def _bring(self, rows: ZSet, arrived: ZSet, old: int | None, clock: int, out: ZSet, kept: ZSet) -> int | None:
        """Process the rows of a key up to the time `clock`. Returns the key's next moment, None if it has none.

        `rows` are the stored rows, `arrived` the delta, `old` is the key's moment before. The changes of the output are
        added to `out`, the changes of the stored rows to `kept`.
        """
        of, nexts = self._lifetime.of, []
        for row in {**rows, **arrived}:
            span, before = of(row), rows.get(row, 0)
            after = before + arrived.get(row, 0)
            shown = before if old is not None and span.from_ms < old else 0
            if change := (after if span.is_valid_at(clock) else 0) - shown:
                out[row] = change
            moment = span.next_ms(clock) if after else None
            if moment is not None:
                nexts.append(moment)
            if change := (after if moment is not None else 0) - before:
                kept[row] = change
        return min(nexts, default=None)

    def _made(self, context: Context, batch: Batch, out: ZSet, moments: Sequence[int]) -> Batch:
        rows, weights = list(out), list(out.values())
        if context.timestamps is None:
            return Batch(rows, weights, max([batch.time, *moments]))
        numbers: dict[Any, int] = {}  # times are numbers of records here; a row that was due derives from no record
        for key, number in zip(keys_of(batch.rows), batch.times_of_rows(), strict=True):
            numbers[key] = max(number, numbers.get(key, 0))
        return Batch(rows, weights, batch.time, [numbers.get(key, 0) for key in keys_of(rows)])
