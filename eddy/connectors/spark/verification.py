"""Verify: is what a worker holds and has written what its inputs make, at one cut?

A cut names offsets of the inputs and those of outputs and changelogs at which these are exactly f(inputs). All of
it is read up to there, and f is computed anew, so that a worker may go on meanwhile.

    equal            every sink and every state that was compared holds what it should
    different        some do not; each key that differs is named, with what was expected and what was found
    could not tell   what arrival order decides, what is no longer there, what the input does not determine

In a compacted topic a record from behind the cut may have taken the place of one before it: a key that differs and
has such a record is counted as moved on, and not as different.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from eddy.connectors.log import Log, TopicPartition
from eddy.connectors.quiescence import Cut
from eddy.connectors.spark.beside import BESIDE, beside
from eddy.connectors.spark.changelog import changelog_rows
from eddy.connectors.spark.computation import Application, Computation
from eddy.connectors.spark.frames import Frames, names, told
from eddy.connectors.spark.inputs import OpenLog, Stretch, read_topics
from eddy.connectors.spark.order import order_dependent, tainted
from eddy.connectors.spark.readable import Readable
from eddy.connectors.spark.repair import Repair
from eddy.connectors.spark.session import ONE_TASK
from eddy.connectors.spark.verdict import Compared, Example, Verdict
from eddy.errors import ConfigurationError
from eddy.topology.identity import check_identity
from eddy.topology.plan import Node, Sink
from eddy.topology.topology import Topology

__all__ = ["MISMATCHES", "Verify", "last_cut"]

MISMATCHES = (
    "part string, name string, key binary, expected binary, found binary, times_expected long, times_found long"
)
"""The columns of the mismatches: of a sink or a store, as bytes."""
_EXAMPLES = 10
_POLL_S = 0.2


@dataclass(frozen=True)
class _Part:
    """A topic to be compared with what is expected: rows of columns `k` and `v`, facts or the latest of each key."""

    what: str
    name: str
    topic: str
    partitions: int
    expected: DataFrame
    facts: bool
    readable: Readable
    nodes: tuple[Node, ...]


@dataclass
class Verify:
    """One verification. `commutes` names folds of streams that give the same in any order; `repair` corrects tables."""

    topology: Topology
    spark: SparkSession
    log: Log
    open_log: OpenLog
    on_error: str = "fail"
    commutes: Collection[str] = ()
    mismatches: str | None = None
    cut: Cut | None = None
    wait_s: float = 60.0
    stores: bool = True
    one_task: int = ONE_TASK
    repair: bool = False
    program: str | None = None
    stage: Callable[[str], None] = lambda name: None
    files: Mapping[str, str] = field(default_factory=dict)

    def run(self) -> Verdict:
        """Do it. Raises: ConfigurationError; DataError; LoopLimitError; ConnectorError."""
        self.stage("checks")
        application = Application.of(self.topology, self.log)
        name = self.topology.name
        if self.repair and not self.stores:
            raise ConfigurationError(
                f"verify of application '{name}': a repair without stores; only what tables hold can be corrected. "
                "Leave out one of --repair and --no-stores"
            )
        if application.memory.plan is None:
            raise ConfigurationError(
                f"verify of application '{name}': it has not run on this log; there is nothing to verify. Start it: "
                "eddy run …"
            )
        check_identity(name, application.memory.plan, application.lines)
        self.stage("cut")
        cut = self.cut or self._cut(application)
        frames = Frames(self.spark, self.program)
        try:
            computation = Computation(
                application,
                frames,
                self.open_log,
                cut.inputs,
                self.on_error,
                self.files,
                traced=self.stores,
                one_task=self.one_task,
            )
            computation.check()
            self.stage("compute")
            computation.run()
            verdict, differing = self._compared(computation, cut)
            if not verdict.differs:
                return verdict
            if self.mismatches:
                self.stage("mismatches")
                with told():
                    differing.select(*names(MISMATCHES)).write.mode("overwrite").parquet(self.mismatches)
            repaired = None
            if self.repair:
                judge = lambda found, within: self._compared(found, cut, within)[0]  # noqa: E731
                repaired = Repair(computation, cut, judge, self.stage).run(verdict, differing)
            return replace(verdict, mismatches=self.mismatches, repaired=repaired)
        finally:
            frames.release()

    def _cut(self, application: Application) -> Cut:
        """The last cut, waited for where there is none. Raises: ConfigurationError."""
        deadline = time.monotonic() + self.wait_s
        while (cut := last_cut(self.log, application.internal.cuts)) is None:
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    f"verify of application '{self.topology.name}': there was no cut within {self.wait_s:g} s; a "
                    "worker has to run until it is quiescent once, or alone for a second. Start one: eddy run …"
                )
            time.sleep(_POLL_S)
        return cut

    def _compared(
        self, computation: Computation, cut: Cut, within: Collection[Node] | None = None
    ) -> tuple[Verdict, DataFrame]:
        """The verdict, and the rows that differ; where `within` is given, of these steps alone."""
        plan = self.topology.plan
        dependent = order_dependent(plan, computation.application.counts, self.commutes)
        behind = tainted(plan, dependent)
        steps = {node.name for node in plan.nodes if within is None or node in within}
        untold = {f"step '{name}'": why for name, why in dependent.items() if name in steps}
        notes: dict[str, str] = {}
        parts = []
        topics = {sink.topic for sink in computation.results.sinks if within is None or sink in within}
        for part in [
            *self._sinks(computation, topics, untold),
            *(self._stores(computation, notes) if self.stores else []),
        ]:
            if within is not None and not any(node in within for node in part.nodes):
                continue
            if steps_before := [behind[node] for node in part.nodes if node in behind]:
                untold.setdefault(f"{part.what} '{part.name}'", f"it is behind step '{steps_before[0]}'")
            elif why := self._unreadable(part, cut):
                untold[f"{part.what} '{part.name}'"] = why
            else:
                parts.append(part)
        compared, differing = self._compare(computation.frames, parts, cut)
        return Verdict(self.topology.name, cut, compared, untold, notes, computation.left_out()), differing

    def _sinks(self, computation: Computation, within: set[str], untold: dict[str, str]) -> list[_Part]:
        """A part for each of these topics that sinks write to."""
        by_topic: dict[str, list[Sink]] = {}
        for sink in computation.results.sinks:
            if sink.topic in within:
                by_topic.setdefault(sink.topic, []).append(sink)
        parts = []
        for topic, sinks in by_topic.items():
            kinds = {sink.kind == "stream" for sink in sinks}
            if len(kinds) > 1:
                untold[f"sink '{topic}'"] = "a stream and a table write to it, so that it is neither"
                continue
            whole = computation.frames.union([computation.results.sinks[s].select("k", "v") for s in sinks], "")
            readable = Readable.of_sink(self.topology.plan, computation.application.counts, sinks[0])
            count = computation.application.counts[topic]
            parts.append(_Part("sink", topic, topic, count, whole, kinds.pop(), readable, tuple(sinks)))
        return parts

    def _stores(self, computation: Computation, notes: dict[str, str]) -> list[_Part]:
        """A part for each state that has a changelog."""
        results, parts = computation.results, []
        for name, state in computation.application.circuit.states.items():
            if state.spec.changelog is None:
                notes[f"store '{name}'"] = f"not compared: its topic '{state.spec.source}' is its changelog"
            elif name not in results.states:
                notes[f"store '{name}'"] = f"not compared: {results.untold.get(name, 'nothing computes it')}"
            else:
                rows = changelog_rows(results.states[name]).select(f.col("key").alias("k"), f.col("value").alias("v"))
                topic, count, of = state.spec.changelog, state.spec.partitions, (results.states[name].node,)
                parts.append(_Part("store", name, topic, count, rows, False, Readable.of_state(state.spec), of))
        return parts

    def _unreadable(self, part: _Part, cut: Cut) -> str:
        """Why a topic does not hold any more what it held at the cut; empty where it does."""
        spec = self.log.topics([part.topic])[part.topic]
        partitions = [TopicPartition(part.topic, p) for p in range(part.partitions)]
        if part.topic not in cut.outputs:
            return "the cut does not name its topic"
        if part.facts and spec.compacted:
            return "its topic is compacted, and so does not hold every record of a stream"
        begins = self.log.begin_offsets(partitions)
        if gone := [tp for tp, begin in begins.items() if begin]:
            return f"partition {gone[0].partition} of its topic begins at offset {begins[gone[0]]}: records are gone"
        return ""

    def _compare(self, frames: Frames, parts: list[_Part], cut: Cut) -> tuple[list[Compared], DataFrame]:
        """Compare all parts at once. Returns each part's result, and the rows that differ."""
        self.stage("compare")
        named = frames.rows(
            [(part.topic, part.what, part.name) for part in parts], "topic string, part string, name string"
        )
        sides = []
        for facts in (False, True):
            if chosen := [part for part in parts if part.facts is facts]:
                found = read_topics(frames, self.open_log, {part.topic: _until(cut, part.topic) for part in chosen})
                expected = [part.expected.withColumn("topic", f.lit(part.topic)) for part in chosen]
                sides.append(beside(frames.union(expected, ""), found, facts))
        joined = frames.kept(frames.union(sides, BESIDE))
        with told():
            rows = (
                joined.groupBy("topic").agg(f.count("*").alias("keys"), f.count_if("differs").alias("differ")).collect()
            )
        counts = {row["topic"]: (row["keys"], row["differ"]) for row in rows}
        differing = joined.where("differs").join(named, "topic")
        left = {topic: differ for topic, (_, differ) in counts.items()}
        examples: dict[str, list[Example]] = {}
        if any(left.values()):
            later = self._later(frames, [part for part in parts if left.get(part.topic) and not part.facts], cut)
            if later is not None:
                differing = differing.join(later, ["topic", "k"], "left_anti")
            differing = frames.kept(differing)
            examples, left = _examples(parts, differing)
        results = []
        for part in parts:
            keys, differ = counts.get(part.topic, (0, 0))
            still = left.get(part.topic, 0)
            results.append(Compared(part.what, part.name, keys, still, differ - still, examples.get(part.topic, [])))
        return results, differing.withColumnRenamed("k", "key")

    def _later(self, frames: Frames, parts: list[_Part], cut: Cut) -> DataFrame | None:
        """The keys that have records behind the cut, where these may have taken the place of earlier ones."""
        specs = self.log.topics([part.topic for part in parts])
        stretches = {}
        for part in parts:
            if specs[part.topic].compacted:
                ends = self.log.end_offsets(TopicPartition(part.topic, p) for p in range(part.partitions))
                behind = [
                    Stretch(p, at, ends[TopicPartition(part.topic, p)]) for p, at in enumerate(cut.outputs[part.topic])
                ]
                stretches[part.topic] = [stretch for stretch in behind if stretch.start < stretch.end]
        if not any(stretches.values()):
            return None
        return read_topics(frames, self.open_log, stretches).select("topic", "k").distinct()


