"""A store maps bytes to bytes in key order. It is the lowest layer and knows nothing of types.

Everything above writes through `write`, one atomic batch an epoch, so a store is always as of
some commit: after a crash older, never half.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

__all__ = ["Store"]


@runtime_checkable
class Store(Protocol):
    """Bytes to bytes, ordered by key. One owner at a time, no threads."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key, None where there is none, in the order of `keys`."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs whose key starts with `prefix`, in key order.

        The pairs are those of the call: writes that come meanwhile are not seen.
        Raises: StateError where a block cannot be read: a scan never ends early in silence.
        """

    def scan_many(self, prefixes: Sequence[bytes]) -> list[list[tuple[bytes, bytes]]]:
        """What `scan` yields for each of `prefixes`, in their order.

        Raises: StateError as `scan` does.
        """

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Put each value, delete each key whose value is None: all of them or none, in the order given.

        Raises: StateError, after which nothing has changed.
        """

    def delete_prefix(self, prefix: bytes) -> None:
        """Delete every key that starts with `prefix`."""

    def flush(self) -> None:
        """Make all that was written survive a loss of power."""

    def close(self) -> None:
        """Release the store; its owner may be another one now. Closing twice is fine."""
