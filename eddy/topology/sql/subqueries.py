"""Queries inside expressions: EXISTS, IN, and a query as a value. Each becomes a join of the query around it.

    EXISTS (…)       the rows with a match                       Semi, and NOT EXISTS Anti
    x IN (…)         true with a match; unknown without a match, if x or a row of the query is null and the query has
                     rows; otherwise false
    (SELECT …)       the value of the one row, or null if there is none; several rows are an error

If such an expression is a condition by itself, the join is the filter. Otherwise the join appends a column to the rows,
and the expression reads this column. A subquery may name columns of the enclosing query in conditions inner = outer of
its WHERE; these columns become the keys of the join.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from eddy.topology.sql.algebra import (
    Aggregate,
    Anti,
    Filter,
    Group,
    NamedColumn,
    Node,
    Outer,
    Product,
    Project,
    Semi,
    Shared,
    Union,
    Valid,
    all_columns,
)
from eddy.topology.sql.binder import Binder
from eddy.topology.sql.bound_casts import coerce
from eddy.topology.sql.expressions import Expr, column, literal, transform, walk
from eddy.topology.sql.functions import comparison_call
from eddy.topology.sql.queries import QueryBinding
from eddy.topology.sql.scope import QueryContext, refuse_outer
from eddy.topology.sql.statement_text import StatementText
from eddy.topology.sql.temporal import Moments
from eddy.topology.sql.types import BOOLEAN, TEXT, UNKNOWN, common_type
from eddy.topology.sql.unsupported_syntax import parts_of, unnested

__all__ = ["Applied", "Correlation", "Subquery", "bind_subquery"]


@dataclass(frozen=True, eq=False)
class Subquery:
    """A query in an expression. Its first `width` columns are its result; the others are its correlated columns.

    The arguments of its `Expr` are the values before IN, then the outer values that the correlated columns must equal.
    `missing` is the value of a scalar subquery that has no matching row.
    """

    kind: str
    node: Node
    width: int
    name: str
    missing: Expr | None = None


class Correlation:
    """The conditions of a subquery's WHERE that name columns of the enclosing query: `inner[i] = outer[i]`."""

    def __init__(self, text: StatementText) -> None:
        self._text = text
        self.inner: list[Expr] = []
        self.outer: list[Expr] = []

    def take(self, parts: Iterable[Expr]) -> list[Expr]:
        """Note the correlated conditions; return the other conditions. Raises: TopologyError if one is no equality."""
        rest = []
        for part in parts:
            if not any(_outer_in(part)):
                rest.append(part)
                continue
            if part.op == "call" and part.value.name == "=":
                one, other = part.args
                if any(_outer_in(one)):
                    one, other = other, one
                if not any(_outer_in(one)) and not any(found.op in {"column", "subquery"} for found in _inside(other)):
                    self.inner.append(one)
                    self.outer.append(transform(other, lambda node: node.args[0] if node.op == "outer" else None))
                    continue
            refuse_outer(self._text, part)
        return rest

    def refuse(self, what: str) -> None:
        """Refuse correlated conditions in a query whose clause `what` would then have another meaning."""
        if self.outer:
            raise self._text.unsupported(
                self.inner[0].where, f"{what} that names columns of the enclosing query", "write a join"
            )


def _outer_in(expr: Expr) -> Iterable[Expr]:
    return [part for part in walk(expr) if part.op == "outer"]


def _inside(expr: Expr) -> Iterable[Expr]:
    """Yield the nodes of an expression, without references to the enclosing query."""
    if expr.op == "outer":
        return
    yield expr
    for arg in expr.args:
        yield from _inside(arg)


