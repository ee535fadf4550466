"""A store on disk: one RocksDB directory, one column family, raw bytes. Only this module knows rocksdict.

Invariants:

- One `write` is one WriteBatch with the write-ahead log. So a killed process loses no `write` that returned, and no
  part of a `write`. A loss of power may lose the writes after the last `flush`.
- A directory is checked before it is written. It is refused and left unchanged if it belongs to another owner, was not
  made by eddy (`store_directory`), or is damaged. The check holds the directory's lock, because files that another
  process is writing look damaged.
- A scan never ends early without an error. RocksDB's iterator ends at an unreadable block as at the last row, so
  `status()` is asked, which distinguishes them.
- `close` ends all scans, because an open iterator would keep the directory locked. So the store knows its scans.

The store does not repair, retry or wait. Values are never pickled.
"""

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice, starmap
from operator import itemgetter
from pathlib import Path

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from eddy.errors import StateError
from eddy.state.directory_lock import DirectoryLock
from eddy.state.offsets import RESERVED
from eddy.state.store_directory import CONFIG, is_new, lock
from eddy.state.store_errors import closed, foreign_files, foreign_owner, older, refused, reserved, unreadable

__all__ = ["RocksDBSnapshot", "RocksDBStore"]

_OWNER_KEY = RESERVED + b"owner"
_MANY_KEYS = 1_000
_STALLED = "Write stall"  # RocksDB's message for a write that would have to wait
_NEVER = 1 << 30


