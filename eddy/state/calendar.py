"""A calendar: keys in the order of their moments, such as the moments at which rows expire, in a store.

    calendar    moment (8 bytes, big-endian) key  ->  1

The earliest entries are read by a short scan, so a calendar need not fit into memory. Only the entries changed in the
current epoch, and the first and the latest moment of each partition, are in memory.

Invariant: the entries of a calendar are the store's entries, without those in `_removed`, and with the entries in
`_added`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from operator import add
from struct import Struct
from typing import Generic, TypeVar

from eddy.state.memory import MemoryStore
from eddy.state.spec import Changes, StateSpec
from eddy.state.store import Store

__all__ = ["MOST_MS", "Calendar"]

K = TypeVar("K")

MOST_MS = (1 << 63) - 1
"""The latest moment."""

_MOMENT_BYTES = 8
_ALL = 1 << 62
_THERE = b"\x01"


class Calendar(Generic[K]):
    """Entries (moment, key), by partition of the key. A moment is a number of milliseconds from 0 to `MOST_MS`.

    Without a store it keeps its rows in memory.
    """

    def __init__(self, spec: StateSpec, store: Store | None = None) -> None:
        self.spec = spec
        self._own = MemoryStore() if store is None else None
        self._store: Store = store or self._own  # type: ignore[assignment]
        self._added: dict[int, set[bytes]] = defaultdict(set)
        self._removed: dict[int, set[bytes]] = defaultdict(set)
        self._passed: dict[int, set[bytes]] = defaultdict(set)  # entries that the epoch has added and removed
        self._firsts: dict[int, int | None] = {}
        self._lasts: dict[int, int] = {}
        self._since: dict[int, int] = {}  # no entry is before it, so scans begin there and skip deleted rows

    def move(self, keys: Sequence[K], olds: Iterable[int | None], news: Iterable[int | None]) -> None:
        """Replace the old moment of each key by the new one; None means no moment. Cost: constant for each key."""
        encoded = self.spec.key.identify_many(keys)
        self.move_encoded(self.spec.partitions_of(encoded), encoded, olds, news)

    def add_encoded(self, homes: Sequence[int], keys: Sequence[bytes], moments: Sequence[int]) -> None:
        """Add an entry for each key, given the partitions and the bytes of the keys. Cost: loops in C."""
        rows = list(map(add, map(_pack, moments), keys))
        for home in set(homes):
            mine = set(compress(rows, map(home.__eq__, homes)))
            self._added[home] |= mine
            self._removed[home] -= mine

    def move_encoded(
        self, homes: Sequence[int], keys: Sequence[bytes], olds: Iterable[int | None], news: Iterable[int | None]
    ) -> None:
        """Replace moments as `move` does, given the partitions and the bytes of the keys."""
        for home, key, old, new in zip(homes, keys, olds, news, strict=True):
            if old == new:
                continue
            come, gone = self._added[home], self._removed[home]
            if old is not None:
                row = _row(old, key)
                gone.add(row)
                if row in come:
                    come.remove(row)
                    self._passed[home].add(row)
            if new is not None:
                row = _row(new, key)
                come.add(row)
                gone.discard(row)

    def first(self, partition: int) -> int | None:
        """Return the first moment of a partition as of the last commit; None if the partition has no entry.

        Cost: one scan of one row after an epoch that has removed the first entry.
        """
        if partition not in self._firsts:
            rows = self._scan(partition, MOST_MS, 1)
            self._firsts[partition] = found = _moment(rows[0]) if rows else None
            self._since[partition] = MOST_MS if found is None else found
        return self._firsts[partition]

    def latest(self, partition: int) -> int:
        """Return a moment after which a partition has no entry, as of the last commit.

        Returns -1 if the partition has had no entry since the store was opened. Cost: a binary search in the store at
        the first call.
        """
        if partition not in self._lasts:
            first = self.first(partition)
            self._lasts[partition] = -1 if first is None else self._last_from(partition, first)
        return self._lasts[partition]

    def _last_from(self, partition: int, first: int) -> int:
        prefix, most = self.spec.prefix(partition), MOST_MS
        while first < most:
            middle = first + (most - first + 1) // 2
            rows = self._store.scan_between(prefix + _bound(middle), prefix + _bound(MOST_MS + 1), 1)
            if rows:
                first = _moment(rows[0][0][len(prefix) :])
            else:
                most = middle - 1
        return first

    def due(self, partition: int, moment: int, most: int) -> list[tuple[int, K]]:
        """Return the earliest entries up to `moment`, at most `most` of them, as pairs (moment, key).

        Entries that the epoch has added or removed are left out. Cost: proportional to the entries found and the
        entries that the epoch has removed.
        """
        gone = self._removed.get(partition, ())
        rows = [row for row in self._scan(partition, moment, most + len(gone)) if row not in gone][:most]
        decode = self.spec.key.decode
        return [(_moment(row), decode(row[_MOMENT_BYTES:])) for row in rows]

    def items(self) -> Iterator[tuple[tuple[K, int], int]]:
        """Yield ((key, moment), 1) for every entry, including the current epoch, by partition and moment."""
        for partition in range(self.spec.partitions):
            rows = {row for row in self._scan(partition, MOST_MS, _ALL) if row not in self._removed.get(partition, ())}
            for row in sorted(rows | self._added.get(partition, set())):
                yield (self.spec.key.decode(row[_MOMENT_BYTES:]), _moment(row)), 1

    @property
    def cells(self) -> int:
        """Always 0, because no rows of the store are cached."""
        return 0

    def age(self) -> int:
        """Return 0, because no cells can be dropped."""
        return 0

    def changes(self) -> Changes:
        """The changes of the current epoch, as rows for the store and the changelog."""
        partitions: list[int] = []
        keys: list[bytes] = []
        values: list[bytes | None] = []
        gone = {partition: rows - self._unstored(partition) for partition, rows in self._removed.items()}
        for changed, value in ((gone, None), (self._added, _THERE)):
            for partition, rows in changed.items():
                partitions += [partition] * len(rows)
                keys += rows
                values += [value] * len(rows)
        return Changes(partitions, keys, values)

    def _unstored(self, partition: int) -> set[bytes]:
        """Return the entries that the epoch has added and then removed again, so that the store does not have them."""
        rows, prefix = list(self._passed.get(partition, ())), self.spec.prefix(partition)
        found = self._store.get_many([prefix + row for row in rows]) if rows else []
        return {row for row, data in zip(rows, found, strict=True) if data is None}

    def commit(self) -> None:
        """End the current epoch; its changes are in the store."""
        if self._own is not None:
            self._own.write(self.spec.stored(self.changes()))
        for partition, rows in self._added.items():
            if rows and partition in self._since:
                self._since[partition] = min(self._since[partition], _moment(min(rows)))
            if rows and partition in self._lasts:
                self._lasts[partition] = max(self._lasts[partition], _moment(max(rows)))
        for partition in self._firsts.keys() & {*self._added, *self._removed}:
            self._follow(partition, self._firsts[partition])
        self.rollback()

    def _follow(self, partition: int, first: int | None) -> None:
        """Update the first moment of a partition in memory, at a commit.

        It is dropped if its entry may have been removed.
        """
        come, gone = self._added.get(partition), self._removed.get(partition)
        if gone and first is not None and _moment(min(gone)) <= first:
            del self._firsts[partition]
        elif come:
            earliest = _moment(min(come))
            self._firsts[partition] = earliest if first is None else min(first, earliest)

    def rollback(self) -> None:
        """Return to the last commit."""
        for changed in (self._added, self._removed, self._passed):
            changed.clear()

    def forget(self) -> None:
        """Forget the first and last moments, because another writer has changed the store."""
        self._firsts, self._since, self._lasts = {}, {}, {}

    def _scan(self, partition: int, moment: int, most: int) -> list[bytes]:
        """Return the first `most` rows of the store up to a moment, without the prefix of the partition."""
        prefix = self.spec.prefix(partition)
        start, stop = (prefix + _bound(at) for at in (self._since.get(partition, 0), min(moment, MOST_MS) + 1))
        if stop <= start:
            return []
        return [row[len(prefix) :] for row, _ in self._store.scan_between(start, stop, most)]


def _bound(moment: int) -> bytes:
    """Encode a moment as a bound of a scan. The moment may also be `MOST_MS` + 1."""
    return moment.to_bytes(_MOMENT_BYTES, "big")


_pack = Struct(">q").pack


def _row(moment: int, key: bytes) -> bytes:
    return _pack(moment) + key


def _moment(row: bytes) -> int:
    return int.from_bytes(row[:_MOMENT_BYTES], "big")
