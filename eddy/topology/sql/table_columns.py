"""The columns of a statement's tables, as users declare them, and the conversion of values to the columns' types."""

import datetime
import decimal
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eddy.errors import DataError, TopologyError
from eddy.topology.sql.algebra import NamedColumn
from eddy.topology.sql.casts import LIMITS, cast_function, finite_numeric
from eddy.topology.sql.types import BIGINT, DOUBLE, NUMERIC, PYTHON_TYPES, REAL, TEXT, TYPE_NAMES, Type, parse_type

__all__ = ["Columns", "columns_named", "reader_of"]

Columns = Mapping[str, "str | type"] | Sequence[str]
"""Names with types, which are SQL's names of types or Python types; or names alone if the types are known."""


def columns_named(table: str, columns: Columns, known: Sequence[NamedColumn] | None = None) -> tuple[NamedColumn, ...]:
    """Return the columns that a user declares. Raises: TopologyError for an unknown or missing type."""
    if not isinstance(columns, Mapping):
        if known is None or len(known) != len(columns):
            there = "their types are not known" if known is None else f"there are {len(known)}"
            raise TopologyError(
                f"sql table '{table}': {len(columns)} names of columns, and {there}; names with types are needed. "
                f"Write {{'{next(iter(columns), 'name')}': 'text', …}}"
            )
        return tuple(NamedColumn(name, found.type) for name, found in zip(columns, known, strict=True))
    made = []
    for name, written in columns.items():
        type = parse_type(written) if isinstance(written, str) else PYTHON_TYPES.get(written)
        if type is None:
            raise TopologyError(
                f"sql table '{table}': column '{name}' of the unknown type {written!r}; {TYPE_NAMES} is needed"
            )
        made.append(NamedColumn(name, type))
    if not made:
        raise TopologyError(
            f"sql table '{table}' has no columns; one is needed at least. Give them: {{'name': 'text'}}"
        )
    return tuple(made)


def reader_of(where: str, type: Type) -> Callable[[Any], Any]:
    """Return a function that converts a Python value to this type, or raises DataError if it cannot."""
    accepted = _ACCEPTED[type.kind]
    as_it_is = None if type.kind in _ALWAYS_CONVERTED else accepted[0]
    fit = cast_function(TEXT if type.kind == "text" else BIGINT, type) if type.kind in LIMITS else None

    def read(value: Any) -> Any:
        if value is None or (value.__class__ is as_it_is and value == value):
            return value if fit is None or value is None else _fitted(value)
        return _converted(value)

    def _fitted(value: Any) -> Any:
        if not -LIMITS[type.kind] <= value < LIMITS[type.kind]:
            raise DataError(f"{where}: {value} is out of range of {type}; a wider type is needed")
        return value

    def _converted(value: Any) -> Any:
        if not isinstance(value, accepted) or (isinstance(value, bool) and type.kind != "boolean"):
            raise DataError(
                f"{where}: {value!r} is not a valid {type}; a value of that type is needed, or another type"
            )
        try:
            return _CONVERSIONS[type.kind](value)
        except (ValueError, OverflowError, decimal.InvalidOperation, DataError) as error:
            raise DataError(
                f"{where}: {value!r} is not a valid {type}; a value of that type is needed, or another type"
            ) from error

    if type.precision is None:
        return read
    scaled = _cast(NUMERIC, type)
    return lambda value: None if value is None else scaled(read(value))


_ACCEPTED: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "smallint": (int,),
    "integer": (int,),
    "bigint": (int,),
    "numeric": (decimal.Decimal, int, float, str),
    "real": (float, int),
    "double": (float, int),
    "text": (str,),
    "timestamp": (datetime.datetime, str),
}


_ALWAYS_CONVERTED = {"real", "numeric", "timestamp"}
"""The types that have fewer values than Python's: four-byte floats, finite numbers, moments without a time zone."""


def _number(value: Any) -> decimal.Decimal:
    if isinstance(value, float):
        value = repr(value)
    return _NUMERIC_OF_TEXT(value) if isinstance(value, str) else finite_numeric(decimal.Decimal(value))


def _moment(value: Any) -> datetime.datetime:
    moment = value if isinstance(value, datetime.datetime) else datetime.datetime.fromisoformat(value)
    return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)


def _cast(source: Type, target: Type) -> Callable[[Any], Any]:
    function = cast_function(source, target)
    assert function is not None
    return function


_NUMERIC_OF_TEXT, _REAL = _cast(TEXT, NUMERIC), _cast(DOUBLE, REAL)
_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "boolean": bool,
    "smallint": int,
    "integer": int,
    "bigint": int,
    "numeric": _number,
    "real": _REAL,
    "double": lambda value: float(value) if value == value else math.nan,
    "text": str,
    "timestamp": _moment,
}
