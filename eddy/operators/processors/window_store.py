"""A window store in the hands of a processor: values by key and start of a window, kept for a time.

    rows of `name`          key, start  ->  value
    rows of `name`-times    start, key  ->  a mark; and the observed time: the greatest start that was put

A window is gone once its start is at or before the observed time minus the retention. Reads leave it out from that
moment, and its rows are deleted at the end of the epoch, in the changelog too. The observed time is a row of the
epoch, so it is a function of the puts alone, as in Kafka Streams' `InMemoryWindowStore`, whose orders are the same.

Invariant: both states have the same windows; after an epoch all of them are later than observed time - retention.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from threading import get_ident
from typing import Any, Generic, NamedTuple, TypeVar

from eddy.errors import DataError
from eddy.operators.processors.running_call import RunningCall
from eddy.state.partitioned_map import MapPartition
from eddy.windows import Windowed

__all__ = ["WindowRetention", "WindowStore"]

K = TypeVar("K")
V = TypeVar("V")

_START = Struct(">q")
_OBSERVED = b"\x00"  # shorter than a start, and before all of them
_MARK = b"\x01"
_LATEST = (1 << 63) - 1


class WindowRetention(NamedTuple):
    """The windows of a store: their size, how long they are kept, and the state with their starts."""

    size_ms: int
    retention_ms: int
    times: str


class WindowStore(Generic[K, V]):
    """Keys with a window to values, of one partition. All changes are part of the epoch: committed with it, or undone.

    Iterators have the rows as they are at the call, and end with the call of the processor. `backward=True` reverses
    their order, and holds the rows in memory; so do the ones over several keys.
    """

    def __init__(
        self,
        name: str,
        rows: MapPartition[Any, V],
        times: MapPartition[bytes, bytes],
        kept: WindowRetention,
        call: RunningCall,
    ) -> None:
        self.name, self._rows, self._times, self._call = name, rows, times, call
        self._size_ms, self._retention_ms = kept.size_ms, kept.retention_ms
        self._advanced = False
        self._ignored = 0

    def put(self, key: K, value: V | None, start_ms: int) -> bool:
        """Set the value of the window that starts at `start_ms`; None deletes it.

        Returns False where the window is gone already: then the value is ignored, and counted as late.
        Raises: DataError for what a serde refuses, and for a start that is no time.
        """
        self._check("written")
        window = self._window(key, start_ms)
        observed = self._observed()
        if start_ms <= observed - self._retention_ms:
            self._rows.key_bytes(window)
            self._ignored += 1
            return False
        self._rows.put(window, value)
        data = self._rows.key_bytes(window)
        at = data[-_START.size :] + data[: -_START.size]
        marked = self._times.value(at) is not None
        if marked != (value is not None):
            self._times.put(at, None if marked else _MARK)
        if start_ms > observed:
            self._times.put(_OBSERVED, _START.pack(start_ms))
            self._advanced = True
        return True

    def delete(self, key: K, start_ms: int) -> V | None:
        """Delete a window; return the value that it had. The observed time is as after a put."""
        old = self.fetch(key, start_ms)
        self.put(key, None, start_ms)
        return old

    def fetch(self, key: K, start_ms: int) -> V | None:
        """The value of the window that starts at `start_ms`, or None. Raises: DataError as `put`."""
        self._check("read")
        value = self._rows.value(self._window(key, start_ms))
        return value if start_ms >= self._first_ms() else None

    def fetch_range(
        self, key: K, from_ms: int = 0, to_ms: int = _LATEST, backward: bool = False
    ) -> Iterator[tuple[int, V]]:
        """The windows of a key that start from `from_ms` to `to_ms`, both included: rows (start, value), by start."""
        self._check("read")
        first, last = max(from_ms, self._first_ms()), min(to_ms, _LATEST)
        prefix = self._rows.key_bytes(Windowed(key, 0, 0))[: -_START.size]
        if first > last:
            return iter(())
        found = self._rows.between(prefix + _START.pack(first), prefix + _START.pack(last) + b"\x00")
        starts = (
            (window.start_ms, value)
            for window, value in found
            if self._rows.key_bytes(window)[: -_START.size] == prefix  # others have bytes between those of this key
        )
        return self._within_call(reversed(list(starts)) if backward else starts)

    def fetch_keys(
        self,
        first: K | None = None,
        last: K | None = None,
        from_ms: int = 0,
        to_ms: int = _LATEST,
        backward: bool = False,
    ) -> Iterator[tuple[Windowed[K], V]]:
        """The windows of the keys from `first` to `last`, None is no bound, that start from `from_ms` to `to_ms`.

        All bounds are included. Rows (Windowed, value), by start, then by the bytes of keys.
        Cost: reads the starts of all keys' windows in that time. Raises: DataError as `StateStore.range`.
        """
        self._check("read")
        low = b"" if first is None else self._key_bytes(first)
        high = None if last is None else self._key_bytes(last)
        if high is not None and low > high:
            raise DataError(
                f"store '{self.name}': the bytes of {first!r} sort after the bytes of {last!r}; keys are in the order "
                "of their bytes, and the first of a range is needed first. Swap them, or filter the rows of all()"
            )
        begin, end = max(from_ms, self._first_ms()), min(to_ms, _LATEST)
        if begin > end:
            return iter(())
        found = [
            (self._windowed(at), at)
            for at, _ in self._starts(begin, end)
            if low <= at[_START.size :] and (high is None or at[_START.size :] <= high)
        ]
        rows: list[Any] = [(window, self._rows.value(window)) for window, _ in found]
        return self._within_call(reversed(rows) if backward else rows)

    def fetch_all(
        self, from_ms: int = 0, to_ms: int = _LATEST, backward: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """The windows of all keys that start from `from_ms` to `to_ms`: rows (Windowed, value), as `fetch_keys`."""
        return self.fetch_keys(None, None, from_ms, to_ms, backward)

    def all(self, backward: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """All windows: rows (Windowed, value), by start, then by the bytes of keys."""
        return self.fetch_keys(backward=backward)

    def _expire(self) -> int:
        """Delete the windows that are gone, at the end of an epoch; return how many puts it has ignored."""
        if self._advanced:
            self._advanced = False
            for at, _ in list(self._starts(0, self._first_ms() - 1)):
                self._rows.put(self._windowed(at), None)
                self._times.put(at, None)
        ignored, self._ignored = self._ignored, 0
        return ignored

    def _observed(self) -> int:
        """The greatest start that was put; -1 before the first."""
        data = self._times.value(_OBSERVED)
        return -1 if data is None else int(_START.unpack(data)[0])

    def _first_ms(self) -> int:
        """The first start that is not gone."""
        return max(0, self._observed() - self._retention_ms + 1)

    def _starts(self, first_ms: int, last_ms: int) -> Iterator[tuple[bytes, bytes]]:
        if last_ms < first_ms:
            return iter(())
        stop = None if last_ms == _LATEST else _START.pack(last_ms + 1)
        return self._times.between(_START.pack(first_ms), stop)

    def _window(self, key: K, start_ms: Any) -> Windowed[K]:
        if type(start_ms) is not int or not 0 <= start_ms <= _LATEST - self._size_ms:
            raise DataError(
                f"store '{self.name}': start_ms={start_ms!r}; milliseconds since 1970, a whole number from 0 on, are "
                "needed, such as record.timestamp_ms"
            )
        return Windowed(key, start_ms, start_ms + self._size_ms)

    def _windowed(self, at: bytes) -> Any:
        return self._rows.spec.key.decode(at[_START.size :] + at[: _START.size])

    def _key_bytes(self, key: K) -> bytes:
        return self._rows.key_bytes(Windowed(key, 0, 0))[: -_START.size]

    def _check(self, done: str) -> None:
        if self._call.thread != get_ident():
            self._call.check(f"store '{self.name}' is {done}")

    def _within_call(self, rows: Iterable[Any]) -> Iterator[Any]:
        return self._call.within(rows, f"an iterator of store '{self.name}' is read")
