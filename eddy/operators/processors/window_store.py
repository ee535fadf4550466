"""A window store as a processor uses it: values by key and start of a window, for a retention time.

    rows of `name`          key, start  ->  value
    rows of `name`-times    start, key  ->  a mark; and the observed time (`timed_store.py`)

A window is gone once its start is at or before the observed time minus the retention. From then on reads leave it out.
The observed time and the order of rows are as in Kafka Streams' `InMemoryWindowStore`.

Invariant: both states have the same windows. After an epoch all of them start after the observed time - retention.
"""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from eddy.operators.processors.running_call import RunningCall
from eddy.operators.processors.timed_store import LATEST_MS, TIME, RetainedStore, TimedStore
from eddy.state.partitioned_map import MapPartition
from eddy.windows import Windowed

__all__ = ["WindowStore"]

K = TypeVar("K")
V = TypeVar("V")
_Maps = list[MapPartition[Any, Any]]


class WindowStore(TimedStore, Generic[K, V]):
    """Maps keys with a window to values, in one partition. Changes are committed or undone with the epoch.

    Iterators have the rows as of their creation, and end with the processor's call. With `backward=True` they yield the
    rows in reverse order. Such iterators, and iterators over several keys, hold the rows in memory.
    """

    def __init__(
        self, name: str, maps: list[MapPartition[Any, Any]], retained: RetainedStore, call: RunningCall
    ) -> None:
        self._rows, times = maps
        super().__init__(name, times, retained, call)
        self._size_ms = retained.size_ms

    def put(self, key: K, value: V | None, start_ms: int) -> bool:
        """Set the value of the window that starts at `start_ms`; None deletes it.

        Returns False if the window is gone already. Then the value is ignored, and counted as late.
        Raises: DataError for a key or value that its serde refuses, and for a start that is not a time.
        """
        self._check("written")
        window = self._window(key, start_ms)
        data = self._rows.key_bytes(window)
        if start_ms < self._first_ms():
            self._ignored += 1
            return False
        self._rows.put(window, value)
        self._mark(data[-TIME.size :] + data[: -TIME.size], value is not None)
        self._observe(start_ms)
        return True

    def delete(self, key: K, start_ms: int) -> V | None:
        """Delete a window. Returns the value that it had. The observed time changes as by a put."""
        old = self.fetch(key, start_ms)
        self.put(key, None, start_ms)
        return old

    def fetch(self, key: K, start_ms: int) -> V | None:
        """The value of the window that starts at `start_ms`, or None. Raises: DataError as `put`."""
        self._check("read")
        value = self._rows.value(self._window(key, start_ms))
        return value if start_ms >= self._first_ms() else None

    def fetch_range(
        self, key: K, from_ms: int = 0, to_ms: int = LATEST_MS, backward: bool = False
    ) -> Iterator[tuple[int, V]]:
        """Yield rows (start, value) of a key's windows with `from_ms` ≤ start ≤ `to_ms`, by start."""
        self._check("read")
        first, last = max(from_ms, self._first_ms()), min(to_ms, LATEST_MS)
        prefix = self._key_bytes(key)
        if first > last:
            return iter(())
        found = self._rows.between(prefix + TIME.pack(first), prefix + TIME.pack(last) + b"\x00")
        starts = (
            (window.start_ms, value)
            for window, value in found
            if self._rows.key_bytes(window)[: -TIME.size] == prefix  # the range may have rows of other keys
        )
        return self._within_call(reversed(list(starts)) if backward else starts)

    def fetch_keys(
        self,
        first: K | None = None,
        last: K | None = None,
        from_ms: int = 0,
        to_ms: int = LATEST_MS,
        backward: bool = False,
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Yield the windows that start from `from_ms` to `to_ms`, of keys from `first` to `last`; None is an open end.

        All bounds are included. The rows are (Windowed, value), by start, then by the bytes of keys.
        Cost: the starts of all keys' windows in that time are read. Raises: DataError as `StateStore.range`.
        """
        self._check("read")
        low = b"" if first is None else self._key_bytes(first)
        high = None if last is None else self._key_bytes(last)
        self._check_range(first, last, low, high)
        begin, end = max(from_ms, self._first_ms()), min(to_ms, LATEST_MS)
        if begin > end:
            return iter(())
        found = [
            (self._windowed(at), at)
            for at in self._between(begin, end)
            if low <= at[TIME.size :] and (high is None or at[TIME.size :] <= high)
        ]
        rows: list[Any] = [(window, self._rows.value(window)) for window, _ in found]
        return self._within_call(reversed(rows) if backward else rows)

    def fetch_all(
        self, from_ms: int = 0, to_ms: int = LATEST_MS, backward: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Yield the windows of all keys that start from `from_ms` to `to_ms`, as `fetch_keys` does."""
        return self.fetch_keys(None, None, from_ms, to_ms, backward)

    def all(self, backward: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Yield all windows as rows (Windowed, value), by start, then by the bytes of keys."""
        return self.fetch_keys(backward=backward)

    def _remove(self, at: bytes) -> None:
        self._rows.put(self._windowed(at), None)

    def _window(self, key: K, start_ms: Any) -> Windowed[K]:
        self._check_time(start_ms, "start_ms", LATEST_MS - self._size_ms)
        return Windowed(key, start_ms, start_ms + self._size_ms)

    def _windowed(self, at: bytes) -> Any:
        return self._rows.spec.key.decode(at[TIME.size :] + at[: TIME.size])

    def _key_bytes(self, key: K) -> bytes:
        return self._rows.key_bytes(Windowed(key, 0, 0))[: -TIME.size]
