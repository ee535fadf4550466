"""The event times at which rows of windows are passed on, and leave a table."""

from typing import Any, NamedTuple

from eddy.serde import Serde

__all__ = ["Closing", "bytes_of"]


class Closing(NamedTuple):
    """A row is passed on, or final, once all its source partitions have the event time `at_ms`.

    Args:
        topics: the sources.
        sent: those of them whose rows are sent through an exchange, so that all of their partitions decide.
        key: the bytes of the key that decides the partition of the others.
        waits: whether the row is passed on then, and not before.
        removed_at_ms: the event time at which the step's table has it no more.
    """

    topics: tuple[str, ...]
    sent: frozenset[str]
    key: bytes
    at_ms: int
    waits: bool
    removed_at_ms: int


def bytes_of(serde: Serde[Any], key: Any) -> bytes:
    """The bytes by which a key is placed."""
    return serde.identify_many([key])[0]
