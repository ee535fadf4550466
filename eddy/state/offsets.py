"""The offsets in a store: rows beside the data, written in the same batch.

The keys of a store, in order:

    data                                          up to b"\\xff"
    b"\\xffmark\\0" state b"\\0" partition(4)        the last epoch of a state without a changelog, 8 bytes
    b"\\xffoffset\\0" topic b"\\0" partition(4)      the next offset to read, 8 bytes big-endian
    b"\\xffstamp"                                 the incarnation that owns the states, and the time of the last write
    b"\\xff\\xff" …                                 keys of the store itself, hidden and refused (`RESERVED`)

Invariant: data and its offset are written by one `Store.write`. So after a crash the two may be older, but they belong
together. This module neither reads a log nor writes a store.
"""

from typing import NamedTuple

from eddy.errors import StateError
from eddy.state.store import Store

__all__ = [
    "RESERVED",
    "StoreStamp",
    "decode_offset",
    "encode_offset",
    "mark_key",
    "offset_key",
    "read_offsets",
    "read_stamp",
]

RESERVED = b"\xff\xff"
"""The keys from this key on belong to the store itself: no write may use them, and no scan yields them."""

_PREFIX = b"\xffoffset\x00"
_MARK = b"\xffmark\x00"
_STAMP = b"\xffstamp"
_PARTITION_BYTES = 4
_OFFSET_BYTES = 8


class StoreStamp(NamedTuple):
    """The incarnation of the application that wrote a store, and the wall-clock time of the last write, in seconds."""

    incarnation: str
    written_s: int

    def row(self) -> tuple[bytes, bytes]:
        """The row to write with a batch."""
        return _STAMP, encode_offset(self.written_s) + self.incarnation.encode()


def read_stamp(store: Store) -> StoreStamp | None:
    """The stamp of a store; None if the store was never written."""
    (value,) = store.get_many([_STAMP])
    return None if value is None else StoreStamp(value[_OFFSET_BYTES:].decode(), decode_offset(value[:_OFFSET_BYTES]))


def offset_key(topic: str, partition: int) -> bytes:
    """Return the key under which a store has the offset of `partition` of `topic`.

    >>> offset_key("orders", 3)
    b'\\xffoffset\\x00orders\\x00\\x00\\x00\\x00\\x03'
    """
    return _PREFIX + topic.encode() + b"\x00" + partition.to_bytes(_PARTITION_BYTES, "big")


def mark_key(state: str, partition: int) -> bytes:
    """Return the key of a partition's mark, the number of the last epoch that wrote a state without a changelog."""
    return _MARK + state.encode() + b"\x00" + partition.to_bytes(_PARTITION_BYTES, "big")


def encode_offset(offset: int) -> bytes:
    """Return an offset as eight bytes, big-endian. Raises: OverflowError for a negative offset.

    >>> encode_offset(258).hex()
    '0000000000000102'
    """
    return offset.to_bytes(_OFFSET_BYTES, "big")


def decode_offset(value: bytes) -> int:
    """Return the offset that `encode_offset` has encoded. Raises: StateError unless there are eight bytes.

    >>> decode_offset(encode_offset(258))
    258
    """
    if len(value) != _OFFSET_BYTES:
        raise StateError(
            f"offset: {value!r} has {len(value)} bytes; an offset has {_OFFSET_BYTES}. "
            "Delete the state directory: it is restored from the changelogs."
        )
    return int.from_bytes(value, "big")


def read_offsets(store: Store) -> dict[tuple[str, int], int]:
    """Return every offset in `store`, by topic and partition. Cost: one scan of as many keys."""
    return {_topic_partition(key): decode_offset(value) for key, value in store.scan(_PREFIX)}


def _topic_partition(key: bytes) -> tuple[str, int]:
    # The partition has a fixed width and comes last, so topic names cannot be confused.
    topic, partition = key[len(_PREFIX) : -_PARTITION_BYTES - 1], key[-_PARTITION_BYTES:]
    return topic.decode(), int.from_bytes(partition, "big")