def _until(cut: Cut, topic: str) -> list[Stretch]:
    return [Stretch(partition, 0, end) for partition, end in enumerate(cut.outputs[topic])]


def _examples(parts: list[_Part], differing: DataFrame) -> tuple[dict[str, list[Example]], dict[str, int]]:
    """The first rows that differ of each topic, as people read them; and how many there are."""
    order = Window.partitionBy("topic").orderBy("k", "expected", "found")
    all_of = Window.partitionBy("topic")
    numbered = differing.withColumn("at", f.row_number().over(order)).withColumn("of", f.count("*").over(all_of))
    with told():
        rows = numbered.where(f.col("at") <= _EXAMPLES).orderBy("topic", "at").collect()
    readable = {part.topic: part.readable for part in parts}
    examples: dict[str, list[Example]] = {}
    for row in rows:
        read = readable[row["topic"]]
        examples.setdefault(row["topic"], []).append(
            Example(
                read.key(row["k"]),
                read.value(row["k"], row["expected"], row["times_expected"]),
                read.value(row["k"], row["found"], row["times_found"]),
            )
        )
    return examples, {row["topic"]: row["of"] for row in rows}


def last_cut(log: Log, topic: str) -> Cut | None:
    """The last cut that a worker wrote, None where there is none."""
    if not log.topics([topic]):
        return None
    tp = TopicPartition(topic, 0)
    position, end = log.begin_offsets([tp])[tp], log.end_offsets([tp])[tp]
    last = None
    while position < end:
        records = log.read(tp, position, end, 1_000)
        if records.next_offset == position:
            break
        position = records.next_offset
        last = next((value for value in reversed(records.values) if value is not None), last)
    return None if last is None else Cut.decode(last)
