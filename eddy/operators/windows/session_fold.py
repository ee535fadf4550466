"""Aggregates sessions: records that are near one another in time are merged, whatever their order.

    a record at t     is merged with the open sessions of its key that begin at most a gap after t and end at most a
                      gap before it: their aggregates are merged in the order of time, then the record is added

Facts are never retracted, so sessions only grow and merge. The final sessions are the same as if all records had
arrived in the order of time. When sessions merge, their rows are retracted and the row of the merged session is
inserted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from eddy.operators.aggregate import check_new
from eddy.operators.batch import Batch, Row, keys_of, repeated
from eddy.operators.context import Context
from eddy.operators.errors.set_aside import Aside, refused, unwritten_keys
from eddy.operators.operator import Operator, State
from eddy.operators.upsert import replacement
from eddy.state.table_state import Table
from eddy.windows import Span, Windowed

__all__ = ["SessionFold"]


class SessionFold(Operator):
    """Input: records (Windowed K, V), each with its own session. Output: the delta of the table of aggregates.

    Invariant: `open` has, for each key, the sorted spans of its sessions in `table` that can still be merged.
    Cost: O(open sessions of the key) for each record.
    """

    def __init__(
        self,
        name: str,
        table: Table[Any, Any],
        open_: Table[Any, tuple[Span, ...]],
        gap_ms: int,
        initial: Callable[[], Any],
        adder: Callable[[Any, Any, Any], Any],
        merger: Callable[[Any, Any, Any], Any],
        checked: bool = True,
    ) -> None:
        self.checked = checked
        self.name, self.table, self.open, self.gap_ms = name, table, open_, gap_ms
        self.initial, self.adder, self.merger = initial, adder, merger

    def states(self) -> Sequence[State]:
        """The table of aggregates, and the spans of open sessions."""
        return (self.table, self.open)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Add each record, in the order of the rows."""
        (batch,) = inputs
        merging = _Merging(self, keys_of(batch.rows))
        for row, weight in zip(batch.rows, batch.weights, strict=True):
            merging.add(row, weight)
        return merging.end(batch)

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the records on which a function fails, or whose aggregates cannot be written."""
        batch = aside.without_kept(inputs[0])
        batch = aside.without(batch, unwritten_keys(batch, self.table.spec))
        merging, errors = _Merging(self, keys_of(batch.rows)), dict[int, Exception]()
        for index, (row, weight) in enumerate(zip(batch.rows, batch.weights, strict=True)):
            try:
                merging.add(row, weight, checked=aside.care.on)
            except Exception as error:
                errors[index] = error
        return merging.end(aside.without(batch, errors))

    def refusal(self, session: Windowed[Any], aggregate: Any) -> Exception | None:
        """Return the error for an aggregate that the table cannot write; None if it can."""
        return refused(self.table.spec, (session, aggregate))

    def aggregates(self, sessions: Sequence[Windowed[Any]]) -> list[Any]:
        """The aggregates of sessions."""
        return self.table.get_many(sessions)

    def written(self, news: Mapping[Any, Any], olds: Sequence[Any], batch: Batch) -> Batch:
        """Replace the aggregates `olds` of sessions by `news`, after the records of a batch; None removes a session.

        Returns the delta of the table.
        """
        self.table.put_many(news, olds)
        return replacement(news, olds, batch.time)

    def forget(self, closed: Sequence[Windowed[Any]]) -> None:
        """Remove closed sessions from the open ones."""
        gone: dict[Any, set[Span]] = {}
        for key, start, end in closed:
            gone.setdefault(key, set()).add((start, end))
        olds = self.open.get_many(list(gone))
        news = {
            key: tuple(span for span in old or () if span not in gone[key]) or None
            for key, old in zip(gone, olds, strict=True)
        }
        self.open.put_many(news, olds)


class _Merging:
    """Merges records into the open sessions of some keys, in memory; `end` writes the sessions."""

    def __init__(self, fold: SessionFold, keys: Iterable[Windowed[Any]]) -> None:
        self._fold = fold
        self._keys = list(dict.fromkeys(key[0] for key in keys))
        self._before = fold.open.get_many(self._keys)
        self._spans = {key: list(spans or ()) for key, spans in zip(self._keys, self._before, strict=True)}
        there = [Windowed(key, *span) for key, spans in self._spans.items() for span in spans]
        self._olds: dict[Windowed[Any], Any] = dict(zip(there, fold.aggregates(there), strict=True))
        self._news: dict[Windowed[Any], Any] = {}

    def add(self, row: Row, weight: int, checked: bool = False) -> None:
        """Add a record to the sessions of its key. If a function raises, nothing has changed.

        `checked`: raise the error for an aggregate that the table cannot write.
        """
        (key, time, _), value = row
        fold, gap = self._fold, self._fold.gap_ms
        near = [span for span in self._spans[key] if span[0] <= time + gap and span[1] >= time - gap]
        aggregate = None
        for span in near:
            found = self._of(Windowed(key, *span))
            aggregate = found if aggregate is None else fold.merger(key, aggregate, found)
        for _ in repeated(row, weight, f"aggregate '{fold.name}'"):
            old = fold.initial() if aggregate is None else aggregate
            aggregate = fold.adder(key, value, old)
            if fold.checked:
                check_new(fold.name, aggregate, old, key)
        whole = (
            (min(time, *(start for start, _ in near)), max(time, *(end for _, end in near))) if near else (time, time)
        )
        session = Windowed(key, *whole)
        if checked and aggregate is not None and (error := fold.refusal(session, aggregate)):
            raise error
        rest = [span for span in self._spans[key] if span not in near]
        self._news |= {Windowed(key, *span): None for span in near}
        self._news[session] = aggregate
        self._spans[key] = sorted([*rest, whole]) if aggregate is not None else rest

    def _of(self, session: Windowed[Any]) -> Any:
        return self._news[session] if session in self._news else self._olds[session]

    def end(self, batch: Batch) -> Batch:
        """Write the sessions. Returns the delta of the table."""
        fold, olds = self._fold, [self._olds.get(session) for session in self._news]
        delta = fold.written(self._news, olds, batch)
        spans: Mapping[Any, Any] = {key: tuple(found) or None for key, found in self._spans.items()}
        fold.open.put_many(spans, self._before)
        return delta
