"""Stores rows (Windowed(key, t, t), value) with weights above 0, and finds them by key and span of time.

    row    len(key)(4) key t t value  ->  weight (8 bytes), and the original value where it differs

That is the layout of arrangements (`row_layout.py`). All rows of a key have the same length before their values, so
that a scan between two moments finds no row of another key. Only the rows changed in the current epoch are in memory.

The *place* of a row is its key in the store: the prefix of the partition, then the row as above.

Invariants:

- `_news` has the weight of each row that the epoch has changed, 0 for a removed row. All other rows are in the store.
- `_of_keys` has the places of `_news`, by the bytes with which all places of a key begin, except the places in
  `_unnoted`, which the next read adds. Each list is sorted and has a place once, unless its key is in `_unsorted`.
"""

import struct
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

from eddy.state.calendar import MOST_MS
from eddy.state.memory import MemoryStore
from eddy.state.row_layout import weight_bytes, weighted
from eddy.state.spec import Changes, StateSpec
from eddy.state.store import Store
from eddy.windows import Windowed

__all__ = ["EncodedRows", "TimedRows"]

K = TypeVar("K")
V = TypeVar("V")

_LENGTH, _MOMENT = struct.Struct(">I"), struct.Struct(">q")
_MOMENTS_BYTES = 16
_ROWS_A_SCAN = 1_000
_ONE = weight_bytes(1)
_Cell = tuple[int, bytes, int, bytes]
"""A partition, a row's key in the changelog, its weight, and the bytes of its value."""


class EncodedRows(NamedTuple):
    """Rows as columns: `homes` has the partitions, `keys` the encoded keys, `plain` the encoded keys without moments,
    `rows` the row keys, `values` the encoded values.
    """

    homes: Sequence[int]
    keys: Sequence[bytes]
    plain: Sequence[bytes]
    rows: Sequence[bytes]
    values: Sequence[bytes]


