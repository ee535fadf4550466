"""Binds FROM: tables, queries, functions and joins become one node with all their columns."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from sqlglot import exp

from eddy.topology.sql.algebra import (
    NamedColumn,
    Node,
    Outer,
    Product,
    Project,
    Rows,
    Series,
    Union,
    Variable,
    all_columns,
)
from eddy.topology.sql.binder import Binder
from eddy.topology.sql.bound_casts import coerce
from eddy.topology.sql.expressions import TRUE, Expr, conjuncts, literal, shifted
from eddy.topology.sql.functions import comparison_call
from eddy.topology.sql.queries import QueryBinding
from eddy.topology.sql.scope import ColumnScope, QueryContext, Seen, folded, refuse_outer, scope_of
from eddy.topology.sql.statement_text import StatementText
from eddy.topology.sql.types import BOOLEAN, INTEGER, UNKNOWN, common_type
from eddy.topology.sql.unsupported_syntax import has, parts_of, without_meaning
from eddy.topology.sql.window_syntax import WindowTable
from eddy.topology.sql.window_tables import window_table

__all__ = ["ONE_ROW", "Source", "from_clause", "renamed", "values"]

ONE_ROW = Rows(columns=(), rows=((),))
"""The input of a query without FROM: one row without columns."""

Source = tuple[Node, ColumnScope]
_JOINS = {
    ("", ""),
    ("INNER", ""),
    ("CROSS", ""),
    *((kind, side) for kind in ("", "OUTER") for side in ("LEFT", "RIGHT", "FULL")),
}
_SIDES: dict[str, Literal["left", "right", "both"]] = {"LEFT": "left", "RIGHT": "right", "FULL": "both"}


def from_clause(queries: QueryBinding, select: exp.Select, path: str, environment: QueryContext) -> Source:
    """Return the node of a FROM, and the scope with the names of its columns."""
    first = select.args.get("from_")
    if first is None:
        return ONE_ROW, ColumnScope(queries.text, [], environment)
    return _joined(queries, first.args["this"], select.args.get("joins") or [], path, environment)


def _joined(
    queries: QueryBinding, first: exp.Expr, joins: Sequence[exp.Join], path: str, environment: QueryContext
) -> Source:
    """Bind a table and the joins after it. A comma binds less tightly than JOIN."""
    left = _item(queries, first, path, environment)
    before: Source | None = None
    for join in joins:
        right = _item(queries, join.args["this"], path, environment)
        if _is_comma(queries.text, join):
            before, left = _both(before, left, join), right
        else:
            left = _join(queries, left, right, join, path)
    return _both(before, left, joins[-1] if joins else first)


def _is_comma(text: StatementText, join: exp.Join) -> bool:
    """Return whether a table follows a comma.

    Raises: TopologyError for JOIN without a condition, since the parser gives it the same form.
    """
    if has(join, "on", "using", "side", "kind", "method"):
        return False
    if text.before(join.args["this"]).upper().endswith("JOIN"):
        raise text.error(join, "JOIN without a condition; one is needed: ON … or USING (…), or CROSS JOIN")
    return True


def _both(left: Source | None, right: Source, at: exp.Expr) -> Source:
    """Return all combinations of the rows of two sources."""
    if left is None:
        return right
    node, width = _product(left[0], right[0]), len(left[0].columns)
    return node, _beside(left[1], right[1], width, at)


def _beside(left: ColumnScope, right: ColumnScope, width: int, at: exp.Expr) -> ColumnScope:
    seen = [*left.seen, *right.shifted(width).seen]
    double = {s.table for s in left.seen} & {s.table for s in right.seen if s.table}
    if double:
        name = min(double)
        raise left.text.error(at, f"table name '{name}' is used twice in one FROM; give one an alias: {name} AS other")
    return ColumnScope(left.text, seen, left.environment)


def _product(left: Node, right: Node, conditions: tuple[Expr, ...] = ()) -> Product:
    """Return an inner join. Nested products are merged, so that the planner sees a single product."""
    parts: list[Node] = []
    names: list[str] = []
    width, found = 0, list(conditions)
    for side in (left, right):
        if isinstance(side, Product):
            parts += side.inputs
            names += side.names
            found += [shifted(condition, width) for condition in side.conditions]
        else:
            parts.append(side)
            names.append(side.name)
        width += len(side.columns)
    return Product(
        columns=(*left.columns, *right.columns), inputs=tuple(parts), conditions=tuple(found), names=tuple(names)
    )


def _join(queries: QueryBinding, left: Source, right: Source, join: exp.Join, path: str) -> Source:
    text, width = queries.text, len(left[0].columns)
    if join.args.get("method"):
        raise text.unsupported(join, f"{join.args['method']} JOIN", "name the columns: JOIN … USING (…)")
    kind, side = join.args.get("kind") or "", join.args.get("side") or ""
    if (kind, side) not in _JOINS:
        raise text.unsupported(join, f"{side} {kind} JOIN".strip())
    scope = _beside(left[1], right[1], width, join)
    conditions: list[Expr] = []
    if kind != "CROSS" and join.args.get("using"):
        scope, conditions = _using(left[1], right[1], scope, join, width, side)
    elif kind != "CROSS":
        if not join.args.get("on"):
            raise text.error(join, f"{side} JOIN without a condition; one is needed: ON … or USING (…)".strip())
        bound = Binder(scope, "JOIN … ON").condition(join.args["on"])
        refuse_outer(text, bound)
        conditions = [part for part in conjuncts(bound) if part != TRUE]
    if not side:
        return _product(left[0], right[0], tuple(conditions)), scope
    node = Outer(
        columns=(*left[0].columns, *right[0].columns),
        name=right[0].name + "-outer" if right[0].name else f"{path}-outer",
        left=left[0],
        right=right[0],
        conditions=tuple(conditions),
        kept=_SIDES[side],
    )
    return node, scope


def _using(
    left: ColumnScope, right: ColumnScope, both: ColumnScope, join: exp.Join, width: int, side: str
) -> tuple[ColumnScope, list[Expr]]:
    """Bind USING: each pair of equal columns becomes one column, which is named without a table."""
    merged: list[Seen] = []
    hidden: set[Expr] = set()
    conditions = []
    for name in join.args["using"]:
        named = exp.Column(this=name)
        ours, theirs = left.find(named), right.find(named)
        if ours is None or theirs is None:
            raise left.text.error(name, f"no column '{folded(name)}' on both sides of USING; it has to be on both")
        theirs = shifted(theirs, width)
        type = common_type([ours.type, theirs.type])
        if type is None:
            raise left.text.error(
                name, f"USING of {ours.type} and {theirs.type}; one type is needed. Write ON, and cast"
            )
        pair = tuple(coerce(left.text, name, expr, type) for expr in (ours, theirs))
        conditions.append(Expr("call", BOOLEAN, pair, comparison_call("=", type)))
        whole = Expr("coalesce", type, pair)
        shown = {"": pair[0], "LEFT": pair[0], "RIGHT": pair[1], "FULL": whole}[side]
        merged.append(Seen("", folded(name), shown))
        hidden |= {ours, theirs}
    rest = [Seen(s.table, s.name, s.expr, s.hidden or s.expr in hidden) for s in both.seen]
    return ColumnScope(left.text, [*merged, *rest], left.environment), conditions


def _item(queries: QueryBinding, node: exp.Expr, path: str, environment: QueryContext) -> Source:
    """Bind one table, query or function in FROM."""
    text = queries.text
    if isinstance(node, exp.Table) and isinstance(node.args["this"], exp.ExplodingGenerateSeries | exp.GenerateSeries):
        return _series(queries, node, environment)
    if isinstance(node, exp.Table) and isinstance(node.args["this"], WindowTable):
        return _in_windows(queries, node, path, environment)
    if isinstance(node, exp.Table):
        return _table(queries, node, path, environment)
    if isinstance(node, exp.Values):
        name = _alias(node) or "values"
        found = values(queries, node, f"{path}-from-{name}", environment)
        return _aliased(queries, node, found, name, environment)
    if isinstance(node, exp.Subquery) and isinstance(node.args["this"], exp.Table):
        if node.args.get("alias"):
            raise text.unsupported(node, "an alias of joined tables", "give each of them one")
        return _joined(queries, node.args["this"], node.args["this"].args.get("joins") or [], path, environment)
    if isinstance(node, exp.Subquery):
        name = _alias(node) or "query"
        inner = QueryContext(environment.tables)
        found = queries.query(node.args["this"], f"{path}-from-{name}", inner)
        return _aliased(queries, node, queries.resolved(found), name, environment)
    what = "LATERAL" if isinstance(node, exp.Lateral) else type(node).__name__
    raise text.unsupported(node, f"{what} in FROM", "join a query by its columns")


def _table(queries: QueryBinding, node: exp.Table, path: str, environment: QueryContext) -> Source:
    text = queries.text
    if node.args.get("db") or not isinstance(node.args["this"], exp.Identifier):
        what = "a schema of a table" if node.args.get("db") else node.args["this"].sql()
        raise text.unsupported(node, f"{what} in FROM")
    without_meaning(node, "only")
    name = folded(node.args["this"])
    found = environment.tables.get(name)
    if found is None and not node.args["this"].args.get("quoted"):
        fitting = [table for table in environment.tables if table.lower() == name]
        found = environment.tables[fitting[0]] if len(fitting) == 1 else None
    if found is None:
        raise text.error(
            node, f"no table '{name}'; one of {sorted(environment.tables)} is needed. Give it: tables={{'{name}': …}}"
        )
    if isinstance(found, Variable):
        found = replace(found, where=text.where(node))
    return _aliased(queries, node, found, _alias(node) or name, environment, f"{path}-{_alias(node) or name}")


def _alias(node: exp.Expr) -> str:
    alias = node.args.get("alias")
    return folded(alias.args.get("this")) if alias is not None and alias.args.get("this") is not None else ""


def _aliased(
    queries: QueryBinding, node: exp.Expr, found: Node, alias: str, environment: QueryContext, step: str = ""
) -> Source:
    """Return a source under its alias, with the alias's column names. `step` names the join that reads the source."""
    names = (node.args["alias"].args.get("columns") or []) if node.args.get("alias") else []
    if len(names) > len(found.columns):
        raise queries.text.error(names[0], f"{len(names)} names for the {len(found.columns)} columns of '{alias}'")
    if names or (step and found.name != step):
        found = renamed(found, [folded(name) for name in names], step)
    return found, scope_of(queries.text, found, alias, environment)


