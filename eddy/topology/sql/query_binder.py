"""Binds queries to the algebra: SELECT, set operations, VALUES and WITH."""

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from eddy.topology.sql import algebra
from eddy.topology.sql.algebra import Group, NamedColumn, Node, Project, Shared
from eddy.topology.sql.binder import Binder
from eddy.topology.sql.bound_casts import cast, coerce
from eddy.topology.sql.expressions import Expr, column, conjuncts, literal, replace_columns, transform, walk
from eddy.topology.sql.ordered_queries import is_limited, limited_query
from eddy.topology.sql.parsing import mutual_of
from eddy.topology.sql.queries import QueryBinding
from eddy.topology.sql.recursive_queries import mutually_recursive, with_recursive
from eddy.topology.sql.scope import ColumnScope, QueryContext, folded, position_of, refuse_outer
from eddy.topology.sql.sources import from_clause, renamed, values
from eddy.topology.sql.spelling import AGGREGATES, name_of
from eddy.topology.sql.statement_text import StatementText
from eddy.topology.sql.subqueries import Applied, Correlation, bind_subquery
from eddy.topology.sql.temporal import taken_apart
from eddy.topology.sql.types import TEXT, UNKNOWN, Type, common_type
from eddy.topology.sql.unsupported_syntax import parts_of, without_meaning

__all__ = ["QueryBinder"]

_ONE_OFF = "a one-off query has no time that passes; write the time as a number of milliseconds"


