"""A store maps bytes to bytes in key order. It is the lowest layer and knows nothing of types.

All writes use `write`, one atomic batch for each epoch. So a store always has the rows of some commit. After a crash it
may be an earlier commit, but never half a commit.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

__all__ = ["Store", "StoreSnapshot"]


class StoreSnapshot(Protocol):
    """The pairs of a store at one moment. Another thread than the store's may read it."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return what `Store.get_many` returns, at the snapshot's moment."""

    def scan_between(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return what `Store.scan_between` returns, at the snapshot's moment."""

    def close(self) -> None:
        """Release the snapshot."""


@runtime_checkable
class Store(Protocol):
    """A map from bytes to bytes, ordered by key. It has one owner at a time, and is for one thread."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key, in the order of `keys`; None for a missing key."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs whose key starts with `prefix`, in key order.

        The pairs are those at the time of the call: later writes are not seen.
        Raises: StateError if a block cannot be read: a scan never ends early without an error.
        """

    def scan_many(self, prefixes: Sequence[bytes]) -> list[list[tuple[bytes, bytes]]]:
        """Return for each of `prefixes`, in their order, the pairs that `scan` yields for it.

        Raises: StateError as `scan` does.
        """

    def scan_between(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """The first `limit` pairs with `start` ≤ key < `stop`, in key order.

        Raises: StateError as `scan` does.
        """

    def snapshot(self, prefix: bytes) -> StoreSnapshot:
        """The pairs whose key starts with `prefix`, as they are now: later writes are not seen."""

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Put each value, and delete each key whose value is None, in the order given. All changes are made or none.

        Raises: StateError, after which nothing has changed.
        """

    def delete_prefix(self, prefix: bytes) -> None:
        """Delete every key that starts with `prefix`."""

    def flush(self) -> None:
        """Make all writes survive a loss of power."""

    def close(self) -> None:
        """Release the store, so that another process can own it. Closing twice is allowed."""
