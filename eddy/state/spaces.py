"""Spaces: short-lived ordered maps of bytes. All are in one store, which is not used after the end of this process.

    <number, 6 bytes big-endian> <key of the space>

The store is opened for the first space, and removed with its files when the last space is dropped. Any thread may use
spaces: every call takes a lock, because a store is for one thread at a time.

Invariant: a space that was garbage-collected without a `drop`, such as after an error in its owner's constructor, is
dropped by the next `make`.
"""

import threading
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from eddy.errors import StateError
from eddy.state.memory import MemoryStore
from eddy.state.rocksdb import RocksDBStore
from eddy.state.store import Store, StoreSnapshot
from eddy.state.store_directory import remove_store

__all__ = ["Space", "SpaceSnapshot", "Spaces"]

Pairs = list[tuple[bytes, bytes]]

_NUMBER_BYTES = 6


class Spaces:
    """Makes spaces.

    `path` is a directory for spaces only, and is emptied at the beginning. With None the spaces are in memory.

    Raises: StateInUseError if another process uses the directory; StateError.
    """

    def __init__(self, path: Path | None = None, owner: str = "", cache_bytes: int = 64 << 20) -> None:
        self._path, self._owner, self._cache_bytes = path, owner, cache_bytes
        self._lock = threading.RLock()
        self._store: Store | None = None
        self._numbers: set[int] = set()
        self._forgotten: deque[int] = deque()
        self._last = 0
        self._remove_files()

    def __len__(self) -> int:
        return len(self._numbers)

    def make(self) -> "Space":
        """Make a new, empty space. Raises: StateError."""
        with self._lock:
            while self._forgotten:
                self._drop(self._forgotten.popleft())
            self._opened()
            self._last += 1
            self._numbers.add(self._last)
            return Space(self, self._last)

    def clear(self) -> None:
        """Drop all spaces. Each further use of them raises StateError."""
        with self._lock:
            self._numbers.clear()
            self._forgotten.clear()
            self._close()

    def _opened(self) -> Store:
        if self._store is None:
            path = self._path
            self._store = MemoryStore() if path is None else RocksDBStore(path, self._owner, self._cache_bytes)
        return self._store

    def _close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()
            with suppress(StateError):  # files that cannot be removed now are removed at the next start
                self._remove_files()

    def _remove_files(self) -> None:
        if self._path is not None:
            remove_store(self._path)

    def _drop(self, number: int) -> None:
        with self._lock:
            if number not in self._numbers:
                return
            self._numbers.discard(number)
            if not self._numbers:
                self._close()
            elif self._store is not None:
                with suppress(StateError):  # on a full disk the rows remain until the last space is dropped
                    self._store.delete_prefix(_prefix(number))

    def _of(self, number: int) -> Store:
        """Return the store, or raise StateError if the space was dropped. The caller holds the lock."""
        if number not in self._numbers or self._store is None:
            raise StateError("spaces: this one was dropped; an open one is needed. Make it anew.")
        return self._store


class Space:
    """An ordered map from bytes to bytes."""

    def __init__(self, spaces: Spaces, number: int) -> None:
        self._spaces, self._number, self._prefix = spaces, number, _prefix(number)
        self._forget = weakref.finalize(self, spaces._forgotten.append, number)
        self._forget.atexit = False

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key; None for a missing key. Raises: StateError."""
        prefix = self._prefix
        with self._spaces._lock:
            return self._spaces._of(self._number).get_many([prefix + key for key in keys])

    def between(self, start: bytes, stop: bytes | None, limit: int) -> Pairs:
        """Return the first `limit` pairs with `start` ≤ key < `stop`. If `stop` is None, there is no upper bound.

        Raises: StateError.
        """
        with self._spaces._lock:
            return _between(self._spaces._of(self._number), self._prefix, start, stop, limit)

    def write(self, changes: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Put each value, and delete each key whose value is None. All changes are made or none. Raises: StateError."""
        prefix = self._prefix
        with self._spaces._lock:
            self._spaces._of(self._number).write([(prefix + key, value) for key, value in changes])

    def snapshot(self) -> "SpaceSnapshot":
        """Return a snapshot of the space's present pairs, for another thread. Raises: StateError."""
        with self._spaces._lock:
            snapshot = self._spaces._of(self._number).snapshot(self._prefix)
            return SpaceSnapshot(self._spaces, self._prefix, snapshot)

    def drop(self) -> None:
        """Remove the space with its pairs."""
        self._forget.detach()
        self._spaces._drop(self._number)


class SpaceSnapshot:
    """The pairs of a space at one moment."""

    def __init__(self, spaces: Spaces, prefix: bytes, snapshot: StoreSnapshot) -> None:
        self._spaces, self._prefix, self._snapshot = spaces, prefix, snapshot

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key at the snapshot's moment; None for a missing key. Raises: StateError."""
        with self._spaces._lock:
            return self._snapshot.get_many([self._prefix + key for key in keys])

    def between(self, start: bytes, stop: bytes | None, limit: int) -> Pairs:
        """As `Space.between`. Raises: StateError."""
        with self._spaces._lock:
            return _between(self._snapshot, self._prefix, start, stop, limit)

    def drop(self) -> None:
        """Release the snapshot."""
        with self._spaces._lock:
            self._snapshot.close()


def _prefix(number: int) -> bytes:
    return number.to_bytes(_NUMBER_BYTES, "big")


def _between(store: Store | StoreSnapshot, prefix: bytes, start: bytes, stop: bytes | None, limit: int) -> Pairs:
    end = (int.from_bytes(prefix, "big") + 1).to_bytes(_NUMBER_BYTES, "big") if stop is None else prefix + stop
    return [(key[_NUMBER_BYTES:], data) for key, data in store.scan_between(prefix + start, end, limit)]
