"""Steps after windows are assigned: records get sliding windows, and aggregates of windows are closed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from eddy.errors import TopologyError
from eddy.operators import aggregate, upsert
from eddy.operators.operator import Operator
from eddy.operators.windows import session_sum
from eddy.operators.windows.due_keys import DueKeys
from eddy.operators.windows.frontier import Frontier
from eddy.operators.windows.session_fold import SessionFold
from eddy.operators.windows.sliding_records import SlidingRecords
from eddy.operators.windows.windowed_fold import Emit, WindowedFold
from eddy.serde import Bytes, Int64, Native, Serde, String
from eddy.state.arrangement import Arrangement
from eddy.state.calendar import Calendar
from eddy.state.table_state import Table
from eddy.topology.plan.bags import Bag, Row, Way, Weighted
from eddy.topology.plan.compilers import CircuitBuilder, Spark, States
from eddy.topology.plan.frontiers import frontier_of, marks_kept, topics_sent
from eddy.topology.plan.node import Arrival, Missing, Node
from eddy.topology.plan.reductions import TOTALS, Aggregate, Count, Sum
from eddy.topology.plan.row_closing import Closing, bytes_of
from eddy.topology.plan.states_kept import TABLE, StateKept
from eddy.topology.plan.transforms import changed_table
from eddy.topology.plan.window_assignment import AssignWindows
from eddy.topology.plan.windows_from_scratch import Made, no_such_window, slid
from eddy.windows import SlidingWindows

__all__ = [
    "OfSessions",
    "OfWindows",
    "SessionAggregate",
    "SessionCount",
    "SessionSum",
    "Slide",
    "Suppressed",
    "WindowedAggregate",
    "WindowedCount",
    "WindowedSum",
    "aggregate_of_windows",
]


@dataclass(frozen=True, eq=False, kw_only=True)
class _ByFrontier(Node):
    """A step that removes or emits rows when windows end, at the frontier of its partitions."""

    crosses = True
    assigned: AssignWindows

    @property
    def first(self) -> "_ByFrontier":
        """The first of the steps that close the windows of this step. It keeps the marks for all these steps."""
        return self

    @property
    def facts(self) -> Node:
        """The step whose rows the first step reads."""
        return self.first.inputs[0]

    @property
    def marks(self) -> tuple[StateKept, ...]:
        """The states of marks, if rows are sent through exchanges; empty for a step that is not the first."""
        return tuple(marks_kept("marks", self.facts)) if self.first is self else ()

    def frontier(self, circuit: CircuitBuilder) -> Frontier:
        """Return the frontier; the first step also adds the operators of the marks, if there are exchanges."""
        return frontier_of(circuit, self.first, self.facts, "marks", self.assigned.marked, self.first is self)


@dataclass(frozen=True, eq=False, kw_only=True)
class Slide(_ByFrontier):
    """Puts each record under all sliding windows that exist for its key and contain its timestamp."""

    linear = False
    does = "windows"
    retention_ms = 0
    records: Serde[Any]
    """The serde of the values of the records."""

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """No collections have to be co-partitioned, because the step changes the keys."""
        return ()

    @property
    def same_partitions(self) -> Iterable[tuple[Node, Node]]:
        """The pair of the step and its input, whose partitions it keeps."""
        return [(self, self.inputs[0])]

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """The records, their calendar, and the marks if there is an exchange."""
        return (StateKept("", "arrangement", "others"), StateKept("calendar", "calendar", "others"), *self.marks)

    def build(self, circuit: CircuitBuilder) -> int:
        """Add the operator and, if its rows are sent through exchanges, the marks of these exchanges before it."""
        key, count, ownership = self.assigned.inner_key, circuit.partition_count(self), circuit.ownership
        windows = self.assigned.windows
        assert isinstance(windows, SlidingWindows)
        records = Arrangement[Any, bytes](
            circuit.spec(self, self.name, "arrangement", Bytes).with_key(key), circuit.store
        )
        spec = circuit.spec(self, f"{self.name}-calendar", "calendar", Int64).with_key(key)
        calendar, frontier = Calendar[Any](spec, circuit.store), self.frontier(circuit)
        due = DueKeys(calendar, frontier, lambda: ownership.of(count))
        operator = SlidingRecords(self.name, records, calendar, windows, frontier, due, self.records)
        return circuit.emit(operator, circuit.slot_of(self.inputs[0]))

    def on_spark(self, spark: Spark) -> None:
        """Find the existing windows and the records in each, by Spark's own join."""
        spark.slid(self)

    @property
    def factor(self) -> int:
        """1: a row's weight is its record's weight."""
        return 1

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Return the records, each under all existing windows that contain its timestamp."""
        return ((row, 1) for row, _ in self._made(inputs[0]))

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Return each row with the record from which it is made."""
        return ((row, [(0, source)]) for row, source in self._made(inputs[0]))

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterable[Missing]:
        """Return the missing records, each under the window that ends with it."""
        return missing[0]

    def outside(self, keys: Sequence[Any], inputs: Sequence[Bag]) -> str:
        """Return why there is no record in the windows."""
        return no_such_window(keys, self._made(inputs[0]), inputs[0])

    def _made(self, rows: Bag) -> Iterable[Made]:
        windows = self.assigned.windows
        assert isinstance(windows, SlidingWindows)
        return slid(rows, windows)


