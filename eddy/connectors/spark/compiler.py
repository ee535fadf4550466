"""From plan to DataFrames: what every sink and every state holds when all of the inputs is taken in.

    streams      facts, with the order of their partitions
    tables       one row a key
    relations    rows with weights, merged where something joins, groups or remembers them

Joins and groupings are Spark's own, on the bytes of keys; functions run in passes. What a step remembers is
captured under the name of its state, as `topology/compile.py` names it. Loops are in `waves` and `rounds`.

Invariant: the names of the states captured are those of the circuit of the same plan.
"""

from collections.abc import Mapping
from functools import singledispatchmethod
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.changelog import Results, StateRows
from eddy.connectors.spark.folds import FOLDED, FoldPass, MakePass
from eddy.connectors.spark.frames import Frames, be64, names, with_suffix
from eddy.connectors.spark.part import Part
from eddy.connectors.spark.passes import (
    FACTS,
    ROWS,
    JoinedEntry,
    LookedUpEntry,
    Pass,
    RowsEntry,
    SentExit,
    TablesEntry,
    encode_rows,
)
from eddy.connectors.spark.scope import Pipe, Scope
from eddy.operators.batch import consolidate
from eddy.operators.reduce import making
from eddy.serde import Int64, Native, Serde
from eddy.topology import plan as nodes
from eddy.topology.compile import sink_serdes
from eddy.topology.placement import place
from eddy.topology.plan import Node, Plan, Source
from eddy.topology.scopes import Loop, Scopes
from eddy.topology.slots import transformation

__all__ = ["Compiler"]


