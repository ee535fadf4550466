"""The reader of tables: follows their topics, and moves the rows from cut to cut.

    begin       compare the stored rows with the log; tables that do not fit it are read anew
    catch up    take in all records up to the ends E that were read before
    follow      keep new records; where a cut is reached, apply the records up to its offsets: exact = true
                where no cut is reached for `max_wait_s`, apply all committed records: exact = false

Compaction may have dropped records that an old cut names, because of later ones. So after catching up a cut counts only
if it is at or beyond E; or before E, if there is no record between, and none was written since. A cut that waited long
for its records does not count either, for the same reason (docs/adr/0031). A reader that falls back reads up to the
ends of the log anew before a cut counts.

A cut counts only once the notes of left-out records that were written with it are read. Where a note names a record
that was taken in already, its table is read anew.

It joins no group and writes nothing to the log.
"""

import logging
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from eddy.connectors.log import Follower, Log, Records, TopicPartition
from eddy.errors import ConnectorError
from eddy.runtime.metadata import read_metadata
from eddy.runtime.quiescence import Cut, cuts_of, last_cut_at
from eddy.tables.catalog import Catalog, ServedTable
from eddy.tables.intake import Intake
from eddy.tables.served_rows import ServedRows
from eddy.tables.stored import Place, Stored, fingerprint, noted_row, taken_in
from eddy.tables.version import Offsets, Version

__all__ = ["ReaderFigures", "TableReader"]

_log = logging.getLogger("eddy.views")

_POLL_RECORDS, _POLL_BYTES = 50_000, 16 << 20
_MAX_BUFFER_BYTES = 64 << 20
_FRESH_S, _LOOK_S = 10.0, 2.0
_STAMP_S = 600.0
_TAIL = 1_000
"""Offsets before the end of the cuts' topic from which it is read at the latest: only the latest cut is needed."""


class _BeginAgainError(Exception):
    """The stored rows have to be compared with the log again."""


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
    """Records that are read and not shown yet."""
    lags: dict[str, int] = field(default_factory=dict)
    """By table, offsets that were not read yet when the ends were asked for. It is replaced, never changed."""