class QueryBinder(QueryBinding):
    """Binds the queries of one statement. `name` begins the names of all states of these queries.

    `once` says that the statement is a one-off query. `definitions` are the recursive bindings whose definitions are
    being bound, the outermost first.
    """

    def __init__(self, text: StatementText, name: str, once: bool = False) -> None:
        self.text, self.name, self._once = text, name, once
        self.definitions: list[str] = []
        self._blocks: set[str] = set()

    def query(self, node: exp.Expr, path: str, environment: QueryContext) -> Node:
        """Return the node of a query. `path` begins the names of its stateful steps."""
        query = limited_query if is_limited(node) else QueryBinder.without_order
        return query(self, node, path, environment)

    def without_order(
        self, node: exp.Expr, path: str, environment: QueryContext, order: Sequence[exp.Expr] = ()
    ) -> Node:
        """Return the node of a query without ORDER BY and LIMIT; `order` is appended to the columns of a SELECT."""
        environment = self.with_clause(node, path, environment)
        if isinstance(node, exp.Select):
            return self.select(node, path, environment, order)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, path, environment)
        if isinstance(node, exp.Subquery):
            return self.query(node.args["this"], path, environment)
        if isinstance(node, exp.Values):
            return values(self, node, path, environment)
        raise self.text.unsupported(node, f"{node.key.upper()}", "a query is needed: SELECT …")

    def resolved(self, node: Node) -> Node:
        """Return the node with columns of unknown type cast to text."""
        types = [TEXT if found.type == UNKNOWN else found.type for found in node.columns]
        return self.as_types(node, types, exp.Null())

    def as_types(self, node: Node, types: Sequence[Type], at: exp.Expr) -> Node:
        """Return the node with its columns implicitly cast to `types`."""
        if all(found.type == type for found, type in zip(node.columns, types, strict=True)):
            return node
        columns = tuple(NamedColumn(found.name, type) for found, type in zip(node.columns, types, strict=True))
        if isinstance(node, Project):
            exprs = tuple(coerce(self.text, at, expr, type) for expr, type in zip(node.exprs, types, strict=True))
            return replace(node, columns=columns, exprs=exprs)
        if isinstance(node, algebra.Union):
            return replace(node, columns=columns, inputs=tuple(self.as_types(i, types, at) for i in node.inputs))
        if isinstance(node, algebra.Distinct):
            return replace(node, columns=columns, input=self.as_types(node.input, types, at))
        exprs = tuple(
            cast(self.text, at, expr, type) for expr, type in zip(algebra.all_columns(node), types, strict=True)
        )
        return Project(columns=columns, name=node.name, input=node, exprs=exprs)

    def with_clause(self, node: exp.Expr, path: str, environment: QueryContext) -> QueryContext:
        """Return the context for the query after WITH, in which its common table expressions are tables."""
        found = node.args.get("with_")
        if found is None:
            return environment
        if (block := mutual_of(found)) is not None:
            return mutually_recursive(self, block, self._inner_block(path), environment)
        names = [folded(cte.args["alias"].args["this"]) for cte in parts_of(found)]
        for name, cte in zip(names, parts_of(found), strict=True):
            if names.count(name) > 1:
                raise self.text.error(cte, f"'{name}' is defined twice in one WITH; names are unique")
        if found.args.get("recursive"):
            return with_recursive(self, found, path, environment)
        for cte in parts_of(found):
            environment = self.common_table(cte, path, environment)
        return environment

    def _inner_block(self, path: str) -> str:
        """Return the name of a block in the query at `path`. A second block of the query may be in parentheses."""
        taken = sum(name.startswith(f"{path}-block") for name in self._blocks)
        name = f"{path}-block-{taken + 1}" if taken else f"{path}-block"
        self._blocks.add(name)
        return name

    def called(self, block: str) -> str:
        """Return the name of a block for errors: the names of the bindings whose definitions contain it.

        If several blocks have this name, the block's position in the text is its name.
        """
        name = ".".join(self.definitions)
        if name in self._blocks:
            name = block.removeprefix(f"{self.name}-")
        self._blocks.add(name)
        return name

    def common_table(self, cte: exp.CTE, path: str, environment: QueryContext) -> QueryContext:
        """Return the context with one more common table expression."""
        name = folded(cte.args["alias"].args["this"])
        without_meaning(cte, "materialized")
        inner = QueryContext(environment.tables)
        body = self.resolved(self.query(cte.args["this"], f"{path}-{name}", inner))
        return environment.with_tables({name: self.shared(cte, name, body)})

    def shared(self, cte: exp.CTE, name: str, body: Node) -> Shared:
        """Return a query's node under the name, and with the column names, of a common table expression."""
        names = [folded(found) for found in cte.args["alias"].args.get("columns") or ()]
        if len(names) > len(body.columns):
            raise self.text.error(
                cte,
                f"'{name}' names {len(names)} columns, and its query has {len(body.columns)}; the numbers have "
                f"to agree",
            )
        if names:
            body = renamed(body, names)
        return Shared(columns=body.columns, name=body.name, input=body)

    def select(self, node: exp.Select, path: str, environment: QueryContext, order: Sequence[exp.Expr] = ()) -> Node:
        """Bind a SELECT; the expressions of `order` are appended to its columns."""
        source, scope = from_clause(self, node, path, environment)
        correlation = Correlation(self.text)
        applied = Applied(self.text, source)
        subqueries = _Subqueries(self, path, environment)
        if node.args.get("where") is not None:
            binder = Binder(scope, "WHERE", subqueries, no_time=_ONE_OFF if self._once else None)
            moments, parts = taken_apart(self.text, conjuncts(binder.condition(node.args["where"].args["this"])))
            applied.filter(correlation.take(parts))
            if moments is not None:
                applied.during(moments, f"{path}-now")
        found = _Select(self, node, path, subqueries, scope, order)
        return found.bound(applied, correlation, environment)

    def _set_operation(self, node: exp.SetOperation, path: str, environment: QueryContext) -> Node:
        text = self.text
        if node.args.get("by_name") or node.args.get("side") or node.args.get("kind"):
            raise text.unsupported(node, "this form of a set operation")
        word = type(node).__name__.upper()
        environment = QueryContext(environment.tables)
        steps = (f"{path}-{word.lower()}-1", f"{path}-{word.lower()}-2")
        sides = [
            self.query(side, step, environment)
            for side, step in zip((node.args["this"], node.args["expression"]), steps, strict=True)
        ]
        left, right = self.alike(node, word, *sides)
        every = not node.args.get("distinct")
        name, columns = f"{path}-{word.lower()}", left.columns
        if isinstance(node, exp.Union):
            both = algebra.Union(columns=columns, name=name, inputs=(left, right))
            return both if every else algebra.Distinct(columns=columns, name=name, input=both)
        kind = algebra.Except if isinstance(node, exp.Except) else algebra.Intersect
        return kind(columns=columns, name=name, left=left, right=right, all=every)

    def alike(self, node: exp.Expr, word: str, left: Node, right: Node) -> tuple[Node, Node]:
        """Return both sides of a set operation, with columns cast to the same types."""
        if len(left.columns) != len(right.columns):
            raise self.text.error(
                node.args["expression"],
                f"{word} of {len(left.columns)} and {len(right.columns)} columns; equal numbers are needed",
            )
        types = []
        for i, (one, other) in enumerate(zip(left.columns, right.columns, strict=True), 1):
            type = common_type([one.type, other.type])
            if type is None:
                raise self.text.error(
                    node.args["expression"],
                    f"{word}: column {i} is {one.type} on one side and {other.type} on the other; one type is "
                    f"needed. Cast: x::{one.type}",
                )
            types.append(type)
        at = node.args["expression"]
        return self.as_types(left, types, at), self.as_types(right, types, at)


