"""The join of two streams whose records are near each other in time."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eddy.join_windows import JoinWindows
from eddy.operators.windows import stream_join
from eddy.operators.windows.due_keys import DueKeys
from eddy.operators.windows.frontier import Frontier
from eddy.operators.windows.stream_join import Side
from eddy.serde import Int64, Native
from eddy.state.calendar import Calendar
from eddy.state.table_state import Table
from eddy.state.timed_rows import TimedRows
from eddy.topology.plan.bags import Bag, Row, Way, Weighted, identity
from eddy.topology.plan.compilers import CircuitBuilder, Spark
from eddy.topology.plan.facts import Fact, like, span_text
from eddy.topology.plan.frontiers import frontier_of, marks_kept, topics_sent
from eddy.topology.plan.missing import UNKNOWN
from eddy.topology.plan.node import DropReason, Missing, Node
from eddy.topology.plan.row_closing import Closing, bytes_of
from eddy.topology.plan.states_kept import StateKept
from eddy.topology.plan.window_assignment import AssignWindows
from eddy.topology.plan.windows_from_scratch import record_of
from eddy.windows import Windowed

__all__ = ["StreamStreamJoin", "closing_of", "plain_key"]

_SIDES = ("left", "right")


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamStreamJoin(Node):
    """Joins records of two streams with equal keys, within windows. The inputs' keys contain the timestamps.

    `outer` says of each side whether its unmatched records are passed on, with None for the other side's value.
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
        """The two steps that put timestamps into the records' keys; rows wait for these steps' source partitions."""
        return self.assigned

    @property
    def takes_keyless(self) -> bool:  # type: ignore[override]
        """Whether a side is outer. Its records without a key are in the result, but this step does not get them."""
        return any(self.outer)

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """The pair of the two inputs. The step itself is in no pair, because it changes the keys."""
        left, right = self.inputs
        return [(left, right)]

    @property
    def same_partitions(self) -> Iterable[tuple[Node, Node]]:
        """The pair of the step and its left input: a joined row is in the partition of its records."""
        return [(self, self.inputs[0])]

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """The states: each side's rows, a calendar of their removal, unmatched rows, marks if there are exchanges."""
        kept: list[StateKept] = []
        for number, side in enumerate(_SIDES):
            kept += [
                StateKept(side, "arrangement", "others"),
                StateKept(f"{side}-calendar", "calendar", "others"),
            ]
            if self.outer[number]:
                kept.append(StateKept(f"{side}-unmatched", "table", "others"))
            kept += marks_kept(f"{side}-marks", self.inputs[number])
        return tuple(kept)

    def build(self, circuit: CircuitBuilder) -> int:
        """Add the join and, if its rows are sent through exchanges, the marks of these exchanges before it."""
        frontiers = [
            frontier_of(circuit, self, source, f"{side}-marks", assigned.marked)
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
        """Join the records by key and span of time."""
        spark.streams_joined(self)

    def closing(self, row: Row) -> Closing | None:
        """Return the event time at which an unmatched record is final: the last moment at which it could be matched."""
        if not isinstance(row, Fact):  # a pair is final at once
            return None
        side = 0 if row[1][1] is None else 1
        windows = self.windows.right if side else self.windows.left
        return closing_of(self, 1 - side, row, windows.due_at(row.record.timestamp_ms))

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Yield pairs of records that are near in time, and unmatched records of outer sides, which remain facts."""
        return ((made, weight) for made, _, weight in self._made(*inputs))

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Yield each row with both records, or with the unmatched record."""
        return ((made, way) for made, way, _ in self._made(*inputs))

    @property
    def factor(self) -> int:
        """1: a pair's weight is the product of both weights."""
        return 1

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterator[Missing]:
        """Yield missing rows for unmatched records, and for missing records of the inputs."""
        matched = {(side, way[side][1]) for _, way, _ in self._made(*inputs) if len(way) > 1 for side in (0, 1)}
        for side, rows in enumerate(inputs):
            windows = self.windows.right if side else self.windows.left
            for row, _ in rows:
                if (side, row) not in matched and not self.outer[side]:
                    span = span_text(*windows.others(record_of(row).timestamp_ms))
                    reason = f"has no record with this key on its {_SIDES[1 - side]} side from {span}"
                    yield Missing(row[0].key, UNKNOWN, DropReason(self, reason, (row[0].key, row[1])))
        yield from (plain_key(absent) for side in missing for absent in side)

    def _made(self, left: Bag, right: Bag) -> Iterator[tuple[Row, Way, int]]:
        """Yield (row, its records, weight)."""
        sides = [_by_key(left), _by_key(right)]
        matched: list[set[Row]] = [set(), set()]
        for place, ours in sides[0].items():
            for one, weight in ours:
                for other, factor in sides[1].get(place, ()):
                    apart = record_of(other).timestamp_ms - record_of(one).timestamp_ms
                    if -self.windows.before_ms <= apart <= self.windows.after_ms:
                        matched[0].add(one)
                        matched[1].add(other)
                        yield (one[0].key, (one[1], other[1])), [(0, one), (1, other)], weight * factor
        for side, rows in enumerate((left, right)):
            for row, weight in rows if self.outer[side] else ():
                if row not in matched[side]:
                    values = (None, row[1]) if side else (row[1], None)
                    yield like(row, (row[0].key, values)), [(side, row)], weight


def _by_key(rows: Bag) -> dict[Any, list[tuple[Row, int]]]:
    """Return rows with weights, grouped by their keys without timestamps."""
    found: dict[Any, list[tuple[Row, int]]] = {}
    for row, weight in rows:
        found.setdefault(identity(row[0].key), []).append((row, weight))
    return found


def closing_of(join: Any, side: int, row: Fact, at_ms: int) -> Closing:
    """Return the event time of input number `side` at which a record of the other side is final."""
    assigned, at = join.assigned[side], at_ms + join.assigned[side].windows.lag_ms
    place = bytes_of(assigned.inner_key, row[0])
    return Closing(assigned.topics_of_windows, topics_sent(join.inputs[side]), place, at, True, at)


def plain_key(absent: Missing) -> Missing:
    """Return a missing record of a side as a missing row of the join, which has the key without a window."""
    key = absent.key.key if isinstance(absent.key, Windowed) else absent.key
    return absent._replace(key=key, value=UNKNOWN)
