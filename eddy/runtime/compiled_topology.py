"""A topology compiled for a log: from the specs of the user's topics to the circuit and the internal topics.

A worker, Spark and the command line compile the same plan over the same topics, so that they agree on states and on
internal topics.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eddy.connectors.log import Log, TopicSpec
from eddy.operators.circuit import Circuit
from eddy.runtime.internal_topics import InternalTopics, internal_topics, partition_counts
from eddy.runtime.matching_topics import MatchingTopics, find_topics
from eddy.topology.compiler.circuit_compiler import Environment, compile_plan
from eddy.topology.topology import Topology

__all__ = ["CompiledTopology", "UserTopics", "named_topics", "user_topics"]


def named_topics(topology: Topology) -> list[str]:
    """Return the topics that a topology names, to read or to write: sources first, global tables last."""
    plan = topology.plan
    sources = (source for source in plan.sources() if not source.pattern)
    return list(dict.fromkeys(node.topic for node in (*sources, *plan.sinks(), *plan.global_tables())))


def user_topics(topology: Topology, log: Log) -> list[str]:
    """Return the topics that a topology reads and writes on a log: those it names, and those that match its patterns.

    Raises: NoTopicMatchesError; ConfigurationError for topics that do not fit a pattern.
    """
    return [*named_topics(topology), *sorted(find_topics(topology, log).names)]


@dataclass(frozen=True, slots=True)
class UserTopics:
    """The user's topics of an application, with their specs in a log."""

    topology: Topology
    log: Log
    specs: Mapping[str, TopicSpec]
    matching: MatchingTopics

    @classmethod
    def of(cls, topology: Topology, log: Log) -> "UserTopics":
        """Look the topics of a topology up in a log.

        Raises: NoTopicMatchesError; ConfigurationError naming missing topics.
        """
        matching = find_topics(topology, log)
        names = [*named_topics(topology), *sorted(matching.names)]
        specs = partition_counts(log, names, f"application '{topology.name}'")
        return cls(topology, log, specs, matching)

    @property
    def counts(self) -> dict[str, int]:
        """The number of partitions of each topic."""
        return {name: spec.partitions for name, spec in self.specs.items()}

    @property
    def compacted(self) -> frozenset[str]:
        """The topics from which a table can be restored."""
        return frozenset(name for name, spec in self.specs.items() if spec.compacted and self.log.compaction_waits)

    def compiled(self, **environment: Any) -> "CompiledTopology":
        """Compile the plan for these topics. `environment` has the other fields of `Environment`.

        Raises: TopologyError.
        """
        log = self.log
        world = Environment(
            self.counts, self.compacted, partitioner=log.partitioner, refusals=log.refusals, **environment
        )
        circuit = compile_plan(self.topology.plan, world)
        return CompiledTopology(circuit, internal_topics(self.topology.name, circuit))


@dataclass(frozen=True, slots=True)
class CompiledTopology:
    """A circuit, and the internal topics that it needs."""

    circuit: Circuit
    internal: InternalTopics
