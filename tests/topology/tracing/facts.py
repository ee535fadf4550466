"""Records of streams, as a trace reads them, and evaluations over them."""

from collections.abc import Iterable
from typing import Any

import eddy
from eddy.topology.plan.facts import Fact, FactRecord
from eddy.topology.plan.plan import Node
from eddy.topology.tracing.evaluation import Evaluation
from eddy.topology.tracing.source_clocks import SourceClocks

__all__ = ["At", "evaluated", "facts_of", "node_of"]

At = tuple[str, int, Any, Any, int]
"""A record: its topic and partition, its key, value and timestamp."""


def facts_of(records: Iterable[At]) -> dict[str, list[Fact]]:
    """The facts of records that were written in this order, by topic, partition by partition."""
    found: dict[tuple[str, int], list[Fact]] = {}
    for topic, partition, key, value, stamp in records:
        there = found.setdefault((topic, partition), [])
        latest = max(stamp, there[-1].record.event_time_ms if there else -1)
        there.append(Fact((key, value), FactRecord(topic, partition, len(there), stamp, latest)))
    by_topic: dict[str, list[Fact]] = {}
    for (topic, _), facts in sorted(found.items()):
        by_topic.setdefault(topic, []).extend(facts)
    return by_topic


def node_of(topology: eddy.Topology, name: str) -> Node:
    """The step, or the sink to the topic, of this name."""
    sinks = {sink.topic: sink for sink in topology.plan.sinks()}
    return sinks.get(name) or next(node for node in topology.plan.nodes if node.name == name)


def evaluated(topology: eddy.Topology, name: str, records: Iterable[At], partitions: int) -> Evaluation:
    """The steps upstream of a step, over these records; all topics have the same number of partitions."""
    topics = {source.topic for source in topology.plan.sources()}
    rows = {topic: [] for topic in topics} | facts_of(records)
    clocks = SourceClocks(dict.fromkeys(topics, partitions))
    return Evaluation(topology.plan, node_of(topology, name), rows, clocks=clocks)
