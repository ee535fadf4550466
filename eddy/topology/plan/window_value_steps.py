"""Aggregates that need all values of each window: `distinct_count` and `collect` of windows and of sessions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eddy.operators.operator import Operator
from eddy.operators.windows import session_values, window_values
from eddy.operators.windows.session_values import AFTER_TIME
from eddy.operators.windows.window_values import ValuesOfWindows, summary_of
from eddy.serde import Bytes
from eddy.state.spec import StateSpec
from eddy.state.summarized_arrangement import SummarizedArrangement
from eddy.state.table_state import Table
from eddy.topology.plan.bags import Bag, Weighted, groups
from eddy.topology.plan.compilers import Spark, States
from eddy.topology.plan.node import Grouping
from eddy.topology.plan.reductions import Reduction
from eddy.topology.plan.states_kept import StateKept
from eddy.topology.plan.windowed_steps import OfSessions, OfWindows

__all__ = ["VALUES", "SessionValues", "WindowedValues"]

VALUES = StateKept("values", "arrangement", "others")
"""The state with the values of windows that can still get values."""


@dataclass(frozen=True, eq=False, kw_only=True)
class _OfValues(OfWindows, Reduction):
    """Aggregates the values of each key and window."""

    values: ValuesOfWindows

    @property
    def does(self) -> str:
        """Its method."""
        return self.values.verb

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """The states that every aggregate of windows has, and the values."""
        return (*super().keeps, VALUES)

    @property
    def grouping(self) -> Grouping:
        """The step as an aggregate of all values of a key."""
        return Grouping(self._of_all)

    def _of_all(self, key: Any, values: Mapping[Any, int]) -> dict[Any, int]:
        result = self._result(values.items())
        return {} if result is None else {result: 1}

    def _result(self, pairs: Iterable[tuple[Any, int]]) -> Any:
        """Return the aggregate of values with their weights."""
        kept = ((self.values.of_value(value), weight) for value, weight in pairs)
        data = [(self.values.data(value), weight) for value, weight in kept if value is not None]
        return self.values.result(summary_of(self.values, data))

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Yield the aggregate of the values of each key. Values need not be hashable."""
        for found in groups(inputs[0]).values():
            result = self._result((row[1], weight) for row, weight in found)
            if result is not None:
                yield (found[0][0][0], result), 1

    def asks(self, fold: Operator) -> dict[str, Any]:
        """Return the fold's functions that remove a closed window's values, and that tell which windows are new."""
        assert isinstance(fold, window_values.WindowedValues | session_values.SessionValues)
        return {"forget": fold.forget, "moved": fold.moved}

    def on_spark(self, spark: Spark) -> None:
        """Let Spark group and aggregate the values."""
        spark.values_of_windows(self)

    def _spec(self, states: States) -> StateSpec:
        return states.spec(self, VALUES.name_of(self.name), "arrangement", Bytes)


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowedValues(_OfValues):
    """Aggregates the values of each key and window."""

    def fold(self, states: States, table: Table[Any, Any]) -> Operator:
        """Return the fold, over the table and the values by window."""
        made = SummarizedArrangement[Any, Any](
            self._spec(states), states.store, lambda pairs: summary_of(self.values, pairs)
        )
        return window_values.WindowedValues(self.name, table, made, self.values)


@dataclass(frozen=True, eq=False, kw_only=True)
class SessionValues(_OfValues, OfSessions):
    """Aggregates the values of each key and session."""

    def fold(self, states: States, table: Table[Any, Any]) -> Operator:
        """Return the fold, over the table, the values by key and time, and the spans of open sessions."""
        made = SummarizedArrangement[Any, Any](
            self._spec(states).with_key(self.assigned.inner_key), states.store, self._summary
        )
        spans, gap_ms = self.spans(states), self.assigned.windows.closes_at(0)
        return session_values.SessionValues(self.name, table, made, spans, gap_ms, self.values)

    def _summary(self, pairs: Iterable[tuple[bytes, int]]) -> Any:
        return summary_of(self.values, ((data[AFTER_TIME:], weight) for data, weight in pairs))
