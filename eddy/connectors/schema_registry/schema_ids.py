"""The ids of schemas, which precede the data of records or are in headers.

    0 (1 byte)  schema id (4 bytes, big-endian)  place  payload
    1 (1 byte)  schema GUID (16 bytes)           place  payload

Only Protobuf has the place of the message type: the number of indexes, and the indexes of nested types, as zigzag
varints; 0 for the first message. A GUID with the place after it may be in a header instead (docs/adr/0106).
"""

from collections.abc import Iterator
from typing import Any

from eddy.errors import ConfigurationError

__all__ = ["HEAD_BYTES", "MAGIC", "checked", "end_of_guid", "end_of_place", "guid_first", "varints"]

MAGIC = 0
"""The first byte of an id of 4 bytes."""
HEAD_BYTES = {MAGIC: 5, 1: 17}
"""The number of bytes before the place or the payload, by the first byte of the data."""


def guid_first(payload: bytes, context: object, schema_id: Any) -> bytes:
    """Put GUID and place before the payload, as a `schema.id.serializer` of confluent-kafka. Raises: as `checked`."""
    checked(schema_id.guid)
    return bytes(schema_id.guid_to_bytes()) + payload


def checked(guid: Any) -> Any:
    """Return the GUID of a schema. Raises: ConfigurationError if the registry has not given one."""
    if guid is None:
        raise ConfigurationError(
            "schema registry: ids are to be written into headers, and it names no GUID of a schema; a registry that "
            "has GUIDs is needed. Write ids before the data: ids_in_headers=False"
        )
    return guid


def end_of_guid(data: bytes) -> int:
    """Return the offset after the GUID at the beginning of Avro or JSON data."""
    return HEAD_BYTES[data[0]]


def end_of_place(data: bytes) -> int:
    """Return the offset after the GUID and the place at the beginning of Protobuf data."""
    numbers = varints(data, HEAD_BYTES[data[0]])
    count, end = next(numbers)
    for _ in range(count):
        _, end = next(numbers)
    return end


def varints(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Yield the zigzag varints from `at` on, each with the offset after it. Raises: ValueError at the data's end."""
    while True:
        number = shift = 0
        more = True
        while more:
            if at == len(data):
                raise ValueError("it ends in the place of its message type")
            number |= (data[at] & 0x7F) << shift
            more, shift, at = data[at] >= 0x80, shift + 7, at + 1
        yield (number >> 1) ^ -(number & 1), at
