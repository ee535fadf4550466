"""The event times at which topics join a pattern.

    event time of partition p of a pattern    the least event time of partition p in the topics of the pattern
    a topic that joins                        begins at that time; at -1 if it is the first topic of the pattern
    a topic that was deleted                  does not count; if no topic is left, a new one begins at the greatest
                                              event time of the deleted topics
    a topic that was created again            joins as a new topic

So the event time of a pattern's partition never decreases: a topic that joins opens no window again that has closed.
The first transaction of the partition's owner commits the time at which the topic has joined, with the topic's
positions ([ADR 90](../../docs/adr/0090-joining-topics.md)).

A topic that is created or deleted causes work without a record: it joins, or windows that have waited for its records
close, and marks tell this to other workers. Each owner commits a hash of the matching topics with its positions, but
not before the epoch that does this work. So the application is quiescent only when all positions have the hash of the
topics that match now ([ADR 105](../../docs/adr/0105-committed-topics.md)).
"""

from collections.abc import Collection, Mapping, Sequence
from re import Pattern
from zlib import crc32

import msgspec

from eddy.connectors.log import Log, TopicPartition
from eddy.operators.circuit import Circuit
from eddy.runtime.matching_topics import MatchingTopics
from eddy.runtime.own_positions import OwnPositions, cuts_topic, is_ours, recorded, recorded_topics
from eddy.runtime.quiescence import Counters
from eddy.topology.plan.topic_patterns import is_internal

__all__ = ["JoiningTopics", "topics_hash", "topics_with_times"]


def topics_with_times(matching: MatchingTopics, circuit: Circuit) -> dict[Pattern[str], tuple[str, ...]]:
    """Return, by pattern, the topics of the patterns whose event times a circuit reads."""
    found = {node.pattern: names for node, names in matching.topics.items()}
    return {pattern: names for pattern, names in found.items() if not circuit.reads.sources.isdisjoint(names)}


def topics_hash(topics: Mapping[Pattern[str], Collection[str]]) -> int:
    """Return the hash of the topics of patterns that is noted with positions; -1 if there are no patterns."""
    names = [(pattern.pattern, sorted(names)) for pattern, names in topics.items()]
    return crc32(msgspec.json.encode(sorted(names))) if names else -1


class JoiningTopics:
    """Finds the event times of topics that join. `patterns` has topics by pattern, `sources` are all topics read."""

    def __init__(
        self, log: Log, application: str, patterns: Mapping[Pattern[str], Collection[str]], sources: Collection[str]
    ) -> None:
        self._log, self._application, self._patterns, self._sources = log, application, patterns, sources
        self.hash = topics_hash(patterns)

    def times(self, own: OwnPositions, owned: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the event times of the owned partitions that belong to topics of patterns and have not joined yet.

        `own` are the owned positions. Cost: reads the topic of cuts if no topic of a pattern has joined, or if all that
        have joined were deleted.
        """
        known = {tp: Counters.of(position).event_time for tp, position in own.trusted.items() if is_ours(position)}
        joined = {tp: time for tp, time in known.items() if tp not in own.made_anew}
        times: dict[TopicPartition, int] = {}
        for pattern, topics in self._patterns.items():
            parts = [tp for tp in owned if tp.topic in topics]
            least: dict[int, int] = {}
            for tp in parts:
                if tp in joined:
                    least[tp.partition] = min(joined[tp], least.get(tp.partition, joined[tp]))
            new = [tp for tp in parts if tp not in joined]
            if first := sorted({tp.partition for tp in new} - least.keys()):
                least |= self._greatest_of_gone(pattern, first)
                for tp in new:  # some were deleted and created again: their former topics count, too
                    if tp.partition in first and tp in known:
                        least[tp.partition] = max(known[tp], least.get(tp.partition, -1))
            times |= {tp: least.get(tp.partition, -1) for tp in new}
        return times

    def _greatest_of_gone(self, pattern: Pattern[str], partitions: Sequence[int]) -> dict[int, int]:
        """Return the greatest event time, by partition number, of the topics of a pattern that were deleted."""
        application, topic = self._application, cuts_topic(self._application)
        names = recorded_topics(self._log, application) - set(self._sources)
        gone = [name for name in names if pattern.fullmatch(name) and not is_internal(application, name)]
        if not gone:
            return {}
        found, _ = recorded(self._log, topic, [TopicPartition(name, p) for name in gone for p in partitions])
        greatest: dict[int, int] = {}
        for tp, position in found.items():
            greatest[tp.partition] = max(Counters.of(position).event_time, greatest.get(tp.partition, -1))
        return greatest
