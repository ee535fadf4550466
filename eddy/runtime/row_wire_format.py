"""The form of rows in loop and repartition topics: a head precedes a row's value in its record.

    version (1)  flags (1)  weight (8)  iteration (4)  [size (2)  weight]  [event time (8)  [place]]  value

    flags   1  there is a value
            2  the weight is beyond 64 bits: the first weight is 0, and the second one, with its size, is the weight
            4  reserved for the number of an epoch, 8 bytes after the weight
            8  there is the event time of the source partition up to and with the row's record, in milliseconds
           16  and the record's place: partition (4)  offset (8)  size (2)  topic

Numbers are big-endian and signed. Records of earlier versions begin with a weight, whose first byte was never equal to
the version.
"""

import struct
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from eddy.errors import DataError
from eddy.operators.batch import PlacedTime

__all__ = ["Head", "row_heads", "row_values"]

_VERSION = 0x82
_HEAD, _OLD_HEAD, _EVENT_TIME = struct.Struct(">BBqi"), struct.Struct(">qi?"), struct.Struct(">q")
_PLACE = struct.Struct(">iqH")
_HAS_VALUE, _IS_LARGE, _HAS_TIME, _HAS_PLACE = 1, 2, 8, 16
_SIZE_BYTES = 2


class Head(NamedTuple):
    """The head of a row. The row's value begins at byte `size`; None if there is no value.

    `event_time`: the event time of the source partition up to and with the row's record; None if the row does not carry
    it. It is a `PlacedTime` if the row carries the place of its record, too.
    """

    weight: int
    iteration: int
    size: int | None
    event_time: int | None = None


def row_values(
    weights: Sequence[int],
    iteration: int,
    bodies: Sequence[bytes | None],
    event_times: Sequence[int | None] | None = None,
) -> list[bytes]:
    """Encode rows as values of records, with the event times that the rows carry."""
    pack = _HEAD.pack
    try:
        if event_times is None:
            return [
                pack(_VERSION, body is not None, weight, iteration) + (body or b"")
                for weight, body in zip(weights, bodies, strict=True)
            ]
    except struct.error:
        pass
    times = repeat(None, len(weights)) if event_times is None else event_times
    return [_value(weight, iteration, body, time) for weight, body, time in zip(weights, bodies, times, strict=True)]


def _value(weight: int, iteration: int, body: bytes | None, event_time: int | None) -> bytes:
    flags, carried = _HAS_VALUE if body is not None else 0, b""
    if event_time is not None:
        flags, carried = flags | _HAS_TIME, _EVENT_TIME.pack(event_time)
    if isinstance(event_time, PlacedTime):
        topic, partition, offset = event_time.place
        name = topic.encode()
        flags, carried = flags | _HAS_PLACE, carried + _PLACE.pack(partition, offset, len(name)) + name
    rest = carried + (body or b"")
    try:
        return _HEAD.pack(_VERSION, flags, weight, iteration) + rest
    except struct.error:
        number = weight.to_bytes(weight.bit_length() // 8 + 1, "big", signed=True)
        head = _HEAD.pack(_VERSION, flags | _IS_LARGE, 0, iteration)
        return head + len(number).to_bytes(_SIZE_BYTES, "big") + number + rest


def row_heads(values: Sequence[bytes | None]) -> list[Head]:
    """Decode the heads of rows from the values of their records. Raises: DataError for the form of a later version."""
    try:
        heads = [_HEAD.unpack_from(value) for value in values]  # type: ignore[arg-type]
        if all(head[0] == _VERSION and head[1] <= _HAS_VALUE for head in heads):
            size = _HEAD.size
            return [Head(weight, iteration, size if flags else None) for _, flags, weight, iteration in heads]
    except (struct.error, TypeError):
        pass
    return [_head(value or b"") for value in values]


def _head(value: bytes) -> Head:
    if value[:1] != b"\x82":
        weight, iteration, has_value = _OLD_HEAD.unpack_from(value)
        return Head(weight, iteration, _OLD_HEAD.size if has_value else None)
    _, flags, weight, iteration = _HEAD.unpack_from(value)
    size = _HEAD.size
    event_time = None
    if flags & ~(_HAS_VALUE | _IS_LARGE | _HAS_TIME | _HAS_PLACE):
        raise DataError(
            f"a row of an internal topic has flags {flags:#x}, which this version of eddy does not know; a "
            f"later version has written it. Continue with that version"
        )
    if flags & _IS_LARGE:
        start = size + _SIZE_BYTES
        size = start + int.from_bytes(value[size:start], "big")
        weight = int.from_bytes(value[start:size], "big", signed=True)
    if flags & _HAS_TIME:
        (event_time,) = _EVENT_TIME.unpack_from(value, size)
        size += _EVENT_TIME.size
    if flags & _HAS_PLACE:
        partition, offset, length = _PLACE.unpack_from(value, size)
        size += _PLACE.size + length
        event_time = PlacedTime.at(event_time or 0, (value[size - length : size].decode(), partition, offset))
    return Head(weight, iteration, size if flags & _HAS_VALUE else None, event_time)