def bind_subquery(queries: QueryBinding, node: exp.Expr, binder: Binder, path: str, environment: QueryContext) -> Expr:
    """Return the expression of a query inside an expression. Raises: TopologyError."""
    kind = "exists" if isinstance(node, exp.Exists) else "in" if isinstance(node, exp.In) else "value"
    query = node.args["query"] if kind == "in" else node.args["this"] if kind == "exists" else node
    inner = QueryContext(environment.tables, binder.scope, value=kind == "value")
    body = queries.query(unnested(query), path, inner)
    outer = inner.correlated
    width = len(body.columns) - len(outer)
    if kind == "exists":
        return Expr(
            "subquery", BOOLEAN, tuple(outer), Subquery(kind, Shared(columns=body.columns, input=body), width, path)
        )
    if kind == "in":
        return _in(queries, node, binder, body, outer, path)
    if width != 1:
        raise queries.text.error(node, f"a query of {width} columns where a value is needed; one column is needed")
    body = queries.resolved(body)
    type = body.columns[0].type
    missing = inner.missing[0] if inner.missing else literal(None, type)
    found = Subquery(kind, body, 1, path, coerce(queries.text, node, missing, type))
    return Expr("subquery", type, tuple(outer), found, queries.text.where(node))


def _in(queries: QueryBinding, node: exp.Expr, binder: Binder, body: Node, outer: Sequence[Expr], path: str) -> Expr:
    text = queries.text
    wanted = parts_of(node.args["this"]) if isinstance(node.args["this"], exp.Tuple) else [node.args["this"]]
    values = [binder.bind(part) for part in wanted]
    width = len(body.columns) - len(outer)
    if len(values) != width:
        raise text.error(
            node, f"IN: {len(values)} values before it and {width} columns in its query; equal numbers are needed"
        )
    types = []
    for value, found in zip(values, body.columns, strict=False):
        type = common_type([value.type, found.type])
        if type is None:
            raise text.error(node, f"IN: {value.type} among {found.type}; one type is needed. Cast: x::{found.type}")
        types.append(TEXT if type == UNKNOWN else type)
    body = queries.as_types(body, [*types, *(found.type for found in body.columns[width:])], node)
    values = [coerce(text, node, value, type) for value, type in zip(values, types, strict=True)]
    shared = Shared(columns=body.columns, input=body)
    return Expr("subquery", BOOLEAN, (*values, *outer), Subquery("in", shared, width, path), text.where(node))