class _Subqueries:
    """Binds the subqueries in the expressions of one query, and numbers them in their order."""

    def __init__(self, queries: QueryBinding, path: str, environment: QueryContext) -> None:
        self._queries, self._path, self._environment = queries, path, environment
        self._count = 0

    def __call__(self, node: exp.Expr, binder: Binder) -> Expr:
        self._count += 1
        path = f"{self._path}-query-{self._count}"
        return bind_subquery(self._queries, node, binder, path, self._environment)


class _Select:
    """Binds the clauses of a SELECT after FROM and WHERE: groups, columns, DISTINCT."""

    def __init__(
        self,
        queries: QueryBinding,
        node: exp.Select,
        path: str,
        subqueries: _Subqueries,
        scope: ColumnScope,
        order: Sequence[exp.Expr],
    ) -> None:
        self._queries, self._text, self._node, self._path = queries, queries.text, node, path
        self._scope, self._order = scope, order
        self._binder = Binder(scope, "SELECT", subqueries, aggregates=True)
        self._plain = Binder(scope, "GROUP BY", subqueries)

    def bound(self, applied: Applied, correlation: Correlation, environment: QueryContext) -> Node:
        """Return the SELECT's node. Correlated columns are appended; their outer sides are added to `environment`."""
        names, exprs = self._columns()
        extra = [self._ordering(part, names, exprs) for part in self._order]
        exprs += extra
        names += [""] * len(extra)
        group, having = self._node.args.get("group"), self._node.args.get("having")
        conditions = conjuncts(self._binder.condition(having.args["this"])) if having is not None else []
        grouped = group is not None or having is not None
        if grouped or any(part.op == "aggregate" for expr in exprs for part in walk(expr)):
            if not environment.value or grouped or len(names) > 1:
                correlation.refuse("a query with aggregates")
            refuse_outer(self._text, *exprs, *conditions)
            exprs, conditions = self._grouped(applied, names, exprs, conditions, correlation.inner)
            if correlation.inner:
                environment.missing.append(_of_no_rows(exprs[0], applied.node))
                correlation.inner = [column(i, expr.type) for i, expr in enumerate(correlation.inner)]
            applied.filter(conditions)
        exprs = applied.values(exprs)
        exprs += correlation.inner
        environment.correlated.extend(correlation.outer)
        columns = tuple(NamedColumn(names[i] if i < len(names) else "", expr.type) for i, expr in enumerate(exprs))
        refuse_outer(self._text, *exprs)
        node: Node = Project(columns=columns, name=self._path, input=applied.node, exprs=tuple(exprs))
        if self._node.args.get("distinct"):
            node = self._distinct(node, extra)
        return node

    def _distinct(self, node: Node, extra: Sequence[Expr]) -> Node:
        found = self._node.args["distinct"]
        if found.args.get("on"):
            raise self._text.unsupported(found, "DISTINCT ON", "aggregate with GROUP BY")
        if extra:
            raise self._text.error(self._order[0], "ORDER BY of SELECT DISTINCT; a column of the SELECT is needed")
        node = self._queries.resolved(node)
        return algebra.Distinct(columns=node.columns, name=f"{self._path}-distinct", input=node)

    def _columns(self) -> tuple[list[str], list[Expr]]:
        names: list[str] = []
        exprs: list[Expr] = []
        for part in parts_of(self._node):
            if isinstance(part, exp.Star) or (isinstance(part, exp.Column) and isinstance(part.args["this"], exp.Star)):
                table = part.args.get("table")
                seen = self._scope.star(part, folded(table) if table is not None else None)
                names += [found.name for found in seen]
                exprs += [found.expr for found in seen]
                continue
            names.append(_name(part))
            exprs.append(self._binder.bind(part.args["this"] if isinstance(part, exp.Alias) else part))
        if not exprs:
            raise self._text.error(self._node, "SELECT of nothing; one column is needed at least")
        return names, exprs

    def _ordering(self, part: exp.Expr, names: list[str], exprs: list[Expr]) -> Expr:
        """Return the expression of an ORDER BY item: a SELECT column by name or number, or an expression over FROM."""
        index = position_of(self._text, part, names, "ORDER BY")
        return exprs[index] if index is not None else self._binder.bind(part)

    def _grouped(
        self,
        applied: Applied,
        names: list[str],
        exprs: list[Expr],
        conditions: list[Expr],
        links: Sequence[Expr],
    ) -> tuple[list[Expr], list[Expr]]:
        """Add a Group by its keys and `links` to the enclosing query; return columns and conditions over the Group."""
        keys = [*links, *applied.values(self._keys(names, exprs))]
        refuse_outer(self._text, *keys)
        found: list[Expr] = []
        for expr in (*exprs, *conditions):
            found += [part for part in walk(expr) if part.op == "aggregate" and part not in found]
        arguments = applied.values([part.args[0] for part in found if part.args])
        remaining = iter(arguments)
        aggregates = tuple(replace(part.value, argument=next(remaining) if part.args else None) for part in found)
        columns = tuple(NamedColumn("", expr.type) for expr in (*keys, *found))
        original = self._keys(names, exprs)
        applied.node = Group(
            columns=columns, name=f"{self._path}-group", input=applied.node, keys=tuple(keys), aggregates=aggregates
        )
        over = _OverGroup(self._scope, original, found, len(links))
        return [over(expr) for expr in exprs], [over(expr) for expr in conditions]

    def _keys(self, names: list[str], exprs: list[Expr]) -> list[Expr]:
        group = self._node.args.get("group")
        if group is None:
            return []
        extra = [name for name, value in group.args.items() if value and name != "expressions"]
        if extra or any(isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets) for part in parts_of(group)):
            raise self._text.unsupported(group, "this form of GROUP BY", "GROUP BY expression, … is needed")
        keys: list[Expr] = []
        for part in parts_of(group):
            keys.append(self._key(part, names, exprs))
            if any(found.op == "aggregate" for found in walk(keys[-1])):
                raise self._text.error(part, "an aggregate in GROUP BY; a column or an expression of columns is needed")
        return list(dict.fromkeys(coerce(self._text, group, k, TEXT) if k.type == UNKNOWN else k for k in keys))

    def _key(self, part: exp.Expr, names: list[str], exprs: list[Expr]) -> Expr:
        if isinstance(part, exp.Column) and self._scope.find(part) is not None:
            return self._plain.bind(part)
        index = position_of(self._text, part, names, "GROUP BY")
        return exprs[index] if index is not None else self._plain.bind(part)


