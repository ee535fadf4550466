"""The step that assigns windows to records, by the event times of their source partitions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eddy.join_windows import JoinSide
from eddy.operators.operator import Operator
from eddy.operators.windows import assignment
from eddy.operators.windows.record_order import Orders
from eddy.serde import Serde
from eddy.topology.plan.bags import Bag, Way, Weighted
from eddy.topology.plan.compilers import Spark, States
from eddy.topology.plan.facts import Fact
from eddy.topology.plan.frontiers import exchanges_before
from eddy.topology.plan.missing import UNKNOWN
from eddy.topology.plan.node import Arrival, DropReason, Missing, Node
from eddy.topology.plan.record_steps import is_source_of_records, label_of, topics_of
from eddy.topology.plan.windows_from_scratch import (
    Made,
    in_sessions,
    late_spans,
    late_text,
    no_such_window,
    timely_rows,
)
from eddy.windows import SlidingWindows, Windowed, Windows

__all__ = ["AssignWindows", "OrderedRecords"]


@dataclass(frozen=True, eq=False, kw_only=True)
class AssignWindows(Node):
    """Puts each record under its key and each of its windows for which it is not late."""

    keeps_records = True
    does = "windows"

    windows: Windows
    inner_key: Serde[Any]
    """The serde of the keys without windows."""
    origins: tuple[Node, ...]
    """The sources and topic patterns whose event times decide which records are late."""

    @property
    def timed_through(self) -> tuple[Node, ...]:  # type: ignore[override]
        """The exchanges upstream of the step."""
        return tuple(exchanges_before(self.inputs[0]))

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """No collections have to be co-partitioned, because the step changes the keys."""
        return ()

    @property
    def same_partitions(self) -> Iterable[tuple[Node, Node]]:
        """The pair of the step and its input, whose partitions it keeps, unless the keys have changed before."""
        return [] if self.rekeyed else [(self, self.inputs[0])]

    @property
    def marked(self) -> Windows:
        """The windows whose ends are the moments of the step's frontiers and marks."""
        return self.windows

    @property
    def merges(self) -> bool:
        """Whether records' windows merge, as sessions do."""
        return self.windows.closes_at(0) > 0

    @property
    def topics_of_windows(self) -> tuple[str, ...]:  # type: ignore[override]
        """The topics of the sources."""
        return tuple(topic for origin in self.origins for topic in topics_of(origin))

    @property
    def topics_by_origin(self) -> dict[str, tuple[str, ...]]:
        """The topics of each source and each pattern, by its label."""
        return {label_of(origin): topics_of(origin) for origin in self.origins}

    def operator(self, states: States) -> Operator:
        """Return the operator that finds the windows of each record."""
        return assignment.AssignWindows(self.label, self.windows, self.topics_of_windows)

    @property
    def only_by_worker(self) -> str:  # type: ignore[override]
        """The reason why only a worker knows which records are late: idle partitions, or topics that are added."""
        for origin in self.origins:
            if origin.role == "pattern":
                return (
                    f"records of a topic that joins pattern '{origin.title}' are late by the times at which it joined"
                )
            if is_source_of_records(origin) and origin.idle_after_ms:
                return (
                    f"topic '{origin.topic}' has idle_after, so that records may be late by the wall clock of a worker"
                )
        return ""

    @property
    def arrival(self) -> Arrival | None:
        """The part that depends on arrival: the time at which a partition is idle, or at which a topic is added."""
        return Arrival(self.only_by_worker) if self.only_by_worker else None

    def on_spark(self, spark: Spark) -> None:
        """Find the windows of each record, by the event time that its partition had at the record."""
        if self.only_by_worker:
            spark.by_a_worker(self)
        else:
            spark.windows_assigned(self)

    # Evaluation from scratch

    @property
    def factor(self) -> int:
        """1: a row's weight is its record's weight."""
        return 1

    def rows_from(self, *inputs: Bag) -> Weighted | None:
        """Return the records under their windows. Sessions are already merged, because all records are known."""
        return ((row, 1) for row, _ in self._made(inputs[0]))

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Return each row with the record from which it is made."""
        return ((row, [(0, source)]) for row, source in self._made(inputs[0]))

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterator[Missing]:
        """Yield late records once for each window that was over, and missing records once for each of their windows."""
        windows = self.windows
        for fact, (start, end) in late_spans(windows, inputs[0]):
            drop = DropReason(self, late_text(fact, end, windows.lag_ms), fact)
            yield Missing(self._key(fact[0], start, end), fact[1], drop)
        for absent in missing[0]:
            row = absent.drop.row
            if isinstance(row, Fact) and absent.key is not UNKNOWN and row.record.timestamp_ms >= 0:
                for start, end in windows.of(row.record.timestamp_ms):
                    yield absent._replace(key=self._key(absent.key, start, end))

    def outside(self, keys: Sequence[Any], inputs: Sequence[Bag]) -> str:
        """Return why there is no record in the windows; empty for a join's moments, whose rows have no windows."""
        if isinstance(self.windows, JoinSide):
            return ""
        return no_such_window(keys, self._made(inputs[0]), inputs[0])

    def _made(self, rows: Bag) -> Iterable[Made]:
        made = timely_rows(self.windows, rows)
        return in_sessions(made, self.windows.closes_at(0)) if self.merges else made

    def _key(self, key: Any, start: int, end: int) -> Windowed[Any]:
        """Return the key with this window; for sliding windows, with the window that ends with the record."""
        windows = self.windows
        return Windowed(key, *(windows.ending_with(start) if isinstance(windows, SlidingWindows) else (start, end)))


@dataclass(frozen=True, eq=False, kw_only=True)
class OrderedRecords(AssignWindows):
    """Assigns windows to records, and gives each record its place in the order of all source partitions' records."""

    record: tuple[Serde[Any], Serde[Any]]
    """The serdes of the keys and values."""

    @property
    def placed_through(self) -> tuple[Node, ...]:  # type: ignore[override]
        """The exchanges before it."""
        return self.timed_through

    @property
    def sent(self) -> bool:
        """Whether the step's records were sent through exchanges."""
        return bool(self.timed_through)

    @property
    def orders(self) -> Orders:
        """The function that gives records their order."""
        return Orders(self.topics_by_origin, self.record if self.sent else None)
