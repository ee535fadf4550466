"""Quiescence: detects that nothing is left to do, and the offsets at which the outputs are exact.

A transaction moves positions and appends records atomically, and its records are in the log before its positions are
visible. So read the positions C first and the ends E after that:

    C(t1) ≤ C(τ) ≤ E(τ) ≤ E(t2)  for every τ between;   C(t1) = E(t2)  ⇒  nothing was in flight at τ

Positions are compared, never counts of records, because control records take offsets, too. As a second witness, the
metadata of the positions count the rows sent to each internal topic and the rows read from it. These two counts have to
be equal.

Work that no record announces is noted with the positions, too: due work that an epoch has not finished, and the offsets
of global tables. The topics that the owner reads are noted because windows may close when a topic is created or
deleted.

Invariant: `quiescent` is never true too early. If it is false for too long, it is called again.
Source: Mattern, "Algorithms for distributed termination detection", 1987, on counting.
"""

from collections.abc import Iterable, Mapping

import msgspec

from eddy.connectors.log import Log, Position, Records, TopicPartition
from eddy.runtime.own_positions import CUT, TOPIC_ID, OwnPositions, committed, own_positions

__all__ = [
    *("Counters", "Cut", "behind_topics", "cuts_of", "lags", "last_cut", "last_cut_at", "last_dated_cut"),
    *("quiescent", "quiescent_at", "table_lags", "tally", "topics_made_anew"),
]

_FIRST_SPAN = 64
_TABLE = "@table:"


class Counters(msgspec.Struct):
    """The counts and clocks that are committed with the position of one partition.

    Rows sent to internal topics, and rows read from them, since the topics were created:

    - `emitted`, `consumed`: rows sent to, and read from, the partition's topic.
    - `elsewhere`: by topic, rows sent to internal topics of which the sender owned no partition.
    - `overdue`: 1 while the last epoch has not finished the due work of this partition number, otherwise 0.
    - `epoch`: the number of the last epoch if a state store has no changelog, otherwise -1.

    Clocks at the position, if an operator reads them, in milliseconds, -1 for none:

    - `event_time`: the greatest timestamp of the partition's records before the position.
    - `tick`: the wall-clock time of the last epoch.

    Global tables, see `table_versions`:

    - `tables`: by topic, the sum of the offsets up to which the worker has read the table's partitions.
    - `offsets_hash`: a hash of all these offsets, since different offsets may have equal sums.
    - `versions`, `since`: the number of changes of these offsets, and the partition's position at the last change.

    Source topics:

    - `topic`: the id of the partition's topic, -1 if it is not known.
    - `anew`: how often the topic was deleted and created again after records of it were read.
    - `matching`: a hash of the topics of patterns that the owner reads, -1 if their event times are not read. The owner
      has done the work that new and deleted topics among these have caused.
    """

    emitted: int = 0
    consumed: int = 0
    elsewhere: dict[str, int] = {}
    event_time: int = -1
    tick: int = -1
    overdue: int = 0
    epoch: int = -1
    tables: dict[str, int] = {}
    offsets_hash: int = -1
    versions: int = 0
    since: int = -1
    topic: int = -1
    anew: int = 0
    matching: int = -1

    def note(self) -> str:
        """Encode the metadata of the partition's position: `emitted consumed topic=emitted … @clock=milliseconds …`.

        No topic's name begins with `@`.
        """
        told = [("@event", self.event_time), ("@tick", self.tick)]
        told += [("@overdue", self.overdue or -1), ("@epoch", self.epoch)]
        told += [("@offsets", self.offsets_hash), ("@versions", self.versions or -1), ("@since", self.since)]
        told += [(TOPIC_ID, self.topic), ("@anew", self.anew or -1), ("@matching", self.matching)]
        told += [(f"{_TABLE}{topic}", offsets) for topic, offsets in sorted(self.tables.items())]
        others = [*sorted(self.elsewhere.items()), *((name, value) for name, value in told if value >= 0)]
        return " ".join([f"{self.emitted} {self.consumed}", *(f"{name}={value}" for name, value in others)])

    @classmethod
    def of(cls, position: Position | None) -> "Counters":
        """Parse a position's metadata."""
        if position is None or not position.metadata:
            return cls()
        emitted, consumed, *others = position.metadata.split(" ")
        elsewhere = {name: int(value) for name, value in (other.split("=") for other in others)}
        event_time, tick = elsewhere.pop("@event", -1), elsewhere.pop("@tick", -1)
        overdue, epoch = elsewhere.pop("@overdue", 0), elsewhere.pop("@epoch", -1)
        found = elsewhere.pop("@offsets", -1), elsewhere.pop("@versions", 0), elsewhere.pop("@since", -1)
        identity = elsewhere.pop(TOPIC_ID, -1), elsewhere.pop("@anew", 0), elsewhere.pop("@matching", -1)
        tables = {name.removeprefix(_TABLE): elsewhere.pop(name) for name in list(elsewhere) if name.startswith(_TABLE)}
        counted = int(emitted), int(consumed), elsewhere
        return cls(*counted, event_time, tick, overdue, epoch, tables, *found, *identity)

    def copy(self) -> "Counters":
        """Return an independent copy."""
        return msgspec.structs.replace(self, elsewhere=dict(self.elsewhere))

    @property
    def under_way(self) -> int:
        """Rows sent and not read, and overdue work, as counted on this partition."""
        return self.emitted + sum(self.elsewhere.values()) - self.consumed + self.overdue


