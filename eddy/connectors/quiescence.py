"""Knowing that nothing is left to do, and saying at which offsets the outputs are exact.

A transaction moves positions and appends records at once, and its records are in the log before
its positions show. So read the positions C first and the ends E after that:

    C(t1) ≤ C(τ) ≤ E(τ) ≤ E(t2)  for every τ between;   C(t1) = E(t2)  ⇒  nothing was in flight at τ

Positions are compared, never counts: control records take offsets. As a second witness every
commit counts the rows that were sent to and taken from each internal topic, in the notes of its
positions; they have to agree.

Invariant: `quiescent` is never true too early. It may be false too long: then it is asked again.
Source: Mattern, "Algorithms for distributed termination detection", 1987, on counting.
"""

from collections.abc import Iterable, Mapping

import msgspec

from eddy.connectors.log import Log, Position, TopicPartition

__all__ = ["Counters", "Cut", "lags", "quiescent", "quiescent_at", "tally"]


class Counters(msgspec.Struct):
    """Rows sent to and taken from an internal topic since it was made, as booked on one partition.

    `elsewhere` are rows sent to other internal topics, by topic: of those the sender owned no partition.
    """

    emitted: int = 0
    consumed: int = 0
    elsewhere: dict[str, int] = {}

    def note(self) -> str:
        """The note beside the partition's position: `emitted consumed topic=emitted …`."""
        return " ".join([f"{self.emitted} {self.consumed}", *(f"{t}={n}" for t, n in sorted(self.elsewhere.items()))])

    @classmethod
    def of(cls, position: Position | None) -> "Counters":
        """Read a note."""
        if position is None or not position.metadata:
            return cls()
        emitted, consumed, *others = position.metadata.split(" ")
        elsewhere = {topic: int(rows) for topic, rows in (other.split("=") for other in others)}
        return cls(int(emitted), int(consumed), elsewhere)

    def copy(self) -> "Counters":
        """Another one that says the same."""
        return Counters(self.emitted, self.consumed, dict(self.elsewhere))

    @property
    def under_way(self) -> int:
        """Rows sent and not taken, as far as this partition knows."""
        return self.emitted + sum(self.elsewhere.values()) - self.consumed


def tally(committed: Mapping[TopicPartition, Position]) -> dict[str, Counters]:
    """The sums by topic of what the notes say."""
    sums: dict[str, Counters] = {}
    for partition, position in committed.items():
        here = Counters.of(position)
        for topic, sent, taken in [
            (partition.topic, here.emitted, here.consumed),
            *((other, rows, 0) for other, rows in here.elsewhere.items()),
        ]:
            sum_ = sums.setdefault(topic, Counters())
            sum_.emitted, sum_.consumed = sum_.emitted + sent, sum_.consumed + taken
    return sums


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


def quiescent(
    log: Log,
    group: str,
    inputs: Iterable[TopicPartition],
    internal: Iterable[TopicPartition],
    anchors: Iterable[TopicPartition] = (),
) -> bool:
    """Whether, at a moment during this call, every input was taken in and nothing was under way."""
    return quiescent_at(log, group, inputs, internal, anchors) is not None


def quiescent_at(
    log: Log,
    group: str,
    inputs: Iterable[TopicPartition],
    internal: Iterable[TopicPartition],
    anchors: Iterable[TopicPartition] = (),
) -> dict[TopicPartition, int] | None:
    """The group's positions at a quiescent moment during this call, None where there was none.

    `anchors` are internal partitions of constants: they have no record, and a position as soon as theirs have gone out.
    """
    partitions = [*inputs, *internal]
    begins = log.begin_offsets(partitions)
    committed = log.committed(group, partitions)
    ends = log.end_offsets(partitions)
    if not all(anchor in committed for anchor in anchors):
        return None
    positions = {tp: committed[tp].offset if tp in committed else begins[tp] for tp in partitions}
    if positions != ends or any(counters.under_way for counters in tally(committed).values()):
        return None
    return positions