class TableReader:
    """Reads the tables of a catalog into `rows`. Not for several threads.

    Committed records wait at most `max_wait_s` for a cut. `clock` is monotonic, `wall` returns seconds since 1970.
    """

    def __init__(
        self,
        catalog: Catalog,
        log: Log,
        rows: ServedRows,
        *,
        max_wait_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._catalog, self._log, self._rows = catalog, log, rows
        self._max_wait_s, self._clock, self._wall = max_wait_s, clock, wall
        self.figures = ReaderFigures()
        self._stored = Stored(catalog, log, rows, wall)
        self._follower: Follower | None = None
        self._tables: dict[TopicPartition, ServedTable] = {}
        self._inputs: Offsets = {}
        self._incarnation = ""
        self._noted: set[Place] = set()
        self._noted_at: dict[TopicPartition, set[int]] = {}
        self._noted_row: tuple[bytes, bytes] | None = None  # to be written with the next version
        self._notes_at = 0
        self._intakes = {name: Intake(table) for name, table in catalog.tables.items()}
        self._sources: set[str] = set()
        self._reset()

    def _reset(self) -> None:
        self._positions: dict[TopicPartition, int] = {}  # as the rows are
        self._fetched: dict[TopicPartition, int] = {}
        self._buffers: dict[TopicPartition, deque[Records]] = {}
        self._sizes: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._cuts: deque[tuple[float, Cut]] = deque(maxlen=10_000)
        self._ends: dict[TopicPartition, int] | None = None  # while catching up
        self._floor: dict[TopicPartition, int] = {}
        self._pending_since: float | None = None
        self._cut_at = float("-inf")
        self._following = False
        self._stepped_at = self._stamped_at = self._asked_at = self._clock()
        self._asked: dict[TopicPartition, int] = {}  # the ends of the topics at that time

    def step(self, timeout_s: float) -> bool:
        """Read new records, waiting up to `timeout_s` for one. Returns whether there is a new version.

        Raises: ConnectorError, after which the next step begins again; StateError.
        """
        if self._follower is not None and self._clock() - self._stepped_at > _FRESH_S:
            self.close()  # this process was stopped for a while: topics may have been compacted
        before = self._rows.version.number
        try:
            if self._follower is None and not self._begin():
                return False
            assert self._follower is not None
            self._keep_fresh()
            for records in self._follower.poll(_POLL_RECORDS, self._patience_s(timeout_s), _POLL_BYTES):
                self._take(records)
            self._advance()
        except ConnectorError:
            self.figures.errors += 1
            self.close()
            raise
        except _BeginAgainError:
            self.close()
            return False
        self._stepped_at = self._clock()
        self.figures.pending = sum(sum(map(len, buffer)) for buffer in self._buffers.values())
        return self._rows.version.number != before

    @property
    def following(self) -> bool:
        """Whether the topics are being read; else the next step tries to begin."""
        return self._follower is not None

    @property
    def left_out(self) -> int:
        """The number of records that were not taken in: they do not decode, or the application has left them out."""
        return sum(intake.left_out for intake in self._intakes.values())

    def close(self) -> None:
        """Stop following; the next step begins again from the stored rows."""
        follower, self._follower = self._follower, None
        self._reset()
        if follower is not None:
            follower.close()

    def _patience_s(self, timeout_s: float) -> float:
        if self._pending_since is None:
            return timeout_s
        due = max(self._pending_since, self._cut_at) + self._max_wait_s - self._clock()
        return min(timeout_s, max(due, 0.001))

    def _keep_fresh(self) -> None:
        """Where records are read long after they were written: read to the ends of the log before a cut counts.

        Such records may have been compacted. The ends are asked for every few seconds; records that are read after
        these ends were written later than that.
        """
        now = self._clock()
        if now - self._asked_at < _LOOK_S:
            return
        late = now - self._asked_at > _FRESH_S / 2 or self._has_fallen_back()
        self._asked, self._asked_at = self._log.end_offsets(self._tables), now
        if late and self._ends is None:
            self._ends = self._asked
        lags = dict.fromkeys(self._catalog.tables, 0)
        for tp, end in self._asked.items():
            lags[self._tables[tp].name] += max(0, end - self._fetched[tp])
        self.figures.lags = lags

    def _has_fallen_back(self) -> bool:
        """Whether records that were committed at the last look are not read yet."""
        missing = {tp: end for tp, end in self._asked.items() if self._fetched[tp] < end}
        return any(len(self._log.read(tp, self._fetched[tp], end, 1)) for tp, end in missing.items())

    def _begin(self) -> bool:
        """Find the offsets to continue from. Returns False where topics are missing, or the application has not run."""
        found = self._log.topics(self._catalog.topics())
        if missing := sorted(set(self._catalog.topics()) - found.keys()):
            self._rows.say(f"topic '{missing[0]}' does not exist: the application has not run yet")
            return False
        self._notes_at = self._plan_end()  # first: later notes are read again
        metadata = read_metadata(self._log, self._catalog.internal.plan)
        if not metadata.incarnations:
            self._rows.say("the application has not run yet")
            return False
        self._incarnation = min(metadata.incarnations)
        self._note(metadata.left_out)
        start = self._stored.begin(found, self._incarnation, self._noted)
        self.figures.read_anew += len(start.anew)
        tables = self._catalog.tables
        self._tables = {tp: table for table in tables.values() for tp in table.parts}
        self._sources = {table.topic for table in tables.values() if not table.internal and table.kind == "source"}
        self._positions, self._ends, self._asked = dict(start.positions), start.ends, start.ends
        self._fetched = dict(start.positions)
        self._buffers = {tp: deque() for tp in self._tables}
        self._sizes = dict.fromkeys(self._tables, 0)
        cuts = TopicPartition(self._catalog.internal.cuts, 0)
        begin, end = self._log.begin_offsets([cuts])[cuts], self._log.end_offsets([cuts])[cuts]
        latest = last_cut_at(self._log, cuts.topic)
        start_at = max(begin, end - _TAIL) if latest is None else max(begin, min(latest[0], end - _TAIL))
        self._follower = self._log.follower(self._positions | {cuts: start_at})
        self._stepped_at = self._asked_at = self._clock()
        if self._rows.hindrance:
            self._rows.say("catching up")
        return True

    def _take(self, records: Records) -> None:
        """Keep records: cuts, or a table's records."""
        if records.topic == self._catalog.internal.cuts:
            cuts = cuts_of(records)
            self._cuts += [(self._clock(), cut) for cut in cuts]
            if cuts:
                self._cut_at, self._following = self._clock(), False
            return
        tp = TopicPartition(records.topic, records.partition)
        self._fetched[tp] = records.next_offset
        if len(records):
            size = records.bytes()
            self._buffers[tp].append(records)
            self._sizes[tp] += size
            self.figures.records, self.figures.bytes = self.figures.records + len(records), self.figures.bytes + size

    def _advance(self) -> None:
        if self._ends is not None:
            self._catch_up(self._ends)
        if self._ends is None:
            self._follow()
        self._hold_back()
        if self._clock() - self._stamped_at > _STAMP_S:
            self._apply(self._positions, self._rows.version)

    def _catch_up(self, ends: Mapping[TopicPartition, int]) -> None:
        total = sum(self._sizes.values())
        if total and (self._rows.hindrance or self._paused or total > _MAX_BUFFER_BYTES // 2 or self._waited()):
            self._apply(ends, self._version(exact=False))
            self._pending_since = None
        if all(self._fetched[tp] >= end for tp, end in ends.items()):
            later = self._log.end_offsets(ends)
            self._floor = {tp: self._last_before(tp, end) if later[tp] == end else end for tp, end in ends.items()}
            self._ends = None
            if later == ends:  # no later record could have superseded those before a cut
                self._cuts = deque(((self._clock(), cut) for _, cut in self._cuts), maxlen=self._cuts.maxlen)
            if not self._follow() and self._rows.hindrance:
                self._apply(self._positions, self._version(exact=False))
            self._rows.say("")

    def _waited(self) -> bool:
        """Whether records have waited for `max_wait_s`."""
        if self._pending_since is None:
            self._pending_since = self._clock()
        return self._clock() - self._pending_since >= self._max_wait_s

    def _last_before(self, tp: TopicPartition, end: int) -> int:
        """The offset after the last record before `end`."""
        offsets = [offset for records in self._buffers[tp] for offset in records.offsets if offset < end]
        return max(offsets, default=self._positions[tp] - 1) + 1

    def _follow(self) -> bool:
        """Apply records up to the latest cut that is reached; without one for long, all. Returns whether it did."""
        now, reached = self._clock(), self._latest_cut()
        if reached is not None:
            since, cut = reached
            at = self._offsets_of(cut)
            assert at is not None
            self._read_notes()
            self._inputs = cut.inputs
            exact = now - since <= _FRESH_S
            current = self._rows.version
            if not (current.exact and current.inputs == cut.inputs and at == self._positions):
                self._apply(at, self._version(exact=exact))
            self._pending_since = None
            return True
        if not any(self._sizes.values()):
            return False
        if self._pending_since is None:
            self._pending_since = now
        if self._following or now - max(self._pending_since, self._cut_at) >= self._max_wait_s:
            self._read_notes()
            self._apply(dict(self._fetched), self._version(exact=False))
            self._following, self._pending_since = True, None
            return True
        return False

    def _latest_cut(self) -> tuple[float, Cut] | None:
        """The latest cut whose records are all read. Cuts that cannot be reached any more are dropped."""
        while self._cuts and not self._counts(self._cuts[0][1]):
            self._cuts.popleft()
        found = None
        while self._cuts:
            at = self._offsets_of(self._cuts[0][1])
            if at is None or any(self._fetched[tp] < offset for tp, offset in at.items()):
                break
            found = self._cuts.popleft()
            while self._cuts and not self._counts(self._cuts[0][1]):
                self._cuts.popleft()
        return found

    def _counts(self, cut: Cut) -> bool:
        at = self._offsets_of(cut)
        return at is not None and all(
            offset >= self._positions[tp] and offset >= self._floor.get(tp, 0) for tp, offset in at.items()
        )

    def _offsets_of(self, cut: Cut) -> dict[TopicPartition, int] | None:
        """A cut's offsets of the tables' partitions; None if another plan wrote the cut."""
        found = {}
        for tp in self._tables:
            offsets = (cut.inputs if tp.topic in self._sources else cut.outputs).get(tp.topic, [])
            if len(offsets) <= tp.partition:
                return None
            found[tp] = offsets[tp.partition]
        return found

    def _version(self, *, exact: bool) -> Version:
        return Version({}, self._inputs, exact, self._rows.version.number + 1)

    def _apply(self, target: Mapping[TopicPartition, int], version: Version) -> None:
        """Take in the records before the offsets `target`, as one version."""
        changes: dict[str, dict[bytes, bytes | None]] = {}
        positions, lasts = dict(self._positions), {}
        for tp, table in self._tables.items():
            noted = self._noted_at.get(tp, ())
            for records in self._before(tp, target[tp]):
                rows = self._intakes[table.name].rows(records, noted)
                changes.setdefault(table.name, {}).update(rows)
                positions[tp] = records.offsets[-1] + 1
                lasts[tp] = fingerprint(records)
            if version.exact:
                positions[tp] = target[tp]
        version = Version(Cut.by_topic(positions), version.inputs, version.exact, version.number)
        notes = [self._stored.stamp(self._incarnation), *([self._noted_row] if self._noted_row else [])]
        self.figures.rows += self._rows.apply(changes, positions, lasts, version, notes)
        self._noted_row = None
        self._positions, self._stamped_at = positions, self._clock()
        if self._ends is None:
            self.figures.versions += 1
            self.figures.exact_versions += version.exact

    def _before(self, tp: TopicPartition, end: int) -> Iterator[Records]:
        """Take the records before an offset out of the buffer."""
        buffer = self._buffers[tp]
        while buffer and buffer[0].offsets[0] < end:
            records = buffer.popleft()
            stop = bisect_left(records.offsets, end)
            if stop < len(records):
                buffer.appendleft(records.slice(stop, len(records)))
                records = records.slice(0, stop)
            self._sizes[tp] -= records.bytes()
            yield records

    def _hold_back(self) -> None:
        """Bound the memory: apply a distant cut in parts; pause partitions that run ahead of all cuts."""
        assert self._follower is not None
        if self._cuts and self._ends is None:
            crowded = sum(self._sizes.values()) > _MAX_BUFFER_BYTES
            at = self._offsets_of(self._cuts[-1 if crowded else 0][1])
            # A paused partition that the next cut needs more of would wait for it for good, and it for the partition.
            if at is not None and (crowded or any(self._fetched[tp] < at[tp] for tp in self._paused)):
                self._apply(at, self._version(exact=False))
        share = max(1 << 20, _MAX_BUFFER_BYTES // max(1, len(self._sizes)))
        full = {tp for tp, size in self._sizes.items() if size > share}
        if full != self._paused:
            self._follower.pause(full - self._paused)
            self._follower.resume(self._paused - full)
            self._paused = full

    def _plan_end(self) -> int:
        tp = TopicPartition(self._catalog.internal.plan, 0)
        return self._log.end_offsets([tp])[tp]

    def _note(self, left_out: set[Place]) -> None:
        """Skip these records from now on."""
        self._noted, self._noted_row = left_out, noted_row(left_out)
        self._noted_at = {}
        for topic, partition, offset in left_out:
            self._noted_at.setdefault(TopicPartition(topic, partition), set()).add(offset)

    def _read_notes(self) -> None:
        """Read the notes of records left out up to now. Raises: _BeginAgainError where one of these was taken in."""
        end = self._plan_end()
        if end == self._notes_at:
            return
        metadata = read_metadata(self._log, self._catalog.internal.plan)
        new, self._notes_at = metadata.left_out - self._noted, end
        if new:
            self._note(metadata.left_out)
        reset = min(metadata.incarnations, default="") != self._incarnation
        if reset or taken_in(new, self._tables.values(), self._positions):
            raise _BeginAgainError
