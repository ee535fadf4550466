"""Map rows by a coroutine function, which the worker has called before the epoch.

The worker calls the function when it has polled a record. The record enters an epoch once its calls have ended, see
`runtime/calling_consumer.py`. The operator only looks up the results, by the partition and offset of each record.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple

from eddy.errors import DataError
from eddy.operators.batch import Batch, Place, Row
from eddy.operators.context import OUTSIDE, Context
from eddy.operators.operator import RowWise
from eddy.operators.processors.record import RecordContext
from eddy.source_lines import describe_exception

__all__ = ["AsyncMap", "CallLimits", "CallOrder", "EndedCall"]

CallOrder = Literal["key", "input", "none"]
"""The earlier calls for which a call waits: calls with the same key, from the same source partition, or no calls."""


class CallLimits(NamedTuple):
    """The limits of a step's calls.

    They are the most calls at a time, the order of the calls, the seconds that a call may take, and the retries of a
    failed call.
    """

    at_most: int
    order: CallOrder
    timeout_s: float
    retries: int


class EndedCall(NamedTuple):
    """A call that has ended: the row passed to it, and the row that it returned or the error of its last try."""

    row: Row
    made: Row | None
    error: Exception | None


class AsyncMap(RowWise):
    """Input: rows of (K, V). Output: for each row, the row that its call of `function(key, value, record)` has
    returned.

    `ended` has the calls for each record, by its place, in the order of the record's rows. The worker adds and removes
    the calls between epochs.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[Any, Any, RecordContext], Awaitable[Row]],
        limits: CallLimits,
        where: str,
    ) -> None:
        self.name, self.function, self.limits, self.where = name, function, limits, where
        self.ended: dict[Place, list[EndedCall]] = {}

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Replace each row by the result of its call."""
        (batch,) = inputs
        return batch.with_rows(list(map(self._made, batch.rows, batch.places_of_rows())))

    def _made(self, row: Row, place: Place | None) -> Row:
        call = self._call(row, self.ended.get(place, ()) if place is not None else ())
        if call.made is None:
            told = f"{self.where}: the call raised {describe_exception(call.error)}" if call.error else ""
            raise DataError(told) from call.error
        return call.made

    def _call(self, row: Row, calls: Sequence[EndedCall]) -> EndedCall:
        if len(calls) == 1:
            return calls[0]
        for call in calls:
            if call.row == row or repr(call.row) == repr(row):
                return call
        raise DataError(
            f"{self.where}: there was no call for the row {row!r}, since the steps before it made other rows of the "
            "record at first; their functions have to return the same for the same record"
        )

    def _error(self, batch: Batch, start: int, stop: int, others: Sequence[Batch]) -> Exception | None:
        try:
            self.step(OUTSIDE, batch.at(range(start, stop)))
        except Exception as error:
            return error
        return None
