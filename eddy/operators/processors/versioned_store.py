"""A versioned store as a processor uses it: the value of a key as of any time within the history retention.

    rows of `name`             key        ->  the latest version, unless it is a deletion: its timestamp and value
    rows of `name`-versions    key, time  ->  a version: its value, or None for a deletion
    rows of `name`-times       time, key  ->  a mark; and the observed time: the greatest timestamp that was put

A version is valid from its timestamp until the next version of its key. Let the *horizon* be the observed time minus
the retention. The store has each key's versions after the horizon, and its last version up to the horizon. So reads as
of the horizon or later are exact. A read as of an earlier time finds only a key's latest version, if that was valid
then. A put before the horizon is ignored, as in Kafka Streams (KIP-889).

Invariant: after an epoch, `-times` has the versions after the horizon. When the horizon passes a version, it is removed
from `-times`, and the key's versions before it are removed from the store.
"""

from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from eddy.operators.processors.running_call import RunningCall
from eddy.operators.processors.timed_store import LATEST_MS, TIME, RetainedStore, TimedStore
from eddy.state.partitioned_map import MapPartition

__all__ = ["VersionedRecord", "VersionedStore"]

K = TypeVar("K")
V = TypeVar("V")
_Maps = list[MapPartition[Any, Any]]


class VersionedRecord(NamedTuple, Generic[V]):
    """A version of a key: its value, its timestamp, and the timestamp of the next version, None for the latest one."""

    value: V
    timestamp_ms: int
    valid_to_ms: int | None = None


class VersionedStore(TimedStore, Generic[K, V]):
    """Maps keys to the versions of their values, in one partition. Changes are committed or undone with the epoch."""

    def __init__(
        self, name: str, maps: list[MapPartition[Any, Any]], retained: RetainedStore, call: RunningCall
    ) -> None:
        self._latest, self._versions, times = maps
        super().__init__(name, times, retained, call)

    def put(self, key: K, value: V | None, timestamp_ms: int) -> bool:
        """Set the value of a key from `timestamp_ms` on, until its next version; None is a deletion.

        Returns False if that time is before the history. Then the value is ignored, and counted as late.
        Raises: DataError for a key or value that its serde refuses, and for a timestamp that is not a time.
        """
        self._check("written")
        self._check_time(timestamp_ms, "timestamp_ms")
        data = self._latest.key_bytes(key)
        if timestamp_ms < self._begin_ms():
            self._ignored += 1
            return False
        if not any(at > timestamp_ms for at, _ in self._of(data, timestamp_ms)):
            self._latest.put(key, None if value is None else (timestamp_ms, value))
        time = TIME.pack(timestamp_ms)
        self._versions.put(data + time, (value,))
        self._mark(time + data, True)
        self._observe(timestamp_ms)
        self._advanced = True  # a version just at the beginning of the history is past already
        return True

    def get(self, key: K, as_of_ms: int | None = None) -> VersionedRecord[V] | None:
        """Return the version of a key as of a time, by default the latest version; None for no version or a deletion.

        For a time before the history it also returns None, unless the latest version was valid then.
        Cost: with a time, a scan of the key's versions up to it.
        Raises: DataError for a key that the serde refuses, and for an object that is not a time.
        """
        self._check("read")
        if as_of_ms is None:
            latest = self._latest.value(key)
            return None if latest is None else VersionedRecord(latest[1], latest[0])
        self._check_time(as_of_ms, "as_of_ms")
        data = self._latest.key_bytes(key)
        if as_of_ms < self._begin_ms():
            latest = self._latest.value(key)
            return VersionedRecord(latest[1], latest[0]) if latest and latest[0] <= as_of_ms else None
        found: tuple[int, V | None] | None = None
        for at, value in self._of(data):
            if at > as_of_ms:
                return self._version(found, at)
            found = at, value
        return self._version(found, None)

    def delete(self, key: K, timestamp_ms: int) -> VersionedRecord[V] | None:
        """Delete a key from `timestamp_ms` on, as `put` with None. Returns the version that was valid at that time.

        Returns None if that time is before the history. Then nothing is deleted.
        """
        old = self.get(key, timestamp_ms)
        return old if self.put(key, None, timestamp_ms) else None

    def _version(self, found: tuple[int, V | None] | None, valid_to_ms: int | None) -> VersionedRecord[V] | None:
        if found is None or found[1] is None:
            return None
        return VersionedRecord(found[1], found[0], valid_to_ms)

    def _begin_ms(self) -> int:
        """The first time of the history."""
        return max(0, self._observed() - self._retention_ms)

    def _of(self, data: bytes, first_ms: int = 0) -> Iterator[tuple[int, V | None]]:
        """Yield the timestamps and values of the versions of the key with these bytes, from a time on."""
        for at, (value,) in self._versions.between(data + TIME.pack(first_ms), data + TIME.pack(LATEST_MS) + b"\x00"):
            if len(at) == len(data) + TIME.size and at.startswith(data):
                yield TIME.unpack(at[-TIME.size :])[0], value

    def _remove(self, at: bytes) -> None:
        """Remove the versions of a key that no read finds any more, now that the horizon has passed a version.

        These are the earlier versions, and the passed version itself if it is a deletion.
        """
        time, data = TIME.unpack(at[: TIME.size])[0], at[TIME.size :]
        for earlier, value in list(self._of(data)):
            if earlier < time or (earlier == time and value is None):
                self._versions.put(data + TIME.pack(earlier), None)
            if earlier >= time:
                return
