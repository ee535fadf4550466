"""Turns a statement into the steps of a topology."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from eddy.errors import TopologyError
from eddy.serde import String
from eddy.topology.dsl.builder import Builder
from eddy.topology.dsl.relation import Relation
from eddy.topology.sql.algebra import NamedColumn
from eddy.topology.sql.names import StepNames, built
from eddy.topology.sql.rows import key_serde, row_serde
from eddy.topology.sql.statement import Statement, bind_statement
from eddy.topology.sql.statement_compiler import StatementCompiler
from eddy.topology.sql.statement_tables import rows_relation
from eddy.topology.sql.statement_text import StatementText
from eddy.topology.sql.view import View

__all__ = ["build", "create_view"]

Row = tuple[Any, ...]


def create_view(
    builder: Builder, text: str, tables: Mapping[str, Any], name: str, key: str | Sequence[str] | None
) -> View:
    """Add the steps of a statement to a topology; return its view. Raises: TopologyError, with line and column."""

    def make(names: StepNames) -> tuple[Statement, Relation[Any, Row], StatementCompiler]:
        relations, columns = {}, {}
        for table, source in tables.items():
            relations[table], columns[table] = rows_relation(table, source, names.take(name, table))
        statement = bind_statement(StatementText(text, name), columns, name, ordered=False)
        return statement, *build(builder, statement, relations, name, names)

    statement, rows, compiler = built(builder.plan, make)
    errors = [found.map_values(lambda row: str(row[1]), value=String) for _, found in compiler.errors]
    all_errors = errors[0].union(*errors[1:]) if len(errors) > 1 else errors[0] if errors else None
    return View(_keyed(rows, statement.columns, key, name), name, statement.columns, all_errors)


def build(
    builder: Builder, statement: Statement, relations: Mapping[str, Relation[Any, Any]], name: str, names: StepNames
) -> tuple[Relation[Any, Row], StatementCompiler]:
    """Return the rows of a statement over its tables' rows, with the empty key, and the compiler that made them."""
    compiler = StatementCompiler(builder, relations, name, names)
    return compiler.rows(statement.node), compiler


def _keyed(
    rows: Relation[Any, Row], columns: Sequence[NamedColumn], key: str | Sequence[str] | None, name: str
) -> Relation[Any, Row]:
    if key is None:
        return rows
    names = [column.name for column in columns]
    if not isinstance(key, str | list | tuple):
        raise TopologyError(f"sql '{name}': key={key!r}; a column, or a list of columns, is needed")
    wanted = [key] if isinstance(key, str) else list(key)
    for column in wanted:
        if names.count(column) != 1:
            raise TopologyError(f"sql '{name}': key column '{column}'; one of {names} is needed, which is there once")
    places = [names.index(column) for column in wanted]
    value = row_serde(tuple(column.type for column in columns))
    if isinstance(key, str):
        (place,) = places
        return rows.map(lambda _, row: (row[place], row), None, key_serde(columns[place].type), value)
    serde = row_serde(tuple(columns[place].type for place in places))
    if places == list(range(len(columns))):
        return rows.map(lambda _, row: (row, row), None, serde, value)
    if len(places) > 1:
        part = itemgetter(*places)
        return rows.map(lambda _, row: (part(row), row), None, serde, value)
    return rows.map(lambda _, row: (tuple(row[place] for place in places), row), None, serde, value)
