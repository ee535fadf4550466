"""A session store as a processor uses it: values by key, start and end of a session, for a retention time.

    rows of `name`          key, end, start  ->  value
    rows of `name`-times    end, start, key  ->  a mark; and the observed time: the greatest end that was put

A session is gone once its end is at or before the observed time minus the retention (`timed_store.py`), as in Kafka
Streams' `InMemorySessionStore`. From then on reads leave it out.

Invariant: both states have the same sessions; after an epoch all of them end later than observed time - retention.
"""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from eddy.errors import DataError
from eddy.operators.processors.running_call import RunningCall
from eddy.operators.processors.timed_store import LATEST_MS, TIME, RetainedStore, TimedStore
from eddy.state.partitioned_map import MapPartition
from eddy.windows import Windowed

__all__ = ["SessionStore"]

K = TypeVar("K")
V = TypeVar("V")
_Maps = list[MapPartition[Any, Any]]

_SPAN = 2 * TIME.size


class SessionStore(TimedStore, Generic[K, V]):
    """Maps keys with a session to values, in one partition. Changes are committed or undone with the epoch.

    A session includes its start and its end, so a session of one record begins and ends at the same moment. Iterators
    have the rows as of their creation, and end with the processor's call. With `backward=True` they yield the rows in
    reverse order. Such iterators, and iterators over several keys, hold the rows in memory.
    """

    def __init__(
        self, name: str, maps: list[MapPartition[Any, Any]], retained: RetainedStore, call: RunningCall
    ) -> None:
        self._rows, times = maps
        super().__init__(name, times, retained, call)

    def put(self, key: K, value: V | None, start_ms: int, end_ms: int) -> bool:
        """Set the value of the session from `start_ms` to `end_ms`; None removes it.

        Returns False if the session is gone already. Then the value is ignored, and counted as late.
        Raises: DataError for a key or value that its serde refuses, and for moments that are not times, or in the wrong
        order.
        """
        self._check("written")
        session = self._session(key, start_ms, end_ms)
        data = self._rows.key_bytes(session)
        if end_ms < self._first_ms():
            self._ignored += 1
            return False
        self._set(session, data, value)
        self._observe(end_ms)
        return True

    def remove(self, key: K, start_ms: int, end_ms: int) -> V | None:
        """Remove a session. Returns the value that it had. The observed time does not change, as in Kafka Streams."""
        self._check("written")
        session = self._session(key, start_ms, end_ms)
        old = self.fetch_session(key, start_ms, end_ms)
        if old is not None:
            self._set(session, self._rows.key_bytes(session), None)
        return old

    def fetch_session(self, key: K, start_ms: int, end_ms: int) -> V | None:
        """The value of the session from `start_ms` to `end_ms`, or None. Raises: DataError as `put`."""
        self._check("read")
        value = self._rows.value(self._session(key, start_ms, end_ms))
        return value if end_ms >= self._first_ms() else None

    def fetch(self, key: K, backward: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """The sessions of a key: rows (Windowed, value), by end, then by start."""
        return self.find_sessions(key, backward=backward)

    def find_sessions(
        self, key: K, earliest_end_ms: int = 0, latest_start_ms: int = LATEST_MS, backward: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """The sessions of a key that end at `earliest_end_ms` or later, and start at `latest_start_ms` or earlier.

        Yields rows (Windowed, value), by end, then by start. To find the sessions with which a record is merged, pass
        its timestamp minus the gap, and its timestamp plus the gap. Cost: all sessions of the key that do not end
        earlier are read.
        """
        self._check("read")
        prefix = self._key_bytes(key)
        first = max(earliest_end_ms, self._first_ms())
        if first > LATEST_MS:
            return iter(())
        found = self._rows.between(prefix + TIME.pack(first), prefix + TIME.pack(LATEST_MS) * 2 + b"\x00")
        rows = (
            (session, value)
            for session, value in found
            if session.start_ms <= latest_start_ms
            and self._rows.key_bytes(session)[:-_SPAN] == prefix  # the range may have rows of other keys
        )
        return self._within_call(reversed(list(rows)) if backward else rows)

    def fetch_keys(
        self,
        first: K | None = None,
        last: K | None = None,
        earliest_end_ms: int = 0,
        latest_start_ms: int = LATEST_MS,
        backward: bool = False,
    ) -> Iterator[tuple[Windowed[K], V]]:
        """The sessions of the keys from `first` to `last` (None leaves an end open), by end and start as
        `find_sessions`.

        All bounds are included. Yields rows (Windowed, value), by end, then by start, then by the bytes of keys.
        Cost: the sessions of all keys that do not end earlier are read. Raises: DataError as `StateStore.range`.
        """
        self._check("read")
        low = b"" if first is None else self._key_bytes(first)
        high = None if last is None else self._key_bytes(last)
        self._check_range(first, last, low, high)
        found = [
            session
            for at in self._between(max(earliest_end_ms, self._first_ms()), LATEST_MS)
            if low <= at[_SPAN:]
            and (high is None or at[_SPAN:] <= high)
            and (session := self._windowed(at)).start_ms <= latest_start_ms
        ]
        rows: list[Any] = [(session, self._rows.value(session)) for session in found]
        return self._within_call(reversed(rows) if backward else rows)

    def all(self, backward: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Yield all sessions as rows (Windowed, value), by end, then by start, then by the bytes of keys."""
        return self.fetch_keys(backward=backward)

    def _set(self, session: Windowed[K], data: bytes, value: V | None) -> None:
        self._rows.put(session, value)
        self._mark(data[-_SPAN:] + data[:-_SPAN], value is not None)

    def _remove(self, at: bytes) -> None:
        self._rows.put(self._windowed(at), None)

    def _session(self, key: K, start_ms: Any, end_ms: Any) -> Windowed[K]:
        self._check_time(start_ms, "start_ms")
        self._check_time(end_ms, "end_ms")
        if end_ms < start_ms:
            raise DataError(
                f"store '{self.name}': start_ms={start_ms} is after end_ms={end_ms}; a session ends at its start or "
                "later. Give the start first"
            )
        return Windowed(key, start_ms, end_ms)

    def _windowed(self, at: bytes) -> Any:
        return self._rows.spec.key.decode(at[_SPAN:] + at[:_SPAN])

    def _key_bytes(self, key: K) -> bytes:
        return self._rows.key_bytes(Windowed(key, 0, 0))[:-_SPAN]
