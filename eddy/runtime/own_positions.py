"""The positions that belong to an application's states, and positions of its group that others have written.

Others may change the positions of a consumer group: an operator who resets offsets, a consumer that joins under the
application's name, or the broker, which forgets a group without members. So each transaction writes new positions
twice: to the group, with a note as metadata, and to the topic of cuts.

    the group's position has our note             the group's position
    the topic of cuts has a record of it          the recorded position, which belongs to the states
    no note and no record, nor has any partition  the group's position, or none: the application starts
    no note and no record, other partitions have  the group's position, or none, if the last cut agrees; otherwise the
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
    """The part of a cut that is decoded here: its offsets of the inputs."""

    inputs: dict[str, list[int]]


def cuts_topic(application: str) -> str:
    """Return the topic of an application's cuts and recorded positions."""
    return f"{application}-cuts"


def is_ours(position: Position) -> bool:
    """Whether eddy committed the position: its metadata is a note of `Counters`."""
    return _NOTE.fullmatch(position.metadata) is not None


def topic_id(position: Position) -> int | None:
    """Return the id of the position's topic from its note; None if the note has no id."""
    found = _ID.search(position.metadata)
    return None if found is None else int(found[1])


@dataclass(frozen=True, slots=True)
class OwnPositions:
    """The positions of an application.

    - `trusted`: the positions from which the worker continues.
    - `foreign`: the partitions whose position in the group has no note of ours, each with that position's offset, or
      with None if the group has no position.
    - `lost`: the `foreign` partitions without a recorded position whose group's position differs from the last cut.
    - `topic_ids`: the ids of the topics that exist.
    - `made_anew`: the partitions of topics with another id than in the note, each with its offset in the former topic.
      In `trusted` these partitions have the first offset of the new topic, and the former note.
    """

    trusted: dict[TopicPartition, Position]
    foreign: dict[TopicPartition, int | None] = field(default_factory=dict)
    lost: frozenset[TopicPartition] = frozenset()
    topic_ids: Mapping[str, int] = field(default_factory=dict)
    made_anew: Mapping[TopicPartition, int] = field(default_factory=dict)


def committed(log: Log, application: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
    """Return the positions up to which the states have processed the input, for partitions that have one."""
    return own_positions(log, application, partitions).trusted


def own_positions(log: Log, application: str, partitions: Iterable[TopicPartition]) -> OwnPositions:
    """Find the positions that belong to the states, and the group's positions that do not belong to them.

    Cost: two requests if the group has positions with our note for all partitions; otherwise a search through the topic
    of cuts, from its end.
    """
    wanted = list(partitions)
    own = _positions_by_topic_name(log, application, wanted)
    # The ids are read last: if a note has the present id, the topic existed all the time, and has this position.
    ids = log.topic_ids({tp.topic for tp in wanted})()
    noted = {tp: topic_id(position) for tp, position in own.trusted.items()}
    anew = [tp for tp, known in noted.items() if known is not None and known != ids.get(tp.topic, known)]
    begins = log.begin_offsets(anew) if anew else {}
    former = {tp: own.trusted[tp].offset for tp in anew}
    first = {tp: Position(begins[tp], own.trusted[tp].metadata) for tp in anew}
    return replace(own, trusted=own.trusted | first, topic_ids=ids, made_anew=former)


def _positions_by_topic_name(log: Log, application: str, wanted: Sequence[TopicPartition]) -> OwnPositions:
    """Find the positions without a look at topic ids, so a position may be from a deleted topic of the same name."""
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
    """Return the latest recorded positions of the partitions `wanted`, and the input offsets of the last cut.

    The topic is read backwards until all partitions are found, so then the last cut may not be reached, and the input
    offsets are {}. They are None if the topic has no cut and no position.
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
    """Return the topics in which the application has recorded a position. Cost: reads the topic of cuts."""
    topic = cuts_topic(application)
    if not log.topics([topic]):
        return set()
    keys = (key for key, _ in _backwards(log, TopicPartition(topic, 0)) if key.startswith(_KEY))
    return {key.removeprefix(_KEY).decode().rpartition(" ")[0] for key in keys}


def _backwards(log: Log, partition: TopicPartition) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a partition from its end to its beginning, without records that lack one of them."""
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