class _OverGroup:
    """Rewrites an expression over FROM as an expression over a Group's columns: its keys, then its aggregates."""

    def __init__(self, scope: ColumnScope, keys: list[Expr], aggregates: list[Expr], start: int) -> None:
        self._scope = scope
        self._places = {expr: column(i, expr.type) for i, expr in enumerate((*keys, *aggregates), start)}

    def __call__(self, expr: Expr) -> Expr:
        return transform(expr, self._placed)

    def _placed(self, expr: Expr) -> Expr | None:
        if expr in self._places:
            return self._places[expr]
        if expr.op == "column":
            name = next((seen.name for seen in self._scope.seen if seen.expr == expr), "")
            raise self._scope.text.error(
                expr.where,
                f"column '{name}' is neither in GROUP BY nor inside of an aggregate; a group has one value only for "
                f"its keys. Add {name} to GROUP BY, or aggregate it: min({name})",
            )
        return None


def _of_no_rows(expr: Expr, group: Node) -> Expr:
    """Return an expression's value over a group without rows: count is 0, all other aggregates are null."""
    assert isinstance(group, Group)
    values = [literal(None, key.type) for key in group.keys]
    values += [literal(0 if found.function == "count" else None, found.type) for found in group.aggregates]
    return replace_columns(expr, values)


def _name(part: exp.Expr) -> str:
    """Return the name of a SELECT column: its alias, or the name of its column or function."""
    if isinstance(part, exp.Alias):
        return folded(part.args["alias"])
    while isinstance(part, exp.Paren | exp.Cast):
        part = part.args["this"]
    if isinstance(part, exp.Column):
        return folded(part.args["this"])
    if isinstance(part, exp.Filter):
        part = part.args["this"]
    if isinstance(part, exp.Func) and not isinstance(part, exp.And | exp.Or | exp.Binary):
        return AGGREGATES.get(type(part)) or name_of(part)
    return "?column?"
