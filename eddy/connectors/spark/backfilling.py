"""Backfill: writes the states and outputs that a worker would have after the whole input, for a worker to continue.

    1  pin the ends of the inputs, and of global tables; compute all results, so that data errors precede all writes
    2  make the internal topics; record the backfill, with its offsets, in `<app>-plan`, so that no worker starts
    3  write changelogs and outputs
    4  set the group's positions
    5  write plan, incarnation and a cut, and that the backfill has finished, in one transaction

A backfill that was killed continues when it is run again. Before stage 2 nothing is written. From stage 2 on the record
of the backfill has the offsets and files that it reads, and the offsets at which its outputs begin. No row is written
twice. After stage 5 another run has nothing to do, unless a worker has continued from the results.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from eddy.connectors.csv_rows import Empty
from eddy.connectors.log import Log, Position, TopicPartition
from eddy.connectors.spark.arrival_order import order_dependent
from eddy.connectors.spark.backfill_checks import BackfillChecks, check_steps, plan_lines
from eddy.connectors.spark.changelog import changelog_rows
from eddy.connectors.spark.computation import Application, Computation, Computed
from eddy.connectors.spark.cut_clocks import CutClocks
from eddy.connectors.spark.files.history import Columns, Files, History, noted, read_histories
from eddy.connectors.spark.frames import Frames, names, spark_errors, without_tail
from eddy.connectors.spark.global_joins import GlobalJoins
from eddy.connectors.spark.inputs import OffsetRange, OpenLog, read_topics
from eddy.connectors.spark.result_writing import OUTGOING, DeadLetters, Writing, write_topics
from eddy.connectors.spark.session import ONE_TASK
from eddy.errors import ConnectorError
from eddy.operators.operator import NO_CLOCKS
from eddy.runtime.internal_topics import DEAD_LETTER, InternalTopics
from eddy.runtime.metadata import FilesRead, Finished, Unfinished, write_finished, write_plan, write_unfinished
from eddy.runtime.own_positions import CUT, write_positions
from eddy.runtime.quiescence import Counters, Cut
from eddy.runtime.table_versions import summed, write_versions
from eddy.topology.compiler.circuit_compiler import sink_serdes
from eddy.topology.plan.identity import topics_of
from eddy.topology.topology import Topology

__all__ = ["Backfill", "Backfilled"]

_REPLAY = "Let the worker replay the input: eddy run …"


@dataclass(frozen=True)
class Backfilled:
    """The result of a backfill: its cut, remarks, and how many records it has written, by topic, and rejected.

    `already` is True if an earlier run had finished, so that this run had nothing to do.
    """

    cut: Cut
    written: dict[str, int]
    left_out: int
    remarks: list[str]
    already: bool = False


@dataclass
class Backfill:
    """One backfill of an application.

    `empty` is the meaning of empty cells in CSV files. With `replace` existing state is deleted first. `stage` is
    called with the name of each stage. `wall` returns the seconds since 1970.
    """

    topology: Topology
    spark: SparkSession
    log: Log
    open_log: OpenLog
    on_error: str = "fail"
    files: Files = field(default_factory=dict)
    empty: Empty = None
    columns: Columns = field(default_factory=dict)
    retained_only: bool = False
    replace: bool = False
    one_task: int = ONE_TASK
    program: str | None = None
    stage: Callable[[str], None] = lambda name: None
    wall: Callable[[], float] = time.time

    def run(self) -> Backfilled:
        """Run the backfill. Raises: ConfigurationError if it is refused; DataError; LoopLimitError; ConnectorError."""
        self.stage("checks")
        application = Application.of(self.topology, self.log, anew=self.replace)
        checks = BackfillChecks(application, self.replace, self.retained_only)
        frames = Frames(self.spark, self.program, f"backfill {self.topology.name}")
        try:
            check_steps(self.topology, self.spark, self.one_task)
            checks.idle()
            histories = read_histories(
                frames, self.topology.name, application.sources, self.files, self.empty, self.columns
            )
            files = noted(histories)
            if (cut := checks.finished(files)) is not None:
                return Backfilled(cut, {}, 0, [], already=True)
            unfinished = checks.begun(files)
            topic_ids = unfinished.topic_ids if unfinished else self._topic_ids(application)
            checks.made_anew(topic_ids)
            pinned = Cut(unfinished.inputs, {}, tables=unfinished.tables) if unfinished else self._pinned(application)
            tick = unfinished.tick if unfinished else self._tick(application)
            letters_end = unfinished.outputs[application.internal.dead_letter][0] if unfinished else None
            computation = self._computation(application, frames, pinned, histories, tick, letters_end=letters_end)
            checks.topics(computation)
            self._enter(frames, "compute")
            computed = computation.run()
            checks.states(computed)
            states, outputs = self._states(computed), self._outputs(computed, checks)
            left_out = computed.left_out()
            if not computed.settled:
                states, outputs = frames.kept(states), frames.kept(outputs)
                with spark_errors():
                    states.unionByName(outputs).count()
            if unfinished:
                checks.compacted(frames, self.open_log, pinned)
            begun = unfinished or self._begin(application, pinned, topic_ids, files, tick)
            writing = Writing(self.open_log, f"{self.topology.name}-backfill", begun.outputs, computed.latest)
            written: dict[str, int] = {}
            for what, frame in (("changelogs", states), ("outputs", outputs)):
                self._enter(frames, f"write {what}")
                written |= write_topics(frames, frame, writing, self.log.partitioner)
            self._enter(frames, "finish")
            cut = self._finish(computed, checks, begun, files)
            return Backfilled(cut, written, left_out, self._remarks(computation))
        finally:
            frames.release()

    def _enter(self, frames: Frames, stage: str) -> None:
        self.stage(stage)
        frames.jobs.stage(stage)

    def _computation(
        self,
        application: Application,
        frames: Frames,
        pinned: Cut,
        histories: Mapping[str, History],
        tick: int,
        **options: Any,
    ) -> Computation:
        """Make the computation of the inputs up to the pinned offsets; `tick` is the time of the wall clock."""
        clocks = CutClocks(ticks={count: [tick] * count for count in _positions(application).values()})
        return Computation(
            application,
            frames,
            self.open_log,
            pinned.inputs,
            self.on_error,
            histories,
            self.retained_only,
            one_task=self.one_task,
            clocks=clocks,
            global_joins=GlobalJoins.at(self.log, pinned),
            **options,
        )

    def _topic_ids(self, application: Application) -> dict[str, int]:
        """Return the ids of the inputs and of the topics of global tables, as far as the log knows them."""
        return self.log.topic_ids({tp.topic for tp in (*application.inputs(), *application.table_partitions())})()

    def _pinned(self, application: Application) -> Cut:
        """Return the end offsets of the inputs and of global tables."""
        return Cut(self._ends(application.inputs()), {}, tables=self._ends(application.table_partitions()))

    def _ends(self, partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
        return Cut.by_topic(self.log.end_offsets(partitions))

    def _states(self, computed: Computed) -> DataFrame:
        """Return the records for changelogs."""
        results = computed.results
        changelogs = []
        for name, state in computed.application.circuit.states.items():
            if state.spec.changelog is not None:
                rows = changelog_rows(results.states[name]).withColumns(_stamps(state.spec.changelog))
                rows = rows.withColumn("k", without_tail(f.col("k"), state.spec.key.tail))
                changelogs.append(rows.select(*names(OUTGOING)))
        return computed.frames.union(changelogs, OUTGOING)

    def _outputs(self, computed: Computed, checks: BackfillChecks) -> DataFrame:
        """Return the records of sinks, tombstones for keys that are no longer in their tables, and dead letters."""
        results, frames = computed.results, computed.frames
        serdes = sink_serdes(self.topology.plan, computed.application.counts)
        outputs = []
        for sink, sent in results.sinks.items():
            tail = serdes[sink][0].tail
            columns = {"topic": f.lit(sink.topic), "key": f.col("k"), "value": f.col("v")}
            rows = sent.withColumns(columns).select(*names(OUTGOING))
            rows = rows.withColumn("k", without_tail(f.col("k"), tail))
            outputs.append(rows)
            if sink.kind != "stream" and (held := checks.held_before(sink.topic)):
                outputs.append(self._gone(frames, sink.topic, held, rows))
        if self.on_error == DEAD_LETTER and computed.bad is not None:
            letters = DeadLetters(computed.application.internal.dead_letter)
            outputs.append(frames.through(computed.bad, letters, OUTGOING))
        return frames.union(outputs, OUTGOING)

    def _gone(self, frames: Frames, topic: str, held: list[OffsetRange], rows: DataFrame) -> DataFrame:
        """Return tombstones for keys that are in the offsets `held` of an output topic, and not in its new `rows`."""
        before = read_topics(frames, self.open_log, {topic: held}).where("k IS NOT NULL")
        last = before.groupBy("k").agg(f.max_by(f.struct("v"), "o").alias("last")).where("last.v IS NOT NULL")
        gone = last.join(rows.select("k"), "k", "left_anti")
        tombstones = gone.withColumns({"key": f.col("k"), "value": f.lit(None).cast("binary")})
        return tombstones.withColumns(_stamps(topic)).select(*names(OUTGOING))

    def _tick(self, application: Application) -> int:
        """Return the wall-clock time in milliseconds if rows of the plan expire by the wall clock, otherwise -1."""
        return round(self.wall() * 1000) if application.circuit.reads.wall else -1

    def _begin(
        self,
        application: Application,
        pinned: Cut,
        topic_ids: dict[str, int],
        files: dict[str, FilesRead],
        tick: int,
    ) -> Unfinished:
        """Delete state to be replaced, make the internal topics, and record that the backfill begins."""
        self.stage("begin")
        internal = application.internal
        if self.replace:
            self.log.delete_group(self.topology.name)
            known = {name for lines in application.metadata.plans for name in topics_of(self.topology.name, lines)}
            mine = {*known, *internal.changelogs, *internal.exchanges, internal.cuts, internal.plan}
            self.log.delete_topics(self.log.topics(mine - application.specs.keys()))
        internal.make(self.log)
        outputs = {name: application.counts[name] for name in application.specs} | internal.changelogs
        outputs |= {internal.dead_letter: 1}
        for source in (*application.sources, *self.topology.plan.global_tables()):
            outputs.pop(source.topic, None)
        for sink in application.topology.plan.sinks():
            outputs[sink.topic] = application.counts[sink.topic]
        begins = self._ends(TopicPartition(topic, p) for topic, count in outputs.items() for p in range(count))
        begun = Unfinished(pinned.inputs, begins, plan_lines(application), files, tick, pinned.tables, topic_ids)
        with _transaction(self.log, internal) as producer:
            write_unfinished(producer, internal.plan, begun)
        return begun

    def _finish(
        self, computed: Computed, checks: BackfillChecks, begun: Unfinished, files: dict[str, FilesRead]
    ) -> Cut:
        """Set the group's positions, then write the metadata that lets a worker start."""
        application, clocks, name = computed.application, computed.clocks, self.topology.name
        internal = application.internal
        offsets = {TopicPartition(t, p): end for t, ends in begun.inputs.items() for p, end in enumerate(ends)}
        counters: dict[TopicPartition, Counters] = {}
        if application.circuit.reads != NO_CLOCKS:
            counts = _positions(application)
            counters = clocks.counters(
                [TopicPartition(t, p) for t, count in counts.items() for p in range(count)], counts
            )
            offsets = self.log.begin_offsets(tp for tp, found in counters.items() if found.tick >= 0) | offsets
        checks.made_anew(begun.topic_ids)
        noted = {tp: counters.get(tp, Counters()).copy() for tp in offsets}
        for tp, found in noted.items():
            found.topic = begun.topic_ids.get(tp.topic, -1)
        joins = computed.computation.global_joins
        versions = [version for found in joins.versions.values() for version in found] if joins else []
        for first in versions:
            found = noted[TopicPartition(first.topic, first.partition)]
            found.tables, found.offsets_hash = summed(first.tables)
            # Records of files precede all offsets, so no later version may replace the first version.
            found.versions, found.since = first.number, -1 if first.topic in files else first.position
        positions = {tp: Position(at, noted[tp].note()) for tp, at in offsets.items()}
        if self.log.groups().get(name):
            raise ConnectorError(f"{checks.where}: a worker has started meanwhile; stop it, and run the backfill again")
        self.log.set_positions(name, positions)
        written = {topic: 1 for topic in begun.outputs if topic != internal.dead_letter}
        ends = self._ends(TopicPartition(t, p) for t in written for p in range(len(begun.outputs[t])))
        cut = Cut(begun.inputs, ends, tables=begun.tables).with_clocks(counters)
        now = round(self.wall() * 1000)
        with _transaction(self.log, internal) as producer:
            write_plan(
                producer,
                internal.plan,
                application.lines,
                min(application.metadata.incarnations, default=uuid.uuid4().hex),
            )
            write_finished(producer, internal.plan, Finished(begun.inputs, files))
            write_positions(producer, internal.cuts, positions, 0)
            write_versions(producer, internal.cuts, versions, now)
            producer.send(internal.cuts, 0, [CUT], [cut.encode()], [now])
        return cut

    def _remarks(self, computation: Computation) -> list[str]:
        dependent = order_dependent(self.topology.plan, computation.application.counts)
        steps = [f"step '{name}' was computed as in one epoch, since it is {why}" for name, why in dependent.items()]
        return [*filter(None, (history.remark(topic) for topic, history in computation.histories.items())), *steps]


class _transaction:  # noqa: N801 - reads as a part of a sentence
    """One transaction of the job's own producer, committed at the end of the block."""

    def __init__(self, log: Log, internal: InternalTopics) -> None:
        self._producer = log.producer(f"{internal.application}-backfill")

    def __enter__(self):  # type: ignore[no-untyped-def]
        self._producer.begin()
        return self._producer

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None:
                self._producer.commit({}, None)
        finally:
            self._producer.close()


def _positions(application: Application) -> dict[str, int]:
    """Return the topics whose positions have a worker's clocks, with their partition counts.

    Topics of constants are left out.
    """
    internal = application.internal
    exchanges = {topic: count for topic, count in internal.exchanges.items() if topic not in internal.constants}
    return {source.topic: application.counts[source.topic] for source in application.sources} | exchanges


def _stamps(topic: str) -> dict[str, Column]:
    """Return the columns that all outgoing records of a topic have in common."""
    none = f.lit(None)
    return {"topic": f.lit(topic), "t": none.cast("long"), "s": f.lit(b""), "h": none.cast("binary")}
