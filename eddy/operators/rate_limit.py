"""Makes the rows of a table change at most once in a span of time: changes of a key wait, and only the last is sent.

    a key's first change at t     waits until the wall clock is at t + limit
    a later change before then    replaces the waiting change
    at t + limit                  the last value replaces the value before the first change, if the two differ

So a reader sees each row as it was at some moment within the last `limit`.

If too many changes wait in a partition, either the oldest changes are sent before their time, or the worker ends.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from eddy.errors import StateError
from eddy.operators.batch import EMPTY, Batch, Row
from eddy.operators.context import Context, Moment
from eddy.operators.errors.set_aside import Aside, only_written
from eddy.operators.keyed import Keyed
from eddy.operators.operator import ClocksRead, State
from eddy.operators.row_clocks import RowClock
from eddy.operators.windows.due_keys import MOST_A_STEP, DueKeys
from eddy.state.calendar import MOST_MS, Calendar
from eddy.state.sized_table import Size, SizedTable
from eddy.state.spec import StateSpec
from eddy.state.table_state import Table

__all__ = ["MostWaiting", "RateLimit", "Waiting"]

Waiting = tuple[int, Any, Any]
"""The moment until which a change waits, the value sent last, and the present value. A value None is no row."""
_Passed = tuple[Any, Any, Any]
"""A change to send: the key, the value sent last, and the present value."""
_FIRST_CHUNK = 64


class MostWaiting(NamedTuple):
    """The limit on the changes that wait in a partition: their number, and the bytes of their rows; None is no limit.

    `fails`: a change beyond the limit ends the worker. If it is false, the oldest changes are sent early.
    """

    rows: int | None
    bytes: int | None
    fails: bool

    def __str__(self) -> str:
        bounds = [(self.rows, "changes"), (self.bytes, "bytes")]
        return " and ".join(f"{most:,} {what}" for most, what in bounds if most is not None)

    def allows(self, size: Size) -> bool:
        """Return whether the waiting changes of a partition may have this size."""
        return (self.rows is None or size.rows <= self.rows) and (self.bytes is None or size.bytes <= self.bytes)


class RateLimit(Keyed):
    """Input and output: deltas of a table. `rows` is the spec of its rows. With `bound`, `waiting` is a `SizedTable`.

    Invariant: `waiting` has the keys whose row differs from the row sent last, `calendar` the moments of these keys.
    Invariant: after a step, partitions with keys that the step has changed are within `bound`.
    Cost: O(log n) for each key that changes, is due or is sent early, with n keys waiting.
    """

    def __init__(
        self,
        name: str,
        waiting: Table[Any, Waiting],
        calendar: Calendar[Any],
        rows: StateSpec,
        limit_ms: int,
        owned: Callable[[], Collection[int]],
        bound: MostWaiting | None = None,
        most: int = MOST_A_STEP,
    ) -> None:
        self.name, self.waiting, self.calendar, self._rows, self._limit_ms = name, waiting, calendar, rows, limit_ms
        self._clock, self._bound = RowClock(""), bound
        self.due = DueKeys(calendar, self._clock, owned, most)

    def states(self) -> Sequence[State]:
        """The changes that wait, and their calendar."""
        return self.waiting, self.calendar

    @property
    def reads(self) -> ClocksRead:
        """The wall clock."""
        return self._clock.reads

    def wakes_at(self) -> Moment | None:
        """Return the first moment at which a waiting change is due."""
        return self.due.wakes_at()

    def end_epoch(self) -> None:
        """Drop the epoch's counts and its list of partitions with due work."""
        super().end_epoch()
        self.left_due = ()

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the rows that the state cannot write."""
        return self.step(context, only_written(aside, self.with_keys(inputs[0]), self._rows))

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Add the changes of the batch to the waiting ones, and send the waiting changes whose moment has come."""
        batch = self.with_keys(inputs[0])
        due, self.left_due = self.due.due(self.due.frontiers(context))
        gone, came = _sides(batch)
        over = {key: moment for moment, key in due}
        keys = list(dict.fromkeys([*gone, *came, *over]))
        olds = self.waiting.get_many(keys)
        limit = max(self._clock.at(context, 0), 0) + self._limit_ms
        news: dict[Any, Waiting | None] = {}
        passed: list[_Passed] = []
        for key, old in zip(keys, olds, strict=True):
            moment, shown, value = (limit, gone.get(key), None) if old is None else old
            if key in gone or key in came:
                value = came.get(key)
            news[key] = None if key in over or shown == value else (moment, shown, value)
            if key in over and shown != value:
                passed.append((key, shown, value))
        self._put(news, olds)
        moments = list(over.values())
        if early := self._send_excess(keys, {key for key, old in zip(keys, olds, strict=True) if old is None}):
            passed += early
            moments.append(limit - self._limit_ms)
        if not passed:
            return EMPTY
        retracted: list[Row] = [(key, shown) for key, shown, _ in passed if shown is not None]
        inserted: list[Row] = [(key, value) for key, _, value in passed if value is not None]
        time = max([batch.time, *moments]) if context.timestamps is None else 0  # 0 is the number of no record
        return Batch(retracted + inserted, [-1] * len(retracted) + [1] * len(inserted), time)

    def _put(self, news: Mapping[Any, Waiting | None], olds: Sequence[Waiting | None]) -> None:
        self.waiting.put_many(news, olds)
        self.calendar.move(list(news), map(_moment, olds), map(_moment, news.values()))

    def _send_excess(self, changed: Sequence[Any], began: Collection[Any]) -> list[_Passed]:
        """Send the changes that have waited longest, in each partition of the keys `changed` where too many wait.

        `began`: the keys whose changes began to wait in this step. Raises: StateError if the bound `fails`.
        """
        if self._bound is None or not changed:
            return []
        assert isinstance(self.waiting, SizedTable)
        spec = self.waiting.spec
        found: list[_Passed] = []
        homes = spec.partitions_of(spec.key.identify_many(changed))
        for partition in sorted(set(homes)):
            size = self.waiting.size(partition)
            if self._bound.allows(size):
                continue
            if self._bound.fails:
                raise StateError(
                    f"suppress '{self.name}': {size.rows:,} changes of {size.bytes:,} bytes wait in partition "
                    f"{partition}; by full='fail' at most {self._bound} may. Raise the bound, or send early those "
                    "that have waited longest: full='emit'"
                )
            here = [key for key, home in zip(changed, homes, strict=True) if home == partition and key in began]
            found += self._oldest(self.waiting, self._bound, partition, here)
        return found

    def _oldest(
        self, waiting: SizedTable[Any, Waiting], bound: MostWaiting, partition: int, began: Sequence[Any]
    ) -> list[_Passed]:
        """Send changes of a partition, the oldest first, until the rest is within the bound."""
        gone: dict[Any, None] = {}
        olds: list[Waiting] = []
        rows, size = waiting.size(partition)
        for keys in self._by_age(partition, began):
            values = waiting.get_many(keys)
            for key, value, length in zip(keys, values, waiting.lengths(keys, values), strict=True):
                if value is None or bound.allows(Size(rows, size)):
                    continue
                gone[key], rows, size = None, rows - 1, size - length
                olds.append(value)
            if bound.allows(Size(rows, size)):
                break
        self._put(gone, olds)
        return [(key, shown, value) for key, (_, shown, value) in zip(gone, olds, strict=True)]

    def _by_age(self, partition: int, began: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """Yield lists of waiting keys of a partition, the oldest first. The keys in `began` began to wait in this step.

        Cost: proportional to the keys that are taken.
        """
        seen, most = 0, _FIRST_CHUNK
        while True:
            due = self.calendar.due(partition, MOST_MS, most)
            yield [key for _, key in due[seen:]]
            if len(due) < most:
                break
            seen, most = most, 2 * most
        yield began


def _sides(batch: Batch) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return the values that the delta of a table retracts, by key, and the values that it inserts, by key."""
    gone: dict[Any, Any] = {}
    came: dict[Any, Any] = {}
    for (key, value), weight in zip(batch.rows, batch.weights, strict=True):
        (came if weight > 0 else gone)[key] = value
    return gone, came


def _moment(waiting: Waiting | None) -> int | None:
    return None if waiting is None else waiting[0]