def tally(committed: Mapping[TopicPartition, Position]) -> dict[str, Counters]:
    """Return, by topic, the rows sent, the rows read and the overdue work, each added up over all partitions."""
    sums: dict[str, Counters] = {}
    for partition, position in committed.items():
        here = Counters.of(position)
        for topic, sent, taken in [
            (partition.topic, here.emitted, here.consumed),
            *((other, rows, 0) for other, rows in here.elsewhere.items()),
        ]:
            sum_ = sums.setdefault(topic, Counters())
            sum_.emitted, sum_.consumed = sum_.emitted + sent, sum_.consumed + taken
        sums[partition.topic].overdue += here.overdue
    return sums


class Cut(msgspec.Struct, frozen=True, omit_defaults=True):
    """Offsets of inputs and of outputs: up to them, outputs and changelogs are exactly the results of the inputs.

    Offsets are by topic, one for each partition. A cut includes the records before an offset.

    If an operator reads a clock, a cut has the clocks, in milliseconds, -1 for none: event times by topic, and ticks by
    number of partitions, one for each partition. `tables` has the offsets in the topics of global tables up to which
    all workers have read them, and no further.
    """

    inputs: dict[str, list[int]]
    outputs: dict[str, list[int]]
    event_times: dict[str, list[int]] = {}
    ticks: list[list[int]] = []
    tables: dict[str, list[int]] = {}

    def encode(self) -> bytes:
        """Encode the cut as JSON."""
        return msgspec.json.encode(self, order="sorted")

    def described(self) -> str:
        """Return the offsets of the inputs as text: `nodes 6/4, words 3`."""
        return ", ".join(f"{topic} {'/'.join(map(str, ends))}" for topic, ends in self.inputs.items())

    @staticmethod
    def decode(data: bytes) -> "Cut":
        """Decode a cut from JSON."""
        return msgspec.json.decode(data, type=Cut)

    def with_clocks(self, counters: Mapping[TopicPartition, Counters]) -> "Cut":
        """Return the same cut with the clocks of all positions of the group.

        A worker owns the same partition number of all topics with equal partition counts, and notes one tick on all.
        """
        if not any(here.event_time >= 0 or here.tick >= 0 for here in counters.values()):
            return self
        event_times: dict[str, list[int]] = {}
        by_topic: dict[str, list[int]] = {}
        for (topic, _), here in sorted(counters.items()):
            event_times.setdefault(topic, []).append(here.event_time)
            by_topic.setdefault(topic, []).append(here.tick)
        ticks: dict[int, list[int]] = {}
        for found in by_topic.values():
            ticks[len(found)] = list(map(max, ticks.get(len(found), found), found))
        return msgspec.structs.replace(
            self,
            event_times={topic: times for topic, times in event_times.items() if max(times) >= 0},
            ticks=[found for _, found in sorted(ticks.items()) if max(found) >= 0],
        )

    @staticmethod
    def by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, list[int]]:
        """Turn offsets by partition into lists by topic."""
        topics: dict[str, list[int]] = {}
        for (topic, _), offset in sorted(offsets.items()):
            topics.setdefault(topic, []).append(offset)
        return topics


def cuts_of(records: Records) -> list[Cut]:
    """Return the cuts among the records of a topic of cuts."""
    pairs = zip(records.keys, records.values, strict=True)
    return [Cut.decode(value) for key, value in pairs if key == CUT and value is not None]


def last_cut(log: Log, topic: str) -> Cut | None:
    """Return the latest cut in a topic of cuts; None if there is none."""
    found = last_cut_at(log, topic)
    return None if found is None else found[1]


def last_dated_cut(log: Log, topic: str) -> tuple[Cut, int] | None:
    """Return the latest cut, and the time at which it was written, in milliseconds since 1970; None without a cut."""
    found = last_cut_at(log, topic)
    return None if found is None else (found[1], found[2])


def last_cut_at(log: Log, topic: str) -> tuple[int, Cut, int] | None:
    """Return the offset of the latest cut, the cut, and the time at which it was written; None if there is none.

    The search begins at the topic's end.
    """
    if not log.topics([topic]):
        return None
    partition = TopicPartition(topic, 0)
    begin, end = log.begin_offsets([partition])[partition], log.end_offsets([partition])[partition]
    span = _FIRST_SPAN
    while True:
        start = max(begin, end - span)
        records = log.read(partition, start, end, span)
        places = [place for place, key in enumerate(records.keys) if key == CUT]
        if places:
            return records.offsets[places[-1]], cuts_of(records)[-1], records.timestamps[places[-1]]
        if start == begin:
            return None
        span *= 16


