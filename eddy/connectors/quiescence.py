"""Knowing that nothing is left to do, and saying at which offsets the outputs are exact.

A transaction moves positions and appends records at once, and its records are in the log before
its positions show. So read the positions C first and the ends E after that:

    C(t1) ≤ C(τ) ≤ E(τ) ≤ E(t2)  for every τ between;   C(t1) = E(t2)  ⇒  nothing was in flight at τ

Positions are compared, never counts: control records take offsets. As a second witness every
commit counts the rows that were sent to and taken from each internal topic, in the notes of its
positions; they have to agree.

Invariant: `quiescent` is never true too early. It may be false too long: then it is asked again.
Sources: Mattern 1987 on counting; the argument is DESIGN's, tried on a broker before.
"""

from collections.abc import Iterable, Mapping

import msgspec

from eddy.connectors.log import Log, Position, TopicPartition

__all__ = ["Counters", "Cut", "lags", "quiescent"]


class Counters(msgspec.Struct):
    """Rows sent to and taken from an internal topic since it was made, as booked on one partition."""

    emitted: int = 0
    consumed: int = 0

    def note(self) -> str:
        """The note beside the partition's position."""
        return f"{self.emitted} {self.consumed}"

    @classmethod
    def of(cls, position: Position | None) -> "Counters":
        """Read a note."""
        if position is None or not position.metadata:
            return cls()
        emitted, consumed = position.metadata.split(" ")
        return cls(int(emitted), int(consumed))


class Cut(msgspec.Struct, frozen=True):
    """Input offsets, and the output offsets at which outputs and changelogs are exactly f(inputs).

    By topic, one offset a partition: all records before it, and none from it on.
    """

    inputs: dict[str, list[int]]
    outputs: dict[str, list[int]]

    def encode(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self, order="sorted")

    @staticmethod
    def decode(data: bytes) -> "Cut":
        """From JSON."""
        return msgspec.json.decode(data, type=Cut)

    @staticmethod
    def by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, list[int]]:
        """Offsets by partition as lists by topic."""
        topics: dict[str, list[int]] = {}
        for (topic, _), offset in sorted(offsets.items()):
            topics.setdefault(topic, []).append(offset)
        return topics


def lags(log: Log, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """How far the group is behind in each partition, in offsets; positions are read before ends."""
    wanted = list(partitions)
    begins = log.begin_offsets(wanted)
    committed = log.committed(group, wanted)
    ends = log.end_offsets(wanted)
    return {tp: ends[tp] - (committed[tp].offset if tp in committed else begins[tp]) for tp in wanted}


def quiescent(log: Log, group: str, inputs: Iterable[TopicPartition], internal: Iterable[TopicPartition]) -> bool:
    """Whether, at a moment during this call, every input was taken in and nothing was under way."""
    internal = list(internal)
    committed = log.committed(group, internal)
    if any(lags(log, group, [*inputs, *internal]).values()):
        return False
    topics: dict[str, int] = {}
    for partition, position in committed.items():
        counters = Counters.of(position)
        topics[partition.topic] = topics.get(partition.topic, 0) + counters.emitted - counters.consumed
    return not any(topics.values())
