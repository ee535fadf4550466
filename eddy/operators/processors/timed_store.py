"""Stores whose rows are removed after a retention time, measured by the times that the processor has put.

    rows of `name`-times    time, rest of a row's key  ->  a mark; and the observed time: the greatest time that was put

A time is *past* once it is at or before the observed time minus the retention. The observed time is stored as a row, so
it is a function of the puts alone. At the end of the epoch rows whose time is past are removed, from the changelog,
too. They are found by a scan of `name`-times, which is sorted by time.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from threading import get_ident
from typing import Any, NamedTuple

from eddy.errors import DataError
from eddy.operators.processors.running_call import RunningCall
from eddy.state.partitioned_map import MapPartition

__all__ = ["LATEST_MS", "TIME", "RetainedStore", "TimedStore"]

TIME = Struct(">q")
LATEST_MS = (1 << 63) - 1
_OBSERVED = b"\x00"  # sorts before all times
_MARK = b"\x01"


class RetainedStore(NamedTuple):
    """A declared store with a retention: its kind, the size of its windows, the retention, and its other states."""

    kind: str
    size_ms: int
    retention_ms: int
    states: tuple[str, ...]


class TimedStore:
    """A store of one partition. Changes are committed or undone with the epoch.

    Iterators have the rows as of their creation, and end with the processor's call.
    """

    def __init__(
        self, name: str, times: MapPartition[bytes, bytes], retained: RetainedStore, call: RunningCall
    ) -> None:
        self.name, self._times, self._call = name, times, call
        self._retention_ms = retained.retention_ms
        self._advanced = False
        self._ignored = 0

    def _expire(self) -> int:
        """Remove the rows whose time is past, at the end of an epoch. Returns the number of ignored puts."""
        if self._advanced:
            self._advanced = False
            for at in list(self._between(0, self._first_ms() - 1)):
                self._remove(at)
                self._times.put(at, None)
        ignored, self._ignored = self._ignored, 0
        return ignored

    def _remove(self, at: bytes) -> None:
        """Remove the row for an entry of `name`-times whose time is past, unless reads still need the row."""
        raise NotImplementedError

    def _observed(self) -> int:
        """Return the greatest time that was put; -1 before the first put."""
        data = self._times.value(_OBSERVED)
        return -1 if data is None else int(TIME.unpack(data)[0])

    def _first_ms(self) -> int:
        """The first time that is not past."""
        return max(0, self._observed() - self._retention_ms + 1)

    def _observe(self, time_ms: int) -> None:
        """Note a time that was put."""
        if time_ms > self._observed():
            self._times.put(_OBSERVED, TIME.pack(time_ms))
            self._advanced = True

    def _mark(self, at: bytes, there: bool) -> None:
        """Note in `name`-times whether there is a row with this time and this rest of its key."""
        if (self._times.value(at) is not None) != there:
            self._times.put(at, _MARK if there else None)

    def _between(self, first_ms: int, last_ms: int) -> Iterator[bytes]:
        """Yield the entries of `name`-times from one moment to another, both included."""
        if last_ms < first_ms:
            return iter(())
        stop = None if last_ms >= LATEST_MS else TIME.pack(last_ms + 1)
        return (at for at, _ in self._times.between(TIME.pack(first_ms), stop))

    def _check_range(self, first: Any, last: Any, low: bytes, high: bytes | None) -> None:
        """Raise DataError if the bytes of the first key sort after the bytes of the last key."""
        if high is not None and low > high:
            raise DataError(
                f"store '{self.name}': the bytes of {first!r} sort after the bytes of {last!r}; keys are in the order "
                "of their bytes, and the first of a range is needed first. Swap them, or filter the rows of all()"
            )

    def _check_time(self, time_ms: Any, what: str, latest_ms: int = LATEST_MS) -> None:
        """Raise DataError for an object that is not a time, or a time after `latest_ms`."""
        if type(time_ms) is not int or not 0 <= time_ms <= latest_ms:
            raise DataError(
                f"store '{self.name}': {what}={time_ms!r}; milliseconds since 1970, a whole number from 0 on, are "
                "needed, such as record.timestamp_ms"
            )

    def _check(self, done: str) -> None:
        if self._call.thread != get_ident():
            self._call.check(f"store '{self.name}' is {done}")

    def _within_call(self, rows: Iterable[Any]) -> Iterator[Any]:
        return self._call.within(rows, f"an iterator of store '{self.name}' is read")
