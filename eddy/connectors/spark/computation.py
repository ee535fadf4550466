"""A computation: one topology over one log, up to given offsets of its inputs.

It knows what a worker would know, by the same means: the circuit of the plan, its states, topics and identity.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.config import Config
from eddy.connectors.internal import DEAD_LETTER, InternalTopics, internal_topics, partition_counts
from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.connectors.planlog import Memory, read_memory
from eddy.connectors.spark.changelog import Results, StateRows
from eddy.connectors.spark.compiler import Compiler
from eddy.connectors.spark.files import read_files
from eddy.connectors.spark.frames import Frames, told
from eddy.connectors.spark.inputs import RAW, OpenLog, Stretch, facts_of, topics_to_read
from eddy.connectors.spark.part import Part
from eddy.connectors.spark.passes import Reader, RecordsEntry, SentExit
from eddy.connectors.spark.session import ONE_TASK
from eddy.errors import ConfigurationError
from eddy.operators.circuit import Circuit
from eddy.topology.compile import Environment, compile_plan, sink_serdes
from eddy.topology.identity import identity
from eddy.topology.plan import Source
from eddy.topology.topology import Topology

__all__ = ["Application", "Computation", "Offsets"]

Offsets = Mapping[str, list[int]]
"""By topic, one offset a partition."""


@dataclass(frozen=True)
class Application:
    """A topology on a log: its circuit, its topics, what is remembered of it."""

    topology: Topology
    log: Log
    specs: Mapping[str, TopicSpec]
    circuit: Circuit
    internal: InternalTopics
    memory: Memory
    lines: list[str]

    @classmethod
    def of(cls, topology: Topology, log: Log) -> "Application":
        """Find out. Raises: ConfigurationError where topics are missing or not as they have to be; TopologyError."""
        plan, name = topology.plan, topology.name
        topics = {source.topic for source in plan.sources()} | {sink.topic for sink in plan.sinks()}
        specs = partition_counts(log, topics, f"application '{name}'")
        compacted = frozenset(topic for topic in specs if specs[topic].compacted and log.compaction_waits)
        counts = {topic: spec.partitions for topic, spec in specs.items()}
        circuit = compile_plan(plan, Environment(counts, compacted, partitioner=log.partitioner))
        internal = internal_topics(name, circuit)
        return cls(topology, log, specs, circuit, internal, read_memory(log, internal.plan), identity(plan, circuit))

    @property
    def counts(self) -> dict[str, int]:
        """The partitions of the user's topics."""
        return {topic: spec.partitions for topic, spec in self.specs.items()}

    @property
    def sources(self) -> list[Source]:
        """The sources."""
        return list(self.topology.plan.sources())

    def inputs(self) -> list[TopicPartition]:
        """The partitions of the sources."""
        return [TopicPartition(s.topic, p) for s in self.sources for p in range(self.counts[s.topic])]