def lags(log: Log, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the application's lag in each partition, in offsets. Positions are read before ends."""
    wanted = list(partitions)
    begins = log.begin_offsets(wanted)
    positions = committed(log, group, wanted)
    ends = log.end_offsets(wanted)
    return {tp: ends[tp] - (positions[tp].offset if tp in positions else begins[tp]) for tp in wanted}


def topics_made_anew(log: Log, application: str, inputs: Iterable[TopicPartition]) -> list[str]:
    """Return the topics of `inputs` that were deleted and made anew after the application had read records of them."""
    own = own_positions(log, application, inputs)
    before = {tp.topic for tp, position in own.trusted.items() if Counters.of(position).anew}
    return sorted(before | {tp.topic for tp in own.made_anew})


def table_lags(
    log: Log, group: str, partitions: Iterable[TopicPartition], tables: Iterable[TopicPartition]
) -> dict[str, int]:
    """Return, by topic of a global table, the number of offsets that the slowest worker has not read.

    `partitions` are the partitions of the application's inputs.
    """
    wanted, read = list(partitions), list(tables)
    if not read:
        return {}
    begins = log.begin_offsets(read)
    found = committed(log, group, wanted)
    return _unread([found.get(tp) for tp in wanted], begins, log.end_offsets(read))


def behind_topics(own: OwnPositions, partitions: Iterable[TopicPartition], matching: int) -> list[TopicPartition]:
    """Return the partitions whose owners still have to react to topics that were created or deleted.

    These owners have not noted the topics that match patterns now, or that the partition's topic was made anew. `own`
    are the positions of `partitions`; `matching` is the hash of the topics that match, see `quiescent_at`.
    """
    if matching < 0:
        return sorted(own.made_anew)
    others = {tp for tp in partitions if Counters.of(own.trusted.get(tp)).matching != matching}
    return sorted(others.union(own.made_anew))


def _unread(
    readers: Iterable[Position | None], begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[str, int]:
    """Return, by topic of a global table, the number of offsets that the slowest reader lacks.

    Sums of offsets over partitions suffice: no offset exceeds its end, so equal sums mean equal offsets.
    """
    counters = [Counters.of(position) for position in readers]
    lags: dict[str, int] = {}
    for topic in dict.fromkeys(tp.topic for tp in ends):
        first, last = (sum(at for tp, at in offsets.items() if tp.topic == topic) for offsets in (begins, ends))
        lags[topic] = last - min((here.tables.get(topic, first) for here in counters), default=first)
    return lags


def quiescent(
    log: Log,
    group: str,
    inputs: Iterable[TopicPartition],
    internal: Iterable[TopicPartition],
    anchors: Iterable[TopicPartition] = (),
    tables: Iterable[TopicPartition] = (),
    matching: int = -1,
) -> bool:
    """Whether, at a moment during this call, every input was processed and nothing was in flight."""
    return quiescent_at(log, group, inputs, internal, anchors, tables, matching) is not None


def quiescent_at(
    log: Log,
    group: str,
    inputs: Iterable[TopicPartition],
    internal: Iterable[TopicPartition],
    anchors: Iterable[TopicPartition] = (),
    tables: Iterable[TopicPartition] = (),
    matching: int = -1,
) -> dict[TopicPartition, Position] | None:
    """Return the application's positions, with metadata, at a quiescent moment in this call; None if there was none.

    `anchors` are internal partitions of constants: they have no records, and a position once their constants were sent.
    `tables` are the partitions of global tables, which every worker has to have read to their ends. `matching` is
    the hash of the topics that every worker has to read, -1 for none. A topic that was deleted and made anew has to be
    noted.
    """
    partitions, anchors, tables = [*inputs, *internal], set(anchors), list(tables)
    begins = log.begin_offsets([*partitions, *tables])
    own = own_positions(log, group, partitions)
    found = own.trusted
    ends = log.end_offsets([*partitions, *tables])
    if not all(anchor in found for anchor in anchors):
        return None
    read = [tp for tp in partitions if tp not in anchors]
    if behind_topics(own, read, matching):
        return None
    readers = [found.get(tp) for tp in read]
    if any(_unread(readers, {tp: begins.pop(tp) for tp in tables}, {tp: ends.pop(tp) for tp in tables}).values()):
        return None
    positions = {tp: found.get(tp) or Position(begins[tp]) for tp in partitions}
    offsets = {tp: position.offset for tp, position in positions.items()}
    if offsets != ends or any(counters.under_way for counters in tally(found).values()):
        return None
    return positions
