"""Reads one table: single keys, ranges, prefixes and all rows, as objects that the topology's serdes decode.

Rows are returned in the order of their keys (`ordering.py`). A range is read page by page. In a snapshot all pages are
of one version; without a snapshot, each page may be of a later version than the page before it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from eddy.errors import QueryError
from eddy.serde import reason_of, serde_for
from eddy.tables.catalog import ServedTable
from eddy.tables.intake import table_prefix
from eddy.tables.ordering import canonical_key, decode_key, encode_key, prefix_of
from eddy.tables.read_arguments import check_limit

__all__ = ["KeyRange", "OpenTable", "end_of"]

_PAGE = 1_000
Row = tuple[Any, Any]


class _Rows(Protocol):
    """The rows to read: the latest rows, or those of a snapshot. `counts` has the number of rows of each table."""

    @property
    def counts(self) -> Mapping[str, int]: ...

    def check(self) -> None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def between(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]: ...


class KeyRange(NamedTuple):
    """The stored bytes of the keys from `start`, up to but without `stop`."""

    start: bytes
    stop: bytes


class OpenTable:
    """A table to read."""

    def __init__(self, table: ServedTable, rows: _Rows) -> None:
        self.table = table
        self._rows = rows
        self._prefix = table_prefix(table.name)

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key; `default` if the table has no such key.

        Raises: QueryError for a key that does not fit the serde.
        """
        (found,) = self._rows.get_many([self.stored_key(key)])
        return default if found is None else self.table.value.decode(found)

    def get_many(self, keys: Sequence[Any]) -> list[Any]:
        """Return the value of each key, in the order of `keys`, all of one version; None for a missing key."""
        if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
            raise QueryError(f"table '{self.table.name}': keys={_short(keys)}; a list of keys is needed")
        found = self._rows.get_many(list(map(self.stored_key, keys)))
        decode = self.table.value.decode
        return [None if data is None else decode(data) for data in found]

    def range(self, start: Any = None, stop: Any = None, *, limit: int | None = None) -> Iterator[Row]:
        """Return the rows with `start` ≤ key < `stop`, in the order of keys; None means no bound."""
        check_limit(f"table '{self.table.name}'", limit)
        return self.between(self.keys(start, stop), limit)

    def prefix(self, prefix: Any, *, limit: int | None = None, after: Any = None) -> Iterator[Row]:
        """Return the rows whose key begins with `prefix`: a string, bytes, or the first items of a tuple.

        With `after`, only rows with later keys are returned.
        """
        keys = self.keys_with(prefix)
        check_limit(f"table '{self.table.name}'", limit)
        return self.between(keys if after is None else self.keys_after(keys, after), limit)

    def after(self, key: Any, stop: Any = None, *, limit: int | None = None) -> Iterator[Row]:
        """Return the rows after `key` and before `stop`, in the order of keys: the next page of a range."""
        check_limit(f"table '{self.table.name}'", limit)
        return self.between(self.keys_after(self.keys(None, stop), key), limit)

    def all(self) -> Iterator[Row]:
        """Return all rows, in the order of keys."""
        return self.range()

    def count(self) -> int:
        """Return the number of rows."""
        self._rows.check()
        return self._rows.counts[self.table.name]

    def keys(self, start: Any = None, stop: Any = None) -> KeyRange:
        """Return the keys with `start` ≤ key < `stop`; None means no bound."""
        low = self._prefix if start is None else self.stored_key(start)
        return KeyRange(low, end_of(self._prefix) if stop is None else self.stored_key(stop))

    def keys_with(self, prefix: Any) -> KeyRange:
        """Return the keys that begin with a string, with bytes, or with the items of a tuple."""
        kind = self.table.key.type if self.table.key.type in (str, bytes) else (str, bytes, tuple)
        if not isinstance(prefix, kind):
            needed = kind.__name__ if isinstance(kind, type) else "str, bytes or a tuple"
            raise QueryError(f"table '{self.table.name}': prefix={_short(prefix)}; {needed} is needed")
        try:
            low = self._prefix + prefix_of(self.table.key, prefix)
        except Exception as error:
            raise QueryError(
                f"table '{self.table.name}': prefix={_short(prefix)}: {reason_of(error)}; the first items of a key "
                f"of the serde {self.table.key.name} are needed"
            ) from error
        return KeyRange(low, end_of(low))

    def keys_after(self, keys: KeyRange, key: Any) -> KeyRange:
        """Return the part of a range of keys that lies after `key`."""
        return KeyRange(max(keys.start, self.stored_key(key) + b"\x00"), keys.stop)

    def stored_key(self, key: Any) -> bytes:
        """Return a key as it is stored. Raises: QueryError for a key that does not fit the serde."""
        serde = self.table.key
        try:
            serde.encode(key)
            return self._prefix + encode_key(serde, canonical_key(serde, key))
        except Exception as error:
            raise QueryError(
                f"table '{self.table.name}': key {_short(key)} is not a valid {serde.name}: {reason_of(error)}; a key "
                "that "
                f"fits is needed, not {serde_for(key)}"
            ) from error

    def between(self, keys: KeyRange, limit: int | None = None) -> Iterator[Row]:
        """Yield the rows with these keys, in their order."""
        start, stop = keys
        skip, key_serde, decode = len(self._prefix), self.table.key, self.table.value.decode
        left = limit if limit is not None else 1 << 62
        while left > 0:
            room = min(_PAGE, left)
            page = self._rows.between(start, stop, room)
            for key, value in page:
                yield decode_key(key_serde, key[skip:]), decode(value)
            left -= len(page)
            if len(page) < room:
                return
            start = page[-1][0] + b"\x00"


def end_of(prefix: bytes) -> bytes:
    """Return the least bytes that are greater than all bytes with this prefix."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b"\xff"


def _short(key: Any) -> str:
    text = repr(key)
    return text if len(text) <= 80 else f"{text[:80]}…"
