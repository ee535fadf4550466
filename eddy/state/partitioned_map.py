"""A map of keys to values in each partition: the rows of a state store, for processors.

    row of partition p    key identity  ->  value, under the prefix of p in the store, in partition p of the changelog

A row belongs to the partition of the record that wrote it, whatever its key: the same key may have a row in several
partitions. `put` encodes the value, so a value that the serde refuses is refused by `put`. Mutable values are in memory
as bytes, so that a program cannot change a row without a `put`.

Invariant: for each key that the epoch has changed, `_olds` has its cell before the epoch, and `_news` the bytes of its
new value. So `rollback` is exact, and the store never has rows of an open epoch.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from eddy.errors import DataError
from eddy.serde import Bytes, Float64, Int64, Native, Serde, String, reason_of
from eddy.state.cache import Cache
from eddy.state.memory import MemoryStore
from eddy.state.spec import Changes, StateSpec
from eddy.state.store import Store

__all__ = ["MapPartition", "PartitionedMap"]

K = TypeVar("K")
V = TypeVar("V")

_UNCHANGEABLE = frozenset({str, bytes, int, float, bool})
_EXACT: tuple[Serde[Any], ...] = (String, Bytes, Int64, Float64)
"""Serdes that change no value of their type: a value that is encoded and decoded is the same."""
_ROWS_A_SCAN = 1_000
_UNCHANGED = object()


class _Encoded(NamedTuple):
    """A cell whose value is decoded anew for each reader."""

    data: bytes


_Before = tuple[Any, Any, Any]
"""What undoes one change: the key, and the key's cell and its bytes in `_news` before the change."""


