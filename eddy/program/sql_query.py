"""`eddy.query`: a SQL query over rows in memory."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eddy.errors import DataError, TopologyError
from eddy.topology.sql.algebra import NamedColumn
from eddy.topology.sql.answer import Answer, AnswerTable
from eddy.topology.sql.table_columns import Columns, columns_named, reader_of
from eddy.topology.sql.types import PYTHON_TYPES, TEXT, Type, common_type

__all__ = ["query"]


def query(text: str, tables: Mapping[str, tuple[Columns, Iterable[Sequence[Any]]]] | None = None) -> Answer:
    """Return the answer to a SQL query over tables in memory. Each table is a pair (columns, rows).

    Columns are names with types, or names alone, whose types are then taken from the values.

    >>> edges = (["src", "dst"], [(1, 2), (2, 3)])
    >>> query("SELECT a.src, b.dst FROM edges a JOIN edges b ON a.dst = b.src", {"edges": edges}).rows
    [(1, 3)]

    Raises: TopologyError for an error in the text, with its line and column; DataError for a row.
    """
    # sqlglot is imported only when SQL is used, and these modules only here, since most programs have no SQL.
    from eddy.program.sql_evaluation import run
    from eddy.topology.sql.statement_text import StatementText

    if not isinstance(text, str):
        raise TopologyError(f"query: text={text!r}; a SQL query, as text, is needed. Write eddy.query('SELECT …')")
    given = {} if tables is None else tables
    if not hasattr(given, "items") or not all(isinstance(name, str) for name in given):
        from eddy.topology.arguments import check_mapping

        check_mapping("query", tables=tables)
    for name, table in given.items():
        if not isinstance(table, tuple | list) or len(table) != 2:
            raise TopologyError(f"query: tables has {table!r} as '{name}'; a pair (columns, rows) is needed")
        columns, rows = table
        if not isinstance(rows, Iterable) or isinstance(rows, str | bytes | Mapping):
            raise TopologyError(f"query: table '{name}' has {rows!r} for its rows; a list of tuples is needed")
        if isinstance(columns, str) or not all(isinstance(column, str) for column in columns):
            raise TopologyError(f"query: table '{name}' has the columns {columns!r}; a list of names is needed")
    made = {name: _table(name, columns, list(rows)) for name, (columns, rows) in given.items()}
    return run(StatementText(text, "query"), made)


def _table(name: str, columns: Columns, rows: list[Sequence[Any]]) -> AnswerTable:
    for row in rows:
        if not isinstance(row, tuple | list) and not _is_row(row):
            raise DataError(f"sql table '{name}': the row {row!r} is not a row; a tuple or a list of values is needed")
    known = None if isinstance(columns, Mapping) else _inferred(name, columns, rows)
    declared = columns_named(name, columns, known)
    readers = [reader_of(f"sql table '{name}' column '{column.name}'", column.type) for column in declared]
    width = len(declared)
    made = []
    for row in rows:
        if len(row) != width:
            raise DataError(f"sql table '{name}': the row {tuple(row)!r} has {len(row)} values; {width} are needed")
        made.append(tuple([read(value) for read, value in zip(readers, row, strict=True)]))
    return AnswerTable(declared, made)


def _is_row(value: Any) -> bool:
    """Return whether a value has elements at numbered positions, as a list or an array has."""
    return hasattr(value, "__getitem__") and hasattr(value, "__len__") and not isinstance(value, str | bytes | Mapping)


def _inferred(name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[NamedColumn]:
    """Return the columns, with types taken from their values. A column whose values are all null is text."""
    found = []
    for i, column in enumerate(columns):
        kinds = list(dict.fromkeys(type(row[i]) for row in rows if i < len(row) and row[i] is not None))
        types: list[Type] = [PYTHON_TYPES[kind] for kind in kinds if kind in PYTHON_TYPES]
        common = common_type(types) if len(types) == len(kinds) else None
        if common is None:
            raise TopologyError(
                f"sql table '{name}': column '{column}' has values of {', '.join(kind.__name__ for kind in kinds)}; "
                f"one type of SQL's is needed. Name it: {{'{column}': 'text', …}}"
            )
        found.append(NamedColumn(column, common if types else TEXT))
    return found
