"""The join of a stream with the values of another one as of each record's time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from eddy.as_of import AsOf
from eddy.operators.windows import as_of_join
from eddy.operators.windows.as_of_join import DueRecords
from eddy.operators.windows.due import DueKeys
from eddy.operators.windows.frontier import Frontier, Slower
from eddy.serde import Int64
from eddy.state.calendar import Calendar
from eddy.state.timed_rows import TimedRows
from eddy.topology.plan.compilers import CircuitBuilder, Spark
from eddy.topology.plan.node import Node, StateKept
from eddy.topology.plan.windowed_steps import AssignWindows, frontier_of

__all__ = ["AsOfJoin"]

_SIDES = ("waiting", "versions")


@dataclass(frozen=True, eq=False, kw_only=True)
class AsOfJoin(Node):
    """Pairs of a record's value and the other stream's value of its key at its time.

    Its inputs have records with their moments. `left`: whether records without such a value are passed on, with None.
    """

    crosses = True
    drops = True
    linear = False
    does = "join"

    as_of: AsOf
    left: bool
    assigned: tuple[AssignWindows, AssignWindows]

    @property
    def waits_for(self) -> tuple[AssignWindows, AssignWindows]:  # type: ignore[override]
        """The moments of both sides."""
        return self.assigned

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """The inputs; the result has other keys."""
        left, right = self.inputs
        return [(left, right)]

    @property
    def same_partitions(self) -> Iterable[tuple[Node, Node]]:
        """A row is where its record is."""
        return [(self, self.inputs[0])]

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """The records that wait and the versions, each with a calendar; marks of the left side after an exchange."""
        kept = [
            StateKept(f"{side}{suffix}", kind, "others")
            for side in _SIDES
            for suffix, kind in (("", "arrangement"), ("-calendar", "calendar"))
        ]
        if self.inputs[0].sends:
            kept.append(StateKept("marks", "key-value", "others"))
        return tuple(kept)

    def build(self, circuit: CircuitBuilder) -> int:
        """Place the join; after an exchange also its marks, before it."""
        left, right = self.inputs
        asking = frontier_of(circuit, left, f"{self.name}-marks", self.assigned[0], left if left.sends else None)
        answering = frontier_of(circuit, right, "", self.assigned[1], None)
        waiting = self._side(circuit, 0, answering)
        versions = self._side(circuit, 1, Slower(asking, answering))
        operator = as_of_join.AsOfJoin(self.name, waiting, versions, self.left)
        return circuit.emit(operator, *map(circuit.slot_of, self.inputs))

    def _side(self, circuit: CircuitBuilder, number: int, frontier: Frontier) -> DueRecords:
        source, name = self.inputs[number], f"{self.name}-{_SIDES[number]}"
        rows = TimedRows[Any, Any](circuit.spec(source, name, "arrangement", source.value), circuit.store)
        calendar = Calendar[Any](circuit.spec(source, f"{name}-calendar", "calendar", Int64), circuit.store)
        count, ownership = rows.spec.partitions, circuit.ownership
        due = DueKeys(calendar, frontier, lambda: ownership.of(count))
        return DueRecords(rows, calendar, frontier, due, self.as_of.versions.lag_ms)

    def on_spark(self, spark: Spark) -> None:
        """The last version up to each record's time."""
        spark.joined_as_of(self)
