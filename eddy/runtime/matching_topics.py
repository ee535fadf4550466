"""The topics of a log that match a plan's patterns.

A topic joins the source of its pattern if

- it is not an internal topic of the application or of Kafka,
- no other step of the plan reads or writes it,
- it has as many partitions as the pattern's other topics, and
- it was not made anew after it was read.

A topic has joined once the application has positions in it: the transaction of its first records commits them.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from eddy.connectors.log import Log, TopicPartition
from eddy.errors import ConfigurationError, NoTopicMatchesError
from eddy.runtime.own_positions import OwnPositions, own_positions, recorded_topics, topic_id
from eddy.topology.plan.plan import Plan, TopicPattern
from eddy.topology.plan.topic_patterns import is_internal
from eddy.topology.topology import Topology

__all__ = ["MatchingTopics", "find_topics", "gone_topics"]

_OF_KAFKA = "__"


@dataclass(frozen=True, slots=True)
class MatchingTopics:
    """The topics of each pattern, and the matching topics that are not read, with the reasons."""

    topics: dict[TopicPattern, tuple[str, ...]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """The topics of all patterns."""
        return frozenset(topic for topics in self.topics.values() for topic in topics)

    @classmethod
    def of(cls, topology: Topology, log: Log, joined: Collection[str] = ()) -> "MatchingTopics":
        """Look the topics up. `joined` are topics that a worker reads already.

        Raises: ConfigurationError for topics of different partition counts, none of which has joined.
        """
        plan = topology.plan
        patterns = list(plan.patterns())
        if not patterns:
            return cls()
        counts = {topic: count for topic, count in log.partition_counts().items() if not topic.startswith(_OF_KAFKA)}
        named = _named(plan)
        topics: dict[TopicPattern, tuple[str, ...]] = {}
        refused: dict[str, str] = {}
        for pattern in patterns:
            own = [t for t in counts if pattern.pattern.fullmatch(t) and not is_internal(topology.name, t)]
            for topic in own:
                also = [other for other in patterns if other is not pattern and other.pattern.fullmatch(topic)]
                if why := named.get(topic) or (also and f"pattern {also[0].pattern.pattern!r} matches it, too"):
                    refused[topic] = f"{why}; one step a topic is needed. Let pattern {_regex(pattern)} exclude it"
            fit = {topic: counts[topic] for topic in sorted(own) if topic not in refused}
            if fit.keys() - set(joined) or len(set(fit.values())) > 1:
                places = [TopicPartition(topic, number) for topic, count in fit.items() for number in range(count)]
                positions = own_positions(log, topology.name, places)
                refused |= (anew := _made_anew(fit, positions))
                fit = {topic: count for topic, count in fit.items() if topic not in anew}
                refused |= _of_other_counts(topology.name, pattern, fit, positions, joined)
            topics[pattern] = tuple(topic for topic in fit if topic not in refused)
        return cls(topics, dict(sorted(refused.items())))


def _regex(pattern: TopicPattern) -> str:
    return repr(pattern.pattern.pattern)


def _named(plan: Plan) -> dict[str, str]:
    """Return the topics that other steps name, each with the use that the step makes of the topic, as text."""
    read = {node.topic: "another source reads it" for node in plan.sources() if not node.pattern}
    read |= {node.topic: "a global table reads it" for node in plan.global_tables()}
    return read | {sink.topic: "the topology itself writes it" for sink in plan.sinks()}


def _made_anew(topics: Collection[str], own: OwnPositions) -> dict[str, str]:
    """Return the topics that were deleted and created again after they were read, each with a message that refuses it.

    Only topics are examined whose positions have no ids, since an earlier version of eddy wrote them. If a topic is
    deleted, the log forgets the group's positions in it, while the application's own records still have them. If the
    group has no position in any topic, the log has forgotten the whole group, and no topic is refused.
    """
    known = {tp.topic for tp, position in own.trusted.items() if topic_id(position) is None}
    ours = {tp.topic for tp in own.trusted if own.foreign.get(tp, 0) is not None}
    return {
        topic: "it was deleted and made anew, or its positions were deleted, so that its records may not be those "
        "after the ones that were read. Write them to a topic of another name, or start anew: eddy reset …"
        for topic in topics
        if ours and topic in known - ours
    }


def _of_other_counts(
    application: str, pattern: TopicPattern, counts: Mapping[str, int], own: OwnPositions, read: Collection[str]
) -> dict[str, str]:
    """Return the topics whose partition count differs from the topics read so far, each with a message."""
    if len(set(counts.values())) < 2:
        return {}
    anew = {tp.topic for tp in own.made_anew}
    known = {tp.topic for tp in own.trusted} & counts.keys()
    joined = known - anew or known or counts.keys() & set(read)
    if len({counts[topic] for topic in joined}) != 1:
        (one, few), (other, many) = _extreme_counts(counts)
        raise ConfigurationError(
            f"application '{application}': pattern {_regex(pattern)} matches topic '{one}' with {few} partitions and "
            f"topic '{other}' with {many}; topics of one source need equal numbers. Let the pattern exclude one"
        )
    first = min(joined)
    return {
        topic: f"it has {count} partitions, and '{first}' of the same pattern {_regex(pattern)} has {counts[first]}; "
        "topics of one source need equal numbers. Make the topic anew, or let the pattern exclude it"
        for topic, count in counts.items()
        if count != counts[first]
    }


def _extreme_counts(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the topics with the least and the greatest partition count, each as (topic, count)."""
    ordered = sorted(counts.items(), key=lambda item: (item[1], item[0]))
    return [ordered[0], ordered[-1]]


def find_topics(topology: Topology, log: Log) -> MatchingTopics:
    """Find the topics of a plan's patterns, and let the plan have them as sources.

    Raises: NoTopicMatchesError if a pattern matches none; ConfigurationError.
    """
    found = MatchingTopics.of(topology, log)
    if missing := [pattern for pattern, topics in found.topics.items() if not topics]:
        others: Iterable[str] = (f"; not topic '{topic}': {why}" for topic, why in found.refused.items())
        raise NoTopicMatchesError(
            f"application '{topology.name}' waits: no topic matches pattern {_regex(missing[0])} yet{''.join(others)}; "
            "one is needed to begin. Create it: eddy topics create NAME --partitions N"
        )
    if found.topics:
        topology.plan.find(found.topics)
    return found


def gone_topics(topology: Topology, log: Log, existing: Collection[str]) -> list[str]:
    """Return the topics that match a pattern, that the application has read, and that are not among `existing`.

    Raises: ConnectorError.
    """
    patterns = [node.pattern for node in topology.plan.patterns()]
    read = recorded_topics(log, topology.name) - set(existing) if patterns else set[str]()
    matching = (topic for topic in read if any(pattern.fullmatch(topic) for pattern in patterns))
    return sorted(topic for topic in matching if not is_internal(topology.name, topic))
