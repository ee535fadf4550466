"""The interface by which the clauses of a query bind the queries inside them."""

from collections.abc import Sequence
from typing import Protocol

from sqlglot import exp

from eddy.topology.sql.algebra import Node
from eddy.topology.sql.scope import QueryContext
from eddy.topology.sql.statement_text import StatementText
from eddy.topology.sql.types import Type

__all__ = ["QueryBinding"]


class QueryBinding(Protocol):
    """Binds queries to the algebra. `definitions` names the enclosing recursive bindings, outermost first."""

    text: StatementText
    definitions: list[str]

    def query(self, node: exp.Expr, path: str, environment: QueryContext) -> Node:
        """Return the node of a query. `path` begins the names of its stateful steps. Raises: TopologyError."""

    def without_order(
        self, node: exp.Expr, path: str, environment: QueryContext, order: Sequence[exp.Expr] = ()
    ) -> Node:
        """Return the node of a query without ORDER BY and LIMIT; `order` is appended to the columns of a SELECT."""

    def common_table(self, cte: exp.CTE, path: str, environment: QueryContext) -> QueryContext:
        """Return the context with one more common table expression."""

    def resolved(self, node: Node) -> Node:
        """Return the node with columns of unknown type cast to text."""

    def as_types(self, node: Node, types: Sequence[Type], at: exp.Expr) -> Node:
        """Return the node with its columns implicitly cast to `types`."""

    def with_clause(self, node: exp.Expr, path: str, environment: QueryContext) -> QueryContext:
        """Return the context with the common table expressions of a query."""

    def called(self, block: str) -> str:
        """Return the name of a recursive block for errors."""
