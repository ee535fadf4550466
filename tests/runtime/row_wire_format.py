"""Values of loop and repartition records."""

import struct

from eddy.runtime.row_wire_format import row_values

__all__ = ["of_version_1", "packed"]


def packed(weight: int, iteration: int, body: bytes | None = None, event_time: int | None = None) -> bytes:
    """As this version writes it."""
    (value,) = row_values([weight], iteration, [body], None if event_time is None else [event_time])
    return value


def of_version_1(weight: int, iteration: int, body: bytes | None = None) -> bytes:
    """As earlier versions wrote it."""
    return struct.pack(">qi?", weight, iteration, body is not None) + (body or b"")
