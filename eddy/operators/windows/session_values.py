"""Aggregates of sessions that need all values of each session.

    a value             is a row (key, time and value) of the arrangement
    sessions that merge have their summaries merged, the smaller into the larger one; no row changes

A session has the values of its key from its start to its end, because the sessions of a key do not overlap.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any

from eddy.operators.batch import Batch
from eddy.operators.context import Context
from eddy.operators.errors.set_aside import Aside, unwritten_keys
from eddy.operators.operator import State
from eddy.operators.upsert import replacement
from eddy.operators.windows.session_fold import SessionFold
from eddy.operators.windows.window_values import ValuesOfWindows, failures_of
from eddy.state.summarized_arrangement import SummarizedArrangement
from eddy.state.table_state import Table
from eddy.windows import Span, Windowed

__all__ = ["AFTER_TIME", "SessionValues"]

_TIME = Struct(">Q")
AFTER_TIME = _TIME.size
"""The number of bytes of the time, which precede the value in a row."""


class SessionValues(SessionFold):
    """Input: records (Windowed K, V), each with its own session. Output: the delta of the table Windowed K → aggregate.

    `values` has the values of the sessions that can still be merged, by K.
    Cost: O(log n) for each value of the smaller of two sessions that merge, plus the size of the result.
    """

    def __init__(
        self,
        name: str,
        table: Table[Any, Any],
        values: SummarizedArrangement[Any, Any],
        open_: Table[Any, tuple[Span, ...]],
        gap_ms: int,
        aggregate: ValuesOfWindows,
    ) -> None:
        super().__init__(name, table, open_, gap_ms, aggregate.begin, self._added, self._merged, checked=False)
        self.values, self._aggregate = values, aggregate
        self._moved: tuple[list[Windowed[Any]], list[Windowed[Any]]] = ([], [])

    def states(self) -> Sequence[State]:
        """The table, the values, and the spans of open sessions."""
        return (self.table, self.values, self.open)

    def end_epoch(self) -> None:
        """Drop the lists for `moved`."""
        self._moved = ([], [])

    def moved(self, delta: Batch) -> tuple[list[Windowed[Any]], list[Windowed[Any]]]:
        """Return the sessions that the last step has created, and the sessions that it has merged into others."""
        return self._moved

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the records on which a function fails, or whose aggregates cannot be written."""
        batch = aside.without_kept(inputs[0])
        batch = aside.without(batch, unwritten_keys(batch, self.table.spec))
        failed = failures_of(self._aggregate, batch.rows, self.table.spec)
        return super().step_setting_aside(context, aside, aside.without(batch, failed))

    def refusal(self, session: Windowed[Any], aggregate: Any) -> Exception | None:
        """Return None: no aggregate is refused here, because each value has been tried alone."""
        return None

    def aggregates(self, sessions: Sequence[Windowed[Any]]) -> list[Any]:
        """The summaries of sessions."""
        return [self.values.summary(key, _part(start, end)) for key, start, end in sessions]

    def written(self, news: Mapping[Any, Any], olds: Sequence[Any], batch: Batch) -> Batch:
        """Write the values of a batch, and the aggregates of sessions, whose summaries are `news`."""
        delta: dict[tuple[Any, bytes], int] = {}
        for ((key, time, _), value), weight in zip(batch.rows, batch.weights, strict=True):
            row = key, _TIME.pack(time) + self._data(value)
            delta[row] = delta.get(row, 0) + weight
        self.values.integrate(delta)
        come, gone = self._moved = ([], [])
        for (session, summary), old in zip(news.items(), olds, strict=True):
            key, start, end = session
            self.values.replace(key, {_part(start, end): summary})
            if (summary is None) is not (old is None):
                (gone if summary is None else come).append(session)
        results = {session: None if one is None else self._aggregate.result(one) for session, one in news.items()}
        before = self.table.get_many(list(results))
        self.table.put_many(results, before)
        return replacement(results, before, batch.time)

    def forget(self, closed: Sequence[Windowed[Any]]) -> None:
        """Remove closed sessions from the open ones, and remove their values."""
        super().forget(closed)
        delta: dict[tuple[Any, bytes], int] = {}
        for key, start, end in closed:
            part = _part(start, end)
            delta |= {(key, data): -weight for data, weight in self.values.between(key, *part)}
            self.values.replace(key, {part: None})
        self.values.integrate(delta)

    def _added(self, key: Any, value: Any, summary: Any) -> Any:
        self._aggregate.add(summary, self._data(value), 1)
        return summary

    def _merged(self, key: Any, summary: Any, other: Any) -> Any:
        return self._aggregate.merge(summary, other)

    def _data(self, value: Any) -> bytes:
        return self._aggregate.data(self._aggregate.of_value(value))


def _part(start: int, end: int) -> tuple[bytes, bytes]:
    """Return the range of rows with times from `start` to `end`, both included."""
    return _TIME.pack(start), _TIME.pack(end + 1)
