"""SQL's rows as bytes: one serde for each list of column types.

A row is a tuple, and None means no row. Rows are MessagePack, in which numerics and timestamps are texts. So a reader
needs the types of the columns.
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

__all__ = ["key_serde", "row_serde"]

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
    """Return the serde of rows of these types. Equal rows have equal bytes, even if one has 1.50 and the other 1.5."""
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
    return Serde(name, encode, decode, identify=identify, type=tuple, recipe=(row_serde, (types,)))


def key_serde(type: Type) -> Serde[Any] | None:
    """Return the serde of a key of one column whose type has no native form: numerics and timestamps, as text.

    >>> serde = key_serde(Type("numeric"))
    >>> serde.encode(decimal.Decimal("1.50")), serde.decode(b"1.5")
    (b'1.5', Decimal('1.5'))
    """
    if type.kind not in _AS_TEXT:
        return None
    python, write, read = _AS_TEXT[type.kind]

    def encode(value: Any) -> bytes:
        if value is not None and not isinstance(value, python):
            raise TypeError(f"{python.__name__} expected, {value.__class__.__name__} given: {value!r}")
        return b"" if value is None else write(value).encode()

    def decode(data: bytes) -> Any:
        return read(data.decode()) if data else None

    return Serde(f"sql-key({type.kind})", encode, decode, identify=encode, type=python, recipe=(key_serde, (type,)))


_AS_TEXT: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "numeric": (decimal.Decimal, lambda value: str(value.normalize(CONTEXT) if value else 0), decimal.Decimal),
    "timestamp": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
}


def _one_nan(row: Any, places: Sequence[int]) -> Any:
    """Return the row with one object for all NaNs, because Python compares tuple items by identity first."""
    if row is None or all(row[i] == row[i] for i in places):
        return row
    return tuple(math.nan if value != value else value for value in row)


def _identity(row: Any, floats: Sequence[int], numerics: Sequence[int]) -> Any:
    """Return the one row that represents all rows equal to `row`."""
    if row is None:
        return None
    cells = list(row)
    for i in floats:
        cells[i] = None if cells[i] is None else cells[i] + 0.0  # -0.0 is 0.0
    for i in numerics:
        if cells[i] is not None:
            cells[i] = cells[i].normalize(CONTEXT) if cells[i] else decimal.Decimal(0)
    return tuple(cells)
