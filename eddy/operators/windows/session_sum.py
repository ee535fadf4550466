"""Computes the exact sum or mean of the numbers of each session.

    a record            adds its number to the exact total of its session
    sessions that merge add up their totals

So a result is a function of the numbers of its session, whatever their order. Each record needs a number, because a
session of records without numbers would have no sum.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eddy.operators.batch import Batch
from eddy.operators.errors.set_aside import refused
from eddy.operators.operator import State
from eddy.operators.sums import ExactTotal, Summation
from eddy.operators.upsert import replacement
from eddy.operators.windows.session_fold import SessionFold
from eddy.state.table_state import Table
from eddy.windows import Span, Windowed

__all__ = ["SessionSum"]


class SessionSum(SessionFold):
    """Input: records (Windowed K, V), each with its own session. Output: the delta of the table of sums or means.

    Invariant: `totals` has the exact total of each session in `sums`.
    """

    def __init__(
        self,
        name: str,
        sums: Table[Any, Any],
        totals: Table[Any, str],
        open_: Table[Any, tuple[Span, ...]],
        gap_ms: int,
        summation: Summation,
    ) -> None:
        add, merge = _adding(summation), _merged
        super().__init__(name, totals, open_, gap_ms, _no_total, add, merge, checked=False)
        self.sums, self._summation = sums, summation

    def states(self) -> Sequence[State]:
        """The table of results, the exact totals, and the spans of open sessions."""
        return (self.sums, self.table, self.open)

    def refusal(self, session: Windowed[Any], aggregate: Any) -> Exception | None:
        """Return the error for a result that the table of results cannot write; None if it can."""
        return refused(self.sums.spec, (session, self._result(aggregate)))

    def written(self, news: Mapping[Any, Any], olds: Sequence[Any], batch: Batch) -> Batch:
        """Write the totals of sessions, and their results. Returns the delta of the results."""
        super().written(news, olds, batch)
        results = {session: None if text is None else self._result(text) for session, text in news.items()}
        before = self.sums.get_many(list(results))
        self.sums.put_many(results, before)
        return replacement(results, before, batch.time)

    def _result(self, text: str) -> Any:
        return self._summation.result(ExactTotal(text))


def _no_total() -> None:
    return None


def _adding(summation: Summation) -> Callable[[Any, Any, str | None], str | None]:
    """Return the function that adds the number of a value to a total. The total is given and returned as text."""

    def add(key: Any, value: Any, text: str | None) -> str | None:
        number, total = summation.number(key, value), ExactTotal(text)
        assert number is not None
        total.add(number, 1)
        return total.text()

    return add


def _merged(key: Any, text: str, other: str) -> str | None:
    total = ExactTotal(text)
    total.merge(ExactTotal(other))
    return total.text()
