"""Answers a one-off query: by functions over whole tables where they suffice, else by the circuit of its view."""

from collections.abc import Callable, Mapping
from typing import Any

from eddy.errors import EddyError
from eddy.topology.sql.answer import Answer, AnswerTable
from eddy.topology.sql.once.batch_compiler import BatchCompiler
from eddy.topology.sql.once.plan_text import explained_query, plan_lines
from eddy.topology.sql.once.suitable import why_circuit
from eddy.topology.sql.once.waves_of_rows import UndecidedError
from eddy.topology.sql.ordered_queries import Ordering
from eddy.topology.sql.statement import Statement, bind_statement, too_deep
from eddy.topology.sql.statement_text import StatementText

__all__ = ["run"]


def run(text: StatementText, tables: Mapping[str, AnswerTable]) -> Answer:
    """Return the answer to a statement.

    For EXPLAIN with a statement, the answer is the statement's plan, one row a line.

    Raises: TopologyError; DataError for a row, or a limit that is too low.
    """
    explained = explained_query(text)
    columns_of = {name: t.columns for name, t in tables.items()}
    statement = bind_statement(explained or text, columns_of, "query", ordered=True)
    if explained is not None:
        return Answer(("plan",), ("text",), [(line,) for line in plan_lines(statement.node)])
    try:
        answer = _ordered(_rows(text, statement, tables), statement.ordering)
    except RecursionError as error:
        raise too_deep(text) from error
    columns = statement.columns
    return Answer(
        tuple(column.name for column in columns),
        tuple(str(column.type) for column in columns),
        answer if statement.visible == len(statement.node.columns) else [row[: statement.visible] for row in answer],
    )


def _rows(text: StatementText, statement: Statement, tables: Mapping[str, AnswerTable]) -> list[tuple[Any, ...]]:
    rows = None if why_circuit(statement.node) else _rows_at_once(statement, tables)
    if rows is not None:
        return rows
    # The circuit's operators are imported only when a query needs them.
    from eddy.program.sql_circuit import rows_of_circuit

    return rows_of_circuit(text, statement, tables)


def _rows_at_once(statement: Statement, tables: Mapping[str, AnswerTable]) -> list[tuple[Any, ...]] | None:
    """Return the rows of a statement; None if a recursion may not end or a row fails.

    Then the caller uses the circuit, which raises the right error.
    """
    try:
        return BatchCompiler({name: t.rows for name, t in tables.items()}).answer(statement.node)
    except (EddyError, RecursionError, UndecidedError):
        return None


def _ordered(rows: list[tuple[Any, ...]], ordering: Ordering) -> list[tuple[Any, ...]]:
    for index, down, nulls_first in reversed(ordering.keys):
        rows.sort(key=_rank(index, nulls_first is not down), reverse=down)
    end = None if ordering.limit is None else ordering.offset + ordering.limit
    return rows[ordering.offset : end]


def _rank(index: int, nulls_low: bool) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return a function that makes a row's sort key. NaN is the greatest number; nulls are least if `nulls_low`."""
    null = (0 if nulls_low else 2, False, 0)
    return lambda row: null if row[index] is None else (1, row[index] != row[index], row[index])
