"""The positions that belong to an application's states, and positions of its group that others have written.

Anybody may write positions of a consumer group: an operator who resets offsets, a consumer that joins under the
application's name, the broker that forgets a group without members. So each transaction that moves positions writes
them twice: to the group, with a note as metadata, and as records of the topic of cuts, with the states' changes.

    the group's position has our note             the group's position
    the topic of cuts has a record of it          the recorded position, which belongs to the states
    neither, and no partition has a record        the group's position, or none: the application starts
    neither, and other partitions have a record   the group's position, or none, if the last cut agrees; otherwise the
                                                  position is lost

A note has the id of the source topic. A topic that was deleted and created again has another id and counts as a new
topic: it is read from its first record.

Invariant: the states have processed the input up to each position that is returned, or they are empty.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from eddy.connectors.log import Log, Position, Producer, TopicPartition

__all__ = [
    "CUT",
    "TOPIC_ID",
    "OwnPositions",
    "committed",
    "cuts_topic",
    "is_ours",
    "own_positions",
    "recorded",
    "recorded_topics",
    "topic_id",
    "write_positions",
]

CUT = b"cut"
"""The key of cuts in their topic."""
TOPIC_ID = "@topic"
"""The name of a topic's id in a note."""
_KEY = b"position "
_NOTE = re.compile(r"-?\d+ -?\d+( \S+=-?\d+)*")
_ID = re.compile(rf" {TOPIC_ID}=(\d+)")
_FIRST_SPAN = 256


class _Inputs(msgspec.Struct):
    """A cut's positions in sources."""

    inputs: dict[str, list[int]]


def cuts_topic(application: str) -> str:
    """The topic of cuts and recorded positions."""
    return f"{application}-cuts"


def is_ours(position: Position) -> bool:
    """Whether eddy committed the position: its metadata is a note of `Counters`."""
    return _NOTE.fullmatch(position.metadata) is not None


def topic_id(position: Position) -> int | None:
    """The id of the topic that the position is in; None if its note has none."""
    found = _ID.search(position.metadata)
    return None if found is None else int(found[1])


@dataclass(frozen=True, slots=True)
class OwnPositions:
    """The positions of an application.

    The worker continues from `trusted`. `foreign` has the partitions whose position of the group has no note of ours,
    with its offset, or None if the group has no position. `lost` are the `foreign` partitions without a record, whose
    position in the group differs from the last cut. `topic_ids` are the ids of the topics that exist. `made_anew` has
    the partitions of topics with other ids than in their notes, with their offsets in the former topics; as `trusted`
    they have their first offsets, and the former notes.
    """

    trusted: dict[TopicPartition, Position]
    foreign: dict[TopicPartition, int | None] = field(default_factory=dict)
    lost: frozenset[TopicPartition] = frozenset()
    topic_ids: Mapping[str, int] = field(default_factory=dict)
    made_anew: Mapping[TopicPartition, int] = field(default_factory=dict)


def committed(log: Log, application: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
    """The positions up to which the states have processed the input, for partitions that have one."""
    return own_positions(log, application, partitions).trusted


def own_positions(log: Log, application: str, partitions: Iterable[TopicPartition]) -> OwnPositions:
    """The positions that belong to the states, and positions of the group that do not.

    Cost: two requests if the group has positions with our note for all partitions; otherwise a search through the topic
    of cuts, from its end.
    """
    wanted = list(partitions)
    own = _whatever_topic(log, application, wanted)
    # The ids are read last: a position whose note has this id is one in this topic, which was there all the time.
    ids = log.topic_ids({tp.topic for tp in wanted})()
    noted = {tp: topic_id(position) for tp, position in own.trusted.items()}
    anew = [tp for tp, known in noted.items() if known is not None and known != ids.get(tp.topic, known)]
    begins = log.begin_offsets(anew) if anew else {}
    former = {tp: own.trusted[tp].offset for tp in anew}
    first = {tp: Position(begins[tp], own.trusted[tp].metadata) for tp in anew}
    return replace(own, trusted=own.trusted | first, topic_ids=ids, made_anew=former)


def _whatever_topic(log: Log, application: str, wanted: Sequence[TopicPartition]) -> OwnPositions:
    """The positions in topics of these names, also in former ones."""
    found = log.committed(application, wanted)
    trusted = {tp: position for tp, position in found.items() if is_ours(position)}
    others = {tp: None if (at := found.get(tp)) is None else at.offset for tp in wanted if tp not in trusted}
    if not others:
        return OwnPositions(trusted)
    topic = cuts_topic(application)
    records, cut = recorded(log, topic, others) if log.topics([topic]) else ({}, None)
    rest = {tp: offset for tp, offset in others.items() if tp not in records}
    lost = frozenset(tp for tp, offset in rest.items() if cut is not None and (offset or 0) != cut.get(tp, 0))
    taken = {tp: Position(offset) for tp, offset in rest.items() if offset is not None and tp not in lost}
    return OwnPositions(trusted | records | taken, others, lost)


def write_positions(producer: Producer, topic: str, moves: Mapping[TopicPartition, Position], timestamp: int) -> None:
    """Record positions in the open transaction that commits them."""
    if moves:
        keys = [_KEY + f"{tp.topic} {tp.partition}".encode() for tp in moves]
        values = [msgspec.json.encode((*tp, *position)) for tp, position in moves.items()]
        producer.send(topic, 0, keys, values, [timestamp] * len(keys))


def recorded(
    log: Log, topic: str, wanted: Collection[TopicPartition]
) -> tuple[dict[TopicPartition, Position], dict[TopicPartition, int] | None]:
    """The latest recorded positions of these partitions, found from the topic's end, and the last cut's inputs.

    The inputs are None if the topic is empty. If all partitions have a record, the inputs may be incomplete.
    """
    found: dict[TopicPartition, Position] = {}
    inputs: dict[TopicPartition, int] | None = None
    for key, value in _backwards(log, TopicPartition(topic, 0)):
        if key == CUT and not inputs:
            offsets = msgspec.json.decode(value, type=_Inputs).inputs
            inputs = {TopicPartition(name, p): at for name, ends in offsets.items() for p, at in enumerate(ends)}
        elif key.startswith(_KEY):
            inputs = inputs or {}
            name, partition, offset, note = msgspec.json.decode(value, type=tuple[str, int, int, str])
            if (tp := TopicPartition(name, partition)) in wanted:
                found.setdefault(tp, Position(offset, note))
        if len(found) == len(wanted):
            break
    return found, inputs


def recorded_topics(log: Log, application: str) -> set[str]:
    """The topics in which the application has recorded a position. Cost: reads the topic of cuts."""
    topic = cuts_topic(application)
    if not log.topics([topic]):
        return set()
    keys = (key for key, _ in _backwards(log, TopicPartition(topic, 0)) if key.startswith(_KEY))
    return {key.removeprefix(_KEY).decode().rpartition(" ")[0] for key in keys}


def _backwards(log: Log, partition: TopicPartition) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a partition from its end to its beginning, read in stretches."""
    begin, stop = log.begin_offsets([partition])[partition], log.end_offsets([partition])[partition]
    span = _FIRST_SPAN
    while stop > begin:
        start = at = max(begin, stop - span)
        pairs: list[tuple[bytes | None, bytes | None]] = []
        while at < stop:  # an open transaction blocks the read until it ends or times out
            records = log.read(partition, at, stop, span)
            pairs += zip(records.keys, records.values, strict=True)
            at = records.next_offset
        yield from ((key, value) for key, value in reversed(pairs) if key is not None and value is not None)
        stop, span = start, span * 8
