"""Computes the results of one topology from a log's records up to given offsets.

It has the circuit, the states and the internal topics that a worker of the same plan has.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.connectors.spark.arrow_functions import Reader, RecordsEntry, SentExit
from eddy.connectors.spark.changelog import ComputedResults, StateRows
from eddy.connectors.spark.closed_windows import topic_numbers, with_event_times
from eddy.connectors.spark.compiler import SparkCompiler
from eddy.connectors.spark.cut_clocks import CutClocks, event_times_of
from eddy.connectors.spark.files.history import History
from eddy.connectors.spark.frames import Frames, Maximum, spark_errors
from eddy.connectors.spark.global_joins import GlobalJoins, JoinedTables, check_partitions, rows_of_table
from eddy.connectors.spark.inputs import RAW, OffsetRange, OpenLog, facts_of, records_of, topics_to_read
from eddy.connectors.spark.one_task import OneTask
from eddy.connectors.spark.session import ONE_TASK
from eddy.errors import ConfigurationError
from eddy.operators.circuit import Circuit
from eddy.runtime.compiled_topology import UserTopics
from eddy.runtime.internal_topics import DEAD_LETTER, InternalTopics, metadata_topic
from eddy.runtime.metadata import Metadata, read_metadata
from eddy.runtime.quiescence import last_cut
from eddy.topology.compiler.circuit_compiler import check_reads, sink_serdes
from eddy.topology.plan.identity import identity, states_of
from eddy.topology.plan.plan import Source
from eddy.topology.plan.topic_steps import TopicRead
from eddy.topology.topology import Topology

__all__ = ["Application", "Computation", "Computed", "Offsets", "last_cut"]

Offsets = Mapping[str, list[int]]
"""Offsets by topic, one for each partition."""
Timestamp = Callable[[Any, Any], Any]
"""A function that returns the event time of a record from its key and value."""


@dataclass(frozen=True)
class Application:
    """A topology on a log: its circuit, topics and stored metadata."""

    topology: Topology
    log: Log
    specs: Mapping[str, TopicSpec]
    circuit: Circuit
    internal: InternalTopics
    metadata: Metadata
    lines: list[str]

    @classmethod
    def of(cls, topology: Topology, log: Log, anew: bool = False) -> "Application":
        """Load the application. `anew`: the states that earlier runs have written are to be replaced.

        Raises: ConfigurationError for missing topics, or topics with unsuitable settings; TopologyError.
        """
        plan, name = topology.plan, topology.name
        topics = UserTopics.of(topology, log)
        check_reads(plan)
        metadata = read_metadata(log, metadata_topic(name))
        before = metadata.plan if metadata.backfill is None else metadata.backfill.plan
        written = None if before is None or anew else frozenset(states_of(before))
        compiled = topics.compiled(written=written)
        circuit = compiled.circuit
        return cls(topology, log, topics.specs, circuit, compiled.internal, metadata, identity(plan, circuit))

    @property
    def counts(self) -> dict[str, int]:
        """The partition counts of the user's topics."""
        return {topic: spec.partitions for topic, spec in self.specs.items()}

    @property
    def sources(self) -> list[Source]:
        """The sources of the plan."""
        return list(self.topology.plan.sources())

    def inputs(self) -> list[TopicPartition]:
        """Return the partitions of the sources."""
        return [TopicPartition(s.topic, p) for s in self.sources for p in range(self.counts[s.topic])]

    def table_partitions(self) -> list[TopicPartition]:
        """Return the partitions of the topics of global tables."""
        tables = self.topology.plan.global_tables()
        return [TopicPartition(table.topic, p) for table in tables for p in range(self.counts[table.topic])]


