"""Encodes plain data, such as the rows of queries on disk, as bytes that keep the type of each item.

A *cell* is the data of one key. Only the process that wrote the bytes reads them: their files are removed at its end.
"""

import marshal
from decimal import Decimal
from typing import Any

__all__ = ["cell_bytes", "cell_of"]

_VERSION = 2
"""The version of `marshal`'s format. Later versions search for objects that occur twice, which a row seldom has."""
_WRAPPED = b"\x00"
"""The first byte of data with decimals, a type that `marshal` does not support. No data of `marshal` begins with it."""


def cell_bytes(cell: Any) -> bytes:
    """Encode a cell as bytes."""
    try:
        return marshal.dumps(cell, _VERSION)
    except ValueError:  # a decimal
        return _WRAPPED + marshal.dumps(_wrapped(cell), _VERSION)


def cell_of(data: bytes) -> Any:
    """Decode the bytes of a cell."""
    if data[:1] == _WRAPPED:
        return _unwrapped(marshal.loads(data[1:]))
    return marshal.loads(data)


def _wrapped(cell: Any) -> Any:
    """Return a cell in which each decimal is replaced by a set with the decimal's text.

    Plain data has no sets, so a set marks a decimal.
    """
    if type(cell) is Decimal:
        return frozenset((str(cell),))
    if type(cell) is dict:
        return {name: _wrapped(value) for name, value in cell.items()}
    return type(cell)(map(_wrapped, cell)) if type(cell) in {list, tuple} else cell


def _unwrapped(cell: Any) -> Any:
    if type(cell) is frozenset:
        return Decimal(next(iter(cell)))
    if type(cell) is dict:
        return {name: _unwrapped(value) for name, value in cell.items()}
    return type(cell)(map(_unwrapped, cell)) if type(cell) in {list, tuple} else cell
