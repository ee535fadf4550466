"""The event times at which rows of windows are passed on, and are removed from a table."""

from typing import Any, NamedTuple

from eddy.serde import Serde

__all__ = ["Closing", "bytes_of"]


class Closing(NamedTuple):
    """The event time `at_ms` at which a row is passed on, or is final: when all its source partitions have reached it.

    Args:
        topics: the topics of the sources.
        sent: the topics among them whose records are sent through an exchange, so that all their partitions count.
        key: the bytes of the key that decides which partition counts in each other topic.
        at_ms: the event time at which the row is passed on, or final.
        waits: whether the row is passed on at that time, and not before.
        removed_at_ms: the event time at which the step's table has removed the row.
    """

    topics: tuple[str, ...]
    sent: frozenset[str]
    key: bytes
    at_ms: int
    waits: bool
    removed_at_ms: int


def bytes_of(serde: Serde[Any], key: Any) -> bytes:
    """Return the bytes of a key by which its partition is chosen."""
    return serde.identify_many([key])[0]
