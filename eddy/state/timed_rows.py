"""Rows of moments: (Windowed(key, t, t), value) with weights above 0, read by key and a span of time, in a store.

    row    len(key)(4) key t t value  ->  weight (8 bytes), and the original value where it differs

That is the layout of arrangements (`row_layout.py`). All rows of a key have the same length before their values, so
that a scan between two moments finds no row of another key. The rows changed in the current epoch are in memory, and
the rows of keys that were looked at of late (`recent_rows.py`).

Invariant: the rows are the store's rows, without those in `_news`, and with these; a weight of 0 is no row.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

from eddy.state.memory import MemoryStore
from eddy.state.recent_rows import RecentRows, TimedRow
from eddy.state.row_layout import weight_at, weight_bytes, weighted
from eddy.state.spec import Changes, StateSpec
from eddy.state.store import Store
from eddy.windows import Windowed

__all__ = ["EncodedRows", "TimedRows"]

K = TypeVar("K")
V = TypeVar("V")

_LENGTH, _MOMENT = struct.Struct(">I"), struct.Struct(">q")
_MOMENTS_BYTES = 16
_FEW, _ROWS_A_SCAN = 32, 1_000
_LATEST = (1 << 63) - 1
_ONE = weight_bytes(1)
_Cell = tuple[int, int, bytes]
"""A partition, the weight of a row, and the bytes of its value where they differ from the ones in its place."""


class EncodedRows(NamedTuple):
    """Rows as columns: the partition and bytes of each key, its part without moments, its moment, the row's place in
    the store, and the bytes of its value; in `originals` only where they differ from the ones in its place.
    """

    homes: Sequence[int]
    keys: Sequence[bytes]
    plain: Sequence[bytes]
    moments: Sequence[int]
    places: Sequence[bytes]
    values: Sequence[bytes]
    originals: Sequence[bytes]


class TimedRows(Generic[K, V]):
    """Rows (Windowed(K, t, t), V). Without a store it keeps its rows in memory."""

    def __init__(self, spec: StateSpec, store: Store | None = None) -> None:
        self.spec = spec
        self._own = MemoryStore() if store is None else None
        self._store: Store = store or self._own  # type: ignore[assignment]
        self._news: dict[bytes, _Cell] = {}  # by place
        self._added: list[EncodedRows] = []
        self._places: dict[bytes, dict[bytes, dict[bytes, None]]] = {}  # of `_added`, by key without and with moments
        self._recent = RecentRows()
        self._prefixes = [spec.prefix(partition) for partition in range(spec.partitions)]
        self._prefix_bytes = len(self._prefixes[0])

    def encoded(self, rows: Sequence[tuple[Windowed[K], V]]) -> EncodedRows:
        """The rows as bytes. Raises: any exception of the serdes."""
        spec = self.spec
        windows = list(map(itemgetter(0), rows))
        keys = spec.key.identify_many(windows)
        values = list(map(itemgetter(1), rows))
        identities = encoded = spec.value.identify_many(values)
        originals = [b""] * len(rows)
        if spec.value.identify:
            encoded = spec.value.encode_many(values)
            originals = [value if value != same else b"" for value, same in zip(encoded, identities, strict=True)]
        homes = spec.partitions_of(keys)
        prefixes, pack = self._prefixes, _LENGTH.pack
        columns = zip(homes, keys, identities, strict=True)
        places = [prefixes[home] + pack(len(key)) + key + value for home, key, value in columns]
        plain, moments = [key[:-_MOMENTS_BYTES] for key in keys], list(map(itemgetter(1), windows))
        return EncodedRows(homes, keys, plain, moments, places, encoded, originals)

    def add(self, given: EncodedRows, weights: Sequence[int]) -> None:
        """Add weights. Cost: a look-up in the store for each row that the epoch has not changed yet."""
        news, places, values = self._news, given.places, given.values
        unread = [place for place in dict.fromkeys(places) if place not in news]
        stored = {
            place: data for place, data in zip(unread, self._store.get_many(unread), strict=True) if data is not None
        }
        if not stored and len(unread) == len(places):
            news.update(zip(places, zip(given.homes, weights, given.originals, strict=True), strict=True))
        else:
            weights, values = self._merge(given, weights, stored)
        self._recent.put_many(given.plain, zip(given.moments, places, values, weights, strict=True))
        self._added.append(given)

    def _merge(
        self, given: EncodedRows, weights: Sequence[int], stored: Mapping[bytes, bytes]
    ) -> tuple[Sequence[int], Sequence[bytes]]:
        """Add rows that may be there; returns their weights and the bytes of their values."""
        news, made, kept = self._news, list[int](), list[bytes]()
        columns = zip(given.homes, given.places, given.values, given.originals, weights, strict=True)
        for home, place, value, original, weight in columns:
            old = news.get(place)
            if old is None and place in stored:
                there, end = weight_at(stored[place])
                old = (home, there, stored[place][end:])
            if old is not None and old[1]:
                weight, original = old[1] + weight, max(old[2], original)
            news[place] = (home, weight, original)
            made.append(weight)
            kept.append(original or value)
        return made, kept

    def between(
        self, keys: Iterable[tuple[int, bytes]], spans: Iterable[tuple[int, int]]
    ) -> Iterator[list[tuple[int, V, int]]]:
        """The rows of each key, given its partition and bytes, from a first to a last moment: the moment, value and
        weight of each, in the order of moments.

        Cost: a scan of the store for a key whose rows are not in memory.
        """
        decode, scan = self.spec.value.decode, self._scan
        for key, span in zip(keys, spans, strict=True):
            yield [(time, decode(value), weight) for time, _, value, weight in scan(*key, *span)]

    def scan(self, home: int, plain: bytes, first_ms: int, last_ms: int) -> list[tuple[int, bytes, int]]:
        """The moment, the bytes of the value and the weight of each row from one moment to another."""
        return [(time, value, weight) for time, _, value, weight in self._scan(home, plain, first_ms, last_ms)]

    def take(self, home: int, plain: bytes, time_ms: int) -> list[tuple[bytes, int]]:
        """Remove the rows of a key and a moment. Returns the bytes of their values, and their weights."""
        found = self._recent.at(plain, time_ms)
        if found is None:
            found, _ = self._read(home, plain, time_ms, time_ms)
        if found:
            self._news.update({place: (home, 0, b"") for _, place, _, _ in found})
            self._recent.remove(plain, time_ms)
        return [(value, weight) for _, _, value, weight in found]

    def _scan(self, home: int, plain: bytes, first_ms: int, last_ms: int) -> list[TimedRow]:
        first_ms, last_ms = max(first_ms, 0), min(last_ms, _LATEST)
        if first_ms > last_ms:
            return []
        found = self._recent.between(plain, first_ms, last_ms)
        if found is None:
            found, few = self._read(home, plain, first_ms, last_ms, _FEW)
            if few:
                self._recent.keep(plain, first_ms, found)
                found = found[: bisect_left(found, (last_ms + 1,))]
        return found

    def _read(self, home: int, plain: bytes, first_ms: int, last_ms: int, few: int = 0) -> tuple[list[TimedRow], bool]:
        """The rows from a moment to another; or all later ones, too, if they are fewer than `few`, and whether they
        are.
        """
        rows = self._prefixes[home] + _LENGTH.pack(len(plain) + _MOMENTS_BYTES) + plain
        start, stop, end = (rows + moment.to_bytes(8, "big") for moment in (first_ms, last_ms + 1, _LATEST + 1))
        stored = self._store.scan_between(start, end, few) if few else []
        if not (all_ := len(stored) < few):
            stored = self._stored(start, stop)
        at, value_at, moment = len(rows), len(rows) + _MOMENTS_BYTES, _MOMENT.unpack_from
        news = self._news
        found = [
            (moment(place, at)[0], place, place[value_at:], 1)
            if data == _ONE
            else (moment(place, at)[0], place, *weighted(place[value_at:], data))
            for place, data in stored
            if place not in news
        ]
        if news:
            come = self._come(plain, first_ms, _LATEST if all_ else last_ms)
            cells = ((place, *news[place]) for place in come)
            found += [
                (moment(place, at)[0], place, original or place[value_at:], weight)
                for place, _, weight, original in cells
                if weight
            ]
            found.sort()
        return found, all_

    def _come(self, plain: bytes, first_ms: int, last_ms: int) -> Iterable[bytes]:
        """The places of the rows of a key from a moment to another that the epoch has added."""
        for rows in self._added:
            for key, without, place in zip(rows.keys, rows.plain, rows.places, strict=True):
                self._places.setdefault(without, {}).setdefault(key, {})[place] = None
        self._added = []
        moments = self._places.get(plain, {})
        first, last = (plain + _MOMENT.pack(moment) * 2 for moment in (first_ms, last_ms))
        if first == last:
            return moments.get(first, {})
        return chain.from_iterable(places for key, places in moments.items() if first <= key <= last)

    def _stored(self, start: bytes, stop: bytes) -> list[tuple[bytes, bytes]]:
        found = rows = self._store.scan_between(start, stop, _ROWS_A_SCAN)
        while len(rows) == _ROWS_A_SCAN:
            rows = self._store.scan_between(rows[-1][0] + b"\x00", stop, _ROWS_A_SCAN)
            found = found + rows
        return found

    def items(self) -> Iterator[tuple[tuple[Windowed[K], V], int]]:
        """Yield ((key, value), weight) for every row, including the current epoch, by partition."""
        decode, values = self.spec.key.decode, self.spec.value.decode
        changed = self._news
        rows = ((place, data) for prefix in self._prefixes for place, data in list(self._store.scan(prefix)))
        stored = ((place, data, weight_at(data)) for place, data in rows if place not in changed)
        kept = ((place, weight, data[end:]) for place, data, (weight, end) in stored)
        fresh = ((place, weight, original) for place, (_, weight, original) in changed.items() if weight)
        for place, weight, original in chain(kept, fresh):
            key, at = _key_of(place, self._prefix_bytes)
            yield (decode(key), values(original or place[at:])), weight

    @property
    def cells(self) -> int:
        """The number of keys and rows in memory."""
        return self._recent.cells

    def age(self) -> int:
        """Drop half of them. Returns the number of dropped ones."""
        return self._recent.age()

    def changes(self) -> Changes:
        """The changes of the current epoch, as rows for the store and the changelog."""
        changed, at = sorted(self._news.items()), self._prefix_bytes
        return Changes(
            [home for _, (home, _, _) in changed],
            [place[at:] for place, _ in changed],
            [_data(weight, original) if weight else None for _, (_, weight, original) in changed],
        )

    def commit(self) -> None:
        """End the current epoch; its changes are in the store."""
        if self._own is not None:
            self._own.write(self.spec.stored(self.changes()))
        self._news, self._added, self._places = {}, [], {}

    def rollback(self) -> None:
        """Return to the last commit."""
        if self._news:
            self._recent.clear()
        self._news, self._added, self._places = {}, [], {}

    def forget(self) -> None:
        """Read rows again: another writer has changed the store."""
        self._recent.clear()


def _data(weight: int, original: bytes) -> bytes:
    return _ONE + original if weight == 1 else weight_bytes(weight) + original


def _key_of(place: bytes, at: int) -> tuple[bytes, int]:
    """The bytes of the key in a row of the store whose prefix has a length, and the place of its value."""
    begin = at + _LENGTH.size
    end = begin + int(_LENGTH.unpack_from(place, at)[0])
    return place[begin:end], end