class Compiler:
    """Compiles one plan over its inputs: a frame of facts for each source.

    `traced` says whether states of nested time are asked for, which costs a pass over them in every round. Loops of at
    most `one_task` rows are computed in one task.
    """

    def __init__(
        self,
        frames: Frames,
        plan: Plan,
        topic_partitions: Mapping[str, int],
        inputs: Mapping[str, DataFrame],
        traced: bool = True,
        one_task: int = 0,
    ) -> None:
        self.frames, self.plan, self.traced, self._one_task = frames, plan, traced, one_task
        self._counts, self._inputs = topic_partitions, inputs
        self._placements = place(plan, topic_partitions)
        self.scopes = Scopes(plan)
        self.top = self.scope = Scope(self._take)
        self.states: dict[str, StateRows] = {}
        self.untold: dict[str, str] = {}
        self.sinks: dict[nodes.Sink, DataFrame] = {}
        self._tables: set[Node] = set()

    def run(self) -> Results:
        """Compile every node; loops run meanwhile. Raises: DataError; LoopLimitError; ConnectorError of Spark's."""
        for node in self.plan.nodes:
            if node not in self.scopes.around:
                self.compile(node)
        return Results(self.states, self.sinks, self.untold)

    def _take(self, name: str, kind: str, node: Node, frame: DataFrame) -> None:
        self.states[name] = StateRows(kind, frame, node)

    def serdes(self, node: Node) -> tuple[Serde[Any], Serde[Any]]:
        """The serdes of a step's rows."""
        return self._placements[node].key, node.value or Native

    def rows(self, node: Node) -> DataFrame:
        """The rows of a step under its serdes, lying by key; those of a relation merged."""
        home = self.scope.home(node)
        if node not in home.rows:
            key, value = self.serdes(node)
            frame = home.pipes[node].under(self.frames, key, value, node.label)
            frame = self.frames.consolidated(frame) if node.kind == "relation" else self.frames.by_key(frame)
            self.know(node, frame, home)
        return home.rows[node]

    def know(self, node: Node, frame: DataFrame, home: Scope | None = None) -> None:
        """Take `frame` for the rows of a step, lying by key."""
        home = home or self.scope
        if home is self.top or home.captures:
            frame = self.frames.kept(frame)
        home.rows[node] = frame
        home[node] = Pipe(frame, RowsEntry(*self.serdes(node)))

    def known(self, node: Node, frame: DataFrame) -> None:
        """A new step, with its rows."""
        self.scope[node] = Pipe(frame, RowsEntry(*self.serdes(node)))
        self.know(node, frame)

    @singledispatchmethod
    def compile(self, node: Node) -> None:
        """Compile a step in the present scope."""
        raise NotImplementedError(f"nothing in Spark for {type(node).__name__}")

    @compile.register
    def _source(self, node: Source) -> None:
        key, value = self.serdes(node)
        assert node.key is not None
        assert node.value is not None
        facts = Pipe(self._inputs[node.topic], RowsEntry(node.key, node.value, True))
        if node.kind != "table":
            self.scope[node] = facts
            return
        self.known(node, self._latest_rows(facts.under(self.frames, key, value, node.label)))
        self._capture_table(node, node.name)

    @compile.register
    def _upsert(self, node: nodes.Upsert) -> None:
        key, value = self.serdes(node)
        facts = self.scope[node.inputs[0]].under(self.frames, key, value, node.label)
        self.known(node, self._latest_rows(facts))
        self._capture_table(node, node.name)

    def _latest_rows(self, facts: DataFrame) -> DataFrame:
        """The last value of each key; what has none is not there."""
        last = f.max_by(f.struct("kc", "v", "vc"), f.struct("s", "t")).alias("last")
        grouped = facts.repartition(self.frames.partitions, "k").groupBy("k").agg(last).where("last.v IS NOT NULL")
        return grouped.select("k", "last.kc", "last.v", "last.vc", f.lit(1).cast("long").alias("w"))

    def _capture_table(self, node: Node, name: str) -> None:
        self._tables.add(node)
        self.scope.capture(name, "table", node, self.rows(node))

    @compile.register
    def _transform(self, node: nodes.Transform) -> None:
        pipe = self.scope[node.inputs[0]]
        self.scope[node] = pipe if node.verb == "peek" else pipe.then(transformation(node))

    @compile.register
    def _merge(self, node: nodes.Merge) -> None:
        key, value = self.serdes(node)
        parts = [self.scope[source].under(self.frames, key, value, node.label) for source in node.inputs]
        facts = node.kind == "stream"
        whole = self.frames.union(parts, FACTS if facts else ROWS)
        self.scope[node] = Pipe(whole.select(*names(FACTS if facts else ROWS)), RowsEntry(key, value, facts))

    @compile.register
    def _latest(self, node: nodes.Latest) -> None:
        frame = self.frames.facts(self.rows(node.inputs[0]))
        self.scope[node] = Pipe(frame, RowsEntry(*self.serdes(node.inputs[0]), True))

    @compile.register
    def _exchange(self, node: nodes.Exchange) -> None:
        (source,) = node.inputs
        self.scope[node] = self.scope[source]
        if source in self._tables and node.sole and self._placements[source].partitions == 1:
            self._tables.add(node)

    @compile.register
    def _constant(self, node: nodes.Constant) -> None:
        key, value = self.serdes(node)
        zset = consolidate(node.rows, [1] * len(node.rows), f"constant '{node.name}'")
        columns = [*encode_rows(list(zset), key, value, f"constant '{node.name}'", False), list(zset.values())]
        frame = self.frames.rows(list(zip(*columns, strict=True)), ROWS)
        self.known(node, self.frames.by_key(frame))
        self.scope.capture(node.name, "arrangement", node, self.rows(node))

    def _grouped(self, node: Node, *within: Any) -> tuple[DataFrame, Serde[Any], Serde[Any]]:
        """What a step groups, lying by key; of a relation merged."""
        (source,) = node.inputs
        key, value = self.serdes(source)
        if source.kind != "stream":
            rows = self.rows(source)
            return (rows.sortWithinPartitions("k", *within) if within else rows), key, value
        facts = self.scope[source].under(self.frames, key, value, source.label)
        return self.frames.by_key(facts, *within), key, value

    def _as(self, node: Node, frame: DataFrame, key: Serde[Any], value: Serde[Any]) -> None:
        """The rows of a step, which are under these serdes."""
        wanted = self.serdes(node)
        if (key.name, value.name) != (wanted[0].name, wanted[1].name):
            frame = self.frames.by_key(Pipe(frame, RowsEntry(key, value)).under(self.frames, *wanted, node.label))
        self.known(node, frame)

    @compile.register
    def _count(self, node: nodes.Count) -> None:
        rows, key, _ = self._grouped(node)
        counted = rows.groupBy("k").agg(f.max("kc").alias("kc"), f.sum("w").alias("n")).where("n <> 0")
        none, one = f.lit(None).cast("binary").alias("vc"), f.lit(1).cast("long").alias("w")
        self._as(node, counted.select("k", "kc", be64(f.col("n")).alias("v"), none, one), key, Int64)
        self._reduction(node)

    @compile.register
    def _aggregate(self, node: nodes.Aggregate) -> None:
        facts = node.inputs[0].kind == "stream"
        rows, key, value = self._grouped(node, *(["t", "s"] if facts else [f.desc("w"), "v"]))
        out = self.serdes(node)
        taking = None if self.scope.nested else node.subtractor
        folding = FoldPass(node.name, key, value, *out, node.initial, node.adder, taking)
        folded = self.frames.through(rows, folding, FOLDED).where("n <> 0")
        folded = self.frames.by_key(folded)
        if self.scope is self.top and node.subtractor is not None:
            folded = self.frames.kept(folded)
            numbers = folded.select("k", "kc", be64(f.col("n")).alias("v"), f.lit(None).cast("binary").alias("vc"), "w")
            self.scope.capture(f"{node.name}-rows", "table", node, numbers)
        self.known(node, folded.select(*names(ROWS)))
        self._reduction(node)

    def _reduction(self, node: Node) -> None:
        """Capture what a count or an aggregate remembers."""
        if self.scope.nested:
            self._capture_made(node)
        else:
            self._capture_table(node, node.name)

    def _capture_made(self, node: Node) -> None:
        if self.scope.captures:
            (source,) = node.inputs
            self.scope.capture(node.name, "trace", source, self.rows(source))
            self.scope.capture(f"{node.name}-made", "trace", node, self.rows(node))

    @compile.register
    def _reduce(self, node: nodes.Reduce) -> None:
        (source,) = node.inputs
        rows, key, value = self._grouped(node, "v")
        made = MakePass(node.name, key, value, *self.serdes(node), making(node.function))
        self.known(node, self.frames.by_key(self.frames.through(rows, made, ROWS)))
        if self.scope.nested:
            self._capture_made(node)
        else:
            self.scope.capture(node.name, "arrangement", source, self.rows(source))

    @compile.register
    def _clamp(self, node: nodes.Clamp) -> None:
        (source,) = node.inputs
        rows, w = self.rows(source), f.col("w")
        clamped = rows.where("w > 0").withColumn("w", f.lit(1).cast("long") if node.form == "distinct" else w)
        self._as(node, clamped, *self.serdes(source))
        if self.scope.nested:
            self._capture_made(node)
        else:
            self.scope.capture(node.name, "arrangement", node, rows)

    @compile.register
    def _stream_table_join(self, node: nodes.StreamTableJoin) -> None:
        stream, table = node.inputs
        self._look_up(table, f"{node.name}-right")
        right_key, right = self.serdes(table)
        value = self.serdes(stream)[1]
        left = self.scope[stream].under(self.frames, right_key, value, stream.label)
        other = with_suffix(self.rows(table), {"k": "rk", "v": "r", "vc": "rc"})
        joined = left.join(other, left["k"] == other["rk"], "left" if node.left else "inner").drop("rk")
        self.scope[node] = Pipe(joined, LookedUpEntry(node.name, right_key, value, right, node.joiner))

    @compile.register
    def _table_join(self, node: nodes.TableJoin) -> None:
        for side, name in zip(node.inputs, ("left", "right"), strict=True):
            self._look_up(side, f"{node.name}-{name}")
        left, right = node.inputs
        key, value = self.serdes(left)
        how = {"inner": "inner", "left": "left", "outer": "full"}[node.join]
        one = with_suffix(self.rows(left), {"k": "lk", "kc": "lkc", "v": "v", "vc": "vc"})
        other = with_suffix(self._under_key(right, key), {"k": "rk", "kc": "rkc", "v": "r", "vc": "rc"})
        joined = one.join(other, one["lk"] == other["rk"], how).select(
            f.coalesce("lk", "rk").alias("k"), f.coalesce("lkc", "rkc").alias("kc"), "v", "vc", "r", "rc"
        )
        entry = TablesEntry(node.name, key, value, self.serdes(right)[1], node.joiner)
        self.scope[node] = Pipe(joined, entry)

    def _under_key(self, node: Node, key: Serde[Any]) -> DataFrame:
        """The rows of a step under another serde of keys."""
        own, value = self.serdes(node)
        if own.name == key.name:
            return self.rows(node)
        pipe = Pipe(self.rows(node), RowsEntry(own, value))
        return self.frames.by_key(pipe.under(self.frames, key, value, node.label))

    @compile.register
    def _join(self, node: nodes.Join) -> None:
        for side, name in zip(node.inputs, ("left", "right"), strict=True):
            self._look_up(side, f"{node.name}-{name}")
        left, right = node.inputs
        keys = [self.serdes(side)[0] for side in node.inputs]
        key = keys[0] if keys[0].name == keys[1].name else Native
        one = self._under_key(left, key)
        other = with_suffix(self._under_key(right, key), {"k": "rk", "v": "r", "vc": "rc", "w": "rw"})
        joined = one.join(other, one["k"] == other["rk"]).select(
            "k", "kc", "v", "vc", (f.col("w") * f.col("rw")).alias("w"), "r", "rc"
        )
        entry = JoinedEntry(node.name, key, self.serdes(left)[1], self.serdes(right)[1], node.merge)
        self.scope[node] = Pipe(joined, entry)

    def _look_up(self, side: Node, name: str) -> None:
        """Capture the state in which a join finds the rows of one of its sides."""
        if side not in self.scopes.around:
            if side.kind != "table":
                self.top.capture(name, "arrangement", side, self.rows(side))
            elif side not in self._tables:
                self._tables.add(side)
                self.top.capture(name, "table", side, self.rows(side))
        elif self.scope.captures:
            name = side.label if isinstance(side, nodes.Variable) and not self.scope.nested else name
            self.scope.capture(name, "trace" if self.scope.nested else "arrangement", side, self.rows(side))

    @compile.register
    def _reachable(self, node: nodes.Reachable) -> None:
        self._in_one_task(node)

    @compile.register
    def _tree_totals(self, node: nodes.TreeTotals) -> None:
        self._in_one_task(node)

    def _in_one_task(self, node: Node, limit: int | None = None) -> bool:
        """A step that is computed in one task, where it is within its limit. Returns whether it was."""
        reads = {source.name: source for source in self.scopes.reads(node)}
        results = self.plan.made_by(node)
        part = Part(
            self.plan,
            self._counts,
            node,
            limit,
            reads={name: self.serdes(source) for name, source in reads.items()},
            makes={result.name: self.serdes(result) for result in results},
            skips=(skips := self._looked_up(node)),
        )
        made = part.of_rows(self.frames, {name: self.rows(source) for name, source in reads.items()})
        if limit is not None and made.told()[0]:
            return False
        for name in part.circuit().states.keys() - skips:
            self.scope.capture(name, "encoded", node, made.state(name))
        for result in results:
            self.known(result, self.frames.by_key(made.rows(result.name)))
        return True

    def _looked_up(self, loop: Node) -> set[str]:
        """The names of the states outside a loop that joins in it look into; they are captured as elsewhere."""
        found = set()
        for step in self.scopes.deep([loop])[1:]:
            for side, name in zip(step.inputs, ("left", "right"), strict=False):
                if isinstance(step, nodes.Join) and side not in self.scopes.around:
                    self._look_up(side, f"{step.name}-{name}")
                    found.add(f"{step.name}-{name}")
        return found

    @compile.register
    def _sink(self, node: nodes.Sink) -> None:
        (source,) = node.inputs
        pipe = self.scope[source]
        key, value = sink_serdes(self.plan, self._counts)[node]
        exit_ = SentExit(node.topic, key, value, pipe.facts)
        frame = pipe.frame if pipe.facts else pipe.frame.where("w > 0") if "w" in pipe.frame.columns else pipe.frame
        self.sinks[node] = self.frames.through(frame, Pass(pipe.entry, pipe.steps, exit_), exit_.schema)

    @compile.register
    def _recursion(self, node: nodes.Recursion) -> None:
        from eddy.connectors.spark import rounds, waves

        if self._fits(node):
            return
        if node.nested or node in self.scopes.around:
            rounds.run(self, node)
        else:
            waves.run(self, node)

    @compile.register
    def _block(self, node: nodes.Block) -> None:
        from eddy.connectors.spark import rounds

        if not self._fits(node):
            rounds.run(self, node)

    def _fits(self, loop: Loop) -> bool:
        """Compute a loop in one task, where it is small and of relations alone. Returns whether it was."""
        fits = self._one_task and loop.kind != "stream" and loop not in self.scopes.around
        return bool(fits) and self._in_one_task(loop, self._one_task)

    @compile.register
    def _binding(self, node: nodes.Binding) -> None:
        """The loop has left the pipes of its bindings."""
