"""Reads Parquet files as tables of SQL. Only this file of the command line imports PyArrow."""

import datetime
import pathlib
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow
import pyarrow.parquet

from eddy.errors import DataError
from eddy.program.sql_rows import named_rows
from eddy.topology.sql.algebra import NamedColumn
from eddy.topology.sql.answer import AnswerTable, repeated_name
from eddy.topology.sql.types import BIGINT, BOOLEAN, DOUBLE, NUMERIC, TEXT, TIMESTAMP, Type

__all__ = ["read_parquet"]


def read_parquet(path: pathlib.Path, declared: Sequence[NamedColumn] | None) -> AnswerTable:
    """Read a whole file. Dates, durations (ISO 8601) and nested values become text, times with a zone are in UTC.

    Raises: DataError.
    """
    try:
        found = pyarrow.parquet.read_table(path)
        columns = [NamedColumn(field.name, _type(field.type)) for field in found.schema]
        values = [_values(found.column(number)) for number in range(found.num_columns)]
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path}: cannot be read: {error}; a Parquet file is needed") from error
    except (OverflowError, ValueError) as error:
        raise DataError(f"{path}: {error}; dates and times up to the year 9999 are needed") from error
    names = [column.name for column in columns]
    if twice := repeated_name(names):
        raise DataError(f"{path}: two columns have the name '{twice}'; columns of different names are needed")
    if not names:
        raise DataError(f"{path}: it has no columns; at least one is needed")
    rows = enumerate(zip(*values, strict=True), 1)
    placed = [(f"{path} row {number}", dict(zip(names, row, strict=True))) for number, row in rows]
    return named_rows(placed, declared or columns, [])


def _type(arrow: Any) -> Type:
    of = pyarrow.types
    if of.is_uint64(arrow) or of.is_decimal(arrow):
        return NUMERIC
    kinds = {BIGINT: of.is_integer, DOUBLE: of.is_floating, BOOLEAN: of.is_boolean, TIMESTAMP: of.is_timestamp}
    return next((type for type, fits in kinds.items() if fits(arrow)), TEXT)


def _values(column: Any) -> list[Any]:
    """Return a column's values in Python. Times have microseconds, as in SQL; PyArrow refuses finer times."""
    if pyarrow.types.is_timestamp(column.type):
        column = column.cast(pyarrow.timestamp("us", column.type.tz)).cast(pyarrow.timestamp("us"))
    if pyarrow.types.is_duration(column.type):
        column = column.cast(pyarrow.duration("us"))
    return [_plain(value) for value in column.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime.date | datetime.time) and not isinstance(value, datetime.datetime):
        return value.isoformat()
    return msgspec.to_builtins(value) if isinstance(value, datetime.timedelta) else value