@dataclass
class Computation:
    """Computes the results of the inputs up to the offsets `ends`.

    `histories` has, by topic, the records of files, which precede the records of the topic. Further fields:

    - `global_joins`: the joins with global tables whose versions the worker has noted, or a backfill has pinned; None
      if there are no such joins
    - `clocks`: the ticks, and the event times of topics that may have lost records after the worker read them
    - `one_task`: parts with at most this many records or rows are computed in one task, by the worker's own circuit; 0
      switches this off
    - `letters_end`: dead letters from this offset on were written by an unfinished backfill, earlier ones by a worker
    """

    application: Application
    frames: Frames
    open_log: OpenLog
    ends: Offsets
    on_error: str = "fail"
    histories: Mapping[str, History] = field(default_factory=dict)
    retained_only: bool = False
    traced: bool = True
    one_task: int = ONE_TASK
    letters_end: int | None = None
    clocks: CutClocks = field(default_factory=CutClocks)
    global_joins: GlobalJoins | None = None

    def check(self) -> None:
        """Refuse inputs whose first records were deleted, or that were made anew. Raises: ConfigurationError."""
        begins = self.application.log.begin_offsets(self.application.inputs())
        for (topic, partition), begin in begins.items():
            if begin and topic not in self.histories and not self.retained_only:
                raise ConfigurationError(
                    f"topic '{topic}' partition {partition} begins at offset {begin}: records before it were "
                    f"deleted, so their effect cannot be computed. Give the history as files: "
                    f"--input {topic}=FILES.parquet; or, for a backfill, begin with the remaining records: "
                    f"--retained-only"
                )

        ends = self.application.log.end_offsets(self.application.inputs())
        for (topic, partition), end in ends.items():
            wanted = self.ends.get(topic, [])[partition : partition + 1]
            if wanted and wanted[0] > end:
                raise ConfigurationError(
                    f"topic '{topic}' partition {partition} ends at offset {end}, and was read up to offset "
                    f"{wanted[0]}: it was deleted and made anew, so that the records of the results are gone. To begin "
                    f"anew with its records: eddy reset …, then eddy run …"
                )

    def run(self) -> "Computed":
        """Compute the results. Raises: DataError; LoopLimitError; ConnectorError."""
        nodes = self.application.topology.plan.nodes
        whole = not any(node.only_by_worker or node.topics_of_windows for node in nodes)
        records = sum(s.end - s.start for source in self.application.sources for s in self._ranges(source))
        self.frames.fit(records)
        whole = whole and bool(self.one_task) and records <= self.one_task and len(self.clocks.different_ticks) < 2
        return (self._in_one_task() if whole else None) or self._compile()

    def _in_one_task(self) -> "Computed | None":
        """Compute the whole plan in one task; return None if its input is too large."""
        plan, counts, frames = self.application.topology.plan, self.application.counts, self.frames
        entries = {source.topic: self._entry(source, source.timestamp) for source in self.application.sources}
        serdes = sink_serdes(plan, counts)
        exits = {sink.name: SentExit(sink.topic, *serdes[sink], sink.kind == "stream") for sink in plan.sinks()}
        restored = {name for name, state in self.application.circuit.states.items() if state.spec.changelog is None}
        part = OneTask(
            plan,
            counts,
            limit=self.one_task,
            sources=entries,
            sinks=exits,
            skips=restored,
            timed=self.application.circuit.reads.sources,
            clocks=self.clocks,
            partitioner=self.application.log.partitioner,
        )
        raw = [frames.through(*read, RAW) for source in self.application.sources for read in self._raw(source)]
        timed = [topic for topic, entry in entries.items() if entry.by_time]
        made = part.of_records(frames, frames.in_order(frames.union(raw, RAW), timed))
        with frames.jobs.step("in one task"):
            too_many, bad, latest = made.outcome()
        if too_many:
            return None
        clocks = self.clocks.after(made.event_times(self.application.circuit.reads.sources, counts))
        states = {
            name: StateRows("encoded", made.state(name), plan.holds(name))
            for name in self.application.circuit.states.keys() - restored
        }
        results = ComputedResults(states, {sink: made.sent(sink) for sink in plan.sinks()}, {})
        rejected = made.bad() if bad else None
        return Computed(self, results, clocks, frames.maximum(latest), rejected, settled=True)

    def _compile(self) -> "Computed":
        """Compute the plan step by step."""
        application, frames = self.application, self.frames
        plan, counts, partitioner = application.topology.plan, application.counts, application.log.partitioner
        inputs, bad, latest, times = {}, [], frames.maximum(), {}
        windowed = topic_numbers(plan)
        for source in application.sources:
            topic, entry = source.topic, self._entry(source, source.timestamp)
            timed = topic in application.circuit.reads.sources
            records = records_of(frames, entry, self._raw(source), latest, twice=timed)
            if topic in windowed:
                records = with_event_times(frames, records, windowed[topic], counts[topic], partitioner)
            inputs[topic] = facts_of(records)
            if timed:
                times[topic] = event_times_of(frames, records, counts[topic], partitioner)
            if not entry.fail:
                bad.append(records.where("bad IS NOT NULL").withColumn("topic", f.lit(topic)))
        clocks = self.clocks.after(times)
        compiler = SparkCompiler(frames, plan, counts, inputs, clocks, partitioner, self.traced, self.one_task)
        if self.global_joins is not None:
            compiler.joined_tables = self._joined_tables(self.global_joins, windowed)
        results = compiler.run()
        return Computed(self, results, clocks, latest, frames.union(bad, "") if bad else None)

    def _joined_tables(self, joins: GlobalJoins, numbers: Mapping[str, int]) -> JoinedTables:
        """Return the rows of the global tables whose joins are determined.

        Raises: ConfigurationError for a key in two partitions.
        """
        frames, log, rows = self.frames, self.application.log, {}
        for table in dict.fromkeys(join.table for join in joins.determined(self.application.topology.plan)):
            topic, ends = table.topic, joins.ends(table.topic)
            begins = log.begin_offsets(TopicPartition(topic, p) for p in range(len(ends)))
            ranges = [OffsetRange(p, begins[TopicPartition(topic, p)], end) for p, end in enumerate(ends)]
            raw = [topics_to_read(frames, self.open_log, {topic: ranges})]
            rows[topic] = frames.kept(rows_of_table(records_of(frames, self._entry(table), raw, frames.maximum())))
            if len(ends) > 1:
                check_partitions(topic, rows[topic])
        return JoinedTables(frames, joins, rows, numbers)

    def _entry(self, source: TopicRead, timestamp: Timestamp | None = None) -> RecordsEntry:
        assert source.key is not None
        assert source.value is not None
        left_out = self.known_rejections.get(source.topic, frozenset())
        fail = self.on_error == "fail"
        by_time = source.topic in self.histories and self.histories[source.topic].by_time
        return RecordsEntry(source.topic, source.key, source.value, fail, left_out, by_time, timestamp)

    def _raw(self, source: Source) -> list[tuple[DataFrame, Reader]]:
        """Return the frames that have a source's records, files before the topic, each with the reader of its rows.

        A reader turns the frame's batches into batches with the columns `RAW`.
        """
        raw: list[tuple[DataFrame, Reader]] = []
        if source.topic in self.histories:
            raw += self.histories[source.topic].raw
        return [*raw, topics_to_read(self.frames, self.open_log, {source.topic: self._ranges(source)})]

    def _ranges(self, source: Source) -> list[OffsetRange]:
        begins = self.application.log.begin_offsets(
            TopicPartition(source.topic, p) for p in range(self.application.counts[source.topic])
        )
        ends = self.ends.get(source.topic, [])
        return [OffsetRange(p, begins[TopicPartition(source.topic, p)], end) for p, end in enumerate(ends)]

    @functools.cached_property
    def known_rejections(self) -> Mapping[str, frozenset[tuple[int, int]]]:
        """Return (partition, offset) of the records that a worker has rejected, by topic.

        They are found in the application's metadata and in its dead letters.
        """
        found: dict[str, set[tuple[int, int]]] = {}
        for topic, partition, offset in self.application.metadata.left_out:
            found.setdefault(topic, set()).add((partition, offset))
        if self.on_error == DEAD_LETTER:
            for topic, partition, offset in self._dead_letters():
                found.setdefault(topic, set()).add((partition, offset))
        return {topic: frozenset(places) for topic, places in found.items()}

    def _dead_letters(self) -> Any:
        log, topic = self.application.log, self.application.internal.dead_letter
        if not log.topics([topic]):
            return
        tp = TopicPartition(topic, 0)
        position, end = log.begin_offsets([tp])[tp], self.letters_end
        end = log.end_offsets([tp])[tp] if end is None else end
        while position < end:
            records = log.read(tp, position, end, 1_000)
            if records.next_offset == position:  # a transaction is open, so a worker is still writing
                break
            position = records.next_offset
            for headers in records.headers or ():
                where = dict(headers)
                # A dead letter that names a step is for a row, so its record was not rejected.
                if "eddy.topic" in where and "eddy.step" not in where:
                    yield where["eddy.topic"].decode(), int(where["eddy.partition"]), int(where["eddy.offset"])


@dataclass(frozen=True)
class Computed:
    """A computation with its results: rows and records as frames, and the event times at the ends of the inputs.

    `bad` are the records that do not decode, or None if all decode. `settled` is True if all results have been
    computed, so that no data error can follow.
    """

    computation: Computation
    results: ComputedResults
    clocks: CutClocks
    times: Maximum
    bad: DataFrame | None
    settled: bool = False

    @property
    def application(self) -> Application:
        """The application of the computation."""
        return self.computation.application

    @property
    def frames(self) -> Frames:
        """The operations on frames of the session."""
        return self.computation.frames

    @property
    def latest(self) -> int:
        """The latest time of the input that jobs have read so far. It is the time of rows without one of their own."""
        return self.times.value

    def left_out(self) -> int:
        """Return the number of rejected records: records known as rejected before, and records that do not decode."""
        ends = self.computation.ends
        known = sum(
            offset < ends[topic][partition]
            for topic, places in self.computation.known_rejections.items()
            for partition, offset in places
            if topic in ends
        )
        with spark_errors():
            return known + (0 if self.bad is None else self.bad.count())
