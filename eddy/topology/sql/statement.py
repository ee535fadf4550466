"""A statement, bound: from its text and the columns of its tables to the algebra that computes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from eddy.errors import TopologyError
from eddy.topology.sql.algebra import NamedColumn, NamedTable, Node
from eddy.topology.sql.parsing import Mutual, parse
from eddy.topology.sql.planner import Planner
from eddy.topology.sql.query_binder import QueryBinder, position_of
from eddy.topology.sql.recursive_queries import mutually_recursive
from eddy.topology.sql.scope import QueryContext
from eddy.topology.sql.statement_text import StatementText
from eddy.topology.sql.unread import Unread, parts_of, whole_number

__all__ = ["Ordering", "Statement", "bind_statement", "too_deep"]


@dataclass(frozen=True)
class Ordering:
    """ORDER BY: columns by index, each ascending or descending, with nulls first or last; then LIMIT and OFFSET."""

    keys: list[tuple[int, bool, bool]] = field(default_factory=list)
    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True)
class Statement:
    """The plan of a statement. Only the first `visible` columns are part of the result; the others serve ORDER BY."""

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

    ORDER BY, LIMIT and OFFSET are allowed if `ordered`. Raises: TopologyError with the place of the error.
    """
    try:
        return _bound(text, tables, path, ordered)
    except RecursionError as error:
        raise too_deep(text) from error


def too_deep(text: StatementText) -> TopologyError:
    """The error for a statement whose parts are nested deeper than Python calls functions."""
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
    order, limit = _taken(text, body) if ordered else ([], Ordering())
    if isinstance(found, Mutual):
        environment = mutually_recursive(queries, found, path, environment)
    if order and isinstance(body, exp.Select) and not body.args.get("distinct"):
        node = queries.query(body, path, environment, [part.args["this"] for part in order])
        visible = len(node.columns) - len(order)
        indexes = list(range(visible, len(node.columns)))
    else:
        node = queries.query(body, path, environment)
        visible = len(node.columns)
        indexes = [_index(text, part, node) for part in order]
    node = queries.resolved(node)
    keys = [
        (index, bool(part.args.get("desc")), bool(part.args.get("nulls_first")))
        for index, part in zip(indexes, order, strict=True)
    ]
    unread.refuse()
    return Statement(Planner().plan(node), visible, replace(limit, keys=keys))


def _index(text: StatementText, part: exp.Ordered, node: Node) -> int:
    found = position_of(text, part.args["this"], [column.name for column in node.columns], "ORDER BY")
    if found is None:
        raise text.error(
            part, "ORDER BY here takes the name or the number of a column of the answer; one of those is needed"
        )
    return found


def _taken(text: StatementText, body: exp.Expr) -> tuple[list[exp.Ordered], Ordering]:
    """Remove ORDER BY, LIMIT and OFFSET from a query. Returns them."""
    order, limit, offset = body.args.get("order"), body.args.get("limit"), body.args.get("offset")
    for part in ("order", "limit", "offset"):
        body.set(part, None)
    if isinstance(limit, exp.Fetch):
        raise text.unsupported(limit, "FETCH", "write LIMIT n")
    found = Ordering([], _number(text, limit), _number(text, offset) or 0)
    return list(parts_of(order)) if order is not None else [], found


def _number(text: StatementText, part: exp.Expr | None) -> int | None:
    if part is None or isinstance(part.args["expression"], exp.Null):
        return None
    number = whole_number(part.args["expression"])
    if number is None:
        raise text.unsupported(part, f"{part.key.upper()} {part.args['expression'].sql()}", "a whole number is needed")
    return number
