"""A state store as a processor uses it: the rows of the processor's partition."""

from collections.abc import Iterator
from threading import get_ident
from typing import Generic, TypeVar

from eddy.errors import DataError, ProcessorError
from eddy.operators.processors.running_call import RunningCall
from eddy.state.global_rows import GlobalRows
from eddy.state.partitioned_map import MapPartition

__all__ = ["GlobalStore", "StateStore"]

K = TypeVar("K")
V = TypeVar("V")


class StateStore(Generic[K, V]):
    """Maps keys to values, in one partition. Changes are committed or undone with the epoch.

    Iterators have the rows as of their creation, in the order of the keys' bytes, and end with the processor's call.
    """

    def __init__(self, name: str, rows: MapPartition[K, V], call: RunningCall) -> None:
        self.name, self._rows, self._call = name, rows, call

    def get(self, key: K) -> V | None:
        """The value of a key, or None. Raises: DataError for a key that the serde refuses."""
        if self._call.thread != get_ident():
            self._call.check(f"store '{self.name}' is read")
        return self._rows.value(key)

    def put(self, key: K, value: V | None) -> None:
        """Set the value of a key; None deletes it. Raises: DataError for a key or value that its serde refuses."""
        if self._call.thread != get_ident():
            self._call.check(f"store '{self.name}' is written")
        self._rows.put(key, value)

    def delete(self, key: K) -> V | None:
        """Delete a key. Returns the value that it had."""
        old = self.get(key)
        if old is not None:
            self._rows.put(key, None)
        return old

    def all(self) -> Iterator[tuple[K, V]]:
        """Yield all rows."""
        return self._between(b"", None)

    def range(self, first: K | None = None, last: K | None = None) -> Iterator[tuple[K, V]]:
        """Yield the rows with keys from `first` to `last`, both included; None leaves an end open.

        Raises: DataError if the bytes of `first` sort after the bytes of `last`. For example, the bytes of a negative
        `Int64` sort after the bytes of all numbers that are not negative.
        """
        low = b"" if first is None else self._rows.key_bytes(first)
        high = None if last is None else self._rows.key_bytes(last)
        if high is not None and low > high:
            raise DataError(
                f"store '{self.name}': the bytes of {first!r} sort after the bytes of {last!r}; keys are in the "
                f"order of "
                "their bytes, and the first of a range is needed first. Swap them, or filter the rows of all()"
            )
        return self._between(low, None if high is None else high + b"\x00")

    def prefix_scan(self, prefix: K) -> Iterator[tuple[K, V]]:
        """The rows whose keys begin with `prefix`. Raises: DataError unless keys are strings or bytes."""
        spec = self._rows.spec
        if spec.key.type not in {str, bytes}:
            raise DataError(
                f"store '{self.name}': prefix_scan of keys by serde {spec.key.name}; keys by eddy.String or eddy.Bytes "
                "are needed, whose bytes begin as they do. Write range(first, last)"
            )
        low = self._rows.key_bytes(prefix)
        kept = low.rstrip(b"\xff")
        return self._between(low, kept[:-1] + bytes([kept[-1] + 1]) if kept else None)

    def approximate_count(self) -> int:
        """The number of rows; here it is exact. Cost: the first call reads all rows of the partition."""
        self._call.check(f"store '{self.name}' is read")
        return self._rows.count()

    def _between(self, start: bytes, stop: bytes | None) -> Iterator[tuple[K, V]]:
        self._call.check(f"store '{self.name}' is read")
        return self._call.within(self._rows.between(start, stop), f"an iterator of store '{self.name}' is read")


class GlobalStore(StateStore[K, V]):
    """A global table as a processor reads it: all its rows, of all partitions, as of the beginning of the epoch."""

    def __init__(self, name: str, rows: GlobalRows[K, V], call: RunningCall) -> None:
        super().__init__(name, rows, call)  # type: ignore[arg-type]  # `put` and `delete` are the only ones that change

    def put(self, key: K, value: V | None) -> None:
        """Refused. Raises: ProcessorError."""
        raise self._refused("put")

    def delete(self, key: K) -> V | None:
        """Refused. Raises: ProcessorError."""
        raise self._refused("delete")

    def _refused(self, method: str) -> ProcessorError:
        return ProcessorError(
            f"store '{self.name}': {method} is called on a global table, which only the records of its topic change. "
            "Write a record to that topic, or keep the rows in a store: topology.store('…', …)"
        )
