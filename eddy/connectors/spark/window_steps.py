"""The steps of windows, joins in time and valid rows on Spark, a part of the compiler of steps."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.arrow_functions import ROWS, RowsEntry
from eddy.connectors.spark.as_of_frames import AsOfFrames
from eddy.connectors.spark.closed_windows import ClosedWindows, WindowedNode, assigned, slid, topic_numbers
from eddy.connectors.spark.closing_times import marks_of
from eddy.connectors.spark.cut_clocks import CutClocks
from eddy.connectors.spark.declared_folds import listed_of
from eddy.connectors.spark.decoded_rows import KeptStep
from eddy.connectors.spark.deduplicated_frames import DeduplicatedFrames, FactOrders, OrderStep, VersionsStep
from eddy.connectors.spark.fold_functions import ValueFunction
from eddy.connectors.spark.frames import Frames, be64, names
from eddy.connectors.spark.global_joins import JoinedTables
from eddy.connectors.spark.joined_streams import JoinedStreams
from eddy.connectors.spark.step_frames import PendingRows, StepFrames
from eddy.connectors.spark.valid_frames import ValidFrames
from eddy.partitioner import Partitioner
from eddy.serde import Int64, Serde
from eddy.topology.plan import plan as nodes
from eddy.topology.plan.frontiers import marks_kept
from eddy.topology.plan.placement import Placement
from eddy.windows import SlidingWindows, Windows

__all__ = ["WindowSteps"]


class WindowSteps(ABC):
    """Compiles steps of windows into the scope of a compiler of steps."""

    frames: Frames
    plan: nodes.Plan
    scope: StepFrames
    clocks: CutClocks
    partitioner: Partitioner
    placements: Mapping[nodes.Node, Placement]

    joined_tables: JoinedTables | None = None

    @abstractmethod
    def by_a_worker(self, node: nodes.Node) -> None:
        """Compile a step whose results are undetermined here: without rows, and with empty states."""

    @abstractmethod
    def serdes(self, node: nodes.Node) -> tuple[Serde[Any], Serde[Any]]:
        """Return the serdes of a step's rows."""

    @abstractmethod
    def rows(self, node: nodes.Node) -> DataFrame:
        """Return the rows of a step, encoded by its serdes and partitioned by key."""

    @abstractmethod
    def know(self, node: nodes.Node, frame: DataFrame, home: StepFrames | None = None) -> None:
        """Set the rows of a step to `frame`, which is partitioned by key."""

    @abstractmethod
    def add_rows(self, node: nodes.Node, frame: DataFrame) -> None:
        """Add a step with its rows."""

    @abstractmethod
    def keyed(self, node: nodes.Node) -> DataFrame:
        """Return the rows of a step that have a key."""

    def globally_joined(self, node: nodes.GlobalJoin) -> None:
        """Compile a join of facts with a global table as of the offsets that a worker has noted.

        If the offsets are not known, the result is undetermined, and there are no rows.
        """
        joined, stream = None, node.inputs[0]
        if self.joined_tables is not None:
            serdes = *self.serdes(stream), *self.serdes(node.table)
            joined = self.joined_tables.of(node, self.scope[stream], *serdes)
        if joined is None:
            self.by_a_worker(node)
        else:
            self.scope[node] = joined

    def valid(self, node: nodes.ValidRows) -> None:
        """Compile the rows that are true at the clocks of their partitions."""
        clocks = self.clocks.at(node.topic or None, self.placements[node].partitions)
        valid = ValidFrames(self.frames, node, self.keyed(node.inputs[0]), self.serdes(node), clocks, self.partitioner)
        for name, (kind, frame) in valid.states().items():
            self.scope.capture(name, kind, node, frame)
        there = valid.there()
        self.scope[node] = PendingRows(there, RowsEntry(*self.serdes(node)))
        self.know(node, there)

    def windows_assigned(self, node: nodes.AssignWindows) -> None:
        """Compile a step that puts each record under its key with each of its windows that is not over."""
        self.scope[node] = assigned(self.scope[node.inputs[0]], self.frames, node, *self.serdes(node))

    def ordered(self, node: nodes.OrderRecords) -> None:
        """Compile a step that drops late records, and adds to each record its place in the order of all records."""
        orders = self._orders(f"deduplicate '{node.label}'", node)
        self.scope[node] = self.scope[node.inputs[0]].then(OrderStep(node.label, node.windows.lag_ms, orders))

    def versions_ordered(self, node: nodes.OrderVersions) -> None:
        """Compile a step that puts records under key and time, each value with its order; late records are dropped."""
        ordered = self.scope[node.inputs[0]].then(VersionsStep(self._orders(f"join '{node.label}'", node)))
        self.scope[node] = assigned(ordered, self.frames, node, *self.serdes(node))

    def _orders(self, where: str, node: nodes.OrderRecords | nodes.OrderVersions) -> FactOrders:
        numbers, topics = topic_numbers(self.plan), sorted(node.topics_of_windows)
        local = {numbers[topic]: number for number, topic in enumerate(topics)}
        return FactOrders(where, local, len(topics) == 1 and not node.rekeyed, node.record if node.sent else None)

    def deduplicated(self, node: nodes.Deduplicate) -> None:
        """Compile a deduplication: pass the first record of each `by` value, as far as the records' order is known."""
        (source,) = node.inputs
        facts = self.scope[source].under(self.frames, *self.serdes(source), source.label)
        numbers, times = topic_numbers(self.plan), self.clocks.event_times
        made = DeduplicatedFrames(self.frames, node, self.placements[source], times, numbers, self.partitioner)
        self.scope[node] = made.of(facts)
        for name, (kind, frame) in made.states.items():
            self.scope.capture(name, kind, node, frame)
        self._capture_marks(node, source, "marks", node.assigned.marked)

    def slid(self, node: nodes.Slide) -> None:
        """Compile a step that puts each record under all sliding windows of its key that contain its time."""
        (source,) = node.inputs
        windows = node.assigned.windows
        assert isinstance(windows, SlidingWindows)
        facts = self.scope[source].under(self.frames, *self.serdes(source), source.label)
        facts = self.frames.kept(facts.where("k IS NOT NULL AND v IS NOT NULL"))
        for name, (kind, frame) in self._closed(node).records(facts).items():
            self.scope.capture(name, kind, node, frame)
        self._capture_marks(node, source, "marks", node.assigned.marked)
        self.scope[node] = PendingRows(slid(facts, windows), RowsEntry(*self.serdes(node), True))

    def streams_joined(self, join: nodes.StreamStreamJoin) -> None:
        """Compile a join in time of the facts of two streams."""
        self._joined_in_time(join, JoinedStreams)
        for side, source, moments in zip(("left", "right"), join.inputs, join.assigned, strict=True):
            self._capture_marks(join, source, f"{side}-marks", moments.marked)

    def joined_as_of(self, join: nodes.AsOfJoin) -> None:
        """Compile a join of facts with the values of another stream as of their times."""
        self._joined_in_time(join, AsOfFrames)
        for marks, source, moments in zip(("marks", "versions-marks"), join.inputs, join.assigned, strict=True):
            self._capture_marks(join, source, marks, moments.marked)

    def _joined_in_time(self, join: Any, made_by: Callable[..., JoinedStreams | AsOfFrames]) -> None:
        left, right = (
            self.scope[source].under(self.frames, *self.serdes(source), source.label) for source in join.inputs
        )
        one, other = (self.placements[source] for source in join.inputs)
        joined = made_by(self.frames, join, one, other, self.clocks.event_times, self.partitioner)
        self.scope[join] = joined.of(left, right, self.serdes(join)[0])
        for name, (kind, frame) in joined.states.items():
            self.scope.capture(name, kind, join, frame)

    def closed(self, node: WindowedNode) -> None:
        """Capture the states of an aggregate of windows, and, for a final step, select the windows that are over."""
        closed = self._closed(node)
        told = closed.with_closing_times(self.rows(node))
        self._close(node, closed, told, told)

    def _close(self, node: WindowedNode, closed: ClosedWindows, told: DataFrame, rows: DataFrame) -> None:
        """Capture the states: table, calendar and marks. A final step keeps only the rows of windows that are over.

        `told` has all windows, `rows` the rows of windows that have a row.
        """
        for name, (kind, frame) in closed.states(told, rows).items():
            self.scope.capture(name, kind, node, frame)
        if node.first is node:
            self._capture_marks(node, node.facts, "marks", node.assigned.marked)
        if node.final:
            self.know(node, closed.finals(rows))

    def values_of_windows(self, node: Any) -> None:
        """Compile the number of different values, or the list of values, of each window.

        A window without a row has values, too.
        """
        (source,) = node.inputs
        key, values = self.serdes(source)[0], node.values
        different = values.verb == "distinct_count"
        step = KeptStep(node.name, values.of if different else None, node.assigned.merges)
        facts = self.scope[source].then(step).under(self.frames, key, values.kept, source.label)
        facts = self.frames.kept(facts.where("k IS NOT NULL AND v IS NOT NULL"))
        none, one = f.lit(None).cast("binary"), f.lit(1).cast("long").alias("w")
        by_window = facts.groupBy("k").agg(f.max("kc").alias("kc"), f.countDistinct("v").alias("n"))
        windows = by_window.select("k", "kc", none.alias("v"), none.alias("vc"), one)
        if different:
            numbers = by_window.select("k", "kc", be64(f.col("n")).alias("v"), none.alias("vc"), one)
            self.add_rows(
                node, PendingRows(numbers, RowsEntry(key, Int64)).under(self.frames, *self.serdes(node), node.label)
            )
            data = facts
        else:
            listed = ValueFunction(node.name, key, values.kept, *self.serdes(node), listed_of(values.selection))
            self.add_rows(
                node,
                self.frames.by_key(self.frames.through(self.frames.by_key(facts.select(*names(ROWS))), listed, ROWS)),
            )
            data = facts.withColumn("v", f.coalesce("vc", "v"))
        closed = self._closed(node)
        told = closed.with_closing_times(windows)
        frame = closed.values(data, told, node.assigned.merges)
        self.scope.capture(nodes.VALUES.name_of(node.name), "arrangement", node, frame)
        self._close(node, closed, told, closed.beside(self.rows(node), told))

    def _capture_marks(self, step: nodes.Node, facts: nodes.Node, marks: str, windows: Windows) -> None:
        """Capture, at `step`, the marks of the exchanges upstream of `facts`, by which the step waits."""
        times, places = self.clocks.event_times, self.placements
        for kept, exchange in marks_kept(marks, facts).items():
            frame = marks_of(self.frames, times, windows, self.plan, exchange, places, self.partitioner)
            self.scope.capture(kept.name_of(step.name), "encoded", exchange, frame)

    def _closed(self, node: WindowedNode | nodes.Slide) -> ClosedWindows:
        times = self.clocks.event_times
        return ClosedWindows(self.frames, node, self.placements[node], times, self.partitioner)