class MapPartition(Cache[K, Any], Generic[K, V]):
    """The rows of one partition, in the order of their keys' bytes."""

    def __init__(self, spec: StateSpec, partition: int, store: Store) -> None:
        self.partition, self._prefix = partition, spec.prefix(partition)
        self._news: dict[K, bytes | None] = {}
        self._olds: dict[K, Any] = {}
        self.journal: list[_Before] = []  # the changes since `accept`
        self._count: int | None = None
        serde = spec.value
        self._kept: frozenset[type] = frozenset({serde.type} if serde in _EXACT else ())
        if serde is Native:
            self._kept = _UNCHANGEABLE | {tuple}
        super().__init__(spec, store)

    def value(self, key: K) -> V | None:
        """The value of a key, or None. Raises: DataError for a key that the serde refuses."""
        cell = self._fresh.get(key)
        if cell is None:
            if key not in self._news and not self._complete:
                (cell,) = self.get_many([key])
            if cell is None:
                self.key_bytes(key)
                return None
        return self.spec.value.decode(cell.data) if type(cell) is _Encoded else cell  # type: ignore[no-any-return]

    def put(self, key: K, value: V | None) -> None:
        """Set the value of a key; None deletes it. Raises: DataError for a key or a value that a serde refuses."""
        if value is None:
            self._set(key, None, None)
            return
        try:
            data = self.spec.value.encode(value)
        except Exception as error:
            raise DataError(
                f"store '{self.spec.name}': the value {value!r} of key {key!r} is not a valid {self.spec.value.name}: "
                f"{reason_of(error)}; a value of the store's serde is needed. Name another where the store is "
                "declared: value="
            ) from error
        self._set(key, value if type(value) in self._kept else _Encoded(data), data)

    def _set(self, key: K, cell: Any, data: bytes | None) -> None:
        fresh, news = self._fresh, self._news
        old = fresh.get(key)
        before = news.get(key, _UNCHANGED)
        if before is _UNCHANGED:
            if old is None:
                self.key_bytes(key)
                if not self._complete:
                    (old,) = self.get_many([key])
            self._olds[key] = old
        self.journal.append((key, old, before))
        news[key] = data
        if old is None or cell is None:
            self._put_cell(key, old, cell)
        else:
            fresh[key] = cell

    def _put_cell(self, key: K, old: Any, cell: Any) -> None:
        if cell is not None:
            self._fresh[key] = cell
        elif old is not None:
            del self._fresh[key]
        if self._count is not None:
            self._count += (cell is not None) - (old is not None)

    def key_bytes(self, key: K) -> bytes:
        """The bytes of a key. Raises: DataError where the serde refuses it."""
        try:
            return (self.spec.key.identify or self.spec.key.encode)(key)
        except Exception as error:
            raise DataError(
                f"store '{self.spec.name}': the key {key!r} is not a valid {self.spec.key.name}: {reason_of(error)}; a "
                "key of "
                "the store's serde is needed. Name another where the store is declared: key="
            ) from error

    def count(self) -> int:
        """Return the number of keys. Cost: the first call reads all keys, later calls read nothing."""
        if self._count is None:
            self._count = sum(1 for _ in self.between(b"", None))
        return self._count

    def between(self, start: bytes, stop: bytes | None) -> Iterator[tuple[K, V]]:
        """Yield the rows with `start` ≤ key bytes < `stop`, as of the call. If `stop` is None, there is no upper bound.

        Cost: the rows that are read, and a sort of the keys that the epoch has changed.
        """
        changed = sorted((self.key_bytes(key), data) for key, data in self._news.items())
        changed = [(key, data) for key, data in changed if start <= key and (stop is None or key < stop)]
        return self._merged(self._stored(start, stop), changed)

    def _merged(
        self, stored: Iterator[tuple[bytes, bytes]], changed: list[tuple[bytes, bytes | None]]
    ) -> Iterator[tuple[K, V]]:
        keys, decode, at = self.spec.key.decode, self.spec.value.decode, 0
        for key, data in stored:
            while at < len(changed) and changed[at][0] < key:
                new_key, new = changed[at]
                at += 1
                if new is not None:
                    yield keys(new_key), decode(new)
            if at < len(changed) and changed[at][0] == key:
                continue
            yield keys(key), decode(data)
        for key, new in changed[at:]:
            if new is not None:
                yield keys(key), decode(new)

    def _stored(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows in the store, which are as of the last commit. They are read a page at a time."""
        assert self._store is not None
        prefix, size = self._prefix, len(self._prefix)
        end = _after(prefix) if stop is None else prefix + stop
        position = prefix + start
        while position < end:
            rows = self._store.scan_between(position, end, _ROWS_A_SCAN)
            yield from ((key[size:], data) for key, data in rows)
            if len(rows) < _ROWS_A_SCAN:
                return
            position = rows[-1][0] + b"\x00"

    # Records and epochs

    def check(self) -> None:
        """Raise the error of a row that the changelog does not accept, if the row was changed since `accept`."""
        changed = {key: self._news[key] for key, _, _ in self.journal}
        if (changelog := self.spec.changelog) is not None:
            data = list(map(self.key_bytes, changed))
            for error in self.spec.refusals(changelog, data, list(changed.values()), None).values():
                raise error

    def accept(self) -> None:
        """Make the changes of the last record or punctuation permanent, so that `take_back` does not undo them."""
        if self.journal:
            self.journal.clear()

    def take_back(self) -> None:
        """Undo the changes since `accept`."""
        for key, cell, data in reversed(self.journal):
            self._put_cell(key, self._fresh.get(key), cell)
            if data is _UNCHANGED:
                del self._news[key], self._olds[key]
            else:
                self._news[key] = data
        self.journal.clear()

    def changes(self) -> tuple[list[bytes], list[bytes | None]]:
        """Return the encoded keys that the epoch has changed, and their encoded values; None for a deleted key."""
        return self.spec.key.identify_many(list(self._news)), list(self._news.values())

    def commit(self) -> None:
        """End the current epoch; its changes are in the store."""
        for key in self._news:
            self._aged.pop(key, None)
        self._news, self._olds = {}, {}
        self.journal.clear()

    def rollback(self) -> None:
        """Return to the last commit."""
        for key, cell in self._olds.items():
            self._put_cell(key, self._fresh.get(key), cell)
        self._news, self._olds = {}, {}
        self.journal.clear()

    def forget(self) -> None:
        """Read from the store again from now on."""
        super().forget()
        self._count = None

    def _load(self, keys: list[K]) -> dict[K, Any]:
        assert self._store is not None
        stored = self._store.get_many([self._prefix + key for key in map(self.key_bytes, keys)])
        decode = self.spec.value.decode
        return {
            key: decode(data) if self._kept else _Encoded(data)
            for key, data in zip(keys, stored, strict=True)
            if data is not None
        }

    def _changed_keys(self) -> dict[K, bytes | None]:
        return self._news

    def _store_is_empty(self) -> bool:
        assert self._store is not None
        return not self._store.scan_between(self._prefix, _after(self._prefix), 1)


class PartitionedMap(Generic[K, V]):
    """The partitions of a state store, each made at its first use. Without a `store` the rows are in memory."""

    def __init__(self, spec: StateSpec, store: Store | None = None) -> None:
        self.spec = spec
        self.own = MemoryStore() if store is None else None
        self._store: Store = store or self.own  # type: ignore[assignment]
        self._partitions: dict[int, MapPartition[K, V]] = {}

    def partition(self, number: int) -> MapPartition[K, V]:
        """The rows of a partition."""
        if number not in self._partitions:
            self._partitions[number] = MapPartition(self.spec, number, self._store)
        return self._partitions[number]

    def get(self, key: K, partitions: Collection[int]) -> V | None:
        """Return the value of a key in the first of these partitions that has one; None if none has."""
        found = (self.partition(number).value(key) for number in sorted(partitions))
        return next((value for value in found if value is not None), None)

    def items(self, partitions: Collection[int]) -> Iterator[tuple[K, V]]:
        """Yield every (key, value) of these partitions, with the changes of the current epoch.

        The rows are sorted by partition and by the bytes of keys.
        """
        for number in sorted(partitions):
            yield from self.partition(number).between(b"", None)

    @property
    def cells(self) -> int:
        """The number of cells in memory."""
        return sum(part.cells for part in self._partitions.values())

    def age(self) -> int:
        """Drop half of the cells of the partition with the most cells. Returns the number of dropped cells.

        All its cells must be in the store.
        """
        largest = max(self._partitions.values(), key=lambda part: part.cells, default=None)
        return 0 if largest is None else largest.age()

    def changes(self) -> Changes:
        """The changes of the current epoch, as rows for the store and the changelog."""
        partitions: list[int] = []
        keys: list[bytes] = []
        values: list[bytes | None] = []
        for number, part in self._partitions.items():
            changed, news = part.changes()
            partitions += [number] * len(changed)
            keys += changed
            values += news
        return Changes(partitions, keys, values)

    def commit(self) -> None:
        """End the current epoch; its changes are in the store."""
        if self.own is not None:
            self.own.write(self.spec.stored(self.changes()))
        for part in self._partitions.values():
            part.commit()

    def rollback(self) -> None:
        """Return to the last commit."""
        for part in self._partitions.values():
            part.rollback()

    def forget(self) -> None:
        """Read from the store again from now on."""
        for part in self._partitions.values():
            part.forget()


def _after(prefix: Sequence[int]) -> bytes:
    """Return the least bytes that are greater than all bytes beginning with `prefix`.

    The prefix is the prefix of a state, so its bytes are not all FF.
    """
    number = int.from_bytes(bytes(prefix), "big") + 1
    return number.to_bytes(len(prefix), "big")
