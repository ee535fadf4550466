"""The first record of each `by` value within a span of event time."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from eddy.join_windows import EVENT_TIMES, JoinSide
from eddy.operators.operator import Operator
from eddy.operators.windows import deduplicate, record_order
from eddy.operators.windows.deduplicate import PassedMoments, WaitingRecords
from eddy.operators.windows.due_keys import DueKeys
from eddy.serde import Bytes, Int64, Native, Serde, Tuple
from eddy.state.calendar import Calendar
from eddy.state.table_state import Table
from eddy.topology.plan.bags import Bag
from eddy.topology.plan.compilers import CircuitBuilder, Spark, States
from eddy.topology.plan.frontiers import frontier_of, marks_kept
from eddy.topology.plan.node import Arrival, Node
from eddy.topology.plan.processors import DeclaredStore
from eddy.topology.plan.record_steps import is_source_of_records
from eddy.topology.plan.states_kept import StateKept
from eddy.topology.plan.topic_steps import Source
from eddy.topology.plan.window_assignment import AssignWindows, OrderedRecords
from eddy.windows import Windows

__all__ = ["Deduplicate", "OrderRecords"]


@dataclass(frozen=True, eq=False, kw_only=True)
class OrderRecords(OrderedRecords):
    """Records under their `by` values, each with its place in the order of all source partitions' records."""

    does = "order"
    windows: JoinSide

    @property
    def marked(self) -> Windows:
        """The event times themselves."""
        return EVENT_TIMES

    @property
    def only_by_worker(self) -> str:  # type: ignore[override]
        """Which records are late after an idle time, and the order of a record's rows from several branches."""
        twice = [source.topic for source, ways in _ways(self).items() if ways > 1]
        if not twice or self.sent:
            return super().only_by_worker
        return f"records of topic '{twice[0]}' reach it through several branches, whose rows a worker puts in an order"

    def rows_from(self, *inputs: Bag) -> None:
        """None: only the operator has the order of records."""

    def operator(self, states: States) -> Operator:
        """The order of each record."""
        return record_order.OrderRecords(self.label, self.windows, self.topics_of_windows, self.orders)

    def on_spark(self, spark: Spark) -> None:
        """The order of each record, by the event time of its partition at it."""
        if self.only_by_worker:
            spark.by_a_worker(self)
        else:
            spark.ordered(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class Deduplicate(Node):
    """Records of which none of the same `by` value has passed within the span. Its input has them in their order."""

    drops = True
    linear = False
    does = "deduplicate"

    assigned: OrderRecords
    by: Serde[Any]
    """The serde of the `by` values."""
    record: tuple[Serde[Any], Serde[Any]]
    """The serdes of the keys and values."""

    @property
    def waits_for(self) -> tuple[AssignWindows]:  # type: ignore[override]
        """The order of its records."""
        return (self.assigned,)

    @property
    def crosses(self) -> bool:  # type: ignore[override]
        """Whether a record may wait: not if it is in the partition of the only source."""
        origins, sent = self.assigned.origins, self.assigned.sent
        return sent or self.inputs[0].role == "exchange" or len(origins) > 1 or origins[0].role == "pattern"

    @property
    def keeps_records(self) -> bool:  # type: ignore[override]
        """Whether rows keep their records: only if no record has to wait."""
        return not self.crosses

    @property
    def only_by_worker(self) -> str:  # type: ignore[override]
        """The reason why only a worker computes the rows: Spark does not know the order of records."""
        return self.assigned.only_by_worker

    @property
    def arrival(self) -> Arrival | None:
        """The whole result, if Spark does not know the order of records."""
        return Arrival(self.only_by_worker) if self.only_by_worker else None

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """No input: the step changes the keys."""
        return ()

    @property
    def same_partitions(self) -> Iterable[tuple[Node, Node]]:
        """A record is where its `by` value is."""
        return [(self, self.inputs[0])]

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """The moments that have passed, the records that wait, a calendar of each; marks after an exchange."""
        kept = [
            StateKept("passed", "table", "others"),
            StateKept("calendar", "calendar", "others"),
            StateKept("waiting", "key-value", "others"),
            StateKept("waiting-calendar", "key-value", "others"),
        ]
        return (*kept, *marks_kept("marks", self.inputs[0]))

    def build(self, circuit: CircuitBuilder) -> int:
        """Place the operator and, if its rows come through an exchange, the marks of that exchange before it."""
        (source,), assigned, name, store = self.inputs, self.assigned, self.name, circuit.store
        frontier = frontier_of(circuit, self, source, "marks", assigned.marked)
        known = record_order.KnownOrder(frontier, assigned.topics_by_origin, assigned.sent)
        value = Tuple(self.by, Int64, *self.record, Int64, Native)
        rows = circuit.state_store(source, DeclaredStore(name=f"{name}-waiting", key=Bytes, value=value))
        orders = circuit.spec(source, f"{name}-waiting-calendar", "key-value", Bytes).with_key(Bytes)
        times = Table[Any, Any](circuit.spec(source, f"{name}-passed", "table", Native), store)
        calendar = Calendar[Any](circuit.spec(source, f"{name}-calendar", "calendar", Int64), store)
        count, ownership = times.spec.partitions, circuit.ownership
        due = DueKeys(calendar, frontier, lambda: ownership.of(count))
        operator = deduplicate.Deduplicate(
            name,
            WaitingRecords(rows, Calendar[bytes](orders, store), known),
            PassedMoments(times, calendar, frontier, due),
            assigned.windows,
            lambda: ownership.of(count),
        )
        return circuit.emit(operator, circuit.slot_of(source))

    def on_spark(self, spark: Spark) -> None:
        """The first records of their values, in their order."""
        if self.only_by_worker:
            spark.by_a_worker(self)
        else:
            spark.deduplicated(self)


def _ways(node: Node) -> Counter[Source]:
    """The sources of a step's records, each with the number of ways from it."""
    if is_source_of_records(node):
        return Counter([node])
    return sum(map(_ways, node.record_inputs), Counter[Source]())
