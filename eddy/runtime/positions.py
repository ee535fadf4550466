"""The positions and counters of a worker, now and after its next commit.

    positions   the next offset of each partition owned
    counters    rows sent to and read from each internal topic, and clocks, stored as metadata of its positions
    unwritten   partitions whose position the group lacks, or another program has written, until the next commit
    ends        the ends of outputs and changelogs, for cuts
    sent        the offsets of internal topics to be read before rows may bypass the topic
    tables      the offsets of global tables, noted with each position: all workers have to reach their ends

Invariant: an `EpochEntry` takes effect when its transaction has committed; only `adopt` applies it. Rows sent to an
internal topic are counted on the lowest partition of the topic that the worker owns, because only this worker commits
the position of that partition. If the worker owns no partition of the topic, the rows are counted on the lowest of all
its partitions.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eddy.connectors.log import Log, Position, Records, TopicPartition
from eddy.errors import InvariantError, StateError
from eddy.operators.context import Context
from eddy.runtime.joining_times import JoiningTopics
from eddy.runtime.own_positions import OwnPositions, own_positions
from eddy.runtime.quiescence import Counters, Cut, lags, quiescent_at, table_lags
from eddy.runtime.retries import TopicMadeAnewError
from eddy.runtime.table_versions import TableVersion, summed

__all__ = ["EpochEntry", "Positions"]

_log = logging.getLogger("eddy.worker")
_NAMED = 3
"""The most partitions that a message names."""


@dataclass(slots=True)
class EpochEntry:
    """The positions and counters that an epoch commits; `tables` are its offsets in global tables, by topic."""

    positions: dict[TopicPartition, int]
    counters: dict[TopicPartition, Counters]
    tables: Mapping[str, list[int]] = field(default_factory=dict)

    @property
    def in_loops(self) -> int:
        """The number of rows sent to internal topics and not read, plus overdue work, as noted on these partitions."""
        return sum(count.under_way for count in self.counters.values())

    @property
    def event_time(self) -> dict[tuple[str, int], int]:
        """The event times of the partitions that have one."""
        return {tp: count.event_time for tp, count in self.counters.items() if count.event_time >= 0}

    @property
    def tick(self) -> int:
        """The greatest tick of these partitions, -1 if they have none."""
        return max((count.tick for count in self.counters.values()), default=-1)


class Positions:
    """Keeps the positions and counters of one worker, and computes the ones that its next transaction commits.

    - `sources`, `exchanges`, `outputs`, `tables`: the partition counts of these topics; `tables` are global tables.
    - `anchors`: the partitions whose positions record that constants were sent.
    - `complete()`: whether `sources` are all topics that the log has for the application. If not, a new topic matches a
      pattern, and another worker may have read it.
    - `joining`: the topics of patterns, if their event times are read.
    - `of_tables`: the topics of sources that are tables.
    """

    def __init__(
        self,
        log: Log,
        group: str,
        sources: Mapping[str, int],
        exchanges: Mapping[str, int],
        outputs: Mapping[str, int],
        anchors: Sequence[TopicPartition] = (),
        tables: Mapping[str, int] | None = None,
        complete: Callable[[], bool] = lambda: True,
        joining: JoiningTopics | None = None,
        of_tables: Collection[str] = (),
    ) -> None:
        self._of_tables = of_tables
        self._tables, self._joining = partitions_of(tables or {}), joining
        self._log, self._group, self._anchors, self._complete = log, group, anchors, complete
        self._sources, self._exchanges, self._outputs = sources, exchanges, outputs
        self._partitions = {**sources, **exchanges}
        self._ends: dict[TopicPartition, int] = {}
        self._sent: dict[TopicPartition, int] = {}
        self._unwritten: set[TopicPartition] = set()
        self._said: set[tuple[TopicPartition, int | None, int]] = set()
        self._reported_recreated: dict[str, object] = {}
        self.topic_ids: Mapping[str, int] = {}
        """The ids of the sources whose positions were read."""
        self.entry = EpochEntry({}, {})

    def reread(self, owned: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Read positions and counters from the log; return the positions.

        Raises: StateError if positions are lost; InvariantError if rows between workers were deleted before they were
        read.
        """
        owned = list(owned)
        # Begins are read before positions: another worker commits before it purges, so later purges do no harm.
        begins = self._log.begin_offsets(owned)
        own = own_positions(self._log, self._group, owned)
        self._check(own, begins)
        committed = own.trusted
        # First offsets are read after the ids of topics: a topic that is made anew meanwhile has another id.
        firsts = self._log.begin_offsets([tp for tp in owned if tp not in committed])
        positions = {tp: committed[tp].offset if tp in committed else firsts[tp] for tp in owned}
        for tp, offset in positions.items():
            if tp.topic in self._exchanges and offset < begins[tp]:
                raise InvariantError(
                    f"internal topic '{tp.topic}' partition {tp.partition} begins at offset {begins[tp]}, and rows "
                    f"from {offset} on are not read yet; only committed ones may be deleted. Another program "
                    f"has deleted them, or eddy has a defect: keep states and topics for an examination, or "
                    f"start anew: "
                    "eddy reset …"
                )
        counters = {tp: self._counters(tp, own) for tp in owned}
        if self._joining is not None:
            for tp, time in self._joining.times(own, owned).items():
                counters[tp].event_time = time
        self.entry = EpochEntry(positions, counters)
        self._unwritten = {tp for tp in own.foreign if tp in committed or tp not in self._anchors}
        self._unwritten |= {
            tp for tp, position in committed.items() if counters[tp].topic != Counters.of(position).topic
        }
        self.topic_ids = {topic: id_ for topic, id_ in own.topic_ids.items() if topic in self._sources}
        return positions

    def _counters(self, tp: TopicPartition, own: OwnPositions) -> Counters:
        """Return a partition's counters; if its topic was made anew, the former counters with the new topic's id.

        The former event time is kept because windows were closed by it.
        """
        found = Counters.of(own.trusted.get(tp))
        if tp.topic in self._sources:
            found.topic = own.topic_ids.get(tp.topic, found.topic)
        if tp in own.made_anew:
            found.anew, found.since = found.anew + 1, -1
        return found

    def same_topics(self, records: Sequence[Records], tables: Mapping[str, int]) -> Callable[[], None]:
        """Request the ids of the topics. Returns a function that waits for the answer and checks the ids.

        If the function raises nothing, `records` are from the topics whose positions were read, and global tables'
        topics have the ids `tables`. Without records nothing is requested.

        Raises: ConnectorError; the function also TopicMadeAnewError.
        """
        known = {r.topic: self.topic_ids[r.topic] for r in records if r.topic in self.topic_ids}
        if records:
            known |= tables
        answer = self._log.topic_ids(known)

        def check() -> None:
            found = answer()
            if anew := [topic for topic, id_ in sorted(known.items()) if found.get(topic, id_) != id_]:
                raise TopicMadeAnewError(
                    f"application '{self._group}': topic '{anew[0]}' was deleted and made anew while it was read",
                    retriable=True,
                )

        return check

    def _check(self, own: OwnPositions, begins: Mapping[TopicPartition, int]) -> None:
        """Warn, once, of topics that were made anew, and of positions of the group that are ignored.

        Raises: StateError if the positions of the states are unknown, or a table's topic was made anew, or any with
        another number of partitions.
        """
        self._report_recreated(own)
        if own.lost:
            tp = min(own.lost)
            raise StateError(
                f"application '{self._group}': {_position_text(tp, own.foreign[tp])}; the states have processed input, "
                f"and no record has their positions. The group was deleted, or another program has written its "
                f"positions. Set them as they were, or make the states anew: eddy backfill … --replace, or eddy reset …"
            )
        wrong = [
            (tp, found, own.trusted[tp].offset)
            for tp, found in sorted(own.foreign.items())
            if tp in own.trusted.keys() - own.made_anew
            and own.trusted[tp].offset != (begins[tp] if found is None else found)
        ]
        if wrong and not self._said.issuperset(wrong):
            self._said.update(wrong)
            some = "; ".join(
                f"{_position_text(tp, found)}, the states are at {right}" for tp, found, right in wrong[:_NAMED]
            )
            others = f"; and so in {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
            _log.warning(
                "application '%s': positions that eddy did not write are not used: %s%s. Continuing from the "
                "positions of the states. To begin elsewhere: eddy reset …",
                self._group,
                some,
                others,
            )

    def _report_recreated(self, own: OwnPositions) -> None:
        anew = sorted({tp.topic for tp in own.made_anew})
        now = self._log.topics(anew) if anew and self._complete() else {}  # else topics of patterns are looked up again
        for topic in anew:
            offsets = {tp.partition: offset for tp, offset in sorted(own.made_anew.items()) if tp.topic == topic}
            if topic in self._of_tables:
                raise StateError(
                    f"application '{self._group}': topic '{topic}' was deleted and made anew, and a table has the rows "
                    f"of the former one, which the new one cannot remove. Start anew: eddy reset …"
                )
            if topic in now and (count := now[topic].partitions) != (before := self._partitions[topic]):
                raise StateError(
                    f"application '{self._group}': topic '{topic}' was deleted and made anew with {count} partitions, "
                    f"and had {before} when this worker started; keys are no longer where their states are. Make it "
                    f"with {before}, or start the workers again: they continue if there are no states, or print the "
                    "remedy"
                )
            if self._reported_recreated.get(topic) != (told := (own.topic_ids[topic], frozenset(offsets))):
                self._reported_recreated[topic] = told
                _log.warning(
                    "application '%s': topic '%s' was deleted and made anew: it is read from its first record; the "
                    "former one was read up to %s. Results keep its records; to be without them: eddy reset …",
                    self._group,
                    topic,
                    ", ".join(f"offset {offset} in partition {partition}" for partition, offset in offsets.items()),
                )

    def reread_ends(self) -> None:
        """Read the ends of all outputs, and of internal topics, to which earlier owners sent rows."""
        self._ends = self._log.end_offsets(partitions_of(self._outputs))
        self._sent = self._log.end_offsets(partitions_of(self._exchanges))

    def after(
        self,
        records: Sequence[Records],
        sent: Mapping[str, int],
        constants: Iterable[str] = (),
        clocks: Context | None = None,
        left_due: Collection[tuple[int, int]] = (),
        numbered: bool = False,
        tables: Mapping[str, list[int]] | None = None,
    ) -> EpochEntry:
        """Return the entry after processing `records` and sending `sent` rows to internal topics.

        `constants` are the topics of constants that were sent; each counts as one row, sent and read. `clocks` has the
        clocks of the epoch, if an operator reads one. In the partitions of `left_due` (partition count, partition) the
        epoch did not finish work that was due. With `numbered` the epoch gets a number, noted on all partitions.
        `tables` are the offsets of global tables in this epoch.
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
                if not elsewhere[topic]:  # `sent` can be negative: the loop has made all tries that it owed
                    del elsewhere[topic]
        number = 1 + max((count.epoch for count in counters.values()), default=-1)
        for tp, count in counters.items():
            count.epoch = number if numbered else count.epoch
            if clocks is not None:
                count.event_time = clocks.event_time.get(tp, count.event_time)
                count.tick = count.tick if clocks.tick is None else clocks.tick
            if left_due or count.overdue:
                count.overdue = int((self._partitions[tp.topic], tp.partition) in left_due)
            if self._joining is not None and tp not in self._anchors:
                count.matching = self._joining.hash
        for topic in constants:
            anchor = counters[TopicPartition(topic, 0)]
            anchor.emitted, anchor.consumed = anchor.emitted + 1, anchor.consumed + 1
        self._note_tables(counters, read := tables or {})
        return EpochEntry(positions, counters, read)

    def _note_tables(self, counters: Mapping[TopicPartition, Counters], tables: Mapping[str, list[int]]) -> None:
        """Note new offsets of global tables in each partition's counters, with the position from which they apply."""
        if not tables:
            return
        read = summed(tables)
        for tp, count in counters.items():
            if read != (count.tables, count.offsets_hash) and tp not in self._anchors:
                (count.tables, count.offsets_hash), position = read, self.entry.positions[tp]
                if position != count.since:  # otherwise no record was processed with the earlier offsets
                    count.versions, count.since = count.versions + 1, position

    def versions(self, entry: EpochEntry) -> list[TableVersion]:
        """Return the versions of global tables that begin with `entry`."""
        old = self.entry.counters
        return [
            TableVersion(*tp, count.since, count.versions, dict(entry.tables))
            for tp, count in entry.counters.items()
            if entry.tables and tp not in self._anchors and _offsets(count) != _offsets(old.get(tp))
        ]

    def moves(self, entry: EpochEntry) -> dict[TopicPartition, Position]:
        """Return the positions to commit: with a new offset, with new counters, or missing in the group."""
        old = self.entry
        moved = {tp for tp, offset in entry.positions.items() if offset != old.positions.get(tp)}
        moved |= {tp for tp, count in entry.counters.items() if count != old.counters.get(tp)}
        moved |= self._unwritten
        return {tp: Position(entry.positions[tp], entry.counters[tp].note()) for tp in moved}

    def cut(self, entry: EpochEntry, ends: Mapping[TopicPartition, int]) -> Cut:
        """Return the cut at `entry`, for a transaction whose records end at the offsets `ends`."""
        inputs = {tp: offset for tp, offset in entry.positions.items() if tp.topic in self._sources}
        outputs = self._ends | {tp: end for tp, end in ends.items() if tp in self._ends}
        return Cut(Cut.by_topic(inputs), Cut.by_topic(outputs), tables=dict(entry.tables)).with_clocks(entry.counters)

    def quiescent_cut(self) -> Cut | None:
        """Return the cut of a quiescent moment; None if the application is not quiescent.

        The ends of outputs are read between two checks. If the log is quiescent in both checks, at the same positions
        and with the same clocks, nothing was written in between. So up to these ends the outputs are exactly the
        results of the inputs.
        """
        before = self._quiescent_at()
        if before is None:
            return None
        ends = self._log.end_offsets(partitions_of(self._outputs))
        tables = self._log.end_offsets(self._tables)
        if self._quiescent_at() != before:
            return None
        inputs = {tp: position.offset for tp, position in before.items() if tp.topic in self._sources}
        counters = {tp: Counters.of(position) for tp, position in before.items()}
        return Cut(Cut.by_topic(inputs), Cut.by_topic(ends), tables=Cut.by_topic(tables)).with_clocks(counters)

    def _quiescent_at(self) -> dict[TopicPartition, Position] | None:
        if not self._complete():
            return None
        inputs, internal = partitions_of(self._sources), partitions_of(self._exchanges)
        matching = -1 if self._joining is None else self._joining.hash
        return quiescent_at(self._log, self._group, inputs, internal, self._anchors, self._tables, matching)

    def leads(self) -> bool:
        """Whether this worker owns the first partition of the sources. Exactly one worker does."""
        return min(partitions_of(self._sources)) in self.entry.positions

    def adopt(self, entry: EpochEntry, ends: Mapping[TopicPartition, int]) -> None:
        """Apply an entry whose transaction has committed."""
        self.entry = entry
        self._unwritten = set()
        self._ends |= {tp: end for tp, end in ends.items() if tp in self._ends}
        self._sent |= {tp: end for tp, end in ends.items() if tp in self._sent}

    def draining(self, records: Sequence[Records]) -> dict[str, frozenset[int]]:
        """Return, by internal topic, the owned partitions in which rows of earlier owners follow after `records`.

        Until these rows are read, a new row has to be sent through such a partition, and must not overtake them in
        memory.
        """
        if all(self.entry.positions.get(tp, end) >= end for tp, end in self._sent.items()):
            return dict.fromkeys(self._exchanges, frozenset())
        at = self.entry.positions | {TopicPartition(r.topic, r.partition): r.next_offset for r in records}
        behind = [tp for tp, end in self._sent.items() if at.get(tp, end) < end]
        return {topic: frozenset(tp.partition for tp in behind if tp.topic == topic) for topic in self._exchanges}

    def partitions_of(self, topic: str) -> int:
        """Return the number of partitions of a source or an internal topic."""
        return self._partitions[topic]

    def at_ends(self) -> bool:
        """Whether all records in the partitions owned were read."""
        ends = self._log.end_offsets(self.entry.positions)
        return all(self.entry.positions[tp] >= end for tp, end in ends.items())

    def lag(self) -> int:
        """Return the number of offsets from the committed positions to the ends of inputs, loops and global tables."""
        return sum(self.lags().values())

    def lags(self) -> dict[str, int]:
        """Return the lag of each topic of inputs, loops and global tables, in offsets."""
        inputs = self._inputs()
        sums = dict.fromkeys([*self._sources, *self._exchanges], 0)
        for tp, behind in lags(self._log, self._group, inputs).items():
            sums[tp.topic] += behind
        readers = [tp for tp in inputs if tp not in self._anchors]
        return sums | table_lags(self._log, self._group, readers, self._tables)

    def own_lags(self) -> dict[TopicPartition, int]:
        """Return the lag, in offsets, of each owned partition of inputs and loops."""
        owned = self.entry.positions.keys()
        return lags(self._log, self._group, [tp for tp in self._inputs() if tp in owned])

    def _inputs(self) -> list[TopicPartition]:
        return [*partitions_of(self._sources), *partitions_of(self._exchanges)]

    def quiescent(self) -> bool:
        """Whether, at a moment during this call, all input was processed and nothing was in flight anywhere."""
        return self._quiescent_at() is not None


def _offsets(count: Counters | None) -> object:
    return count and (count.tables, count.offsets_hash)


def _position_text(tp: TopicPartition, found: int | None) -> str:
    there = "no position" if found is None else f"position {found}"
    return f"its group has {there} in '{tp.topic}' partition {tp.partition}"


def partitions_of(topics: Mapping[str, int]) -> list[TopicPartition]:
    """List every partition of every topic; `topics` has partition counts."""
    return [TopicPartition(topic, p) for topic, count in topics.items() for p in range(count)]
