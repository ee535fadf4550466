"""ORDER BY, LIMIT and OFFSET. A one-off query's answer has an order; elsewhere these clauses only choose rows.

A view and an inner query are bags, so ORDER BY there needs LIMIT, and LIMIT needs ORDER BY.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from eddy.topology.sql.algebra import Limit, NamedColumn, Node, Project, all_columns
from eddy.topology.sql.queries import QueryBinding
from eddy.topology.sql.row_order import RowLimit, RowOrder
from eddy.topology.sql.scope import QueryContext, position_of
from eddy.topology.sql.statement_text import StatementText
from eddy.topology.sql.unsupported_syntax import has, parts_of, whole_number
from eddy.topology.sql.value_limits import MOST_LIMITED

__all__ = ["Ordering", "is_limited", "limited_query", "ordered_query"]

Keys = tuple[tuple[int, bool, bool], ...]


@dataclass(frozen=True)
class Ordering:
    """ORDER BY: columns by index, each ascending or descending, with nulls first or last; then LIMIT and OFFSET."""

    keys: Keys = ()
    limit: int | None = None
    offset: int = 0


def is_limited(node: exp.Expr) -> bool:
    """Return whether a query has both ORDER BY and LIMIT, so that it chooses rows."""
    return has(node, "order") and has(node, "limit")


def limited_query(queries: QueryBinding, query: exp.Expr, path: str, environment: QueryContext) -> Node:
    """Bind an inner query, or a view's query, with ORDER BY and LIMIT; return its node. Raises: TopologyError."""
    node, visible, ordering = ordered_query(queries, query, path, environment)
    if environment.correlated:
        raise queries.text.unsupported(
            query.args["limit"], "LIMIT of a query that names columns of the enclosing query", "write min() or max()"
        )
    if ordering.limit is None:
        raise queries.text.unsupported(query.args["limit"], "LIMIT without a number", "a whole number is needed")
    if not 0 < ordering.limit + ordering.offset <= MOST_LIMITED or not ordering.limit:
        raise queries.text.error(
            query.args["limit"],
            f"LIMIT {ordering.limit} OFFSET {ordering.offset}; LIMIT from 1 on is needed here, and together at most "
            f"{MOST_LIMITED:,}",
        )
    node, keys = _each_once(node, visible, ordering.keys)
    named = {index for index, _, _ in keys}
    rest = tuple((index, False, False) for index in range(visible) if index not in named)
    first = RowLimit(RowOrder((*keys, *rest)), ordering.limit, ordering.offset)
    kept = Limit(columns=node.columns, name=f"{path}-limit", input=node, first=first)
    return Project(columns=node.columns[:visible], name=path, input=kept, exprs=all_columns(kept)[:visible])


def ordered_query(
    queries: QueryBinding, query: exp.Expr, path: str, environment: QueryContext
) -> tuple[Node, int, Ordering]:
    """Bind a one-off query; return its node, the number of visible columns, and its order. Raises: TopologyError."""
    found, limit, offset = (query.args.get(part) for part in ("order", "limit", "offset"))
    order: Sequence[exp.Ordered] = parts_of(found) if found is not None else ()
    if isinstance(limit, exp.Fetch):
        raise queries.text.unsupported(limit, "FETCH", "write LIMIT n")
    if order and isinstance(query, exp.Select) and not query.args.get("distinct"):
        node = queries.without_order(query, path, environment, [part.args["this"] for part in order])
        visible = len(node.columns) - len(order)
        indexes = list(range(visible, len(node.columns)))
    else:
        node = queries.without_order(query, path, environment)
        visible = len(node.columns)
        indexes = [_index(queries.text, part, node.columns) for part in order]
    keys = tuple(
        (index, bool(part.args.get("desc")), bool(part.args.get("nulls_first")))
        for index, part in zip(indexes, order, strict=True)
    )
    ordering = Ordering(keys, _number(queries.text, limit), _number(queries.text, offset) or 0)
    return queries.resolved(node), visible, ordering


def _each_once(node: Node, visible: int, keys: Keys) -> tuple[Node, Keys]:
    """Return a query and its order, without columns of ORDER BY that repeat other columns."""
    if not isinstance(node, Project):
        return node, keys
    places = list(range(visible))
    for index, _, _ in keys:
        if node.exprs[index] not in [node.exprs[place] for place in places]:
            places.append(index)
    exprs = tuple(node.exprs[place] for place in places)
    columns = tuple(node.columns[place] for place in places)
    moved = tuple((exprs.index(node.exprs[index]), down, nulls_first) for index, down, nulls_first in keys)
    return replace(node, columns=columns, exprs=exprs), moved


def _index(text: StatementText, part: exp.Ordered, columns: Sequence[NamedColumn]) -> int:
    found = position_of(text, part.args["this"], [column.name for column in columns], "ORDER BY")
    if found is None:
        raise text.error(
            part, "ORDER BY here takes the name or the number of a column of the answer; one of those is needed"
        )
    return found


def _number(text: StatementText, part: exp.Expr | None) -> int | None:
    if part is None or isinstance(part.args["expression"], exp.Null):
        return None
    number = whole_number(part.args["expression"])
    if number is None:
        raise text.unsupported(part, f"{part.key.upper()} {part.args['expression'].sql()}", "a whole number is needed")
    return number
