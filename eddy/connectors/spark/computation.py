"""A computation: one topology over one log, up to given offsets of its inputs.

It knows what a worker would know, by the same means: the circuit of the plan, its states, topics and identity.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.config import Config
from eddy.connectors.internal import DEAD_LETTER, InternalTopics, internal_topics, partition_counts
from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.connectors.planlog import Memory, read_memory
from eddy.connectors.spark.compiler import Compiler
from eddy.connectors.spark.files import read_files
from eddy.connectors.spark.frames import Frames, told
from eddy.connectors.spark.inputs import OpenLog, Stretch, facts_of, read_topics
from eddy.connectors.spark.passes import RECORDS
from eddy.errors import ConfigurationError
from eddy.operators.circuit import Circuit
from eddy.topology.compile import Environment, compile_plan
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

    `timed` asks for the latest time of the input, which takes a job: what is written has it, what is compared has not.
    """

    application: Application
    frames: Frames
    open_log: OpenLog
    ends: Offsets
    on_error: str = Config().on_error
    files: Mapping[str, str] = field(default_factory=dict)
    retained_only: bool = False
    traced: bool = True
    timed: bool = False
    compiler: Compiler = field(init=False)
    bad: DataFrame = field(init=False)
    _known: int = field(init=False, default=0)

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

    def run(self) -> Compiler:
        """Compute. Raises: DataError; LoopLimitError; ConnectorError."""
        application = self.application
        inputs, bad = {}, []
        left_out = self._left_out()
        for source in application.sources:
            fail = self.on_error == "fail"
            facts, misfits = facts_of(
                self.frames, source, self._raw(source), fail, left_out.get(source.topic, frozenset())
            )
            inputs[source.topic] = facts
            bad.append(misfits.withColumn("topic", f.lit(source.topic)))
        self.bad = self.frames.union(bad, RECORDS + ", topic string")
        self.compiler = Compiler(
            self.frames,
            application.topology.plan,
            application.counts,
            inputs,
            self._latest(inputs) if self.timed else 0,
            self.traced,
        )
        self.compiler.run()
        self._known = sum(
            offset < self.ends[topic][partition]
            for topic, places in left_out.items()
            for partition, offset in places
            if topic in self.ends
        )
        return self.compiler

    def left_out(self) -> int:
        """How many records are left out: those known to be, and those that do not decode."""
        with told():
            return self._known + self.bad.count()

    def _raw(self, source: Source) -> DataFrame:
        begins = self.application.log.begin_offsets(
            TopicPartition(source.topic, p) for p in range(self.application.counts[source.topic])
        )
        ends = self.ends.get(source.topic, [])
        stretches = [Stretch(p, begins[TopicPartition(source.topic, p)], end) for p, end in enumerate(ends)]
        raw = read_topics(self.frames, self.open_log, {source.topic: stretches})
        if source.topic in self.files:
            raw = read_files(self.frames, source, self.files[source.topic]).unionByName(raw)
        return raw

    def _latest(self, inputs: Mapping[str, DataFrame]) -> int:
        """The latest event time of the input, which stands for that of all that is merged."""
        with told():
            row = self.frames.union([frame.select("t") for frame in inputs.values()], "t long").agg(f.max("t")).first()
        return 0 if row is None or row[0] is None else row[0]

    def _left_out(self) -> dict[str, frozenset[tuple[int, int]]]:
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
        position, end = log.begin_offsets([tp])[tp], log.end_offsets([tp])[tp]
        while position < end:
            records = log.read(tp, position, end, 1_000)
            position = records.next_offset
            for headers in records.headers or ():
                where = dict(headers)
                if "eddy.topic" in where:
                    yield where["eddy.topic"].decode(), int(where["eddy.partition"]), int(where["eddy.offset"])

    def problems(self) -> Collection[str]:
        """States that the circuit has and the computation does not: none, but for those it names as untold."""
        have = self.compiler.states.keys() | self.compiler.untold.keys()
        return self.application.circuit.states.keys() - have
