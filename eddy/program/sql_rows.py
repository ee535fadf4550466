"""Makes SQL tables from rows of named values: the columns and their types are inferred from the values."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from eddy.json_text import encode
from eddy.topology.sql.algebra import NamedColumn
from eddy.topology.sql.answer import AnswerTable
from eddy.topology.sql.table_columns import reader_of
from eddy.topology.sql.types import PYTHON_TYPES, TEXT, Type, common_type

__all__ = ["named_rows", "row_of"]


def row_of(key: Any, value: Any) -> dict[str, Any]:
    """Return a record as a row: its key, and its value's fields or a column `value`. Bytes become hexadecimal text.

    >>> row_of("a", {"n": 1}), row_of("a", 1)
    ({'key': 'a', 'n': 1}, {'key': 'a', 'value': 1})
    """
    made = msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value
    made = msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value
    if not isinstance(made, dict):
        made = {"value": _plain(made)}
    return {"key": _plain(key)} | made


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def named_rows(
    found: Sequence[tuple[str, dict[str, Any]]], declared: Sequence[NamedColumn] | None, first: Sequence[str]
) -> AnswerTable:
    """Make a table from rows. Each row is given with a text that says where it is, for messages.

    Values without a SQL type become JSON text. `first` names the columns that are first; `declared` are the columns, if
    they are known. Raises: DataError.
    """
    names = list(dict.fromkeys([*first, *(name for _, row in found for name in row)]))
    columns = (
        list(declared) if declared else [NamedColumn(n, _value_type([row.get(n) for _, row in found])) for n in names]
    )
    rows = []
    for where, row in found:
        cells = []
        for column in columns:
            value = row.get(column.name)
            if column.type == TEXT and value is not None and not isinstance(value, str):
                value = encode(value).decode()
            cells.append(reader_of(f"{where} column '{column.name}'", column.type)(value))
        rows.append(tuple(cells))
    return AnswerTable(tuple(columns), rows)


def _value_type(values: Iterable[Any]) -> Type:
    kinds = {type(value) for value in values if value is not None}
    if not kinds or not kinds <= PYTHON_TYPES.keys():
        return TEXT
    return common_type([PYTHON_TYPES[kind] for kind in kinds]) or TEXT