class Applied:
    """The rows of a query, to which conditions and expressions with subqueries are applied one after another.

    Columns are appended, and never removed.
    """

    def __init__(self, text: StatementText, node: Node) -> None:
        self._text, self.node = text, node

    def filter(self, parts: Sequence[Expr]) -> None:
        """Keep the rows for which all of `parts` are true."""
        plain = [part for part in parts if not any(found.op == "subquery" for found in walk(part))]
        if plain:
            self.node = _filter(self.node, *plain)
        for part in parts:
            if part in plain:
                continue
            if part.op == "subquery" and part.value.kind != "value":
                self.node = self._matching(part)
            elif part.op == "not" and part.args[0].op == "subquery":
                self.node = self._refused(part.args[0])
            else:
                (value,) = self.values([part])
                self.node = _filter(self.node, value)

    def during(self, moments: Moments, name: str) -> None:
        """Keep each row while the present time is between the row's moments."""
        node = self.node
        from_, until, where = moments.from_, moments.until, moments.where
        self.node = Valid(columns=node.columns, name=name, input=node, from_=from_, until=until, where=where)

    def values(self, exprs: Sequence[Expr]) -> list[Expr]:
        """Return the expressions over the current rows, after a column is appended for each subquery in them."""
        places: dict[Expr, Expr] = {}
        for expr in exprs:
            for found in walk(expr):
                if found.op == "subquery" and found not in places:
                    arguments = self.values(found.args)
                    places[found] = self._column(replace(found, args=tuple(arguments)))
        return [transform(expr, places.get) for expr in exprs]

    def _matching(self, expr: Expr, suffix: str = "") -> Node:
        """Return the rows for which EXISTS or IN is true."""
        found = expr.value
        theirs = all_columns(found.node)
        keys = theirs if found.kind == "in" else theirs[found.width :]
        return _semi(Semi, self.node, found.node, self._arguments(expr), keys, found.name + suffix)

    def _arguments(self, expr: Expr) -> tuple[Expr, ...]:
        return tuple(self.values(expr.args))

    def _refused(self, expr: Expr) -> Node:
        """Return the rows for which EXISTS or IN is false."""
        return self._split(expr)[1]

    def _split(self, expr: Expr) -> tuple[Node, Node, Node | None]:
        """Return the rows for which EXISTS or IN is true, is false, and is unknown; None if it cannot be unknown."""
        found, ours = expr.value, self._arguments(expr)
        rows = self.node = Shared(columns=self.node.columns, input=self.node)
        theirs = all_columns(found.node)
        if found.kind == "exists":
            keys = theirs[found.width :]
            anti = _semi(Anti, rows, found.node, ours, keys, f"{found.name}-not")
            return _semi(Semi, rows, found.node, ours, keys, found.name), anti, None
        if found.width > 1:
            raise self._text.unsupported(expr.where, "NOT IN of several columns", "write NOT EXISTS")
        yes = _semi(Semi, rows, found.node, ours, theirs, found.name)
        none = _semi(Anti, rows, found.node, ours, theirs, f"{found.name}-not")
        rest = Shared(columns=rows.columns, input=none)
        null = Expr("is-null", BOOLEAN, (ours[0],))
        there, without = _filter(rest, Expr("not", BOOLEAN, (null,))), _filter(rest, null)
        nulls = _filter(found.node, Expr("is-null", BOOLEAN, (theirs[0],)))
        keys, links = theirs[1:], ours[1:]
        pieces = [
            _union(
                rows,
                _semi(kind, there, nulls, links, keys, f"{found.name}-nulls{suffix}"),
                _semi(kind, without, found.node, links, keys, f"{found.name}-any{suffix}"),
            )
            for kind, suffix in ((Anti, ""), (Semi, "-unknown"))
        ]
        return yes, pieces[0], pieces[1]

    def _column(self, expr: Expr) -> Expr:
        """Append the value of an expression to the rows; return the new column."""
        place, found = len(self.node.columns), expr.value
        if found.kind == "value":
            return self._value(expr, place)
        marked = [
            _marked(node, mark)
            for node, mark in zip(self._split(expr), (True, False, None), strict=True)
            if node is not None
        ]
        self.node = _union(marked[0], *marked)
        return column(place, BOOLEAN)

    def _value(self, expr: Expr, place: int) -> Expr:
        """Append the value of a scalar subquery: the value of its only row, or of the row with equal keys."""
        found, type = expr.value, expr.type
        value, *keys = all_columns(found.node)
        columns = (*found.node.columns[1:], found.node.columns[0])
        group = Group(
            columns=columns,
            name=f"{found.name}-only",
            input=found.node,
            keys=tuple(keys),
            aggregates=(Aggregate("only", type, value),),
        )
        both = (*self.node.columns, *columns)
        if not keys:
            self.node = Product(columns=both, inputs=(self.node, group), names=("", found.name))
            return column(place, type)
        theirs = [column(place + i, key.type) for i, key in enumerate(keys)]
        equal = tuple(_equal(ours, their) for ours, their in zip(self._arguments(expr), theirs, strict=True))
        self.node = Outer(columns=both, name=found.name, left=self.node, right=group, conditions=equal, kept="left")
        without = Expr("is-null", BOOLEAN, (theirs[0],))
        return Expr("case", type, (without, found.missing, column(place + len(keys), type)))


def _equal(one: Expr, other: Expr) -> Expr:
    return Expr("call", BOOLEAN, (one, other), comparison_call("=", one.type))


def _filter(node: Node, *conditions: Expr) -> Node:
    return Filter(columns=node.columns, name=node.name, input=node, conditions=conditions)


def _union(like: Node, *nodes: Node) -> Node:
    return Union(columns=like.columns, name=like.name, inputs=nodes)


def _marked(node: Node, mark: bool | None) -> Node:
    exprs = (*all_columns(node), literal(mark, BOOLEAN))
    return Project(columns=(*node.columns, NamedColumn("", BOOLEAN)), name=node.name, input=node, exprs=exprs)


def _semi(
    kind: type[Semi], left: Node, right: Node, left_key: Sequence[Expr], right_key: Sequence[Expr], name: str
) -> Node:
    return kind(
        columns=left.columns, name=name, left=left, right=right, left_key=tuple(left_key), right_key=tuple(right_key)
    )
