"""Backfill: writes the states and outputs that a worker would have after the whole input, so that it continues from
there.

    1  pin the ends of the inputs, and of global tables; compute everything: data errors show before anything is written
    2  make the internal topics; record the backfill, with its offsets, in `<app>-plan`: no worker starts from here on
    3  write changelogs and outputs
    4  set the group's positions
    5  write plan, incarnation and a cut, and that the backfill has finished, in one transaction

A backfill that was killed continues when it is run again. Before stage 2 nothing is written; from stage 2 on the record
of the backfill has the offsets and files that it reads, and the offsets at which its outputs begin. No row is written
twice. After stage 5 another run has nothing to do, unless a worker has continued from there.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from eddy.connectors.csv_rows import Empty
from eddy.connectors.log import Log, Position, TopicPartition
from eddy.connectors.spark.arrival_order import order_dependent
from eddy.connectors.spark.changelog import changelog_rows
from eddy.connectors.spark.compacted_inputs import compacted_below
from eddy.connectors.spark.computation import Application, Computation, Computed, last_cut
from eddy.connectors.spark.cut_clocks import CutClocks
from eddy.connectors.spark.frames import Frames, names, spark_errors, without_tail
from eddy.connectors.spark.global_joins import GlobalJoins
from eddy.connectors.spark.history import Columns, Files, History, described, noted, options, read_histories, unlike
from eddy.connectors.spark.inputs import OffsetRange, OpenLog, read_topics
from eddy.connectors.spark.result_writing import OUTGOING, DeadLetters, Writing, write_topics
from eddy.connectors.spark.session import ONE_TASK, check_one_task
from eddy.errors import ConfigurationError, ConnectorError
from eddy.operators.operator import NO_CLOCKS
from eddy.runtime.internal_topics import DEAD_LETTER, InternalTopics
from eddy.runtime.metadata import FilesRead, Finished, Unfinished, write_finished, write_plan, write_unfinished
from eddy.runtime.own_positions import CUT, committed, write_positions
from eddy.runtime.quiescence import Counters, Cut
from eddy.runtime.table_versions import summed, write_versions
from eddy.topology.compiler.circuit_compiler import sink_serdes
from eddy.topology.plan.expiring_tables import ExpiringTable
from eddy.topology.plan.identity import topics_of
from eddy.topology.plan.valid_relations import ValidRows
from eddy.topology.topology import Topology

__all__ = ["Backfill", "Backfilled"]

_REPLAY = "Let the worker replay the input: eddy run …"


@dataclass(frozen=True)
class Backfilled:
    """The result of a backfill: its cut, records written by topic, the number of records rejected, remarks.

    `already`: an earlier run had finished, so that this one had nothing to do.
    """

    cut: Cut
    written: dict[str, int]
    left_out: int
    remarks: list[str]
    already: bool = False


@dataclass
class Backfill:
    """One backfill. `empty` is the meaning of empty cells in CSV files; `replace` deletes existing state first; `stage`
    is called with the name of each stage; `wall` returns the seconds since 1970.
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
        frames = Frames(self.spark, self.program, f"backfill {self.topology.name}")
        try:
            self._check_steps()
            self._check_idle()
            histories = read_histories(
                frames, self.topology.name, application.sources, self.files, self.empty, self.columns
            )
            files = noted(histories)
            if (done := self._done(application, files)) is not None:
                return done
            unfinished = self._may_begin(application, files)
            topic_ids = unfinished.topic_ids if unfinished else self._topic_ids(application)
            self._check_made_anew(topic_ids)
            pinned = Cut(unfinished.inputs, {}, tables=unfinished.tables) if unfinished else self._pinned(application)
            tick = unfinished.tick if unfinished else self._tick(application)
            letters_end = unfinished.outputs[application.internal.dead_letter][0] if unfinished else None
            computation = self._computation(application, frames, pinned, histories, tick, letters_end=letters_end)
            self._check(computation)
            self._enter(frames, "compute")
            computed = computation.run()
            self._check_states(computed)
            states, outputs = self._states(computed), self._outputs(computed)
            left_out = computed.left_out()
            if not computed.settled:
                states, outputs = frames.kept(states), frames.kept(outputs)
                with spark_errors():
                    states.unionByName(outputs).count()
            if unfinished:
                self._check_compacted(application, frames, pinned)
            begun = unfinished or self._begin(application, pinned, topic_ids, files, tick)
            writing = Writing(self.open_log, f"{self.topology.name}-backfill", begun.outputs, computed.latest)
            written: dict[str, int] = {}
            for what, frame in (("changelogs", states), ("outputs", outputs)):
                self._enter(frames, f"write {what}")
                written |= write_topics(frames, frame, writing, self.log.partitioner)
            self._enter(frames, "finish")
            cut = self._finish(computed, begun, files)
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
        """The computation of the inputs up to the pinned offsets, at this time of the wall clock."""
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

    def _check_steps(self) -> None:
        check_one_task(self.spark, self.one_task)
        plan = self.topology.plan
        as_of_offsets = {*plan.global_tables(), *plan.global_joins()}
        for node in plan.nodes:
            if node.only_by_worker and node not in as_of_offsets:
                raise ConfigurationError(
                    f"backfill of application '{self.topology.name}': a worker alone computes step '{node.name}': "
                    f"{node.only_by_worker}. Let a worker read the input from its beginning: eddy run …"
                )

    def _check_idle(self) -> None:
        if self.log.groups().get(self.topology.name):
            raise ConfigurationError(
                f"backfill of application '{self.topology.name}': a worker of it runs on this log; it has to be "
                "stopped. Stop eddy run"
            )

    def _done(self, application: Application, files: Mapping[str, FilesRead]) -> Backfilled | None:
        """The result of an earlier, finished run of this plan and these files, if no worker has continued since."""
        finished, metadata, internal = application.metadata.finished, application.metadata, application.internal
        if self.replace or finished is None or metadata.plan != application.lines or not _same(finished.files, files):
            return None
        positions = committed(self.log, self.topology.name, application.inputs())
        at = {(tp.topic, tp.partition): position.offset for tp, position in positions.items()}
        if at != {(topic, p): end for topic, ends in finished.inputs.items() for p, end in enumerate(ends)}:
            return None
        if (cut := last_cut(self.log, internal.cuts)) is None or internal.make(self.log, create=False):
            return None
        return Backfilled(msgspec.structs.replace(cut, inputs=finished.inputs), {}, 0, [], already=True)

    def _may_begin(self, application: Application, files: Mapping[str, FilesRead]) -> Unfinished | None:
        """Refuse if the application has state. Returns the record of an unfinished backfill, if there is one."""
        name, log = self.topology.name, self.log
        where = f"backfill of application '{name}'"
        begun = application.metadata.backfill
        if self.replace:
            self._check_replaced(application, files)
            return None
        if begun is not None:
            if begun.plan != _lines(application):
                raise ConfigurationError(
                    f"{where}: an unfinished backfill was made with another topology. Restore that topology to "
                    f"continue it, or begin anew: --replace"
                )
            if begun.files is not None and not _same(begun.files, files):
                raise ConfigurationError(
                    f"{where}: one has begun from other files: {described(begun.files) or 'none'}; those given now are "
                    f"{described(files) or 'none'}. Give the same files to continue it: "
                    f"{options(begun.files) or 'no --input'}; or begin anew: --replace"
                )
            return begun
        found = []
        if log.committed(name, application.inputs()):
            found.append("positions")
        if application.metadata.plan is not None:
            found.append("a plan")
        there = log.topics(application.internal.changelogs)
        ends = log.end_offsets(TopicPartition(topic, p) for topic in there for p in range(there[topic].partitions))
        if any(ends.values()):
            found.append("changelogs")
        if found:
            raise ConfigurationError(
                f"{where}: the application has run on this log and has {', '.join(found)}; a backfill needs an "
                f"application without state. Delete its states and begin anew: --replace; outputs remain, "
                f"except for keys that are no longer in "
                "a table"
            )
        application.internal.make(log, create=False)
        return None

    def _check_replaced(self, application: Application, files: Mapping[str, FilesRead]) -> None:
        """Refuse to delete rows that an earlier backfill read from files, unless the files are given again."""
        metadata = application.metadata
        before = metadata.files if metadata.backfill is None else metadata.backfill.files or {}
        missing = {topic: read for topic, read in before.items() if topic not in files}
        if missing and not self.retained_only:
            raise ConfigurationError(
                f"backfill of application '{self.topology.name}': the states that are to be replaced were made from "
                f"files as well: {described(missing)}; without them the rows that are only in files would be "
                f"lost. Give them: {options(missing)}; or begin with the records in the topics: --retained-only"
            )

    def _check(self, computation: Computation) -> None:
        computation.check()
        application, plan = computation.application, self.topology.plan
        looked_up = {table.topic for table in plan.global_tables()}
        for sink, serdes in sink_serdes(plan, application.counts).items():
            where = f"backfill of application '{self.topology.name}': topic '{sink.topic}'"
            if sink.partitioner is not None:
                raise ConfigurationError(f"{where} is written with partitioner=, and Spark places by keys. {_REPLAY}")
            if any(serde.id_end for serde in serdes):
                raise ConfigurationError(
                    f"{where} is written with the ids of schemas in headers, and Spark writes them before the data. "
                    f"{_REPLAY}"
                )
            if sink.kind == "stream" and self._before(application, sink.topic):
                begun = application.metadata.backfill is not None
                raise ConfigurationError(
                    f"{where} holds records already, and the records of a stream would be written twice. "
                    f"{'Go on with the backfill that has begun: without --replace; or delete' if begun else 'Delete'} "
                    "and create the topic, or let the worker replay the input: eddy run …"
                )
            if sink.topic in looked_up and self._before(application, sink.topic):
                raise ConfigurationError(
                    f"{where} of a global table is an output, too, and holds records already; those whose keys are "
                    f"not in the output would be deleted. {_REPLAY}"
                )
        restored = {state.spec.source or "" for state in application.circuit.states.values()}
        if both := sorted(restored & set(computation.histories)):
            raise ConfigurationError(
                f"backfill of application '{self.topology.name}': files for '{both[0]}', whose table is restored from "
                "the topic itself, since that is compacted; rows that only the files hold would be lost. Produce them "
                f"into the topic: eddy produce {both[0]} …"
            )

    def _check_compacted(self, application: Application, frames: Frames, pinned: Cut) -> None:
        """Refuse to continue where inputs may have lost records since the backfill began: its rows would be others."""
        read, ends = [*application.sources, *self.topology.plan.global_tables()], pinned.tables | pinned.inputs
        for topic, why in compacted_below(frames, self.log, self.open_log, read, ends, None).items():
            raise ConfigurationError(
                f"backfill of application '{self.topology.name}': topic '{topic}' may have lost records since the "
                f"backfill began, so that what it has written does not fit: {why}. Begin anew: --replace"
            )

    def _topic_ids(self, application: Application) -> dict[str, int]:
        """The ids of the inputs and the topics of global tables, as far as the log knows them."""
        return self.log.topic_ids({tp.topic for tp in (*application.inputs(), *application.table_partitions())})()

    def _check_made_anew(self, topic_ids: Mapping[str, int]) -> None:
        """Refuse to continue where an input is no longer the topic that it was when the backfill began."""
        now = self.log.topic_ids(topic_ids)()
        if anew := sorted(topic for topic, id_ in topic_ids.items() if now.get(topic, id_) != id_):
            raise ConfigurationError(
                f"backfill of application '{self.topology.name}': topic '{anew[0]}' was deleted and made anew since "
                "the backfill began, so that what it has written does not fit. Begin anew: --replace"
            )

    def _check_states(self, computed: Computed) -> None:
        undetermined = computed.results.undetermined
        for name, state in computed.application.circuit.states.items():
            if state.spec.changelog is not None and name not in computed.results.states:
                raise ConfigurationError(
                    f"backfill of application '{self.topology.name}': state '{name}' cannot be made on Spark: "
                    f"{undetermined.get(name, 'nothing computes it')}. Let the worker replay the input: eddy run …"
                )

    def _pinned(self, application: Application) -> Cut:
        """The ends of the inputs and of global tables."""
        return Cut(self._ends(application.inputs()), {}, tables=self._ends(application.table_partitions()))

    def _ends(self, partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
        return Cut.by_topic(self.log.end_offsets(partitions))

    def _states(self, computed: Computed) -> DataFrame:
        """The records for changelogs."""
        results = computed.results
        changelogs = []
        for name, state in computed.application.circuit.states.items():
            if state.spec.changelog is not None:
                rows = changelog_rows(results.states[name]).withColumns(_stamps(state.spec.changelog))
                rows = rows.withColumn("k", without_tail(f.col("k"), state.spec.key.tail))
                changelogs.append(rows.select(*names(OUTGOING)))
        return computed.frames.union(changelogs, OUTGOING)

    def _outputs(self, computed: Computed) -> DataFrame:
        """The records of sinks, tombstones for keys no longer in their tables, and dead letters."""
        results, frames = computed.results, computed.frames
        serdes = sink_serdes(self.topology.plan, computed.application.counts)
        outputs = []
        for sink, sent in results.sinks.items():
            tail = serdes[sink][0].tail
            columns = {"topic": f.lit(sink.topic), "key": f.col("k"), "value": f.col("v")}
            rows = sent.withColumns(columns).select(*names(OUTGOING))
            rows = rows.withColumn("k", without_tail(f.col("k"), tail))
            outputs.append(rows)
            if sink.kind != "stream" and (gone := self._gone(computed, sink.topic, rows)) is not None:
                outputs.append(gone)
        if self.on_error == DEAD_LETTER and computed.bad is not None:
            letters = DeadLetters(computed.application.internal.dead_letter)
            outputs.append(frames.through(computed.bad, letters, OUTGOING))
        return frames.union(outputs, OUTGOING)

    def _before(self, application: Application, topic: str) -> list[OffsetRange]:
        """The offsets that a topic held before the backfill began."""
        partitions = [TopicPartition(topic, p) for p in range(application.counts[topic])]
        begun = application.metadata.backfill
        ends = self._ends(partitions)[topic] if begun is None or self.replace else begun.outputs[topic]
        begins = self.log.begin_offsets(partitions)
        return [
            OffsetRange(tp.partition, begins[tp], ends[tp.partition])
            for tp in partitions
            if begins[tp] < ends[tp.partition]
        ]

    def _gone(self, computed: Computed, topic: str, rows: DataFrame) -> DataFrame | None:
        """Tombstones for keys that the topic holds and the table does not."""
        ranges = self._before(computed.application, topic)
        if not ranges:
            return None
        before = read_topics(computed.frames, self.open_log, {topic: ranges}).where("k IS NOT NULL")
        last = before.groupBy("k").agg(f.max_by(f.struct("v"), "o").alias("last")).where("last.v IS NOT NULL")
        gone = last.join(rows.select("k"), "k", "left_anti")
        tombstones = gone.withColumns({"key": f.col("k"), "value": f.lit(None).cast("binary")})
        return tombstones.withColumns(_stamps(topic)).select(*names(OUTGOING))

    def _tick(self, application: Application) -> int:
        """The wall-clock time in milliseconds if rows of the plan expire by it, otherwise -1."""
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
        begun = Unfinished(pinned.inputs, begins, _lines(application), files, tick, pinned.tables, topic_ids)
        with _transaction(self.log, internal) as producer:
            write_unfinished(producer, internal.plan, begun)
        return begun

    def _finish(self, computed: Computed, begun: Unfinished, files: dict[str, FilesRead]) -> Cut:
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
        self._check_made_anew(begun.topic_ids)
        noted = {tp: counters.get(tp, Counters()).copy() for tp in offsets}
        for tp, found in noted.items():
            found.topic = begun.topic_ids.get(tp.topic, -1)
        joins = computed.computation.global_joins
        versions = [version for found in joins.versions.values() for version in found] if joins else []
        for first in versions:
            found = noted[TopicPartition(first.topic, first.partition)]
            found.tables, found.offsets_hash = summed(first.tables)
            # Records of files precede all offsets, so no later version may replace this one.
            found.versions, found.since = first.number, -1 if first.topic in files else first.position
        positions = {tp: Position(at, noted[tp].note()) for tp, at in offsets.items()}
        if self.log.groups().get(name):
            raise ConnectorError(
                f"backfill of application '{name}': a worker has started meanwhile; stop it, and run the backfill again"
            )
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


def _same(before: Mapping[str, FilesRead], now: Mapping[str, FilesRead]) -> bool:
    """Whether two sets of files have the same rows for the same topics."""
    return before.keys() == now.keys() and not unlike(before, now)


def _lines(application: Application) -> list[str]:
    """The plan identity, and the expiry of rows and the global tables, which may change between a worker's runs but
    not in a backfill.
    """
    tables = (node for node in application.topology.plan.nodes if isinstance(node, ExpiringTable))
    expiries = [f"expiry {node.name} {node.expiry.after_ms} {node.expiry.clock}" for node in tables]
    valid = (node for node in application.topology.plan.nodes if isinstance(node, ValidRows))
    expiries += [f"global table {node.name} {node.topic}" for node in application.topology.plan.global_tables()]
    return application.lines + expiries + [f"valid {node.name} {node.clock}" for node in valid]


def _positions(application: Application) -> dict[str, int]:
    """The topics whose positions carry a worker's clocks, by partition count; without the topics of constants."""
    internal = application.internal
    exchanges = {topic: count for topic, count in internal.exchanges.items() if topic not in internal.constants}
    return {source.topic: application.counts[source.topic] for source in application.sources} | exchanges


def _stamps(topic: str) -> dict[str, Column]:
    """The columns of an outgoing record that do not depend on the row."""
    none = f.lit(None)
    return {"topic": f.lit(topic), "t": none.cast("long"), "s": f.lit(b""), "h": none.cast("binary")}
