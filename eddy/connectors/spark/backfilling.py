"""Backfill: the states and outputs that a worker would have after the whole input, written for it to go on behind.

    1  pin the ends of the inputs; compute all of it: what is wrong with the data shows before anything is written
    2  make the internal topics; note the backfill, with its offsets, in `<app>-plan`: no worker starts from here on
    3  write changelogs and outputs
    4  set the group's positions
    5  write plan, life and a cut, and that the backfill has finished, in one transaction

Killed anywhere, it is run again and goes on: up to 2 nothing was written, and from there on the note says which
offsets it was computed at and where its outputs begin. What is there already is not written twice.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from eddy.connectors.internal import DEAD_LETTER, InternalTopics
from eddy.connectors.log import Log, TopicPartition
from eddy.connectors.planlog import Unfinished, write_backfill, write_plan
from eddy.connectors.quiescence import Cut
from eddy.connectors.spark.changelog import changelog_rows
from eddy.connectors.spark.computation import Application, Computation
from eddy.connectors.spark.frames import Frames, names, told
from eddy.connectors.spark.inputs import OpenLog, Stretch, read_topics
from eddy.connectors.spark.order import order_dependent
from eddy.connectors.spark.session import ONE_TASK
from eddy.connectors.spark.writing import OUTGOING, Letters, Writing, write_topics
from eddy.errors import ConfigurationError, ConnectorError
from eddy.topology.identity import topics_of
from eddy.topology.topology import Topology

__all__ = ["Backfill", "Backfilled"]


@dataclass(frozen=True)
class Backfilled:
    """What a backfill did: the cut it stands for, records written by topic, records left out, remarks."""

    cut: Cut
    written: dict[str, int]
    left_out: int
    remarks: list[str]


@dataclass
class Backfill:
    """One backfill. `replace` takes what state there is away first; `stage` is told what is being done."""

    topology: Topology
    spark: SparkSession
    log: Log
    open_log: OpenLog
    on_error: str = "fail"
    files: Mapping[str, str] = field(default_factory=dict)
    retained_only: bool = False
    replace: bool = False
    one_task: int = ONE_TASK
    program: str | None = None
    stage: Callable[[str], None] = lambda name: None

    def run(self) -> Backfilled:
        """Do it. Raises: ConfigurationError for what is refused; DataError; LoopLimitError; ConnectorError."""
        self.stage("checks")
        application = Application.of(self.topology, self.log)
        unfinished = self._may_begin(application)
        frames = Frames(self.spark, self.program)
        try:
            inputs = unfinished.inputs if unfinished else self._ends(application.inputs())
            computation = Computation(
                application,
                frames,
                self.open_log,
                inputs,
                self.on_error,
                self.files,
                self.retained_only,
                one_task=self.one_task,
                letters_end=unfinished.outputs[application.internal.dead_letter][0] if unfinished else None,
            )
            self._check(computation)
            self.stage("compute")
            computation.run()
            self._check_states(computation)
            states, outputs = self._states(computation), self._outputs(computation)
            left_out = computation.left_out()
            if not computation.settled:
                states, outputs = frames.kept(states), frames.kept(outputs)
                with told():
                    states.unionByName(outputs).count()
            begun = unfinished or self._begin(application, inputs)
            writing = Writing(self.open_log, f"{self.topology.name}-backfill", begun.outputs, computation.latest)
            written: dict[str, int] = {}
            for what, frame in (("changelogs", states), ("outputs", outputs)):
                self.stage(f"write {what}")
                written |= write_topics(frames, frame, writing, self.log.partitioner)
            self.stage("finish")
            cut = self._finish(application, begun)
            return Backfilled(cut, written, left_out, self._remarks(application))
        finally:
            frames.release()

    def _may_begin(self, application: Application) -> Unfinished | None:
        """Refuse while the group is active or has state. Returns a backfill that has not finished."""
        name, log = self.topology.name, self.log
        where = f"backfill of application '{name}'"
        if log.groups().get(name):
            raise ConfigurationError(f"{where}: a worker of it runs on this log; it has to be stopped. Stop eddy run")
        if self.replace:
            return None
        begun = application.memory.backfill
        if begun is not None:
            if begun.plan != application.lines:
                raise ConfigurationError(
                    f"{where}: one has begun, and the topology has been changed since. Bring the topology back, and it "
                    "goes on; or begin anew: --replace"
                )
            return begun
        found = []
        if log.committed(name, application.inputs()):
            found.append("positions")
        if application.memory.plan is not None:
            found.append("a plan")
        there = log.topics(application.internal.changelogs)
        ends = log.end_offsets(TopicPartition(topic, p) for topic in there for p in range(there[topic].partitions))
        if any(ends.values()):
            found.append("changelogs")
        if found:
            raise ConfigurationError(
                f"{where}: it has run here before and has {', '.join(found)}; a backfill is for one that has nothing "
                "yet. Take its states away and begin anew: --replace; outputs stay, and what is no longer in a table "
                "is deleted there"
            )
        application.internal.make(log, create=False)
        return None

    def _check(self, computation: Computation) -> None:
        computation.check()
        application = computation.application
        for sink in self.topology.plan.sinks():
            if sink.kind == "stream" and self._before(application, sink.topic):
                begun = application.memory.backfill is not None
                raise ConfigurationError(
                    f"backfill of application '{self.topology.name}': topic '{sink.topic}' holds records already, and "
                    "those of a stream would be there twice. "
                    f"{'Go on with the backfill that has begun: without --replace; or delete' if begun else 'Delete'} "
                    "and create the topic, or let the worker replay the input: eddy run …"
                )
        restored = {state.spec.source or "" for state in application.circuit.states.values()}
        if both := sorted(restored & set(self.files)):
            raise ConfigurationError(
                f"backfill of application '{self.topology.name}': files for '{both[0]}', whose table is restored from "
                "the topic itself, since that is compacted; what is in the files alone would be lost. Produce them "
                f"into the topic: eddy produce {both[0]} …"
            )

    def _check_states(self, computation: Computation) -> None:
        untold = computation.results.untold
        for name, state in computation.application.circuit.states.items():
            if state.spec.changelog is not None and name not in computation.results.states:
                raise ConfigurationError(
                    f"backfill of application '{self.topology.name}': state '{name}' cannot be made on Spark: "
                    f"{untold.get(name, 'nothing computes it')}. Let the worker replay the input: eddy run …"
                )

    def _ends(self, partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
        return Cut.by_topic(self.log.end_offsets(partitions))

    def _states(self, computation: Computation) -> DataFrame:
        """What is to be written to changelogs."""
        results = computation.results
        changelogs = []
        for name, state in computation.application.circuit.states.items():
            if state.spec.changelog is not None:
                rows = changelog_rows(results.states[name]).withColumns(_stamps(state.spec.changelog))
                changelogs.append(rows.select(*names(OUTGOING)))
        return computation.frames.union(changelogs, OUTGOING)

    def _outputs(self, computation: Computation) -> DataFrame:
        """The records of the sinks; in tables, keys that were there and are no more are deleted. Dead letters."""
        results, frames = computation.results, computation.frames
        outputs = []
        for sink, sent in results.sinks.items():
            columns = {"topic": f.lit(sink.topic), "key": f.col("k"), "value": f.col("v")}
            rows = sent.withColumns(columns).select(*names(OUTGOING))
            outputs.append(rows)
            if sink.kind != "stream" and (gone := self._gone(computation, sink.topic, rows)) is not None:
                outputs.append(gone)
        if self.on_error == DEAD_LETTER and computation.bad is not None:
            letters = Letters(computation.application.internal.dead_letter)
            outputs.append(frames.through(computation.bad, letters, OUTGOING))
        return frames.union(outputs, OUTGOING)

    def _before(self, application: Application, topic: str) -> list[Stretch]:
        """What a topic held before the backfill began."""
        partitions = [TopicPartition(topic, p) for p in range(application.counts[topic])]
        begun = application.memory.backfill
        ends = self._ends(partitions)[topic] if begun is None or self.replace else begun.outputs[topic]
        begins = self.log.begin_offsets(partitions)
        return [
            Stretch(tp.partition, begins[tp], ends[tp.partition])
            for tp in partitions
            if begins[tp] < ends[tp.partition]
        ]

    def _gone(self, computation: Computation, topic: str, rows: DataFrame) -> DataFrame | None:
        """Tombstones for what the topic held before and the table does not hold."""
        stretches = self._before(computation.application, topic)
        if not stretches:
            return None
        before = read_topics(computation.frames, self.open_log, {topic: stretches}).where("k IS NOT NULL")
        last = before.groupBy("k").agg(f.max_by(f.struct("v"), "o").alias("last")).where("last.v IS NOT NULL")
        gone = last.join(rows.select("k"), "k", "left_anti")
        tombstones = gone.withColumns({"key": f.col("k"), "value": f.lit(None).cast("binary")})
        return tombstones.withColumns(_stamps(topic)).select(*names(OUTGOING))

    def _begin(self, application: Application, inputs: dict[str, list[int]]) -> Unfinished:
        """Take away what is to be replaced, make the internal topics, and note that it begins."""
        self.stage("begin")
        internal = application.internal
        if self.replace:
            self.log.delete_group(self.topology.name)
            known = {name for lines in application.memory.plans for name in topics_of(self.topology.name, lines)}
            mine = {*known, *internal.changelogs, *internal.exchanges, internal.cuts, internal.plan}
            self.log.delete_topics(self.log.topics(mine - application.specs.keys()))
        internal.make(self.log)
        outputs = {name: application.counts[name] for name in application.specs} | internal.changelogs
        outputs |= {internal.dead_letter: 1}
        for source in application.sources:
            outputs.pop(source.topic, None)
        for sink in application.topology.plan.sinks():
            outputs[sink.topic] = application.counts[sink.topic]
        begins = self._ends(TopicPartition(topic, p) for topic, count in outputs.items() for p in range(count))
        begun = Unfinished(inputs, begins, application.lines)
        with _transaction(self.log, internal) as producer:
            write_backfill(producer, internal.plan, begun)
        return begun

    def _finish(self, application: Application, begun: Unfinished) -> Cut:
        """The group's positions, and then all that lets a worker start."""
        internal, name = application.internal, self.topology.name
        positions = {TopicPartition(t, p): end for t, ends in begun.inputs.items() for p, end in enumerate(ends)}
        if self.log.groups().get(name):
            raise ConnectorError(f"backfill of application '{name}': a worker has come in between; stop it, run again")
        self.log.set_positions(name, positions)
        written = {topic: 1 for topic in begun.outputs if topic != internal.dead_letter}
        ends = self._ends(TopicPartition(t, p) for t in written for p in range(len(begun.outputs[t])))
        cut = Cut(begun.inputs, ends)
        with _transaction(self.log, internal) as producer:
            write_plan(
                producer, internal.plan, application.lines, min(application.memory.lives, default=uuid.uuid4().hex)
            )
            write_backfill(producer, internal.plan, None)
            producer.send(internal.cuts, 0, [b"cut"], [cut.encode()], [0])
        return cut

    def _remarks(self, application: Application) -> list[str]:
        dependent = order_dependent(self.topology.plan, application.counts)
        return [f"step '{name}' was computed as in one epoch, since it is {why}" for name, why in dependent.items()]


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


def _stamps(topic: str) -> dict[str, Column]:
    """The columns of what is written that say nothing of the row."""
    none = f.lit(None)
    return {"topic": f.lit(topic), "t": none.cast("long"), "s": f.lit(b""), "h": none.cast("binary")}
