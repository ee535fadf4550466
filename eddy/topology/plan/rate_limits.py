"""Tables whose rows change at most once in a span of time."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from eddy.operators import rate_limit
from eddy.operators.operator import Operator
from eddy.serde import Int64, Native, Tuple
from eddy.state.calendar import Calendar
from eddy.state.sized_table import SizedTable
from eddy.state.table_state import Table
from eddy.topology.plan.compilers import Spark, States
from eddy.topology.plan.node import Arrival, Node
from eddy.topology.plan.states_kept import StateKept

__all__ = ["RateLimited"]

_MILLISECOND = timedelta(milliseconds=1)
_WAITING = StateKept("waiting", "table", "others")
_CALENDAR = StateKept("calendar", "calendar", "others")


@dataclass(frozen=True, eq=False, kw_only=True)
class RateLimited(Node):
    """Passes on the changes of a table's rows, each row at most once in a span of time.

    A change waits up to `limit`, and is sent together with the row's further changes until then.
    """

    linear = False
    crosses = True
    drops = True
    keeps = (_WAITING, _CALENDAR)
    does = "suppress"
    untraced = "passes changes on after a time"
    only_by_worker = "what has been passed on depends on when the worker saw the changes"

    limit: timedelta
    bound: rate_limit.MostWaiting | None = None

    @property
    def arrival(self) -> Arrival:
        """The part of the result that depends on the order of arrival: the moments at which changes arrive."""
        return Arrival(f"a limit of time: {self.only_by_worker}")

    @property
    def refused_in_nested_time(self) -> str:
        """The reason why nested time refuses the step, with the remedy: loops have no clock."""
        return f"step '{self.name}' lets changes wait for a time, and no time passes inside a recursion"

    def operator(self, states: States) -> Operator:
        """Return the operator, with the changes that wait and their calendar."""
        value = self.value or Native
        spec = states.spec(self, _WAITING.name_of(self.name), "table", Tuple(Int64, value, value))
        waiting = (Table[Any, Any] if self.bound is None else SizedTable[Any, Any])(spec, states.store)
        calendar = Calendar[Any](states.spec(self, _CALENDAR.name_of(self.name), "calendar", Int64), states.store)
        rows = states.spec(self, self.name, "table", value)
        ownership, count = states.ownership, spec.partitions
        return rate_limit.RateLimit(
            self.name, waiting, calendar, rows, self.limit // _MILLISECOND, lambda: ownership.of(count), self.bound
        )

    def on_spark(self, spark: Spark) -> None:
        """Mark the step as computed only by a worker, and not on Spark; `arrival` has the reason."""
        spark.by_a_worker(self)
