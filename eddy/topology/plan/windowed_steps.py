"""Steps of windows behind their assignment: sliding windows are made, aggregates of windows close."""

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
    """A step that ends with windows, by the frontier of its partitions."""

    crosses = True
    assigned: AssignWindows

    @property
    def first(self) -> "_ByFrontier":
        """The first step of these windows that closes any: it has their marks."""
        return self

    @property
    def facts(self) -> Node:
        """The records of the first step."""
        return self.first.inputs[0]

    @property
    def marks(self) -> tuple[StateKept, ...]:
        """The marks after exchanges, at the first step."""
        return tuple(marks_kept("marks", self.facts)) if self.first is self else ()

    def frontier(self, circuit: CircuitBuilder) -> Frontier:
        """The frontier; after exchanges the first step also places the marks."""
        return frontier_of(circuit, self.first, self.facts, "marks", self.assigned.marked, self.first is self)


@dataclass(frozen=True, eq=False, kw_only=True)
class Slide(_ByFrontier):
    """Records, each under all sliding windows that exist for its key and contain its moment."""

    linear = False
    does = "windows"
    retention_ms = 0
    records: Serde[Any]
    """The serde of the values of the records."""

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """No input: the step changes the keys."""
        return ()

    @property
    def same_partitions(self) -> Iterable[tuple[Node, Node]]:
        """A row remains in its partition."""
        return [(self, self.inputs[0])]

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """The records, their calendar, and the marks after an exchange."""
        return (StateKept("", "arrangement", "others"), StateKept("calendar", "calendar", "others"), *self.marks)

    def build(self, circuit: CircuitBuilder) -> int:
        """Place the operator and, if its rows come through exchanges, the marks of these before it."""
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
        """The existing windows with the records of each, by Spark's own join."""
        spark.slid(self)

    @property
    def factor(self) -> int:
        """A row for each window."""
        return 1

    def rows_from(self, *inputs: Bag) -> Weighted:
        """The records, each under all existing windows that contain its moment."""
        return ((row, 1) for row, _ in self._made(inputs[0]))

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Each row is made from one record."""
        return ((row, [(0, source)]) for row, source in self._made(inputs[0]))

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterable[Missing]:
        """The missing records, each under the window that ends with it."""
        return missing[0]

    def outside(self, keys: Sequence[Any], inputs: Sequence[Bag]) -> str:
        """No record in the window."""
        return no_such_window(keys, self._made(inputs[0]), inputs[0])

    def _made(self, rows: Bag) -> Iterable[Made]:
        windows = self.assigned.windows
        assert isinstance(windows, SlidingWindows)
        return slid(rows, windows)


@dataclass(frozen=True, eq=False, kw_only=True)
class OfWindows(_ByFrontier):
    """A fold by key and window whose windows close, in the place of a fold by key."""

    closes = True
    emit: Emit
    retention_ms: int

    @property
    def waits_for(self) -> tuple[AssignWindows]:  # type: ignore[override]
        """The assignment of its windows."""
        return (self.assigned,)

    @property
    def final(self) -> bool:  # type: ignore[override]
        """Whether rows are passed on when their windows close."""
        return self.emit == "close"

    @property
    def has_table(self) -> bool:
        """No: its table has only the rows of some windows, so that a join needs one of its own."""
        return False

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """Its table, the calendar, and the marks after exchanges."""
        return (TABLE, StateKept("calendar", "calendar", "others"), *self.marks)

    @property
    def first(self) -> "_ByFrontier":
        """The aggregate, or the step before it that slides windows."""
        (source,) = self.aggregate.inputs
        return source if isinstance(source, Slide) else self.aggregate

    @property
    def aggregate(self) -> "OfWindows":
        """The aggregate of the windows."""
        return self

    def closing(self, row: Row) -> Closing:
        """The end of its window, and of its retention."""
        windows, key = self.assigned.windows, row[0]
        end = windows.closes_at(key.end_ms)
        last = windows.next_end(end + self.retention_ms) if self.retention_ms else end
        place = bytes_of(self.assigned.inner_key, key.key)
        topics = self.assigned.topics_of_windows
        return Closing(topics, topics_sent(self.facts), place, end + windows.lag_ms, self.final, last + windows.lag_ms)

    def fold(self, states: States, table: Table[Any, Any]) -> Operator:
        """The fold, over the table."""
        raise NotImplementedError

    def build(self, circuit: CircuitBuilder) -> int:
        """Place the fold and, if its rows come through exchanges, the marks of these before it."""
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
        """Functions of the fold, by argument: they are called when a window begins, ends or has closed."""
        return {}

    def beside(self, fold: Operator) -> Sequence[Table[Any, Any]]:
        """The tables of the fold from which a row is removed along with its window's."""
        return ()


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowedCount(OfWindows, Count):  # type: ignore[misc]
    """The number of rows by key and window."""

    def fold(self, states: States, table: Table[Any, Any]) -> Operator:
        """The count."""
        return aggregate.Count(self.name, table, facts=True)

    def on_spark(self, spark: Spark) -> None:
        """Spark's own sum."""
        spark.counted(self)
        spark.closed(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowedAggregate(OfWindows, Aggregate):
    """A fold by key and window."""

    @property
    def arrival(self) -> Arrival | None:
        """The order of records; of sliding windows it also decides which of them joined a window together."""
        if self.commutes or not isinstance(self.assigned.windows, SlidingWindows):
            return super().arrival
        return Arrival("a fold of sliding windows, which records make as they arrive", folds=True)

    def fold(self, states: States, table: Table[Any, Any]) -> Operator:
        """The fold."""
        return aggregate.Aggregate(self.name, table, self.initial, self.adder, checked=self.selection is None)

    def on_spark(self, spark: Spark) -> None:
        """A fold in the order of the records."""
        spark.folded(self)
        spark.closed(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowedSum(OfWindows, Sum):
    """The sum or the mean of numbers by key and window."""

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """Also the exact totals."""
        return (*super().keeps, TOTALS)

    def fold(self, states: States, table: Table[Any, Any]) -> Operator:
        """The sum."""
        return self.summing(states, table, facts=True)

    def beside(self, fold: Operator) -> Sequence[Table[Any, Any]]:
        """The totals."""
        return fold.states()[1:]

    def on_spark(self, spark: Spark) -> None:
        """Sums of fractions."""
        spark.summed(self)
        spark.closed(self)
        spark.totals(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class OfSessions(OfWindows):
    """A fold by key and session."""

    @property
    def checked(self) -> bool:
        """Whether a function may have changed its argument."""
        return True

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """Also the spans of open sessions."""
        return (*super().keeps, StateKept("open", "table", "others"))

    @property
    def functions(self) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """The functions that begin an aggregate, add a record to it, and merge two."""
        raise NotImplementedError

    def fold(self, states: States, table: Table[Any, Any]) -> Operator:
        """The fold, over the table and the spans of open sessions."""
        spans, gap_ms = self.spans(states), self.assigned.windows.closes_at(0)
        return SessionFold(self.name, table, spans, gap_ms, *self.functions, checked=self.checked)

    def spans(self, states: States) -> Table[Any, Any]:
        """The spans of open sessions, by key."""
        spec = states.spec(self, f"{self.name}-open", "table", Native).with_key(self.assigned.inner_key)
        return Table(spec, states.store)

    def asks(self, fold: Operator) -> dict[str, Any]:
        """The fold itself has the spans of open sessions."""
        assert isinstance(fold, SessionFold)
        return {"forget": fold.forget}


@dataclass(frozen=True, eq=False, kw_only=True)
class SessionCount(OfSessions, Count):  # type: ignore[misc]
    """The number of rows by key and session."""

    @property
    def functions(self) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """Functions that sum a 1 for each record."""
        return int, _one_more, _sum

    def on_spark(self, spark: Spark) -> None:
        """Spark's own sum."""
        spark.counted(self)
        spark.closed(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class SessionAggregate(OfSessions, Aggregate):
    """A fold by key and session. `merger(key, aggregate, later aggregate)` merges two sessions."""

    merger: Callable[[Any, Any, Any], Any]
    plain_keys = True

    @property
    def checked(self) -> bool:
        """Not if eddy's own functions select values."""
        return self.selection is None

    @property
    def functions(self) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """The author's functions."""
        return self.initial, self.adder, self.merger

    @property
    def arrival(self) -> Arrival | None:
        """The whole result, unless any order of records gives the same one."""
        if self.commutes:
            return None
        return Arrival("a fold of sessions, which merge in the order in which their records arrive", folds=True)

    def on_spark(self, spark: Spark) -> None:
        """A fold in the order of time."""
        spark.folded(self)
        spark.closed(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class SessionSum(OfSessions, Sum):
    """The sum or the mean of numbers by key and session."""

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """Also the exact totals."""
        return (*super().keeps, TOTALS)

    def fold(self, states: States, table: Table[Any, Any]) -> Operator:
        """The sum, over the table, the totals, and the spans of open sessions."""
        totals = Table[Any, str](states.spec(self, TOTALS.name_of(self.name), "table", String), states.store)
        spans, gap_ms = self.spans(states), self.assigned.windows.closes_at(0)
        return session_sum.SessionSum(self.name, table, totals, spans, gap_ms, self.summation)

    def beside(self, fold: Operator) -> Sequence[Table[Any, Any]]:
        """The totals."""
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
    """Changes of windows' rows, as facts; the last row of each window when it closes."""

    linear = False
    keeps_last = True
    emit: Emit = "close"
    retention_ms: int = 0
    of: OfWindows
    """The aggregate whose windows they are."""

    @property
    def aggregate(self) -> OfWindows:
        """The aggregate of the windows."""
        return self.of

    @property
    def same_rows_as(self) -> Node | None:
        """The table that the windows' rows come from."""
        return changed_table(self.inputs[0])

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterable[Missing]:
        """The missing rows of that table."""
        return missing[0]

    def fold(self, states: States, table: Table[Any, Any]) -> Operator:
        """The last value."""
        return upsert.Upsert(self.name, table)

    def on_spark(self, spark: Spark) -> None:
        """The last value of each key, of windows that are over."""
        spark.last_values(self)
        spark.closed(self)


def aggregate_of_windows(where: str, table: Node) -> OfWindows:
    """The aggregate whose windows a table's rows are of. Raises: TopologyError."""
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