class RocksDBStore:
    """Maps bytes to bytes, in key order, in the directory `path`, which belongs to the application `owner`.

    `cache_bytes` bounds the block cache. All stores of the process with the same `cache_bytes` share one cache. In
    addition, the memtables of a store take up to an eighth of `cache_bytes`.

    After a refused write RocksDB may refuse all later writes, even if the cause is removed. So the handle is dropped,
    and the next use opens the directory again from its write-ahead log.

    Raises: StateInUseError if another process has the directory open; StateError if it cannot be opened for other
    reasons. The directory is then unchanged.
    """

    def __init__(self, path: Path, owner: str, cache_bytes: int = 64 << 20) -> None:
        self._path = path
        self._owner = owner.encode()
        self._cache_bytes = cache_bytes
        self._scans: weakref.WeakSet[_Scan | RocksDBSnapshot] = weakref.WeakSet()
        self._closed = False
        self._sequence = 0  # RocksDB's sequence number when a write was last refused
        self._handle: _Handle | None = _open(path, self._owner, cache_bytes)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key; None for a missing key. Cost: 2 to 4 µs a hit, 0.5 to 1.5 µs a miss."""
        db = self._live()
        try:
            return db.get(list(keys))  # type: ignore[return-value]  # a list of keys gives a list
        except Exception as error:  # rocksdict raises no narrower class
            raise unreadable(self._path, error) from error

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs whose key starts with `prefix`, as of the call. Cost: 8 µs and 0.7 µs a row."""
        scan = _Scan(self._path, self._live(), prefix)
        self._scans.add(scan)
        return scan

    def scan_many(self, prefixes: Sequence[bytes]) -> list[list[tuple[bytes, bytes]]]:
        """Return the pairs of each prefix, read by one iterator. Cost: 6 µs a prefix and 0.7 µs a row."""
        found: dict[bytes, list[tuple[bytes, bytes]]] = {}
        until = ReadOptions()  # must exist as long as the iterator
        until.set_iterate_upper_bound(RESERVED)
        rows = self._live().iter(until)
        try:
            for prefix in sorted(set(prefixes)):
                pairs = found[prefix] = []
                rows.seek(prefix)
                while rows.valid() and (key := rows.key()).startswith(prefix):
                    pairs.append((key, rows.value()))
                    rows.next()
                if not rows.valid():
                    rows.status()
        except Exception as error:
            raise unreadable(self._path, error) from error
        finally:
            del rows
        return [found[prefix] for prefix in prefixes]

    def scan_between(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """The first `limit` pairs with `start` ≤ key < `stop`. Cost: 8 µs and 0.7 µs a row."""
        until = ReadOptions()  # must exist as long as the iterator
        until.set_iterate_upper_bound(min(stop, RESERVED))
        rows = self._live().iter(until)
        found: list[tuple[bytes, bytes]] = []
        try:
            rows.seek(start)
            while len(found) < limit and rows.valid():
                found.append((rows.key(), rows.value()))
                rows.next()
            if not rows.valid():
                rows.status()
        except Exception as error:
            raise unreadable(self._path, error) from error
        finally:
            del rows
        return found

    def snapshot(self, prefix: bytes) -> "RocksDBSnapshot":
        """Return the pairs whose key starts with `prefix`, as they are now. Cost: the same for any number of pairs."""
        made = RocksDBSnapshot(self._path, self._live(), prefix)
        self._scans.add(made)
        return made

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Put or delete all keys in one batch, or none of them. If a key has several changes, the last one counts.

        Cost: about 1 µs a key. The keys are sorted, because RocksDB writes sorted keys in half of the time.
        """
        rows = sorted(changes, key=itemgetter(0))
        if rows and rows[-1][0] >= RESERVED:
            raise reserved(self._path, rows[-1][0])
        self._commit(lambda: _batch(rows))

    def delete_prefix(self, prefix: bytes) -> None:
        """Delete every key that starts with `prefix`. Cost: constant for 1,000 keys or more."""
        keys = [key for key, _ in islice(self.scan(prefix), _MANY_KEYS)]
        # Each range deletion slows all later reads (by 12 ns, measured); deletions of single keys do not.
        ends = (prefix, _end(prefix)) if len(keys) >= _MANY_KEYS else None
        self._commit(lambda: _batch([(key, None) for key in keys], ends))

    def flush(self) -> None:
        """Make all writes survive a loss of power. Cost: one fsync of the log."""
        db = self._live()
        try:
            db.flush_wal(sync=True)
        except Exception as error:
            raise self._given_up(db, "flush", error) from error

    def close(self) -> None:
        """Release the directory. A scan still open raises StateError when it is used again."""
        self._closed = True
        self._release()

    def _live(self) -> Rdict:
        if self._closed:
            raise closed(self._path)
        if self._handle is None:
            self._handle = self._reopened()
        return self._handle.db

    def _reopened(self) -> "_Handle":
        handle = _open(self._path, self._owner, self._cache_bytes)
        if handle.db.latest_sequence_number() < self._sequence:
            handle.close()
            raise older(self._path)
        return handle

    def _commit(self, batch: Callable[[], WriteBatch]) -> None:
        """Write a batch. If the memtables are full, wait for their flush, which fails if the disk is full.

        RocksDB itself would wait inside the write, and never return on a full disk.
        """
        db = self._live()
        try:
            try:
                db.write(batch(), _no_waiting())
            except Exception as error:
                if _STALLED not in str(error):
                    raise
                db.flush()
                db.write(batch(), _no_waiting())
        except Exception as error:
            raise self._given_up(db, "write", error) from error

    def _given_up(self, db: Rdict, action: str, error: Exception) -> StateError:
        self._sequence = db.latest_sequence_number()
        self._release()
        return refused(self._path, action, error)

    def _release(self) -> None:
        for scan in list(self._scans):
            scan.release()
        if self._handle is not None:
            self._handle.close()
            self._handle = None


class _Handle:
    """An open RocksDB and the lock on its directory. Both are released if the object is dropped without `close`."""

    __slots__ = ("_lock", "db")

    def __init__(self, db: Rdict, lock: DirectoryLock) -> None:
        self.db, self._lock = db, lock

    def close(self) -> None:
        """Close RocksDB, then release the lock; a second call does nothing."""
        # A close that cannot flush the memtables loses nothing: the log has their rows.
        with suppress(Exception):
            self.db.close()
        self._lock.release()

    __del__ = close


class _Scan(Iterator[tuple[bytes, bytes]]):
    """A RocksDB iterator that can be released. It is at its next row, at the end, or released."""

    __slots__ = ("__weakref__", "_ended", "_path", "_rows", "_until")

    def __init__(self, path: Path, db: Rdict, prefix: bytes) -> None:
        self._path = path
        self._ended = False
        # The iterator points into the options and does not keep them: without this reference
        # its upper bound would be freed memory, and the scan could end anywhere.
        self._until = ReadOptions()
        self._until.set_iterate_upper_bound(_end(prefix))
        self._rows: RdictIter | None = db.iter(self._until)
        self._rows.seek(prefix)

    def __next__(self) -> tuple[bytes, bytes]:
        if self._rows is None or not self._rows.valid():
            self._check_end()
            raise StopIteration
        pair = self._rows.key(), self._rows.value()
        self._rows.next()
        return pair

    def release(self) -> None:
        """Drop the RocksDB iterator, which would keep the database open and locked."""
        self._rows = None

    def _check_end(self) -> None:
        if self._ended:
            return
        if self._rows is None:
            raise closed(self._path)
        try:
            self._rows.status()
        except Exception as error:
            raise unreadable(self._path, error) from error
        self._ended = True
        self.release()


class RocksDBSnapshot:
    """The pairs with a prefix at one moment. It can be read until it or the store is closed.

    It uses an iterator, which does not see later writes. Iterators of rocksdict's own snapshots do see them.
    """

    __slots__ = ("__weakref__", "_path", "_rows", "_until")

    def __init__(self, path: Path, db: Rdict, prefix: bytes) -> None:
        self._path = path
        self._until = ReadOptions()  # must exist as long as the iterator
        self._until.set_iterate_upper_bound(_end(prefix))
        self._rows: RdictIter | None = db.iter(self._until)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return what `Store.get_many` returns, at the snapshot's moment. Cost: 5 µs a key."""
        pages = [self.scan_between(key, key + b"\x00", 1) for key in keys]
        return [page[0][1] if page else None for page in pages]

    def scan_between(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return what `Store.scan_between` returns, at the snapshot's moment."""
        rows = self._rows
        if rows is None:
            raise closed(self._path)
        found: list[tuple[bytes, bytes]] = []
        try:
            rows.seek(start)
            while len(found) < limit and rows.valid() and (key := rows.key()) < stop:
                found.append((key, rows.value()))
                rows.next()
            if not rows.valid():
                rows.status()
        except Exception as error:
            raise unreadable(self._path, error) from error
        return found

    def release(self) -> None:
        """Release the iterator. As long as it is open, former rows remain on disk, and the database remains open."""
        self._rows = None

    close = release


def _batch(changes: Sequence[tuple[bytes, bytes | None]], ends: tuple[bytes, bytes] | None = None) -> WriteBatch:
    """Make a batch of rows to put or delete, and of a range of keys to delete. A batch can be written only once."""
    batch = WriteBatch(raw_mode=True)
    if None not in map(itemgetter(1), changes):
        deque(starmap(batch.put, changes), maxlen=0)  # a loop without Python bytecode
    else:
        for key, value in changes:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
    if ends is not None:
        batch.delete_range(*ends)
    return batch


@cache
def _no_waiting() -> WriteOptions:
    options = WriteOptions()
    options.no_slowdown = True
    return options


def _open(path: Path, owner: bytes, cache_bytes: int) -> _Handle:
    """Open the RocksDB in `path`, which is made if the directory is new. Invariant: a refusal changes nothing."""
    try:
        held = lock(path)
        try:
            return _Handle(_opened(path, owner, cache_bytes), held)
        except BaseException:
            held.release()
            raise
    except StateError:
        raise
    except Exception as error:
        raise unreadable(path, error) from error


def _opened(path: Path, owner: bytes, cache_bytes: int) -> Rdict:
    """Open the directory under its lock, so that no other process changes it during the check."""
    options = _options(cache_bytes)
    new = is_new(path)
    options.create_if_missing(new)
    found = None if new else _owner_in(path, _options(cache_bytes))
    if found not in (None, owner):
        raise foreign_owner(path, found, owner)
    # Without `column_families` an existing directory opens with the default cache and without filters.
    db = Rdict(str(path), options, column_families={"default": options})
    if found is None:
        _claim(db, owner)
    return db


def _claim(db: Rdict, owner: bytes) -> None:
    try:
        db.put(_OWNER_KEY, owner)
    except Exception:
        db.close()
        raise


def _owner_in(path: Path, options: Options) -> bytes | None:
    """Return the owner that is written in `path`; None if a crash happened before it was written.

    The directory is opened read-only. That takes no lock, and finds a missing or damaged file before anything is
    written.
    """
    db = Rdict(
        str(path), options, {"default": options}, access_type=AccessType.read_only(error_if_log_file_exist=False)
    )
    try:
        owner: bytes | None = db.get(_OWNER_KEY)
        if owner is None and db.latest_sequence_number() > 0:
            raise foreign_files(path, [CONFIG])
        return owner
    finally:
        db.close()


def _options(cache_bytes: int) -> Options:
    """Return options that bound memory, open files and logs. An Options object can be used for one open handle."""
    table = BlockBasedOptions()
    table.set_block_cache(_shared_cache(cache_bytes))
    # Without this, indexes and filters grow with the data, outside the cache.
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_bloom_filter(10, False)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_size(max(cache_bytes // 16, 1 << 16))
    options.set_max_write_buffer_number(2)
    options.set_memtable_whole_key_filtering(True)
    options.set_memtable_prefix_bloom_ratio(0.1)
    options.set_max_open_files(256)
    options.set_paranoid_checks(True)
    # On a disk with little room RocksDB puts compaction off without an error, and at 36 files it
    # blocks every write for ever. So blocking is off, and a write to a full disk is refused.
    options.set_level_zero_slowdown_writes_trigger(_NEVER)
    options.set_level_zero_stop_writes_trigger(_NEVER)
    options.set_soft_pending_compaction_bytes_limit(0)
    options.set_hard_pending_compaction_bytes_limit(0)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1 << 20)
    options.set_stats_dump_period_sec(0)
    return options


@cache
def _shared_cache(cache_bytes: int) -> Cache:
    return Cache(cache_bytes)


def _end(prefix: bytes) -> bytes:
    """Return the first key after all keys that start with `prefix`, but at most `RESERVED`."""
    head = prefix.rstrip(b"\xff")
    return min(head[:-1] + bytes([head[-1] + 1]), RESERVED) if head else RESERVED