def renamed(node: Node, names: Sequence[str], step: str = "") -> Node:
    """Return the same rows with the first columns renamed."""
    columns = tuple(
        NamedColumn(names[i] if i < len(names) else found.name, found.type) for i, found in enumerate(node.columns)
    )
    return Project(columns=columns, name=step or node.name, input=node, exprs=all_columns(node))


def _series(queries: QueryBinding, node: exp.Table, environment: QueryContext) -> Source:
    """Bind generate_series(first, last[, step]) of whole numbers that are constants."""
    call, text = node.args["this"], queries.text
    if node.args.get("ordinality"):
        raise text.unsupported(node, "WITH ORDINALITY")
    binder = Binder(ColumnScope(text, [], environment), "generate_series")
    bounds = [binder.bind(bound) for bound in (call.args["start"], call.args["end"])]
    step = call.args.get("step")
    bounds.append(binder.bind(step) if step is not None else literal(1, INTEGER))
    kind = common_type([bound.type for bound in bounds])
    refuse_outer(text, *bounds)
    if kind is None or not kind.integral:
        raise text.error(node, f"generate_series of {bounds[0].type}; whole numbers are needed. Cast: x::integer")
    if bounds[2].op == "literal" and bounds[2].value == 0:
        raise text.error(step or node, "generate_series by steps of 0; another number is needed")
    alias = _alias(node) or "generate_series"
    names = (node.args["alias"].args.get("columns") or []) if node.args.get("alias") else []
    name = folded(names[0]) if names else alias
    first, last, by = bounds
    found = Series(columns=(NamedColumn(name, kind),), name=alias, input=ONE_ROW, bounds=(first, last, by))
    return found, scope_of(text, found, alias, environment)


