"""From plan to DataFrames: the rows of every sink and every state, computed from the whole input.

    streams      facts, with the order of their partitions
    tables       one row a key
    relations    rows with weights, merged before a join, a grouping or a state reads them

Joins and groupings are Spark's own, on the bytes of keys; the author's functions run in Arrow functions. The state of
a step is captured under its name in `topology/compiler/circuit_compiler.py`. `compiler.SparkCompiler` adds loops.

Invariant: the circuit of the same plan has states of the same names.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.arrival_order import in_one_order
from eddy.connectors.spark.arrow_functions import (
    FACTS,
    ROWS,
    ArrowFunction,
    JoinedEntry,
    LookedUpEntry,
    RowsEntry,
    RowsExit,
    SentExit,
    TablesEntry,
)
from eddy.connectors.spark.changelog import ComputedResults, StateRows
from eddy.connectors.spark.cut_clocks import DUE, CutClocks, Living, with_deadlines
from eddy.connectors.spark.declared_folds import first_values_of, fold_of, sums_of
from eddy.connectors.spark.decoded_rows import DecodedRows, RowStep
from eddy.connectors.spark.fold_functions import FOLDED, FoldFunction, GroupFunction, ValueFunction
from eddy.connectors.spark.frames import Frames, be64, names, spark_errors, with_suffix
from eddy.connectors.spark.grouped_values import GroupedValues, OnlyValue, ReducedValues, only_value
from eddy.connectors.spark.made import MADE, Made
from eddy.connectors.spark.sql_expressions import own
from eddy.connectors.spark.step_frames import Capture, PendingRows, StepFrames
from eddy.connectors.spark.whole_graphs import GraphFunction, GraphResults, Reaching, Totalling
from eddy.connectors.spark.window_steps import WindowSteps
from eddy.errors import LoopLimitError
from eddy.partitioner import Partitioner
from eddy.serde import Int64, Native, Serde, String
from eddy.topology.compiler.circuit_compiler import sink_serdes
from eddy.topology.plan import plan as nodes
from eddy.topology.plan.expiring_tables import ExpiringTable
from eddy.topology.plan.placement import place
from eddy.topology.plan.plan import Loop, Node, Plan
from eddy.topology.plan.scopes import Scopes
from eddy.topology.plan.stores import kept_bindings

__all__ = ["BY_A_WORKER", "StepCompiler"]

BY_A_WORKER = "the errors of a recursion are computed by a worker alone"


class StepCompiler(WindowSteps, ABC):
    """Compiles the steps of one plan.

    `inputs` has a frame of facts for each source, `clocks` the clocks after these facts.

    With `traced`, states of nested loops are computed, too, by a pass over them in every iteration.
    """

    def __init__(
        self,
        frames: Frames,
        plan: Plan,
        topic_partitions: Mapping[str, int],
        inputs: Mapping[str, DataFrame],
        clocks: CutClocks,
        partitioner: Partitioner,
        traced: bool = True,
        one_task: int = 0,
    ) -> None:
        self.frames, self.plan, self.traced, self.small = frames, plan, traced, one_task
        self.counts, self._inputs = topic_partitions, inputs
        self.clocks, self.partitioner = clocks, partitioner
        self.placements = place(plan, topic_partitions)
        self.scopes = Scopes(plan)
        self.top = self.scope = StepFrames(self._take)
        self.states: dict[str, StateRows] = {}
        self.undetermined: dict[str, str] = {}
        self.sinks: dict[nodes.Sink, DataFrame] = {}
        self._tables: set[Node] = set()

    def run(self) -> ComputedResults:
        """Compile every node. Raises: DataError; LoopLimitError; ConnectorError for a failure of Spark's."""
        for node in self.plan.nodes:
            if node not in self.scopes.around:
                self.compile(node)
        return ComputedResults(self.states, self.sinks, self.undetermined)

    def _take(self, name: str, kind: str, node: Node, frame: DataFrame) -> None:
        self.states[name] = StateRows(kind, frame, node)

    def serdes(self, node: Node) -> tuple[Serde[Any], Serde[Any]]:
        """Return the serdes of a step's rows."""
        return self.placements[node].key, node.value or Native

    def kept_bindings(self, loop: Loop) -> list[int]:
        """Return the numbers of the bindings of an outermost loop for which a worker has a state of the loop's own."""
        return kept_bindings(self.scopes, loop)

    def rows(self, node: Node) -> DataFrame:
        """Return the rows of a step, encoded by its serdes and partitioned by key. Rows of a relation are merged."""
        home = self.scope.home(node)
        if node not in home.rows:
            key, value = self.serdes(node)
            frame = home.pending[node].under(self.frames, key, value, node.label)
            frame = self.frames.consolidated(frame) if node.kind == "relation" else self.frames.by_key(frame)
            self.know(node, frame, home)
        return home.rows[node]

    def keyed(self, node: Node) -> DataFrame:
        """Return the rows of a step that have a key."""
        return self.rows(node) if node.kind == "table" else self.with_key(node, self.rows(node))

    def with_key(self, node: Node, rows: DataFrame) -> DataFrame:
        """Return the rows with a key among `rows`, which are encoded by the serdes of `node`."""
        native = self.serdes(node)[0].name == Native.name  # Native encodes None; other serdes leave it null
        return rows.where(f.col("k") != f.lit(Native.encode(None))) if native else rows.where("k IS NOT NULL")

    def know(self, node: Node, frame: DataFrame, home: StepFrames | None = None) -> None:
        """Note that `frame`, which is partitioned by key, has the rows of a step that is in the scope."""
        home = home or self.scope
        if home is self.top or home.captures:
            frame = self.frames.kept(frame)
        home.rows[node] = frame
        home[node] = PendingRows(frame, RowsEntry(*self.serdes(node)))

    def add_rows(self, node: Node, frame: DataFrame) -> None:
        """Add a step to the scope, with its rows, which are partitioned by key."""
        self.scope[node] = PendingRows(frame, RowsEntry(*self.serdes(node)))
        self.know(node, frame)

    @contextmanager
    def inner_scope(self, capture: Capture, nested: bool, captures: bool) -> Iterator[StepFrames]:
        """Within the block, compile steps into new frames, for one iteration of a loop inside the current scope."""
        outer = self.scope
        self.scope = StepFrames(capture, nested=nested, captures=captures, around=outer)
        try:
            yield self.scope
        finally:
            self.scope = outer

    def compile_body(self, loop: Loop) -> None:
        """Compile the steps inside a loop into the current scope."""
        for step in self.scopes.body[loop]:
            self.compile(step)

    def compile(self, node: Node) -> None:
        """Compile a step in the current scope, in the form that it declares."""
        node.on_spark(self)

    @abstractmethod
    def waves(self, recursion: nodes.Recursion) -> None:
        """Compute a recursion by waves, unless it is inside another loop."""

    @abstractmethod
    def looped(self, loop: Loop) -> None:
        """Compute a recursion by nested time, or a block with its bindings."""

    def reduced(self, node: nodes.Reduce) -> None:
        """Compile `reduce`, whose rows the author's function returns for all values of a key."""
        self._of_groups(node, ReducedValues(own(node.function)))

    def first_values(self, node: nodes.TopK) -> None:
        """Compile a step that selects the first values of a key in an order."""
        self._of_groups(node, first_values_of(node.selection))

    def only_values(self, node: nodes.OneRow) -> None:
        """Compile a step that selects the value of each key with one row."""
        self._of_groups(node, only_value if node.refusal is None else OnlyValue(own(node.refusal)))

    def _of_groups(self, node: Node, function: GroupedValues) -> None:
        rows, key, value = self._grouped(node, "v")
        made = GroupFunction(node.name, key, value, *self.serdes(node), function)
        self.add_rows(node, self.frames.by_key(self.frames.through(rows, made, ROWS)))
        if self.scope.nested:
            self._capture_made(node)
        else:
            self._capture_kept(node)

    def _capture_kept(self, node: Node) -> None:
        """Capture the states that a step declares."""
        (source,) = node.inputs
        for kept in node.keeps:
            name = kept.name_of(node.name)
            if kept.kind == "table":
                self._capture_table(node, name)
            else:
                rows = self.keyed(source)
                if kept.rows == "others":
                    rows = rows.join(self.rows(node).select("k"), "k", "left_anti")
                self.scope.capture(name, kept.kind, source, rows)

    def records(self, node: nodes.Source) -> None:
        """Compile a source: the records of a topic, or for a table the last value of each key."""
        key, value = self.serdes(node)
        assert node.key is not None
        assert node.value is not None
        facts = PendingRows(self._inputs[node.topic], RowsEntry(node.key, node.value, True))
        if node.kind != "table":
            self.scope[node] = facts
            return
        self.add_rows(node, self._latest_rows(facts.under(self.frames, key, value, node.label)))
        self._capture_table(node, node.name)

    def last_values(self, node: Node) -> None:
        """Compile a table of facts: the last value of each key."""
        key, value = self.serdes(node)
        facts = self.scope[node.inputs[0]].under(self.frames, key, value, node.label)
        self.add_rows(node, self._latest_rows(facts))
        if not node.closes:
            self._capture_table(node, node.name)

    def _latest_rows(self, facts: DataFrame, *others: str) -> DataFrame:
        """Return the last value of each key, with the columns `others`; a key whose last value is null is absent."""
        last = f.max_by(f.struct("kc", "v", "vc", *others), f.struct("s", "t")).alias("last")
        facts = facts.where("k IS NOT NULL")
        grouped = self.frames.partitioned(facts).groupBy("k").agg(last).where("last.v IS NOT NULL")
        found = (f"last.{name}" for name in others)
        return grouped.select("k", "last.kc", "last.v", "last.vc", f.lit(1).cast("long").alias("w"), *found)

    def expiring(self, node: ExpiringTable) -> None:
        """Compile a table whose rows expire: the last value of each key whose deadline the clock has not reached."""
        key, value = self.serdes(node)
        facts = self.scope[node.inputs[0]].under(self.frames, key, value, node.label)
        expiry, (table, deadlines, calendar) = node.expiry, (kept.name_of(node.name) for kept in node.keeps)
        clocks = self.clocks.at(expiry.source or None, self.placements[node].partitions)
        last = with_deadlines(self._latest_rows(facts, "t"), expiry.after_ms)
        living = self.frames.kept(self.frames.by_key(self.frames.through(last, Living(clocks, self.partitioner), DUE)))
        self.add_rows(node, living.select(*names(ROWS)))
        self._capture_table(node, table)
        due, none = be64(f.col("due")), f.lit(None).cast("binary").alias("vc")
        self.scope.capture(deadlines, "table", node, living.select("k", "kc", due.alias("v"), none, "w"))
        entry = f.concat(due, f.col("k")).alias("key"), f.lit(b"\x01").alias("value")
        self.scope.capture(calendar, "encoded", node, living.select("k", *entry))

    def _capture_table(self, node: Node, name: str) -> None:
        self._tables.add(node)
        self.scope.capture(name, "table", node, self.rows(node))

    def transformed(self, node: nodes.Transform) -> None:
        """Compile a step without a state. The function of a `peek` is not called."""
        pending = self.scope[node.inputs[0]]
        if node.verb != "peek":
            pending = pending.then(RowStep(node.name, node.verb, own(node.function), node.kind == "table", node.where))
        self.scope[node] = pending

    def union(self, node: Node) -> None:
        """Compile a union: all rows of all inputs."""
        key, value = self.serdes(node)
        parts = [self.scope[source].under(self.frames, key, value, node.label) for source in node.inputs]
        facts = node.kind == "stream"
        whole = self.frames.union(parts, FACTS if facts else ROWS)
        self.scope[node] = PendingRows(whole.select(*names(FACTS if facts else ROWS)), RowsEntry(key, value, facts))

    def facts(self, node: Node) -> None:
        """Compile a step that turns the rows of a table into facts."""
        frame = self.frames.facts(self.rows(node.inputs[0]))
        self.scope[node] = PendingRows(frame, RowsEntry(*self.serdes(node.inputs[0]), True))

    def exchanged(self, node: nodes.Exchange) -> None:
        """Compile an exchange: the rows of the input, without rows that have no key if the exchange needs keys."""
        (source,) = node.inputs
        pending = self.scope[source]
        self.scope[node] = pending.then(RowStep(node.name, "with-keys")) if self.plan.needs_keys(node) else pending
        if source in self._tables and node.single_partition and self.placements[source].partitions == 1:
            self._tables.add(node)

    def constant(self, node: nodes.Constant) -> None:
        """Compile a step of fixed rows."""
        key, value = self.serdes(node)
        columns = RowsExit(node.label, key, value).columns(DecodedRows(list(node.rows), [1] * len(node.rows)))
        frame = self.frames.rows(list(zip(*columns, strict=True)), ROWS)
        self.add_rows(node, self.frames.by_key(frame))
        self.scope.capture(node.name, "arrangement", node, self.rows(node))

    def _grouped(self, node: Node, *within: Any) -> tuple[DataFrame, Serde[Any], Serde[Any]]:
        """Return the rows that a step groups, partitioned by key, and the serdes of their keys and values.

        They are the rows with a key; a row of a stream also has to have a value. Rows of a relation are merged.
        """
        (source,) = node.inputs
        key, value = self.serdes(source)
        if source.kind != "stream":
            rows = self.keyed(source)
            return (rows.sortWithinPartitions("k", *within) if within else rows), key, value
        facts = self.scope[source].under(self.frames, key, value, source.label)
        return self.frames.by_key(facts.where("k IS NOT NULL AND v IS NOT NULL"), *within), key, value

    def _as(self, node: Node, frame: DataFrame, key: Serde[Any], value: Serde[Any]) -> None:
        """Add a step with rows that `key` and `value` encode; they are encoded anew if the step has other serdes."""
        wanted = self.serdes(node)
        if (key.name, value.name) != (wanted[0].name, wanted[1].name):
            frame = self.frames.by_key(
                PendingRows(frame, RowsEntry(key, value)).under(self.frames, *wanted, node.label)
            )
        self.add_rows(node, frame)

    def counted(self, node: Node) -> None:
        """Compile a count: the sum of the weights of each key."""
        rows, key, _ = self._grouped(node)
        counted = rows.groupBy("k").agg(f.max("kc").alias("kc"), f.sum("w").alias("n")).where("n <> 0")
        none, one = f.lit(None).cast("binary").alias("vc"), f.lit(1).cast("long").alias("w")
        self._as(node, counted.select("k", "kc", be64(f.col("n")).alias("v"), none, one), key, Int64)
        self._reduction(node)

    def summed(self, node: nodes.Sum) -> None:
        """Compile a sum or a mean of the numbers of each key."""
        rows, key, value = self._grouped(node)
        sums = ValueFunction(node.name, key, value, *self.serdes(node), sums_of(node.summation).result)
        self.add_rows(node, self.frames.by_key(self.frames.through(rows, sums, ROWS)))
        self._reduction(node)

    def totals(self, node: nodes.Sum) -> None:
        """Capture the exact totals of a sum; for windows only the totals of windows that are in the table."""
        if self.scope is not self.top:
            return
        rows, key, value = self._grouped(node)
        parts = ValueFunction(node.name, key, value, self.serdes(node)[0], String, sums_of(node.summation).parts)
        totals = self.frames.through(rows, parts, ROWS)
        there = totals.join(self.states[node.name].frame.select("k"), "k", "left_semi") if node.closes else totals
        self.scope.capture(nodes.TOTALS.name_of(node.name), "table", node, there)

    def folded(self, node: nodes.Aggregate) -> None:
        """Compile a fold of the rows of each key."""
        facts = node.inputs[0].kind == "stream"
        rows, key, value = self._grouped(node, *(self._order_of(node) if facts else [f.desc("w"), "v"]))
        out = self.serdes(node)
        folding = FoldFunction(node.name, key, value, *out, fold_of(node))
        folded = self.frames.through(rows, folding, FOLDED).where("n <> 0")
        folded = self.frames.by_key(folded)
        if self.scope is self.top and node.subtractor is not None:
            folded = self.frames.kept(folded)
            numbers = folded.select("k", "kc", be64(f.col("n")).alias("v"), f.lit(None).cast("binary").alias("vc"), "w")
            self.scope.capture(f"{node.name}-rows", "table", node, numbers)
        self.add_rows(node, folded.where("v IS NOT NULL").select(*names(ROWS)))
        self._reduction(node)

    def _order_of(self, fold: Node) -> list[Any]:
        """Return the columns that sort a fold's records: by their partition's order, or by time if there is none."""
        if in_one_order(fold.inputs[0], self.counts):
            return ["s", "t"]
        return [f.substring("s", 1, 1), "t", "s"]  # the first byte sorts records of files before the topic's

    def _reduction(self, node: Node) -> None:
        """Capture the state of a count or an aggregate."""
        if node.closes:
            return  # see `closed`
        if self.scope.nested:
            self._capture_made(node)
        else:
            self._capture_table(node, node.name)

    def _capture_made(self, node: Node) -> None:
        if self.scope.captures:
            (source,) = node.inputs
            self.scope.capture(node.name, "trace", source, self.keyed(source))
            self.scope.capture(f"{node.name}-made", "trace", node, self.rows(node))

    def weighed(self, node: nodes.WeightFunction) -> None:
        """Compile a function of weights."""
        (source,) = node.inputs
        rows, w = self.keyed(source), f.col("w")
        clamped = rows.where("w > 0").withColumn("w", f.lit(1).cast("long") if node.form == "distinct" else w)
        self._as(node, clamped, *self.serdes(source))
        if self.scope.nested:
            self._capture_made(node)
        else:
            self.scope.capture(node.name, "arrangement", node, rows)

    def looked_up(self, node: nodes.StreamTableJoin) -> None:
        """Compile a join of facts with a table."""
        stream, table = node.inputs
        for side in node.looks_up:
            self.look_up(*side)
        right_key, right = self.serdes(table)
        value = self.serdes(stream)[1]
        left = self.scope[stream].under(self.frames, right_key, value, stream.label).where("v IS NOT NULL")
        other = with_suffix(self.rows(table), {"k": "rk", "v": "r", "vc": "rc"})
        joined = left.join(other, left["k"] == other["rk"], "left" if node.left else "inner").drop("rk")
        self.scope[node] = PendingRows(joined, LookedUpEntry(node.name, right_key, value, right, node.joiner))

    def tables_joined(self, node: nodes.TableJoin) -> None:
        """Compile a join of two tables."""
        for side in node.looks_up:
            self.look_up(*side)
        left, right = node.inputs
        key, value = self.serdes(left)
        how = {"inner": "inner", "left": "left", "outer": "full"}[node.join]
        one = with_suffix(self.rows(left), {"k": "lk", "kc": "lkc", "v": "v", "vc": "vc"})
        other = with_suffix(self._under_key(right, key), {"k": "rk", "kc": "rkc", "v": "r", "vc": "rc"})
        joined = one.join(other, one["lk"] == other["rk"], how).select(
            f.coalesce("lk", "rk").alias("k"), f.coalesce("lkc", "rkc").alias("kc"), "v", "vc", "r", "rc"
        )
        entry = TablesEntry(node.name, key, value, self.serdes(right)[1], node.joiner)
        self.scope[node] = PendingRows(joined, entry)

    def _under_key(self, node: Node, key: Serde[Any]) -> DataFrame:
        """Return the rows of a step that have a key, encoded by the key serde `key`."""
        own, value = self.serdes(node)
        if own.name == key.name:
            return self.keyed(node)
        pending = PendingRows(self.keyed(node), RowsEntry(own, value))
        return self.frames.by_key(pending.under(self.frames, key, value, node.label))

    def joined(self, node: nodes.Join) -> None:
        """Compile a join of two relations."""
        for side in node.looks_up:
            self.look_up(*side)
        left, right = node.inputs
        keys = [self.serdes(side)[0] for side in node.inputs]
        key = keys[0] if keys[0].name == keys[1].name else Native
        one = self._under_key(left, key)
        other = with_suffix(self._under_key(right, key), {"k": "rk", "v": "r", "vc": "rc", "w": "rw"})
        joined = one.join(other, one["k"] == other["rk"]).select(
            "k", "kc", "v", "vc", (f.col("w") * f.col("rw")).alias("w"), "r", "rc"
        )
        entry = JoinedEntry(node.name, key, self.serdes(left)[1], self.serdes(right)[1], own(node.merge))
        self.scope[node] = PendingRows(joined, entry)

    def look_up(self, side: Node, name: str) -> None:
        """Capture the state in which a worker looks up the rows of one side of a join."""
        if side not in self.scopes.around:
            if side.kind != "table":
                self.top.capture(name, "arrangement", side, self.keyed(side))
            elif side not in self._tables:
                self._tables.add(side)
                self.top.capture(name, "table", side, self.rows(side))
        elif self.scope.captures:
            name = (None if self.scope.nested else side.looked_up_as) or name
            self.scope.capture(name, "trace" if self.scope.nested else "arrangement", side, self.keyed(side))

    def reached(self, node: nodes.Reachable) -> None:
        """Compile reachability from roots, in one task."""
        root_key, edge = self.serdes(node.inputs[0])[0], self.serdes(node.inputs[1])[1]
        asked = (node.expand, node.weight, node.max_depth, node.max_nodes, node.limit, node.cycles, node.counted)
        self._over_graph(node, Reaching(node.name, node.node, root_key, edge, *asked))

    def totalled(self, node: nodes.TreeTotals) -> None:
        """Compile totals over trees, in one task."""
        of = node.inputs[0].key or Native
        self._over_graph(node, Totalling(node.name, of, node.parent, node.own, node.include_self))

    def _over_graph(self, node: Node, compute: Callable[..., GraphResults]) -> None:
        rows = [self.rows(source).select(f.lit(source.name).alias("read"), *names(ROWS)) for source in node.inputs]
        reads = [(source.name, *self.serdes(source)) for source in node.inputs]
        function = GraphFunction(node.name, reads, self.serdes(node), compute)
        made = Made(self.frames.kept(self.frames.through(self.frames.union(rows, "").coalesce(1), function, MADE)))
        for kept in node.keeps:
            name = kept.name_of(node.name)
            self.scope.capture(name, "encoded", node, made.state(name))
        self.add_rows(node, self.frames.by_key(made.rows(node.name)))

    def errors(self, node: Node) -> None:
        """Compile a recursion's errors: a frame without rows. Raises: LoopLimitError if the recursion holds rows."""
        (recursion,) = node.inputs
        reached = self.states.get(f"{recursion.name}-reached")
        with spark_errors():
            held = reached is not None and reached.frame.first() is not None
        if held:
            raise LoopLimitError(f"{BY_A_WORKER}: recursively '{recursion.name}' has no finite answer")
        self.top.capture(node.name, "arrangement", node, self.frames.empty())
        self.add_rows(node, self.frames.empty())

    def by_a_worker(self, node: Node) -> None:
        """Compile a step whose results are undetermined here: without rows, and with empty states."""
        for name in (*(kept.name_of(node.name) for kept in node.keeps), *node.store_names):
            self.top.capture(name, "key-value", node, self.frames.empty())
        facts = self.frames.facts(self.frames.empty())
        self.scope[node] = PendingRows(facts, RowsEntry(*self.serdes(node), True))

    def written(self, node: nodes.Sink) -> None:
        """Compile a sink: the records of a user's topic."""
        (source,) = node.inputs
        pending = self.scope[source]
        key, value = sink_serdes(self.plan, self.counts)[node]
        exit_ = SentExit(node.topic, key, value, pending.facts)
        weighted = not pending.facts and "w" in pending.frame.columns
        frame = pending.frame.where("w > 0") if weighted else pending.frame
        self.sinks[node] = self.frames.through(frame, ArrowFunction(pending.entry, pending.steps, exit_), exit_.schema)
