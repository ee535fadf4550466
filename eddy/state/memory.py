"""A store in memory: a dictionary, and its keys in order; lost when it is closed.

The next scan sorts the keys that are new since the last one, so that rows that were written together are sorted once.

It is for state that is small or cheap to restore, and for tests. It implements the same protocol as `RocksDBStore`, and
passes the same test suite (`tests/state/test_store.py`). It is unbounded: all rows remain in memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile

from sortedcontainers import SortedList

from eddy.errors import StateError
from eddy.state.offsets import RESERVED

__all__ = ["MemoryStore"]


class MemoryStore:
    """Maps bytes to bytes, in key order, in the memory of this process. See `Store` for the contract."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] | None = {}  # None once closed
        self._order: SortedList = SortedList()  # the keys, without the new ones
        self._new: set[bytes] = set()

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key; None for a missing key. Cost: 0.1 µs a key."""
        return list(map(self._open_rows().get, keys))

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs whose key starts with `prefix`. Cost: all these pairs are copied at the call."""
        rows = self._open_rows()
        return iter([(key, rows[key]) for key in self._keys(prefix)])

    def scan_many(self, prefixes: Sequence[bytes]) -> list[list[tuple[bytes, bytes]]]:
        """Return the pairs of each prefix. Cost: a search for each prefix."""
        return [list(self.scan(prefix)) for prefix in prefixes]

    def scan_between(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """The first `limit` pairs with `start` ≤ key < `stop`. Cost: 0.5 µs a row."""
        rows = self._open_rows()
        return [(key, rows[key]) for key in islice(self._ordered().irange(start, stop, inclusive=(True, False)), limit)]

    def snapshot(self, prefix: bytes) -> "MemoryStore":
        """Return a store with the pairs whose key starts with `prefix`, as they are now. Cost: they are copied."""
        made, rows = MemoryStore(), self._open_rows()
        keys = self._keys(prefix)
        made._rows = {key: rows[key] for key in keys}
        made._order = SortedList(keys)
        return made

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Put or delete each key. The iterable `changes` is read to its end before the first change is applied."""
        rows = self._open_rows()
        batch = list(changes)
        _refuse_reserved(batch)
        for key, value in batch:
            if value is None:
                self._delete(key)
            else:
                if key not in rows:
                    self._new.add(key)
                rows[key] = value

    def delete_prefix(self, prefix: bytes) -> None:
        """Delete every key that starts with `prefix`."""
        for key in self._keys(prefix):
            self._delete(key)

    def flush(self) -> None:
        """Do nothing: memory does not survive a loss of power."""
        self._open_rows()

    def close(self) -> None:
        """Release every row; the store cannot be used again."""
        self._rows = None
        self._order.clear()
        self._new.clear()

    def _delete(self, key: bytes) -> None:
        if self._open_rows().pop(key, None) is None:
            return
        if key in self._new:
            self._new.remove(key)
        else:
            self._order.remove(key)

    def _ordered(self) -> SortedList:
        """All keys in order."""
        if self._new:
            self._order.update(self._new)
            self._new.clear()
        return self._order

    def _keys(self, prefix: bytes) -> list[bytes]:
        self._open_rows()
        return list(takewhile(lambda key: key.startswith(prefix), self._ordered().irange(prefix)))

    def _open_rows(self) -> dict[bytes, bytes]:
        if self._rows is None:
            raise StateError("state in memory: is closed; an open store is needed. Make a new MemoryStore().")
        return self._rows


def _refuse_reserved(batch: list[tuple[bytes, bytes | None]]) -> None:
    last = max((key for key, _ in batch), default=b"")
    if last >= RESERVED:
        raise StateError(
            f"state in memory: key {last!r} is reserved; keys below {RESERVED!r} are the user's. "
            "Put the name of a table before the key."
        )
