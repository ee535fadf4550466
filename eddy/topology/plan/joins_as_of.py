"""The join of a stream with the values that another stream had at the time of each record."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eddy.as_of import AsOf
from eddy.join_windows import JoinSide
from eddy.operators.operator import Operator
from eddy.operators.windows import as_of_join, record_order
from eddy.operators.windows.as_of_join import DueRecords
from eddy.operators.windows.due_keys import DueKeys
from eddy.operators.windows.frontier import Frontier, Slowest
from eddy.row_hash import row_hash
from eddy.serde import Int64
from eddy.state.calendar import Calendar
from eddy.state.timed_rows import TimedRows
from eddy.topology.plan.bags import Bag, Row, Way, Weighted, identity
from eddy.topology.plan.compilers import CircuitBuilder, Spark, States
from eddy.topology.plan.facts import Fact, like, moment_text
from eddy.topology.plan.frontiers import frontier_of, marks_kept
from eddy.topology.plan.joins_in_time import closing_of, plain_key
from eddy.topology.plan.missing import UNKNOWN
from eddy.topology.plan.node import DropReason, Missing, Node
from eddy.topology.plan.row_closing import Closing
from eddy.topology.plan.states_kept import StateKept
from eddy.topology.plan.window_assignment import AssignWindows, OrderedRecords
from eddy.topology.plan.windows_from_scratch import record_of

__all__ = ["AsOfJoin", "OrderVersions"]

_SIDES = ("waiting", "versions")


@dataclass(frozen=True, eq=False, kw_only=True)
class OrderVersions(OrderedRecords):
    """Puts each record (K, (V | None,)) under its key and timestamp, and adds its place in the order to its value."""

    windows: JoinSide

    def operator(self, states: States) -> Operator:
        """Return the operator that gives each record its timestamp and its order."""
        return record_order.OrderVersions(self.label, self.windows, self.topics_of_windows, self.orders)

    def on_spark(self, spark: Spark) -> None:
        """Give each record its timestamp and order, by the event time that its partition had at the record."""
        if self.only_by_worker:
            spark.by_a_worker(self)
        else:
            spark.versions_ordered(self)

    def order_of(self, row: Row) -> tuple[Any, ...]:
        """Return a key that sorts facts with the same timestamp in their order."""
        record = record_of(row)
        labels = {topic: label for label, topics in self.topics_by_origin.items() for topic in topics}
        place = record.event_time_ms, labels[record.topic], record.partition, record.offset, record.topic
        return *place, row_hash(self.record, (row[0].key, row[1][0]), record.timestamp_ms) if self.sent else b""


@dataclass(frozen=True, eq=False, kw_only=True)
class AsOfJoin(Node):
    """Joins each record with the value that the other stream had for its key at its time, as a pair of values.

    The keys of the inputs contain the records' timestamps. If `left`, records without such a value are passed on with
    None.
    """

    crosses = True
    drops = True
    linear = False
    does = "join"

    as_of: AsOf
    left: bool
    assigned: tuple[AssignWindows, AssignWindows]

    @property
    def ordered(self) -> bool:
        """Whether the values of the right side contain their places in the order of the records."""
        return isinstance(self.assigned[1], OrderVersions)

    @property
    def waits_for(self) -> tuple[AssignWindows, AssignWindows]:  # type: ignore[override]
        """The two steps that put timestamps into the records' keys; rows wait for these steps' source partitions."""
        return self.assigned

    @property
    def takes_keyless(self) -> bool:  # type: ignore[override]
        """Whether the result has records without a key: a left join has them, but this step does not get them."""
        return self.left

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """The pair of the two inputs. The step itself is in no pair, because it changes the keys."""
        left, right = self.inputs
        return [(left, right)]

    @property
    def same_partitions(self) -> Iterable[tuple[Node, Node]]:
        """The pair of the step and its left input: a row is in the partition of its record."""
        return [(self, self.inputs[0])]

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """The states: waiting records and values, each with a calendar; marks of both sides if there are exchanges."""
        kept = [
            StateKept(f"{side}{suffix}", kind, "others")
            for side in _SIDES
            for suffix, kind in (("", "arrangement"), ("-calendar", "calendar"))
        ]
        left, right = self.inputs
        return (*kept, *marks_kept("marks", left), *marks_kept("versions-marks", right))

    def build(self, circuit: CircuitBuilder) -> int:
        """Add the join and, if its rows are sent through exchanges, the marks of these exchanges before it."""
        left, right = self.inputs
        asking = frontier_of(circuit, self, left, "marks", self.assigned[0].marked)
        answering = frontier_of(circuit, self, right, "versions-marks", self.assigned[1].marked)
        waiting = self._side(circuit, 0, answering)
        versions = self._side(circuit, 1, Slowest(asking, answering))
        operator = as_of_join.AsOfJoin(self.name, waiting, versions, self.left, self.ordered)
        return circuit.emit(operator, *map(circuit.slot_of, self.inputs))

    def _side(self, circuit: CircuitBuilder, number: int, frontier: Frontier) -> DueRecords:
        source, name = self.inputs[number], f"{self.name}-{_SIDES[number]}"
        rows = TimedRows[Any, Any](circuit.spec(source, name, "arrangement", source.value), circuit.store)
        calendar = Calendar[Any](circuit.spec(source, f"{name}-calendar", "calendar", Int64), circuit.store)
        count, ownership = rows.spec.partitions, circuit.ownership
        due = DueKeys(calendar, frontier, lambda: ownership.of(count))
        return DueRecords(rows, calendar, frontier, due, self.as_of.versions.lag_ms)

    def on_spark(self, spark: Spark) -> None:
        """Join each record with the last value up to its time."""
        spark.joined_as_of(self)

    def closing(self, row: Row) -> Closing:
        """Return the event time of the other stream at which a record is joined, because then its value is final."""
        assert isinstance(row, Fact)
        return closing_of(self, 1, row, row.record.timestamp_ms)

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Yield each record with the last value up to its time."""
        return ((made, weight) for made, _, weight in self._made(*inputs) if self.left or made[1][1] is not None)

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Yield each row with the left record and, if there is one, the right record."""
        return ((made, way) for made, way, _ in self._made(*inputs))

    @property
    def factor(self) -> int:
        """1: there is one row for each record."""
        return 1

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterator[Missing]:
        """Yield records for which the other stream had no value, and missing records."""
        for made, way, _ in self._made(*inputs):
            if made[1][1] is None and not self.left:
                what = "a deletion as the last record" if len(way) > 1 else "no record"
                at = moment_text(record_of(made).timestamp_ms)
                reason = f"has {what} with this key on its right side up to {at}"
                yield Missing(made[0], UNKNOWN, DropReason(self, reason, (made[0], made[1][0])))
        yield from map(plain_key, missing[0])

    def _made(self, left: Bag, right: Bag) -> Iterator[tuple[Row, Way, int]]:
        """Yield (row, its records, weight) for each left record, with the value at its time or None."""
        versions: dict[Any, dict[int, Row]] = {}
        assigned = self.assigned[1]
        rows = [row for row, _ in right]
        if isinstance(assigned, OrderVersions):
            rows.sort(key=assigned.order_of)
        for row in rows:  # among records with the same timestamp, the last one counts
            versions.setdefault(identity(row[0].key), {})[record_of(row).timestamp_ms] = row
        times = {key: sorted(found) for key, found in versions.items()}
        for row, weight in left:
            place, at_ms = identity(row[0].key), record_of(row).timestamp_ms
            index = bisect_right(times.get(place, ()), at_ms) - 1
            other = versions[place][times[place][index]] if index >= 0 else None
            value = None if other is None else other[1][0]
            yield like(row, (row[0].key, (row[1], value))), [(0, row), *([] if other is None else [(1, other)])], weight