@dataclass(frozen=True, eq=False, kw_only=True)
class OfWindows(_ByFrontier):
    """Folds the rows of each key and window, and closes the windows. It replaces a fold by key."""

    closes = True
    emit: Emit
    retention_ms: int

    @property
    def waits_for(self) -> tuple[AssignWindows]:  # type: ignore[override]
        """The step that assigns the windows of the aggregate."""
        return (self.assigned,)

    @property
    def final(self) -> bool:  # type: ignore[override]
        """Whether each row is emitted once, when its window closes."""
        return self.emit == "close"

    @property
    def has_table(self) -> bool:
        """False: its table lacks the rows of some windows, so a join needs another table."""
        return False

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """The table, the calendar, and the marks if there are exchanges."""
        return (TABLE, StateKept("calendar", "calendar", "others"), *self.marks)

    @property
    def first(self) -> "_ByFrontier":
        """The step before the aggregate that makes sliding windows, if there is one; else the aggregate."""
        (source,) = self.aggregate.inputs
        return source if isinstance(source, Slide) else self.aggregate

    @property
    def aggregate(self) -> "OfWindows":
        """The step that aggregates the windows' records."""
        return self

    def closing(self, row: Row) -> Closing:
        """Return the event times at which the row's window closes, and at which the table removes the row."""
        windows, key = self.assigned.windows, row[0]
        end = windows.closes_at(key.end_ms)
        last = windows.next_end(end + self.retention_ms) if self.retention_ms else end
        place = bytes_of(self.assigned.inner_key, key.key)
        topics = self.assigned.topics_of_windows
        return Closing(topics, topics_sent(self.facts), place, end + windows.lag_ms, self.final, last + windows.lag_ms)

    def fold(self, states: States, table: Table[Any, Any]) -> Operator:
        """Return the operator of the fold, over the table."""
        raise NotImplementedError

    def build(self, circuit: CircuitBuilder) -> int:
        """Add the fold and, if its rows are sent through exchanges, the marks of these exchanges before it."""
        table = Table[Any, Any](circuit.spec(self, self.name, "table", self.value), circuit.store)
        calendar = Calendar[Any](circuit.spec(self, f"{self.name}-calendar", "calendar", Int64), circuit.store)
        windows, count, ownership = self.assigned.windows, table.spec.partitions, circuit.ownership
        fold = self.fold(circuit, table)
        operator = WindowedFold(
            self.name,
            fold,
            table,
            calendar,
            windows,
            self.frontier(circuit),
            lambda: ownership.of(count),
            self.emit,
            self.retention_ms,
            self.beside(fold),
            **self.asks(fold),
        )
        return circuit.emit(operator, circuit.slot_of(self.inputs[0]))

    def asks(self, fold: Operator) -> dict[str, Any]:
        """Return functions of the fold that are called when a window begins, ends or has closed, by argument name."""
        return {}

    def beside(self, fold: Operator) -> Sequence[Table[Any, Any]]:
        """Return the fold's other tables, from which a window's row is removed together with the window's result."""
        return ()


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowedCount(OfWindows, Count):  # type: ignore[misc]
    """Counts the rows of each key and window."""

    def fold(self, states: States, table: Table[Any, Any]) -> Operator:
        """Return the operator that counts."""
        return aggregate.Count(self.name, table, facts=True)

    def on_spark(self, spark: Spark) -> None:
        """Count the rows by Spark's own sum."""
        spark.counted(self)
        spark.closed(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowedAggregate(OfWindows, Aggregate):
    """A fold by key and window."""

    @property
    def arrival(self) -> Arrival | None:
        """The part that depends on the order of arrival: the order of records; it also decides the sliding windows."""
        if self.commutes or not isinstance(self.assigned.windows, SlidingWindows):
            return super().arrival
        return Arrival("a fold of sliding windows, which records make as they arrive", folds=True)

    def fold(self, states: States, table: Table[Any, Any]) -> Operator:
        """Return the operator of the fold."""
        return aggregate.Aggregate(self.name, table, self.initial, self.adder, checked=self.selection is None)

    def on_spark(self, spark: Spark) -> None:
        """Fold in the order of the records."""
        spark.folded(self)
        spark.closed(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowedSum(OfWindows, Sum):
    """Computes the sum or the mean of the numbers of each key and window."""

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """The states that every aggregate of windows has, and the exact totals."""
        return (*super().keeps, TOTALS)

    def fold(self, states: States, table: Table[Any, Any]) -> Operator:
        """Return the operator of the sum."""
        return self.summing(states, table, facts=True)

    def beside(self, fold: Operator) -> Sequence[Table[Any, Any]]:
        """Return the table of totals."""
        return fold.states()[1:]

    def on_spark(self, spark: Spark) -> None:
        """Compute the sums by sums of fractions."""
        spark.summed(self)
        spark.closed(self)
        spark.totals(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class OfSessions(OfWindows):
    """Folds the records of each key and session."""

    @property
    def checked(self) -> bool:
        """Whether to check that the functions do not change their arguments."""
        return True

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """The states that every aggregate of windows has, and the spans of open sessions."""
        return (*super().keeps, StateKept("open", "table", "others"))

    @property
    def functions(self) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """The functions that begin an aggregate, add a record to it, and merge two aggregates."""
        raise NotImplementedError

    def fold(self, states: States, table: Table[Any, Any]) -> Operator:
        """Return the fold, over the table and the spans of open sessions."""
        spans, gap_ms = self.spans(states), self.assigned.windows.closes_at(0)
        return SessionFold(self.name, table, spans, gap_ms, *self.functions, checked=self.checked)

    def spans(self, states: States) -> Table[Any, Any]:
        """Return the table of the spans of open sessions, by key."""
        spec = states.spec(self, f"{self.name}-open", "table", Native).with_key(self.assigned.inner_key)
        return Table(spec, states.store)

    def asks(self, fold: Operator) -> dict[str, Any]:
        """Return the fold's function that removes the span of a closed session from the spans of open sessions."""
        assert isinstance(fold, SessionFold)
        return {"forget": fold.forget}


@dataclass(frozen=True, eq=False, kw_only=True)
class SessionCount(OfSessions, Count):  # type: ignore[misc]
    """Counts the rows of each key and session."""

    @property
    def functions(self) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """Functions that add up a 1 for each record."""
        return int, _one_more, _sum

    def on_spark(self, spark: Spark) -> None:
        """Spark's own sum."""
        spark.counted(self)
        spark.closed(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class SessionAggregate(OfSessions, Aggregate):
    """Folds the records of each key and session. `merger(key, aggregate, later aggregate)` merges two sessions."""

    merger: Callable[[Any, Any, Any], Any]
    plain_keys = True

    @property
    def checked(self) -> bool:
        """Whether to check that the functions change no argument: not for eddy's own, which select values."""
        return self.selection is None

    @property
    def functions(self) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """The author's functions."""
        return self.initial, self.adder, self.merger

    @property
    def arrival(self) -> Arrival | None:
        """The part that depends on the order of arrival: all rows, unless any order gives the same result."""
        if self.commutes:
            return None
        return Arrival("a fold of sessions, which merge in the order in which their records arrive", folds=True)

    def on_spark(self, spark: Spark) -> None:
        """Fold in the order of time."""
        spark.folded(self)
        spark.closed(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class SessionSum(OfSessions, Sum):
    """Computes the sum or the mean of the numbers of each key and session."""

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """The states that every aggregate of sessions has, and the exact totals."""
        return (*super().keeps, TOTALS)

    def fold(self, states: States, table: Table[Any, Any]) -> Operator:
        """Return the sum, over the table, the totals, and the spans of open sessions."""
        totals = Table[Any, str](states.spec(self, TOTALS.name_of(self.name), "table", String), states.store)
        spans, gap_ms = self.spans(states), self.assigned.windows.closes_at(0)
        return session_sum.SessionSum(self.name, table, totals, spans, gap_ms, self.summation)

    def beside(self, fold: Operator) -> Sequence[Table[Any, Any]]:
        """Return the table of totals."""
        return fold.states()[1:2]

    def on_spark(self, spark: Spark) -> None:
        """Sums of fractions."""
        spark.summed(self)
        spark.closed(self)
        spark.totals(self)


def _one_more(key: Any, value: Any, number: int) -> int:
    return number + 1


def _sum(key: Any, number: int, other: int) -> int:
    return number + other


@dataclass(frozen=True, eq=False, kw_only=True)
class Suppressed(OfWindows):
    """Keeps the last row of each window until the window closes, and then emits it. The input has changes, as facts."""

    linear = False
    keeps_last = True
    emit: Emit = "close"
    retention_ms: int = 0
    of: OfWindows
    """The aggregate that makes the windows."""

    @property
    def aggregate(self) -> OfWindows:
        """The aggregate of the windows."""
        return self.of

    @property
    def same_rows_as(self) -> Node | None:
        """The table whose changes are the input."""
        return changed_table(self.inputs[0])

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterable[Missing]:
        """Return the missing rows of the table whose changes are the input."""
        return missing[0]

    def fold(self, states: States, table: Table[Any, Any]) -> Operator:
        """Return the operator that keeps the last value."""
        return upsert.Upsert(self.name, table)

    def on_spark(self, spark: Spark) -> None:
        """Compute the last value of each key of the windows that are over."""
        spark.last_values(self)
        spark.closed(self)


def aggregate_of_windows(where: str, table: Node) -> OfWindows:
    """Return the aggregate that makes the windows of a table's rows. Raises: TopologyError if there is none."""
    node = table
    while not isinstance(node, OfWindows):
        if node.kind != "table" or node.rekeys or len(node.inputs) != 1:
            raise TopologyError(
                f"{where}: rows are suppressed until their windows close, and those of '{table.label}' have none; "
                "a table of windows is needed, which may be filtered and mapped by its values: "
                "….windowed_by(…).count(…).suppress(). A limit of time is "
                ".suppress(until_time_limit=timedelta(seconds=10))"
            )
        (node,) = node.inputs
    return node
