"""The rows of a table server: a store, its version, and snapshots of earlier versions.

One thread applies changes; any thread may read. Rows, counts, offsets and version change together, under one lock. A
reader holds the lock for one row, or for one page of a range. An open snapshot keeps the former values of rows that
have changed since, so that a long read is of one version, and no thread waits for the reader.

    FF counts 00 table     the number of its rows
    FF table 00 table      the identity of the rows' table
    FF last 00 topic p     the last record that was applied, by which the topic is recognized
    FF noted               the records known to be rejected by the application
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import itemgetter
from typing import Protocol

import msgspec
from sortedcontainers import SortedDict

from eddy.connectors.log import TopicPartition
from eddy.errors import NotReadyError, QueryError
from eddy.state.offsets import decode_offset, encode_offset, offset_key, read_offsets, read_stamp
from eddy.state.store import Store
from eddy.tables.intake import table_prefix
from eddy.tables.key_ranks import KeyRanks
from eddy.tables.open_table import end_of
from eddy.tables.recent_versions import FormerRows, PastVersion, RecentVersions
from eddy.tables.version import Version, version_of

__all__ = ["MANY_KEYS", "MAX_KEPT", "NOTED", "NOT_RUN", "Changes", "RowsFollower", "RowsSnapshot", "ServedRows"]

_COUNTS, _TABLE, _LAST = b"\xffcounts\x00", b"\xfftable\x00", b"\xfflast\x00"
NOTED = b"\xffnoted"
"""The key of the records known to be rejected."""
MAX_KEPT = 1_000_000
"""The most former rows that all snapshots together keep; if it is exceeded, the largest snapshots are closed."""
MANY_KEYS = 10_000
"""The most keys that are looked up at a time, while other readers wait."""

NOT_RUN = "the application has not run yet"
"""The text, in the reason why rows cannot be read, that says that only a worker can help."""

Changes = Mapping[str, Mapping[bytes, bytes | None]]
"""By table and key, the new value; None if the row is removed."""


class RowsFollower(Protocol):
    """The interface of followers. A method is called when changes are applied, with the lock of the rows held."""

    def put(self, changes: Changes) -> None:
        """Note that rows have changed."""

    def lost(self, table: str) -> None:
        """Note that all rows of a table were removed, and are read anew."""


class ServedRows:
    """The rows of tables in a store. Up to `recent_bytes` of memory are for the former rows of the last versions."""

    def __init__(self, store: Store, tables: Sequence[str], recent_bytes: int = 0) -> None:
        self._store = store
        self._recent = RecentVersions(recent_bytes)
        self._shown: PastVersion | None = None
        self.changed = threading.Condition()
        self.version = Version({}, {}, exact=False)
        self.hindrance = "starting"
        self.failure: Exception | None = None
        self.halted: Exception | None = None
        """The reason why no later version follows for now, although the reading goes on; reads and waits raise it."""
        self._snapshots: set[RowsSnapshot] = set()
        self._followers: list[RowsFollower] = []
        self._ranks: dict[str, KeyRanks] = {}
        self._shown_at: float | None = None
        counts = store.get_many([_COUNTS + name.encode() for name in tables])
        self.counts = {
            name: 0 if found is None else decode_offset(found) for name, found in zip(tables, counts, strict=True)
        }

    def offsets(self) -> dict[tuple[str, int], int]:
        """Return the offset up to which the records of each partition are applied."""
        return read_offsets(self._store)

    def identity(self, table: str) -> str | None:
        """Return the identity with which the rows of a table were stored; None without rows."""
        (found,) = self._store.get_many([_TABLE + table.encode()])
        return None if found is None else found.decode()

    def last(self, partition: TopicPartition) -> bytes | None:
        """Return the fingerprint of the last record of a partition that was applied."""
        return self._store.get_many([_LAST + offset_key(*partition)])[0]

    def noted(self) -> set[tuple[str, int, int]]:
        """Return the records known to be rejected."""
        (found,) = self._store.get_many([NOTED])
        return set() if found is None else set(msgspec.json.decode(found, type=list[tuple[str, int, int]]))

    def age_s(self, wall_s: float) -> float:
        """Return the seconds since the last batch was written."""
        stamp = read_stamp(self._store)
        return 0.0 if stamp is None else wall_s - stamp.written_s

    def forget(self, table: str, parts: Sequence[TopicPartition], identity: str) -> None:
        """Remove all rows of a table, which is read anew. Readers wait until it is whole again."""
        with self.changed:
            self._hinder(f"table '{table}' is read anew")
            for snapshot in self._snapshots:
                snapshot.end(f"table '{table}' was read anew")
            for follower in self._followers:
                follower.lost(table)
            # First: after a crash, a table that is half deleted is read anew.
            self._store.write([(offset_key(*tp), None) for tp in parts])
            self._store.delete_prefix(table_prefix(table))
            lasts = [(_LAST + offset_key(*tp), None) for tp in parts]
            self._store.write([(_TABLE + table.encode(), identity.encode()), (_COUNTS + table.encode(), None), *lasts])
            self._ranks.pop(table, None)
            self.counts = self.counts | {table: 0}

    def apply(
        self,
        changes: Changes,
        offsets: Mapping[TopicPartition, int],
        lasts: Mapping[TopicPartition, bytes],
        version: Version,
        notes: Sequence[tuple[bytes, bytes]],
    ) -> int:
        """Write changes, notes, and the offsets to which the changes lead, in one batch.

        Returns the number of changed keys.

        Raises: StateError, after which nothing has changed.
        """
        changed = chain.from_iterable(rows.items() for rows in changes.values())
        batch: list[tuple[bytes, bytes | None]] = sorted(changed, key=itemgetter(0))
        news = [key for key, _ in batch]  # a store reads and writes sorted keys in half the time
        with self.changed:
            olds = dict(zip(news, self._store.get_many(news), strict=True))
            counts = self.counts | {
                table: self.counts[table]
                + sum(value is not None for value in rows.values())
                - sum(olds[key] is not None for key in rows)
                for table, rows in changes.items()
            }
            batch += [(_COUNTS + table.encode(), encode_offset(counts[table])) for table in changes]
            batch += [(offset_key(*tp), encode_offset(offset)) for tp, offset in offsets.items()]
            batch += [(_LAST + offset_key(*tp), last) for tp, last in lasts.items()]
            self._store.write([*batch, *notes])
            self._keep(olds)
            if self._shown is not None and self._shown.version.inputs:
                self._recent.note(self._shown, olds)
            for table, ranks in self._ranks.items():
                rows = changes.get(table, {})
                added = [key for key, value in rows.items() if value is not None and olds[key] is None]
                ranks.take(added, [key for key, value in rows.items() if value is None and olds[key] is not None])
            for follower in self._followers:
                follower.put(changes)
            self.counts, self.version, self._shown_at = counts, version, time.monotonic()
            self._hinder(self.hindrance)
            self.changed.notify_all()
        return len(news)

    def _keep(self, olds: FormerRows) -> None:
        """Let each snapshot keep the former rows. If they take too much memory, snapshots are ended."""
        for snapshot in self._snapshots:
            snapshot.keep(olds)
        left = sorted(self._snapshots, key=lambda snapshot: snapshot.kept)
        total = sum(snapshot.kept for snapshot in left)
        while total > MAX_KEPT:
            total -= left[-1].kept
            left.pop().end(f"more than {MAX_KEPT:,} rows have changed since snapshots were opened")

    def version_age_s(self) -> float:
        """Return the seconds since the latest version was shown; 0 before the first version."""
        return 0.0 if self._shown_at is None else time.monotonic() - self._shown_at

    def say(self, hindrance: str) -> None:
        """Note the reason why rows cannot be read now; an empty text if they can be read."""
        with self.changed:
            self._hinder(hindrance)
            self.changed.notify_all()

    def _hinder(self, hindrance: str) -> None:
        """Note the reason why rows cannot be read now. The caller holds the lock.

        While there is a reason, no version is shown, and earlier versions are dropped.
        """
        self.hindrance = hindrance
        if hindrance:
            self._shown = None
            self._recent.forget()
        elif self._shown is None or self._shown.version is not self.version:
            self._shown = PastVersion(self.version, self.counts, int(time.time() * 1000))

    def fail(self, error: Exception) -> None:
        """Note the error that ends reading, so that no more versions follow."""
        with self.changed:
            self.failure = error
            self.changed.notify_all()

    def halt(self, why: Exception | None) -> None:
        """Note the reason why no later version follows for now; None if versions may follow."""
        with self.changed:
            self.halted = why
            self.changed.notify_all()

    def check(self) -> None:
        """Raise NotReadyError while tables are not whole, or the error that ended their reading, or the worker."""
        ended = self.failure or self.halted
        if ended is not None:
            raise ended.with_traceback(None)  # without a traceback, to which each reader would add its frames
        if self.hindrance:
            fix = "Start a worker: eddy run FILE, or eddy.run" if NOT_RUN in self.hindrance else "Try again later"
            raise NotReadyError(f"tables: {self.hindrance}; tables that are read whole are needed. {fix}")

    def wait(self, done: Callable[[Version], bool], timeout_s: float, what: str) -> Version:
        """Wait until `done` is true for the version, and return it. Raises: NotReadyError if this takes too long."""
        with self.changed:
            found = self.changed.wait_for(
                lambda: self.failure or self.halted or (not self.hindrance and done(self.version)), timeout_s
            )
            self.check()
            if not found:
                raise NotReadyError(
                    f"tables: {what} was not reached within {timeout_s:g} s; the version is {self.version}"
                )
            return self.version

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the latest values, all of one version."""
        if len(keys) > MANY_KEYS:
            snapshot = self.snapshot()
            try:
                return snapshot.get_many(keys)
            finally:
                snapshot.close()
        with self.changed:
            self.check()
            return self._store.get_many(keys)

    def between(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the first `limit` of the latest rows from `start` to before `stop`."""
        with self.changed:
            self.check()
            return self._store.scan_between(start, stop, limit)

    @contextmanager
    def ranks(self, table: str, known: Callable[[KeyRanks], bool], patience_s: float) -> Iterator[KeyRanks]:
        """Yield the ranks of a table's keys as soon as `known` is true for them.

        No row changes within the `with` block.

        Raises: NotReadyError if the first pass over the keys takes longer; the next call continues it.
        """
        end = time.monotonic() + patience_s
        while True:
            with self.changed:
                self.check()
                ranks = self._ranks.get(table)
                if ranks is None:
                    prefix = table_prefix(table)
                    ranks = self._ranks[table] = KeyRanks(self._store, prefix, end_of(prefix))
                if known(ranks):
                    yield ranks
                    return
                ranks.extend()
                if time.monotonic() > end:
                    raise NotReadyError(
                        f"table '{table}': {ranks.counted:,} of {self.counts[table]:,} keys are counted so far; the "
                        "place of a row is known after that. Ask again"
                    )

    def snapshot(self) -> "RowsSnapshot":
        """Return a snapshot of the present rows. Raises: NotReadyError."""
        with self.changed:
            self.check()
            made = RowsSnapshot(self)
            self._snapshots.add(made)
            return made

    def earliest(self) -> PastVersion | None:
        """Return the earliest version whose rows are still known; None if the rows cannot be read."""
        with self.changed:
            return self._recent.earliest or self._shown

    def former(self, token: str) -> "RowsSnapshot":
        """Return a snapshot of the version with this token; of the earliest known version for the token "earliest".

        Raises: QueryError if its rows are not known any more; NotReadyError.
        """
        asked = None if token == "earliest" else version_of("since", token)
        with self.changed:
            self.check()
            earliest = self._recent.earliest or self._shown
            assert earliest is not None
            wanted = earliest.version if asked is None else asked
            if self.version.is_at(wanted):
                return self.snapshot()
            found = self._recent.of(wanted)
            if found is None:
                raise QueryError(
                    f"since: the rows of version {token[:200]} are not kept here; one from {earliest.version.token} of "
                    f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(earliest.shown_ms / 1000))} UTC on is needed"
                )
            past, former = found
            made = RowsSnapshot(self)
            made.version, made.counts = past.version, dict(past.counts)
            made.keep(former)
            self._snapshots.add(made)
            return made

    def release(self, snapshot: "RowsSnapshot") -> None:
        """Stop keeping rows for a snapshot that is not read any more."""
        with self.changed:
            self._snapshots.discard(snapshot)
            snapshot.end("it was closed")

    def attach(self, follower: RowsFollower) -> None:
        """Tell a follower of changes from now on."""
        with self.changed:
            self._followers.append(follower)

    def detach(self, follower: RowsFollower) -> None:
        """Stop sending changes to a follower."""
        with self.changed:
            self._followers.remove(follower)

    def close(self) -> None:
        """Close the store."""
        with self.changed:
            self.failure = self.failure or NotReadyError("tables: they were closed; open ones are needed")
            self._store.close()
            self.changed.notify_all()


class RowsSnapshot:
    """The rows at one version, until the snapshot is closed."""

    def __init__(self, rows: ServedRows) -> None:
        self._rows = rows
        self._kept: SortedDict = SortedDict()  # the former values of rows that have changed since; None for new rows
        self.version, self.counts = rows.version, rows.counts
        self.ended = ""

    @property
    def kept(self) -> int:
        """The number of rows whose former values are kept."""
        return len(self._kept)

    def keep(self, olds: FormerRows) -> None:
        """Keep the values of rows before they change. The caller holds the lock."""
        if not self.ended:
            for key, old in olds.items():
                self._kept.setdefault(key, old)

    def end(self, why: str) -> None:
        """Drop the kept values: the snapshot cannot be read any more. The caller holds the lock."""
        self.ended = self.ended or why
        self._kept.clear()

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values at this version."""
        values: list[bytes | None] = []
        for start in range(0, len(keys), MANY_KEYS):
            part = keys[start : start + MANY_KEYS]
            with self._rows.changed:
                self.check()
                found = self._rows._store.get_many(part)
                values += [self._kept.get(key, value) for key, value in zip(part, found, strict=True)]
        return values

    def between(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the first `limit` rows from `start` to before `stop`, at this version."""
        found: list[tuple[bytes, bytes]] = []
        with self._rows.changed:
            self.check()
            while len(found) < limit and start < stop:
                page = self._rows._store.scan_between(start, stop, limit)
                end = page[-1][0] + b"\x00" if len(page) == limit else stop
                kept = {key: self._kept[key] for key in self._kept.irange(start, end, inclusive=(True, False))}
                merged = {**dict(page), **kept} if kept else dict(page)
                found += [(key, merged[key]) for key in (sorted(merged) if kept else merged) if merged[key] is not None]
                start = end
        return found[:limit]

    def check(self) -> None:
        """Raise QueryError if the snapshot cannot be read any more, or the error that ended the reading of tables."""
        if self.ended:
            raise QueryError(f"snapshot: {self.ended}; a new one is needed. Open it anew, and read less at a time")
        if self._rows.failure is not None:
            raise self._rows.failure.with_traceback(None)

    def close(self) -> None:
        """Free the kept values."""
        self._rows.release(self)
