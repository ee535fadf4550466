"""The join of two streams in time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from eddy.join_windows import JoinWindows
from eddy.operators.windows import stream_join
from eddy.operators.windows.due import DueKeys
from eddy.operators.windows.frontier import Frontier
from eddy.operators.windows.stream_join import Side
from eddy.serde import Int64, Native
from eddy.state.calendar import Calendar
from eddy.state.table_state import Table
from eddy.state.timed_rows import TimedRows
from eddy.topology.plan.compilers import CircuitBuilder, Spark
from eddy.topology.plan.node import Node, StateKept
from eddy.topology.plan.windowed_steps import AssignWindows, frontier_of

__all__ = ["StreamStreamJoin"]

_SIDES = ("left", "right")


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamStreamJoin(Node):
    """Pairs of records of two streams with equal keys, within windows; its inputs have records with their moments.

    `outer` are the sides whose unmatched records are passed on, with None in the place of the other.
    """

    crosses = True
    drops = True
    linear = False
    does = "join"

    windows: JoinWindows
    outer: tuple[bool, bool]
    assigned: tuple[AssignWindows, AssignWindows]
    join: Literal["inner", "left", "outer"]

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
        """A pair is where its records are."""
        return [(self, self.inputs[0])]

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """The rows of each side and when they are removed; the ones without a match, and marks after an exchange."""
        kept: list[StateKept] = []
        for number, side in enumerate(_SIDES):
            kept += [
                StateKept(side, "arrangement", "others"),
                StateKept(f"{side}-calendar", "calendar", "others"),
            ]
            if self.outer[number]:
                kept.append(StateKept(f"{side}-unmatched", "table", "others"))
            if self.inputs[number].sends:
                kept.append(StateKept(f"{side}-marks", "key-value", "others"))
        return tuple(kept)

    def build(self, circuit: CircuitBuilder) -> int:
        """Place the join; after an exchange also its marks, before it."""
        frontiers = [
            frontier_of(circuit, source, f"{self.name}-{side}-marks", assigned, source if source.sends else None)
            for side, source, assigned in zip(_SIDES, self.inputs, self.assigned, strict=True)
        ]
        left, right = (self._side(circuit, number, frontiers[1 - number]) for number in (0, 1))
        operator = stream_join.StreamStreamJoin(self.name, left, right)
        return circuit.emit(operator, *map(circuit.slot_of, self.inputs))

    def _side(self, circuit: CircuitBuilder, number: int, others: Frontier) -> Side:
        source, name = self.inputs[number], f"{self.name}-{_SIDES[number]}"
        rows = TimedRows[Any, Any](circuit.spec(source, name, "arrangement", source.value), circuit.store)
        calendar = Calendar[Any](circuit.spec(source, f"{name}-calendar", "calendar", Int64), circuit.store)
        count, ownership = rows.spec.partitions, circuit.ownership
        due = DueKeys(calendar, others, lambda: ownership.of(count))
        unmatched = None
        if self.outer[number]:
            unmatched = Table[Any, bool](circuit.spec(source, f"{name}-unmatched", "table", Native), circuit.store)
        windows = self.windows.right if number else self.windows.left
        return Side(windows, rows, calendar, others, due, unmatched)

    def on_spark(self, spark: Spark) -> None:
        """A join of the records by key and span of time."""
        spark.streams_joined(self)
