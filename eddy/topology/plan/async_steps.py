"""Steps whose function calls another system, and which wait for the results."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from eddy.operators.async_map import AsyncMap, CallLimits
from eddy.operators.operator import Operator
from eddy.topology.plan.bags import Row
from eddy.topology.plan.compilers import Spark, States
from eddy.topology.plan.node import Arrival, Node

__all__ = ["AsyncMapped"]


@dataclass(frozen=True, eq=False, kw_only=True)
class AsyncMapped(Node):
    """Replaces each record by the row that `function(key, value, record)` returns some time later."""

    keeps_records = True
    role = "call"
    does = "map-async"
    only_by_worker = "its function calls out, and may return something else another time"

    function: Callable[..., Awaitable[Row]]
    limits: CallLimits
    where: str
    """The name of the step in messages."""
    keeps_key: bool
    """Whether the rows that `function` returns have the keys of their records."""

    @property
    def kind_of_step(self) -> str:
        """Its verb."""
        return self.does

    @property
    def arrival(self) -> Arrival:
        """Why results depend on arrival: the calls return them."""
        return Arrival(f"calls: {self.only_by_worker}")

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """The step and its input, unless the step changes keys."""
        return [] if self.rekeys else super().co_partitioned

    @property
    def rekeys(self) -> bool:  # type: ignore[override]
        """Whether rows may have other keys afterwards."""
        return not self.keeps_key

    def operator(self, states: States) -> Operator:
        """Return the operator that starts the calls and waits for their results."""
        return AsyncMap(self.name, self.function, self.limits, self.where)

    def on_spark(self, spark: Spark) -> None:
        """Mark the step as computed only by a worker, and not on Spark; `arrival` has the reason."""
        spark.by_a_worker(self)
