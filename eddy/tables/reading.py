"""Reads the tables' topics: from the stored rows up to the ends of the log, then from cut to cut.

    catch up    apply all records up to the ends E, which were read before
    follow      keep new records; when a cut is reached, apply records exactly up to the cut: exact = true
                when no cut is read for `max_wait_s`, apply all committed records: exact = false

Compaction may have dropped records before an old cut, because their keys have later records. So after catching up a cut
counts only if it lies at or beyond E, or if no record lies between the cut and E and none was written since. Therefore
(docs/adr/0031-views.md) a cut that has waited long for its records does not count, and a reader that falls back reads
up to the ends of the log anew before a cut counts.

A cut counts only once the notes of rejected records that were written with it are read. If a note names a record that
was applied already, its table is read anew.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from eddy.connectors.log import Follower, Log, TopicPartition
from eddy.runtime.quiescence import Cut, cuts_of
from eddy.tables.awaited_cuts import AwaitedCuts
from eddy.tables.catalog import Catalog, ServedTable
from eddy.tables.intake import Intake
from eddy.tables.left_out import LeftOut
from eddy.tables.pending_records import PendingRecords
from eddy.tables.reading_phase import ReadingEvent, ReadingPhase, entered
from eddy.tables.served_rows import ServedRows
from eddy.tables.stored import ReadingStart, Stored, fingerprint, taken_in
from eddy.tables.version import Offsets, Version

__all__ = ["FRESH_S", "POLL_BYTES", "POLL_RECORDS", "BeginAgainError", "ReaderFigures", "ReaderParts", "Reading"]

FRESH_S = 10.0
"""Records older than this many seconds may have been compacted."""
POLL_RECORDS, POLL_BYTES = 50_000, 16 << 20
"""The most records, and the most bytes of records, that are read at a time."""
_LOOK_S = 2.0
_STAMP_S = 600.0


class BeginAgainError(Exception):
    """Reading has to begin again: the stored rows have to be compared with the log once more."""


@dataclass(slots=True)
class ReaderFigures:
    """The figures of a reader, for any thread."""

    records: int = 0
    bytes: int = 0
    rows: int = 0
    versions: int = 0
    exact_versions: int = 0
    read_anew: int = 0
    errors: int = 0
    pending: int = 0
    """The records that were read and are not shown yet."""
    lags: dict[str, int] = field(default_factory=dict)
    """By table, the number of unread offsets when the ends were last read. It is replaced, never changed."""


class ReaderParts(NamedTuple):
    """The objects that all readings of one reader share.

    `clock` never decreases. Committed records wait up to `max_wait_s` seconds for a cut.
    """

    catalog: Catalog
    log: Log
    rows: ServedRows
    stored: Stored
    left_out: LeftOut
    intakes: Mapping[str, Intake]
    figures: ReaderFigures
    max_wait_s: float
    clock: Callable[[], float]


class Reading:
    """Follows the topics from a start on. `inputs` are the input offsets of the version of the rows."""

    def __init__(
        self, parts: ReaderParts, start: ReadingStart, follower: Follower, incarnation: str, inputs: Offsets
    ) -> None:
        self.parts, self.follower, self.inputs = parts, follower, inputs
        self._incarnation = incarnation
        tables = parts.catalog.tables.values()
        self._tables: dict[TopicPartition, ServedTable] = {tp: table for table in tables for tp in table.parts}
        sources = {table.topic for table in tables if not table.internal and table.kind == "source"}
        self._phase = ReadingPhase.CATCHING_UP
        self._ends: Mapping[TopicPartition, int] = start.ends
        self._positions = dict(start.positions)
        self._pending = PendingRecords(start.positions)
        self._cuts = AwaitedCuts(self._tables, sources, parts.clock)
        self._paused: set[TopicPartition] = set()
        self._waiting_since: float | None = None
        self._asked: Mapping[TopicPartition, int] = start.ends
        self._stepped_at = self._stamped_at = self._asked_at = parts.clock()

    @property
    def is_stale(self) -> bool:
        """Whether this process was paused for a while, so that topics may have been compacted meanwhile."""
        return self.parts.clock() - self._stepped_at > FRESH_S

    def step(self, timeout_s: float) -> None:
        """Read on, waiting up to `timeout_s` for a record. Raises: ConnectorError; BeginAgainError."""
        self._keep_fresh()
        for records in self.follower.poll(POLL_RECORDS, self._patience_s(timeout_s), POLL_BYTES):
            if records.topic == self.parts.catalog.internal.cuts:
                if cuts := cuts_of(records):
                    self._cuts.add(cuts)
                    self._phase = entered(self._phase, ReadingEvent.CUT_READ)
            else:
                figures, size = self.parts.figures, self._pending.add(records)
                figures.records, figures.bytes = figures.records + len(records), figures.bytes + size
        self._advance()
        self._stepped_at = self.parts.clock()
        self.parts.figures.pending = len(self._pending)

    def _patience_s(self, timeout_s: float) -> float:
        if self._waiting_since is None:
            return timeout_s
        due = max(self._waiting_since, self._cuts.read_at) + self.parts.max_wait_s - self.parts.clock()
        return min(timeout_s, max(due, 0.001))

    def _keep_fresh(self) -> None:
        """Catch up if records are read long after they were written, since compaction may have removed some.

        The ends of the log are read every few seconds. Records that are read after these ends are reached were written
        after the ends were read.
        """
        now = self.parts.clock()
        if now - self._asked_at < _LOOK_S:
            return
        late = now - self._asked_at > FRESH_S / 2 or self._has_fallen_back()
        self._asked, self._asked_at = self.parts.log.end_offsets(self._tables), now
        if late and self._phase is not ReadingPhase.CATCHING_UP:
            self._phase, self._ends = entered(self._phase, ReadingEvent.FELL_BACK), self._asked
        lags = dict.fromkeys(self.parts.catalog.tables, 0)
        for tp, end in self._asked.items():
            lags[self._tables[tp].name] += max(0, end - self._pending.fetched[tp])
        self.parts.figures.lags = lags

    def _has_fallen_back(self) -> bool:
        """Return whether records that existed at the last check are still unread, not counting open transactions."""
        fetched = self._pending.fetched
        missing = {tp: end for tp, end in self._asked.items() if fetched[tp] < end}
        return any(len(self.parts.log.read(tp, fetched[tp], end, 1)) for tp, end in missing.items())

    def _advance(self) -> None:
        if self._phase is ReadingPhase.CATCHING_UP:
            self._catch_up()
        if self._phase is not ReadingPhase.CATCHING_UP:
            self._follow()
        self._hold_back()
        if self.parts.clock() - self._stamped_at > _STAMP_S:
            self._apply(self._positions, self.parts.rows.version)

    def _catch_up(self) -> None:
        rows, ends, load = self.parts.rows, self._ends, self._pending.load
        if load and (rows.hindrance or self._paused or load > 0.5 or self._waited()):
            self._apply(ends, self._version(exact=False))
            self._waiting_since = None
        if self._pending.has_read(ends):
            later = self.parts.log.end_offsets(ends)
            self._cuts.floor = {tp: self._floor(tp, end) if later[tp] == end else end for tp, end in ends.items()}
            self._phase = entered(self._phase, ReadingEvent.CAUGHT_UP)
            if later == ends:  # no later record can have superseded records before a cut
                self._cuts.renew()
            if not self._follow() and rows.hindrance:
                self._apply(self._positions, self._version(exact=False))
            rows.say("")

    def _floor(self, tp: TopicPartition, end: int) -> int:
        """Return the least offset of a cut that counts, if there is no record from `end` on."""
        last = self._pending.after_last(tp, end)
        return self._positions[tp] if last is None else last

    def _waited(self) -> bool:
        """Return whether records have waited for a cut for `max_wait_s` seconds."""
        if self._waiting_since is None:
            self._waiting_since = self.parts.clock()
        return self.parts.clock() - self._waiting_since >= self.parts.max_wait_s

    def _follow(self) -> bool:
        """Apply records up to the latest cut that is reached, or all records if no cut is awaited.

        Returns whether records were applied.
        """
        now, reached = self.parts.clock(), self._cuts.latest(self._pending.fetched, self._positions)
        if reached is not None:
            self._reach(*reached)
            self._waiting_since = None
            return True
        if not self._pending.load:
            return False
        if self._waiting_since is None:
            self._waiting_since = now
        waited = now - max(self._waiting_since, self._cuts.read_at) >= self.parts.max_wait_s
        if self._phase is not ReadingPhase.STREAMING and not waited:
            return False
        self._read_notes()
        self._apply(dict(self._pending.fetched), self._version(exact=False))
        if self._phase is not ReadingPhase.STREAMING:
            self._phase = entered(self._phase, ReadingEvent.WAITED)
        self._waiting_since = None
        return True

    def _reach(self, since: float, cut: Cut) -> None:
        """Apply records up to a cut that was read at `since`."""
        at = self._cuts.offsets_of(cut)
        assert at is not None
        self._read_notes()
        self.inputs = cut.inputs
        exact = self.parts.clock() - since <= FRESH_S
        current = self.parts.rows.version
        if not (current.exact and current.inputs == cut.inputs and at == self._positions):
            self._apply(at, self._version(exact=exact))

    def _version(self, *, exact: bool) -> Version:
        return Version({}, self.inputs, exact, self.parts.rows.version.number + 1)

    def _apply(self, target: Mapping[TopicPartition, int], version: Version) -> None:
        """Apply the records before `target`, as one version."""
        parts = self.parts
        changes: dict[str, dict[bytes, bytes | None]] = {}
        positions, lasts = dict(self._positions), {}
        for tp, table in self._tables.items():
            left_out = parts.left_out.of(tp)
            for records in self._pending.take(tp, target[tp]):
                rows = parts.intakes[table.name].rows(records, left_out)
                changes.setdefault(table.name, {}).update(rows)
                positions[tp] = records.offsets[-1] + 1
                lasts[tp] = fingerprint(records)
            if version.exact:
                positions[tp] = target[tp]
        version = Version(Cut.by_topic(positions), version.inputs, version.exact, version.number)
        unwritten = parts.left_out.unwritten
        notes = [parts.stored.stamp(self._incarnation), *([unwritten] if unwritten else [])]
        parts.figures.rows += parts.rows.apply(changes, positions, lasts, version, notes)
        parts.left_out.unwritten = None
        self._positions, self._stamped_at = positions, parts.clock()
        if self._phase is not ReadingPhase.CATCHING_UP:
            parts.figures.versions += 1
            parts.figures.exact_versions += version.exact

    def _hold_back(self) -> None:
        """Bound the memory: apply a distant cut in parts, and pause partitions that are read ahead of all cuts."""
        if self._phase is not ReadingPhase.CATCHING_UP:
            crowded = self._pending.load > 1.0
            at = self._cuts.ahead(last=crowded)
            # If the next cut needs more records of a paused partition, both would wait for one another for ever.
            if at is not None and (crowded or any(self._pending.fetched[tp] < at[tp] for tp in self._paused)):
                self._apply(at, self._version(exact=False))
        full = self._pending.full()
        if full != self._paused:
            self.follower.pause(full - self._paused)
            self.follower.resume(self._paused - full)
            self._paused = full

    def _read_notes(self) -> None:
        """Read new notes of rejected records. Raises: BeginAgainError if one such record was applied, or at a reset."""
        found = self.parts.left_out.read_on()
        if found is None:
            return
        metadata, new = found
        reset = min(metadata.incarnations, default="") != self._incarnation
        if reset or taken_in(new, self._tables.values(), self._positions):
            raise BeginAgainError
