"""Rows of SQL as bytes: one serde for each list of column types.

A row is a tuple, and None stands for no row. As MessagePack a numeric is its text and a timestamp its own
form, which only the types of the columns tell apart.
"""

import datetime
import decimal
import math
import types as types_module
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from eddy.serde import Serde
from eddy.topology.sql.casts import CONTEXT
from eddy.topology.sql.types import Type

__all__ = ["row_serde"]

_PYTHON: dict[str, type] = {
    "boolean": bool,
    "smallint": int,
    "integer": int,
    "bigint": int,
    "numeric": decimal.Decimal,
    "real": float,
    "double": float,
    "text": str,
    "timestamp": datetime.datetime,
}


@lru_cache(1024)
def row_serde(types: tuple[Type, ...]) -> Serde[Any]:
    """The serde of rows of these types. Equal rows have equal bytes, as 1.50 and 1.5."""
    cells = tuple(_PYTHON.get(found.kind, str) | None for found in types)
    fields: Any = types_module.GenericAlias(tuple, cells)
    encode = msgspec.msgpack.Encoder().encode
    decoder = msgspec.msgpack.Decoder(fields | None)
    name = f"sql({','.join(str(found) for found in types)})"
    floats = [i for i, found in enumerate(types) if found.floating]
    numerics = [i for i, found in enumerate(types) if found.kind == "numeric"]
    decode: Callable[[bytes], Any] = (
        decoder.decode if not floats else lambda data: _one_nan(decoder.decode(data), floats)
    )
    identify = None
    if floats or numerics:
        identify = lambda row: encode(_identity(row, floats, numerics))  # noqa: E731
    return Serde(name, encode, decode, identify=identify, recipe=(row_serde, (types,)))


def _one_nan(row: Any, places: Sequence[int]) -> Any:
    """The row with one NaN object for all: rows are compared by identity first."""
    if row is None or all(row[i] == row[i] for i in places):
        return row
    return tuple(math.nan if value != value else value for value in row)


def _identity(row: Any, floats: Sequence[int], numerics: Sequence[int]) -> Any:
    """The one of the rows equal to `row` that stands for them."""
    if row is None:
        return None
    cells = list(row)
    for i in floats:
        cells[i] = None if cells[i] is None else cells[i] + 0.0  # -0.0 is 0.0
    for i in numerics:
        if cells[i] is not None:
            cells[i] = cells[i].normalize(CONTEXT) if cells[i] else decimal.Decimal(0)
    return tuple(cells)
