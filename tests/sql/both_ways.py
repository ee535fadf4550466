"""A query answered by functions over whole tables, and by the circuit of its view."""

from typing import Any

from eddy.program.sql_circuit import rows_of_circuit
from eddy.topology.sql.algebra import NamedColumn
from eddy.topology.sql.answer import AnswerTable
from eddy.topology.sql.once.batch_compiler import BatchCompiler
from eddy.topology.sql.once.suitable import why_circuit
from eddy.topology.sql.ordered_queries import Ordering
from eddy.topology.sql.statement import Statement, bind_statement
from eddy.topology.sql.statement_text import StatementText
from eddy.topology.sql.types import parse_type
from tests.sql.duck import Tables

Rows = list[tuple[Any, ...]]


def bound(text: str, tables: Tables) -> tuple[Statement, dict[str, AnswerTable]]:
    """The plan of a query, and its tables. Raises: TopologyError."""
    made = {}
    for name, (columns, rows) in tables.items():
        types = [NamedColumn(column, parse_type(type) or parse_type("text")) for column, type in columns.items()]
        made[name] = AnswerTable(tuple(types), list(rows))
    columns_of = {name: table.columns for name, table in made.items()}
    return bind_statement(StatementText(text, "query"), columns_of, "query", ordered=True), made


def has_order(text: str, tables: Tables) -> bool:
    """Whether the query as a whole has ORDER BY, LIMIT or OFFSET, which neither way applies."""
    return bound(text, tables)[0].ordering != Ordering()


def at_once(text: str, tables: Tables) -> Rows | None:
    """The rows by functions over whole tables, in no order; None if the circuit has to answer."""
    statement, made = bound(text, tables)
    if why_circuit(statement.node):
        return None
    return BatchCompiler({name: table.rows for name, table in made.items()}).answer(statement.node)


def by_circuit(text: str, tables: Tables) -> Rows:
    """The rows by the circuit."""
    statement, made = bound(text, tables)
    return rows_of_circuit(StatementText(text, "query"), statement, made)
