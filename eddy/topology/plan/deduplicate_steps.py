"""Steps that keep the first record of each `by` value within a span of event time."""

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
    """Puts records under their `by` values, with their places in the order of all source partitions' records."""

    does = "order"
    windows: JoinSide

    @property
    def marked(self) -> Windows:
        """The windows for marks and frontiers: each ends at an event time, so marks and frontiers are event times."""
        return EVENT_TIMES

    @property
    def only_by_worker(self) -> str:  # type: ignore[override]
        """The reason why only a worker knows the order: idle partitions, or several branches with a record's rows."""
        twice = [source.topic for source, ways in _ways(self).items() if ways > 1]
        if not twice or self.sent:
            return super().only_by_worker
        return f"records of topic '{twice[0]}' reach it through several branches, whose rows a worker puts in an order"

    def rows_from(self, *inputs: Bag) -> None:
        """Return None: only the operator has the order of records."""

    def operator(self, states: States) -> Operator:
        """Return the operator that gives each record its order."""
        return record_order.OrderRecords(self.label, self.windows, self.topics_of_windows, self.orders)

    def on_spark(self, spark: Spark) -> None:
        """Order the records by the event time that their partition had at each of them."""
        if self.only_by_worker:
            spark.by_a_worker(self)
        else:
            spark.ordered(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class Deduplicate(Node):
    """Keeps a record if no record with its `by` value was kept within the span. Input rows have their order in them."""

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
        """The step that orders the records; a record waits for the event times of this step's source partitions."""
        return (self.assigned,)

    @property
    def crosses(self) -> bool:  # type: ignore[override]
        """Whether a record may have to wait: no record does if all are in the partitions of a single source topic."""
        origins, sent = self.assigned.origins, self.assigned.sent
        return sent or self.inputs[0].role == "exchange" or len(origins) > 1 or origins[0].role == "pattern"

    @property
    def keeps_records(self) -> bool:  # type: ignore[override]
        """Whether rows keep their records: only if no record has to wait."""
        return not self.crosses

    @property
    def only_by_worker(self) -> str:  # type: ignore[override]
        """The reason why only a worker computes the rows: Spark does not know the order of the records."""
        return self.assigned.only_by_worker

    @property
    def arrival(self) -> Arrival | None:
        """The part that depends on the order of arrival: all rows, if Spark does not know the order of records."""
        return Arrival(self.only_by_worker) if self.only_by_worker else None

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """No pairs of collections, because the step changes the keys of its input."""
        return ()

    @property
    def same_partitions(self) -> Iterable[tuple[Node, Node]]:
        """The pair of the step and its input: a record is in the partition of its `by` value."""
        return [(self, self.inputs[0])]

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """The states: kept timestamps, waiting records, a calendar for each, and marks if there is an exchange."""
        kept = [
            StateKept("passed", "table", "others"),
            StateKept("calendar", "calendar", "others"),
            StateKept("waiting", "key-value", "others"),
            StateKept("waiting-calendar", "key-value", "others"),
        ]
        return (*kept, *marks_kept("marks", self.inputs[0]))

    def build(self, circuit: CircuitBuilder) -> int:
        """Add the operator and, if its rows are sent through an exchange, the marks of this exchange before it."""
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
        """Keep the first record of each `by` value, in the order of the records."""
        if self.only_by_worker:
            spark.by_a_worker(self)
        else:
            spark.deduplicated(self)


def _ways(node: Node) -> Counter[Source]:
    """Return the sources of a step's records, each with the number of paths that lead from it to the step."""
    if is_source_of_records(node):
        return Counter([node])
    return sum(map(_ways, node.record_inputs), Counter[Source]())
