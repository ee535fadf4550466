"""Turns an answer into an Arrow table, whose columns have the types of SQL. PyArrow is imported only here."""

from collections.abc import Sequence
from typing import Any

import pyarrow

from eddy.errors import DataError

__all__ = ["arrow_table"]

_ARROW = {
    "boolean": pyarrow.bool_(),
    "smallint": pyarrow.int16(),
    "integer": pyarrow.int32(),
    "bigint": pyarrow.int64(),
    "real": pyarrow.float32(),
    "double": pyarrow.float64(),
    "text": pyarrow.string(),
    "timestamp": pyarrow.timestamp("us"),
}


def arrow_table(names: Sequence[str], types: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Any:
    """Return the rows as an Arrow table; a numeric column is a decimal of as many digits as its values need.

    Raises: DataError if a numeric column needs more than 76 digits.
    """
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    arrays = [_array(*column) for column in zip(names, types, columns, strict=True)]
    return pyarrow.table(arrays, names=list(names))


def _array(name: str, type: str, values: Any) -> Any:
    try:
        if type in _ARROW:
            return pyarrow.array(values, _ARROW[type])
        if type.startswith("numeric"):
            known = any(value is not None for value in values)
            return pyarrow.array(values, None if known else pyarrow.decimal128(38, 0))
        return pyarrow.array([None if value is None else str(value) for value in values], pyarrow.string())
    except pyarrow.ArrowException as error:
        raise DataError(f"answer column '{name}': {error}; cast it in the query: {name}::double") from error