@dataclass
class Computation:
    """What follows from the inputs up to `ends`. `files` are by topic, and come before what the topic holds.

    What is of at most `one_task` records or rows is computed in one task. Of dead letters those before `letters_end`
    are a worker's: behind it are those of a backfill that goes on.
    """

    application: Application
    frames: Frames
    open_log: OpenLog
    ends: Offsets
    on_error: str = Config().on_error
    files: Mapping[str, str] = field(default_factory=dict)
    retained_only: bool = False
    traced: bool = True
    one_task: int = ONE_TASK
    letters_end: int | None = None
    results: Results = field(init=False)
    bad: DataFrame | None = field(init=False, default=None)
    settled: bool = field(init=False, default=False)
    """Whether all of it has been computed, so that nothing can be wrong with the data any more."""
    _left_out: Mapping[str, frozenset[tuple[int, int]]] = field(init=False)
    _latest: Callable[[], int] = field(init=False)
    _bad: Callable[[], int] = field(init=False)

    def check(self) -> None:
        """Refuse what cannot be computed. Raises: ConfigurationError."""
        log, name = self.application.log, self.application.topology.name
        topics = {source.topic for source in self.application.sources}
        if unknown := sorted(set(self.files) - topics):
            raise ConfigurationError(
                f"application '{name}': files are given for '{unknown[0]}', which is no source; the sources are "
                f"{', '.join(sorted(topics))}"
            )
        begins = log.begin_offsets(self.application.inputs())
        for (topic, partition), begin in begins.items():
            if begin and topic not in self.files and not self.retained_only:
                raise ConfigurationError(
                    f"topic '{topic}' partition {partition} begins at offset {begin}: records before it are kept no "
                    "longer, and what they did cannot be computed. Give the history as files: "
                    f"--input {topic}=FILES.parquet; or, for a backfill, begin with what is there: --retained-only"
                )

    def run(self) -> Results:
        """Compute. Raises: DataError; LoopLimitError; ConnectorError."""
        self._left_out, self._bad = self._known(), lambda: 0
        records = sum(s.end - s.start for source in self.application.sources for s in self._stretches(source))
        if records > self.one_task or not self._in_one_task():
            self._compile()
        return self.results

    def _in_one_task(self) -> bool:
        """Compute all of it in one task, where it is small. Returns whether it was."""
        plan, counts, frames = self.application.topology.plan, self.application.counts, self.frames
        entries = {source.topic: self._entry(source) for source in self.application.sources}
        serdes = sink_serdes(plan, counts)
        exits = {sink.name: SentExit(sink.topic, *serdes[sink], sink.kind == "stream") for sink in plan.sinks()}
        restored = {name for name, state in self.application.circuit.states.items() if state.spec.changelog is None}
        part = Part(plan, counts, limit=self.one_task, sources=entries, sinks=exits, skips=restored)
        raw = [frames.through(*read, RAW) for source in self.application.sources for read in self._raw(source)]
        made = part.of_records(frames, frames.union(raw, RAW))
        too_many, bad, latest = made.told()
        if too_many:
            return False
        self.settled, self._bad, self._latest = True, lambda: bad, lambda: latest
        self.bad = made.bad() if bad else None
        states = {
            name: StateRows("encoded", made.state(name), plan.holds(name))
            for name in self.application.circuit.states.keys() - restored
        }
        self.results = Results(states, {sink: made.sent(sink) for sink in plan.sinks()}, {})
        return True

    def _compile(self) -> None:
        """Compute it step by step."""
        application, frames = self.application, self.frames
        inputs, bad, latest = {}, [], frames.maximum()
        for source in application.sources:
            facts, misfits = facts_of(frames, self._entry(source), self._raw(source), latest)
            inputs[source.topic] = facts
            if misfits is not None:
                bad.append(misfits.withColumn("topic", f.lit(source.topic)))
        self._latest = lambda: latest.value
        if bad:
            self.bad = whole = frames.union(bad, "")
            self._bad = whole.count
        plan, counts = application.topology.plan, application.counts
        self.results = Compiler(frames, plan, counts, inputs, self.traced, self.one_task).run()

    @property
    def latest(self) -> int:
        """The latest time of the input, once all of it has been read: that of all that has none of its own."""
        return self._latest()

    def left_out(self) -> int:
        """How many records are left out: those known to be, and those that do not decode."""
        known = sum(
            offset < self.ends[topic][partition]
            for topic, places in self._left_out.items()
            for partition, offset in places
            if topic in self.ends
        )
        with told():
            return known + self._bad()

    def _entry(self, source: Source) -> RecordsEntry:
        assert source.key is not None
        assert source.value is not None
        left_out = self._left_out.get(source.topic, frozenset())
        fail = self.on_error == "fail"
        return RecordsEntry(source.topic, source.key, source.value, source.kind == "table", fail, left_out)

    def _raw(self, source: Source) -> list[tuple[DataFrame, Reader]]:
        """What is to be read of a source, and what makes `RAW` records of it: files come before the topic."""
        raw: list[tuple[DataFrame, Reader]] = []
        if source.topic in self.files:
            raw.append(read_files(self.frames, source, self.files[source.topic]))
        return [*raw, topics_to_read(self.frames, self.open_log, {source.topic: self._stretches(source)})]

    def _stretches(self, source: Source) -> list[Stretch]:
        begins = self.application.log.begin_offsets(
            TopicPartition(source.topic, p) for p in range(self.application.counts[source.topic])
        )
        ends = self.ends.get(source.topic, [])
        return [Stretch(p, begins[TopicPartition(source.topic, p)], end) for p, end in enumerate(ends)]

    def _known(self) -> dict[str, frozenset[tuple[int, int]]]:
        """The records that a worker is known to have left out, by topic: those it noted, and its dead letters."""
        found: dict[str, set[tuple[int, int]]] = {}
        for topic, partition, offset in self.application.memory.left_out:
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
            if records.next_offset == position:  # an open transaction: not a worker's that has rested
                break
            position = records.next_offset
            for headers in records.headers or ():
                where = dict(headers)
                if "eddy.topic" in where:
                    yield where["eddy.topic"].decode(), int(where["eddy.partition"]), int(where["eddy.offset"])