def _in_windows(queries: QueryBinding, node: exp.Table, path: str, environment: QueryContext) -> Source:
    """Bind TUMBLE, HOP or SESSION of a table or a query."""
    call = node.args["this"]
    alias = _alias(node) or call.args["this"].lower()
    step = f"{path}-{alias}"
    table, scope = _item(queries, call.args["table"], step, environment)
    found = window_table(queries.text, call, table, scope, step)
    return _aliased(queries, node, found, alias, environment)


def values(queries: QueryBinding, node: exp.Values, path: str, environment: QueryContext) -> Node:
    """Bind VALUES: rows of expressions, with columns named column1, column2, …"""
    text = queries.text
    rows = [parts_of(row) if isinstance(row, exp.Tuple) else [row] for row in parts_of(node)]
    width = len(rows[0])
    for row, written in zip(parts_of(node), rows, strict=True):
        if len(written) != width:
            raise text.error(
                row, f"VALUES: a row of {len(written)} values below one of {width}; equal numbers are needed"
            )
    binder = Binder(ColumnScope(text, [], environment), "VALUES")
    bound = [[binder.bind(cell) for cell in row] for row in rows]
    refuse_outer(text, *(expr for row in bound for expr in row))
    types = []
    for i in range(width):
        type = common_type([row[i].type for row in bound])
        if type is None:
            kinds = " and ".join(dict.fromkeys(str(row[i].type) for row in bound))
            raise text.error(rows[-1][i], f"VALUES: column {i + 1} is {kinds}; one type is needed. Cast: x::text")
        types.append(type)
    columns = tuple(NamedColumn(f"column{i + 1}", type) for i, type in enumerate(types))
    cast_rows = [
        tuple(coerce(text, cell, expr, type) for cell, expr, type in zip(written, row, types, strict=True))
        for written, row in zip(rows, bound, strict=True)
    ]
    if all(expr.op == "literal" for row in cast_rows for expr in row) and UNKNOWN not in types:
        return Rows(columns=columns, name=path, rows=tuple(tuple(expr.value for expr in row) for row in cast_rows))
    parts = tuple(Project(columns=columns, name=path, input=ONE_ROW, exprs=row) for row in cast_rows)
    return parts[0] if len(parts) == 1 else Union(columns=columns, name=path, inputs=parts)
