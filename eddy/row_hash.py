"""Hashes rows. By their hashes, rows made from one record are sorted after an exchange that may have separated them."""

from hashlib import blake2b
from typing import Any

from eddy.serde import Serde

__all__ = ["row_hash"]

_BYTES = 16


def row_hash(serdes: tuple[Serde[Any], Serde[Any]], row: tuple[Any, Any], stamp_ms: int) -> bytes:
    """Return a 16-byte hash of a row and its timestamp. Raises: any exception of the serdes."""
    found = blake2b(stamp_ms.to_bytes(8, "big", signed=True), digest_size=_BYTES)
    for serde, part in zip(serdes, row, strict=True):
        data = b"" if part is None else b"+" + serde.encode(part)
        found.update(len(data).to_bytes(8, "big") + data)
    return found.digest()
