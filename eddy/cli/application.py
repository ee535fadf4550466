"""An application on a log: its inputs and exchanges, by partition, and its internal topics."""

from dataclasses import dataclass

from eddy.connectors.log import Log, TopicPartition
from eddy.errors import ConnectorError
from eddy.runtime.compiled_topology import UserTopics, user_topics
from eddy.runtime.internal_topics import InternalTopics
from eddy.runtime.joining_times import topics_hash, topics_with_times
from eddy.runtime.own_positions import own_positions
from eddy.runtime.quiescence import behind_topics, quiescent, table_lags
from eddy.topology.topology import Topology

__all__ = ["ApplicationTopics", "find", "purposes"]


@dataclass(frozen=True, slots=True)
class ApplicationTopics:
    """The partitions that one application reads and writes, and which of its exchanges are loops.

    `tables` are the partitions of global tables, `outputs` the partitions of sinks and of dead letters.
    """

    name: str
    inputs: list[TopicPartition]
    tables: list[TopicPartition]
    exchanges: list[TopicPartition]
    outputs: list[TopicPartition]
    loops: frozenset[str]
    internal: InternalTopics
    not_read: dict[str, str]
    """Topics that match a pattern and are not read, each with the reason."""

    matching: int
    """The hash of the topics of patterns that every worker has to read, -1 for none."""

    def quiescent(self, log: Log) -> bool:
        """Whether, at a moment during this call, every input was processed and nothing was in flight."""
        return quiescent(log, self.name, self.inputs, self.exchanges, self.internal.anchors, self.tables, self.matching)

    def behind_topics(self, log: Log) -> list[TopicPartition]:
        """Return the partitions whose owners still have to react to topics that were created or deleted."""
        read = [tp for tp in (*self.inputs, *self.exchanges) if tp not in self.internal.anchors]
        return behind_topics(own_positions(log, self.name, read), read, self.matching)

    def table_lags(self, log: Log) -> dict[str, int]:
        """Return, by topic of a global table, the number of offsets that some worker has not read."""
        return table_lags(log, self.name, self.inputs, self.tables)

    def kind(self, topic: str) -> str:
        """Return the purpose of a topic: "loop", "repartition" or "input"."""
        if topic in self.loops:
            return "loop"
        return "repartition" if topic in self.internal.exchanges else "input"


def purposes(topology: Topology, log: Log) -> dict[str, str]:
    """Return the purpose of each topic of an application; of internal topics only if the user's topics exist.

    Raises: TopologyError.
    """
    topics = user_topics(topology, log)
    sources = {source.topic for source in topology.plan.sources()}
    sinks = {sink.topic for sink in topology.plan.sinks()}
    found = {name: ", ".join(["source"] * (name in sources) + ["sink"] * (name in sinks)) for name in topics}
    if len(log.topics(found)) < len(found):
        return found
    compiled = UserTopics.of(topology, log).compiled()
    internal, loops = compiled.internal, compiled.circuit.loop_topics
    return found | {
        **dict.fromkeys(internal.changelogs, "changelog"),
        **{name: "loop" if name in loops else "repartition" for name in internal.exchanges},
        internal.cuts: "cuts",
        internal.plan: "plan",
        internal.dead_letter: "dead letter",
    }


def find(topology: Topology, log: Log) -> ApplicationTopics:
    """Return an application that has run. Raises: ConnectorError if it has not or a topic is missing; TopologyError."""
    topics = UserTopics.of(topology, log)
    compiled = topics.compiled()
    internal = compiled.internal
    existing = log.topics([*internal.exchanges, internal.dead_letter])
    if missing := sorted(internal.exchanges.keys() - existing.keys()):
        raise ConnectorError(
            f"application '{topology.name}': internal topic '{missing[0]}' does not exist; the present version "
            f"of the application must have run on this log. Start it: eddy run …"
        )
    sources = [node.topic for node in topology.plan.sources()]
    written = {sink.topic for sink in topology.plan.sinks()} | existing.keys() & {internal.dead_letter}
    counts = topics.counts | {internal.dead_letter: 1}
    return ApplicationTopics(
        topology.name,
        [TopicPartition(topic, p) for topic in sources for p in range(counts[topic])],
        [TopicPartition(node.topic, p) for node in topology.plan.global_tables() for p in range(counts[node.topic])],
        [TopicPartition(topic, p) for topic, count in internal.exchanges.items() for p in range(count)],
        [TopicPartition(topic, p) for topic in sorted(written) for p in range(counts[topic])],
        compiled.circuit.loop_topics,
        internal,
        topics.matching.refused,
        topics_hash(topics_with_times(topics.matching, compiled.circuit)),
    )
