"""Lets a step's function also get the record of each row: its topic, partition, offset, timestamp and headers."""

from collections.abc import Callable, Sequence
from typing import Any

from eddy.operators.batch import Batch
from eddy.operators.context import OUTSIDE, Context
from eddy.operators.operator import RowWise
from eddy.operators.processors.record import RecordContext

__all__ = ["WithRecords"]

_new: Callable[[type[Any], tuple[Any, ...]], Any] = tuple.__new__


class WithRecords(RowWise):
    """Adapts an operator over rows (K, (V, RecordContext)) to rows (K, V), before the first exchange.

    `keeps_value`: the operator returns the values (V, RecordContext) unchanged, so V is taken out of them again.
    """

    def __init__(self, operator: RowWise, keeps_value: bool) -> None:
        self.name, self._operator, self._keeps_value = operator.name, operator, keeps_value
        self._stamps: Sequence[int] | None = None

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Call the function on each row with its record."""
        self._stamps = context.timestamps
        return self._made(inputs[0])

    def _made(self, batch: Batch) -> Batch:
        times = batch.times_of_rows()
        if self._stamps is not None:  # the times of rows are numbers of records
            times = [self._stamps[number - 1] for number in times]
        places = zip(batch.places_of_rows(), times, batch.headers_of_rows(), strict=True)
        records = (_new(RecordContext, (*place, time, headers)) for place, time, headers in places)  # type: ignore[misc]
        pairs = [(key, (value, record)) for (key, value), record in zip(batch.rows, records, strict=True)]
        out = self._operator.step(OUTSIDE, batch.with_rows(pairs))
        return out.with_rows([(key, value) for key, (value, _) in out.rows]) if self._keeps_value else out

    def _error(self, batch: Batch, start: int, stop: int, others: Sequence[Batch]) -> Exception | None:
        try:
            self._made(batch.at(range(start, stop)))
        except Exception as error:
            return error
        return None