class TimedRows(Generic[K, V]):
    """Rows (Windowed(K, t, t), V), each of a moment t. Without a store the rows are in memory."""

    def __init__(self, spec: StateSpec, store: Store | None = None) -> None:
        self.spec = spec
        self._own = MemoryStore() if store is None else None
        self._store: Store = store or self._own  # type: ignore[assignment]
        self._news: dict[bytes, _Cell] = {}
        self._unnoted: list[tuple[EncodedRows, Sequence[bytes]]] = []
        self._of_keys: dict[bytes, list[bytes]] = defaultdict(list)
        self._unsorted: set[bytes] = set()

    def encoded(self, rows: Sequence[tuple[Windowed[K], V]]) -> EncodedRows:
        """Encode rows. Raises: any exception of the serdes."""
        spec = self.spec
        keys = spec.key.identify_many(list(map(itemgetter(0), rows)))
        values = list(map(itemgetter(1), rows))
        identities = spec.value.identify_many(values)
        originals = spec.value.encode_many(values) if spec.value.identify else identities
        pack = _LENGTH.pack
        return EncodedRows(
            spec.partitions_of(keys),
            keys,
            [key[:-_MOMENTS_BYTES] for key in keys],
            [pack(len(key)) + key + value for key, value in zip(keys, identities, strict=True)],
            originals,
        )

    def add(self, given: EncodedRows, weights: Sequence[int], stored_ms: Mapping[int, int] | None = None) -> None:
        """Add weights to rows. Cost: a look-up in the store for each row that the epoch has not changed yet.

        `stored_ms`: for each partition a moment after which the store has no row, so that later rows need no look-up.
        """
        if not given.rows:
            return
        prefixes = {home: self.spec.prefix(home) for home in set(given.homes)}
        places = [prefixes[home] + row for home, row in zip(given.homes, given.rows, strict=True)]
        cells = zip(places, zip(given.homes, given.rows, weights, given.values, strict=True), strict=True)
        news, fresh = self._news, dict(cells)
        stored = self._stored_of(fresh if stored_ms is None else self._earlier(given, places, stored_ms))
        if len(fresh) == len(places) and not stored and news.keys().isdisjoint(fresh):
            news.update(fresh)
        else:
            self._merge(given, places, weights, stored)
        self._unnoted.append((given, places))

    def _earlier(self, given: EncodedRows, places: Sequence[bytes], stored_ms: Mapping[int, int]) -> list[bytes]:
        """Return the places that the store may have: their moments are not after their partition's `stored_ms`."""
        moments = {home: _MOMENT.pack(moment) for home, moment in stored_ms.items() if moment >= 0}
        keys = zip(places, given.homes, given.keys, strict=True)
        return [place for place, home, key in keys if key[-_MOMENT.size :] <= moments.get(home, b"")] if moments else []

    def _stored_of(self, places: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the store's rows at these places, by place, without the rows that the epoch has changed."""
        news = self._news
        unread = [place for place in places if place not in news]
        found = self._store.get_many(unread) if unread else []
        return {place: data for place, data in zip(unread, found, strict=True) if data is not None}

    def _merge(
        self, given: EncodedRows, places: Sequence[bytes], weights: Sequence[int], stored: Mapping[bytes, bytes]
    ) -> None:
        """Add weights to rows that are stored, or that occur more than once."""
        news = self._news
        for place, home, row, value, weight in zip(places, given.homes, given.rows, given.values, weights, strict=True):
            cell = news.get(place)
            if cell is None and (data := stored.get(place)) is not None:
                original, there = weighted(_identity(row), data)
                cell = (home, row, there, original)
            if cell is not None and cell[2]:
                news[place] = (home, row, cell[2] + weight, _one_of(_identity(row), cell[3], value))
            else:
                news[place] = (home, row, weight, value)

    def between(
        self, home: int, plain: bytes, first_ms: int, last_ms: int, stored_ms: int = MOST_MS
    ) -> list[tuple[int, V, int]]:
        """Return (moment, value, weight) of each row of a key with `first_ms` ≤ moment ≤ `last_ms`, by rising moment.

        `home`: the key's partition. `plain`: the bytes of the key without moments. `stored_ms`: a moment after which
        the store has no row of the partition. Cost: a scan of the rows found, and of the key's rows that the epoch has
        changed.
        """
        decode = self.spec.value.decode
        found = self.scan(home, plain, first_ms, last_ms, stored_ms)
        return [(time, decode(value), weight) for time, value, weight in found]

    def scan(
        self, home: int, plain: bytes, first_ms: int, last_ms: int, stored_ms: int = MOST_MS
    ) -> list[tuple[int, bytes, int]]:
        """Return what `between` returns, with encoded values."""
        if first_ms > last_ms or (first_ms > stored_ms and not self._news):
            return []
        prefix = self._prefix(home, plain)
        at = len(prefix)
        return [
            (_MOMENT.unpack_from(place, at)[0], value, weight)
            for place, value, weight in self._scan(prefix, first_ms, last_ms, first_ms <= stored_ms)
        ]

    def take(self, home: int, plain: bytes, time_ms: int) -> list[tuple[bytes, int]]:
        """Remove the rows of a key at a moment. Returns pairs of their encoded values and weights."""
        prefix = self._prefix(home, plain)
        skipped = len(self.spec.prefix(home))
        found = self._scan(prefix, time_ms, time_ms)
        self._note()
        for place, _, _ in found:
            if place not in self._news:
                insort(self._of_keys[prefix], place)
        self._news.update({place: (home, place[skipped:], 0, b"") for place, _, _ in found})
        return [(value, weight) for _, value, weight in found]

    def _prefix(self, home: int, plain: bytes) -> bytes:
        return self.spec.prefix(home) + _LENGTH.pack(len(plain) + _MOMENTS_BYTES) + plain

    def _scan(
        self, prefix: bytes, first_ms: int, last_ms: int, in_store: bool = True
    ) -> list[tuple[bytes, bytes, int]]:
        """Return (place, encoded value, weight) of the rows from one moment to another, sorted by place.

        `prefix`: the bytes with which all places of the key begin. `in_store`: whether the store may have such rows.
        """
        start = prefix + _MOMENT.pack(first_ms)
        stop = prefix + (last_ms + 1).to_bytes(8, "big")
        news, at = self._news, len(prefix) + _MOMENTS_BYTES
        stored = self._stored(start, stop) if in_store else ()
        if not news:
            return [(place, *weighted(place[at:], data)) for place, data in stored]
        found = [(place, *weighted(place[at:], data)) for place, data in stored if place not in news]
        changed = [(place, news[place]) for place in self._changed(prefix, start, stop)]
        come = [(place, cell[3], cell[2]) for place, cell in changed if cell[2]]
        return sorted([*found, *come], key=itemgetter(0)) if found and come else found or come

    def _changed(self, prefix: bytes, start: bytes, stop: bytes) -> Sequence[bytes]:
        """Return the places of a key's rows that the epoch has changed, from `start` to before `stop`.

        Cost: the places are sorted at the first read after an addition.
        """
        self._note()
        places = self._of_keys.get(prefix)
        if places is None:
            return ()
        if prefix in self._unsorted:
            self._unsorted.remove(prefix)
            places[:] = sorted(set(places))
        return places[bisect_left(places, start) : bisect_left(places, stop)]

    def _note(self) -> None:
        """Add to `_of_keys` the places of rows that were added since the last read."""
        if not self._unnoted:
            return
        of_keys = self._of_keys
        for given, places in self._unnoted:
            heads = {home: len(self.spec.prefix(home)) + _LENGTH.size for home in set(given.homes)}
            prefixes = [
                place[: heads[home] + len(plain)]
                for place, home, plain in zip(places, given.homes, given.plain, strict=True)
            ]
            for prefix, place in zip(prefixes, places, strict=True):
                of_keys[prefix].append(place)
            self._unsorted.update(prefixes)
        self._unnoted = []

    def _stored(self, start: bytes, stop: bytes) -> list[tuple[bytes, bytes]]:
        found = rows = self._store.scan_between(start, stop, _ROWS_A_SCAN)
        while len(rows) == _ROWS_A_SCAN:
            rows = self._store.scan_between(rows[-1][0] + b"\x00", stop, _ROWS_A_SCAN)
            found = found + rows
        return found

    def items(self) -> Iterator[tuple[tuple[Windowed[K], V], int]]:
        """Yield ((key, value), weight) for every row, including the current epoch, by partition."""
        decode, values = self.spec.key.decode, self.spec.value.decode
        for home in range(self.spec.partitions):
            prefix = self.spec.prefix(home)
            stored = {place: data for place, data in self._store.scan(prefix) if place not in self._news}
            for place, data in stored.items():
                key, at = _key_of(place, len(prefix))
                value, weight = weighted(place[at:], data)
                yield (decode(key), values(value)), weight
        for place, (home, _, weight, value) in self._news.items():
            if weight:
                yield (decode(_key_of(place, len(self.spec.prefix(home)))[0]), values(value)), weight

    @property
    def cells(self) -> int:
        """Always 0, because no rows of the store are cached."""
        return 0

    def age(self) -> int:
        """Return 0, because no cells can be dropped."""
        return 0

    def changes(self) -> Changes:
        """The changes of the current epoch, as rows for the store and the changelog."""
        cells = list(self._news.values())
        data = _data if self.spec.value.identify else _weight_alone
        return Changes(
            [cell[0] for cell in cells],
            [cell[1] for cell in cells],
            [data(row, weight, value) if weight else None for _, row, weight, value in cells],
        )

    def commit(self) -> None:
        """End the current epoch; its changes are in the store."""
        if self._own is not None:
            self._own.write(self.spec.stored(self.changes()))
        self.rollback()

    def rollback(self) -> None:
        """Return to the last commit."""
        if self._news:
            self._news = {}
            self._unnoted = []
            self._of_keys.clear()
            self._unsorted.clear()

    def forget(self) -> None:
        """Do nothing, because rows are read from the store each time."""


def _data(row: bytes, weight: int, value: bytes) -> bytes:
    return weight_bytes(weight) + (value if _identity(row) != value else b"")


def _weight_alone(row: bytes, weight: int, value: bytes) -> bytes:
    """Return a row's data for a serde whose encoded values are their identities: only the weight."""
    return _ONE if weight == 1 else weight_bytes(weight)


def _identity(row: bytes) -> bytes:
    """Return the identity of the value, the last part of a row key."""
    return row[_LENGTH.size + _LENGTH.unpack_from(row)[0] :]


def _one_of(identity: bytes, *originals: bytes) -> bytes:
    """Return the encoding to store for equal values. It is the same in whatever order the values arrived."""
    return max((value for value in originals if value != identity), default=identity)


def _key_of(place: bytes, at: int) -> tuple[bytes, int]:
    """Return the encoded key in a place, and the index at which the value begins. The prefix has `at` bytes."""
    begin = at + _LENGTH.size
    end = begin + int(_LENGTH.unpack_from(place, at)[0])
    return place[begin:end], end
