"""The ledger: what a worker knows of offsets, and what its next commit will make of it.

    positions   the next offset of each partition owned
    counters    rows sent to and taken from each internal topic, noted beside its positions
    ends        how far outputs and changelogs reach, for cuts
    sent        how far internal topics have to be read before rows may overtake what is in them

Invariant: an `Entry` is what will hold once its transaction has committed; only `adopt` makes it so.
What a worker sends to an internal topic is booked on the lowest partition of it that it owns, whose
position it alone commits; where it owns none of it, on the lowest partition of all that it owns.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eddy.connectors.log import Log, Position, Records, TopicPartition
from eddy.connectors.quiescence import Counters, Cut, lags, quiescent_at
from eddy.errors import InvariantError

__all__ = ["Entry", "Ledger"]


@dataclass(slots=True)
class Entry:
    """Positions and counters as one epoch leaves them."""

    positions: dict[TopicPartition, int]
    counters: dict[TopicPartition, Counters]

    @property
    def in_loops(self) -> int:
        """Rows that were sent to internal topics and not yet taken from them, as far as these partitions know."""
        return sum(count.under_way for count in self.counters.values())


class Ledger:
    """The offsets of one worker.

    `sources`, `exchanges` and `outputs` map topics to their partitions; `anchors` are those of constants.
    """

    def __init__(
        self,
        log: Log,
        group: str,
        sources: Mapping[str, int],
        exchanges: Mapping[str, int],
        outputs: Mapping[str, int],
        anchors: Sequence[TopicPartition] = (),
    ) -> None:
        self._log, self._group, self._anchors = log, group, anchors
        self._sources, self._exchanges, self._outputs = sources, exchanges, outputs
        self._ends: dict[TopicPartition, int] = {}
        self._sent: dict[TopicPartition, int] = {}
        self.entry = Entry({}, {})

    def reread(self, owned: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Take positions and counters from the log; return the positions.

        Raises: InvariantError where rows between workers were deleted before they were taken in.
        """
        owned = list(owned)
        committed, begins = self._log.committed(self._group, owned), self._log.begin_offsets(owned)
        positions = {tp: committed[tp].offset if tp in committed else begins[tp] for tp in owned}
        for tp, offset in positions.items():
            if tp.topic in self._exchanges and offset < begins[tp]:
                raise InvariantError(
                    f"internal topic '{tp.topic}' partition {tp.partition} begins at offset {begins[tp]}, and rows "
                    f"from {offset} on have yet to be taken in; only what is committed may be deleted. Somebody else "
                    "deleted them, or eddy has a mistake: keep states and topics to be looked at, or start anew: "
                    "eddy reset …"
                )
        counters = {tp: Counters.of(committed.get(tp)) for tp in owned}
        self.entry = Entry(positions, counters)
        return positions

    def reread_ends(self) -> None:
        """Take the ends of all outputs from the log, and those of internal topics: former owners sent what is there."""
        self._ends = self._log.end_offsets(partitions_of(self._outputs))
        self._sent = self._log.end_offsets(partitions_of(self._exchanges))

    def after(self, records: Sequence[Records], sent: Mapping[str, int], constants: Iterable[str] = ()) -> Entry:
        """The entry that taking in `records` and sending so many rows to internal topics leads to.

        `constants` are the topics of those whose rows have gone out; they are counted as one row, sent and taken.
        """
        positions = self.entry.positions | {TopicPartition(r.topic, r.partition): r.next_offset for r in records}
        counters = {tp: count.copy() for tp, count in self.entry.counters.items()}
        for r in records:
            if r.topic in self._exchanges:
                counters[TopicPartition(r.topic, r.partition)].consumed += len(r)
        for topic, rows in sent.items():
            home = min((tp for tp in counters if tp.topic == topic), default=None)
            if home is not None:
                counters[home].emitted += rows
            else:
                elsewhere = counters[min(counters)].elsewhere
                elsewhere[topic] = elsewhere.get(topic, 0) + rows
        for topic in constants:
            anchor = counters[TopicPartition(topic, 0)]
            anchor.emitted, anchor.consumed = anchor.emitted + 1, anchor.consumed + 1
        return Entry(positions, counters)

    def moves(self, entry: Entry) -> dict[TopicPartition, Position]:
        """What a transaction has to commit to get to `entry`."""
        old = self.entry
        moved = {tp for tp, offset in entry.positions.items() if offset != old.positions.get(tp)}
        moved |= {tp for tp, count in entry.counters.items() if count != old.counters.get(tp)}
        return {tp: Position(entry.positions[tp], entry.counters[tp].note()) for tp in moved}

    def cut(self, entry: Entry, ends: Mapping[TopicPartition, int]) -> Cut:
        """The cut at `entry`, for a transaction whose records end at `ends`."""
        inputs = {tp: offset for tp, offset in entry.positions.items() if tp.topic in self._sources}
        outputs = self._ends | {tp: end for tp, end in ends.items() if tp in self._ends}
        return Cut(Cut.by_topic(inputs), Cut.by_topic(outputs))

    def quiescent_cut(self) -> Cut | None:
        """The cut of a quiescent moment, None where there is none just now.

        What is quiescent at the same positions before and after has written nothing between, so that
        the ends of the outputs read there are exactly those of these inputs.
        """
        before = self._quiescent_at()
        if before is None:
            return None
        ends = self._log.end_offsets(partitions_of(self._outputs))
        if self._quiescent_at() != before:
            return None
        inputs = {tp: offset for tp, offset in before.items() if tp.topic in self._sources}
        return Cut(Cut.by_topic(inputs), Cut.by_topic(ends))

    def _quiescent_at(self) -> dict[TopicPartition, int] | None:
        inputs, internal = partitions_of(self._sources), partitions_of(self._exchanges)
        return quiescent_at(self._log, self._group, inputs, internal, self._anchors)

    def leads(self) -> bool:
        """Whether this worker owns the first partition of the sources: exactly one does."""
        return min(partitions_of(self._sources)) in self.entry.positions

    def adopt(self, entry: Entry, ends: Mapping[TopicPartition, int]) -> None:
        """The transaction has committed."""
        self.entry = entry
        self._ends |= {tp: end for tp, end in ends.items() if tp in self._ends}
        self._sent |= {tp: end for tp, end in ends.items() if tp in self._sent}

    def draining(self, records: Sequence[Records]) -> dict[str, frozenset[int]]:
        """The partitions owned of each internal topic that, `records` taken in, still hold what rows would overtake."""
        if all(self.entry.positions.get(tp, end) >= end for tp, end in self._sent.items()):
            return dict.fromkeys(self._exchanges, frozenset())
        at = self.entry.positions | {TopicPartition(r.topic, r.partition): r.next_offset for r in records}
        behind = [tp for tp, end in self._sent.items() if at.get(tp, end) < end]
        return {topic: frozenset(tp.partition for tp in behind if tp.topic == topic) for topic in self._exchanges}

    def lag(self) -> int:
        """How many offsets lie between the committed positions and the ends of inputs and loops."""
        return sum(self.lags().values())

    def lags(self) -> dict[str, int]:
        """The same by topic."""
        inputs = [*partitions_of(self._sources), *partitions_of(self._exchanges)]
        sums = dict.fromkeys([*self._sources, *self._exchanges], 0)
        for tp, behind in lags(self._log, self._group, inputs).items():
            sums[tp.topic] += behind
        return sums

    def quiescent(self) -> bool:
        """Whether, at a moment during this call, all input was taken in and nothing was under way anywhere."""
        return self._quiescent_at() is not None


def partitions_of(topics: Mapping[str, int]) -> list[TopicPartition]:
    """Every partition of every topic."""
    return [TopicPartition(topic, p) for topic, count in topics.items() for p in range(count)]
