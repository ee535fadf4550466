"""Binds a statement: its text and the columns of its tables become the algebra that computes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eddy.errors import TopologyError
from eddy.topology.sql.algebra import NamedColumn, NamedTable, Node
from eddy.topology.sql.ordered_queries import Ordering, ordered_query
from eddy.topology.sql.parsing import Mutual, parse
from eddy.topology.sql.planner import Planner
from eddy.topology.sql.query_binder import QueryBinder
from eddy.topology.sql.recursive_queries import mutually_recursive
from eddy.topology.sql.scope import QueryContext
from eddy.topology.sql.statement_text import StatementText
from eddy.topology.sql.unsupported_syntax import Unread

__all__ = ["Statement", "bind_statement", "too_deep"]


@dataclass(frozen=True)
class Statement:
    """The plan of a statement. Only its first `visible` columns are in the result; the others serve ORDER BY."""

    node: Node
    visible: int
    ordering: Ordering

    @property
    def columns(self) -> tuple[NamedColumn, ...]:
        """The columns that the statement shows."""
        return self.node.columns[: self.visible]


def bind_statement(
    text: StatementText, tables: Mapping[str, Sequence[NamedColumn]], path: str, *, ordered: bool
) -> Statement:
    """Bind and plan the one statement of a text over tables with these columns.

    With `ordered`, the caller applies the statement's own ORDER BY, LIMIT and OFFSET, which are in `ordering`.
    Raises: TopologyError with the place of the error.
    """
    try:
        return _bound(text, tables, path, ordered)
    except RecursionError as error:
        raise too_deep(text) from error


def too_deep(text: StatementText) -> TopologyError:
    """Return the error for a statement whose parts are nested more deeply than Python's calls can be."""
    return text.unsupported(0, "nesting so deep", "put parts into common table expressions, or write IN (…)")


def _bound(text: StatementText, tables: Mapping[str, Sequence[NamedColumn]], path: str, ordered: bool) -> Statement:
    queries = QueryBinder(text, path, once=ordered)
    environment = QueryContext(
        {name: NamedTable(columns=tuple(columns), name=name, table=name) for name, columns in tables.items()}
    )
    found = parse(text)
    body = found.body if isinstance(found, Mutual) else found
    queries_of_block = [definition.query for definition in found.definitions] if isinstance(found, Mutual) else []
    unread = Unread(text, [*queries_of_block, body])
    if isinstance(found, Mutual):
        environment = mutually_recursive(queries, found, path, environment)
    if ordered:
        node, visible, ordering = ordered_query(queries, body, path, environment)
    else:
        node, ordering = queries.resolved(queries.query(body, path, environment)), Ordering()
        visible = len(node.columns)
    unread.refuse()
    return Statement(Planner().plan(node), visible, ordering)
