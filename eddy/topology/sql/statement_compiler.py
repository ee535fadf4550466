"""Compiles the algebra of a statement to eddy's relations, the steps of a topology.

A node becomes rows (key, value) for the step that reads it, with the key that a join or a group needs, and with the
columns that are read downstream. Conditions and projections become Python functions. A projection of a join is computed
by the join's merge function.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, Signature
from keyword import iskeyword
from typing import Any

from eddy.errors import NonTerminatingRecursionError, TopologyError
from eddy.operators.bound import Bound, Words
from eddy.topology.dsl.builder import Builder
from eddy.topology.dsl.mutual import mutually_recursive
from eddy.topology.dsl.reach import recursive_fixpoint
from eddy.topology.dsl.relation import Relation, constant
from eddy.topology.plan.scopes import Scopes
from eddy.topology.sql import algebra
from eddy.topology.sql.aggregates import MARKER, group_function
from eddy.topology.sql.algebra import Node, all_columns
from eddy.topology.sql.expressions import (
    Expr,
    column,
    columns_of,
    is_cheap,
    literal,
    predicate_of,
    replace_columns,
    rows_of,
    walk,
)
from eddy.topology.sql.folds import fold_of
from eddy.topology.sql.moment_of_row import MomentOfRow
from eddy.topology.sql.names import StepNames
from eddy.topology.sql.reachability import START, Edges, edges_of, from_start, link, reached
from eddy.topology.sql.row_windows import fixed_windows, session_windows
from eddy.topology.sql.rows import row_serde
from eddy.topology.sql.series import series_function
from eddy.topology.sql.types import Type

__all__ = ["StatementCompiler"]

Exprs = Sequence[Expr]
Rows = Relation[Any, Any]

_HOWEVER_DEEP = 2**62
"""The limit of queries for reachability. It is never reached, because they always end over finitely many edges."""
_MORE = "raise the worker's max_nested_rows and max_nested_s if it needs more"
_ADVICE = f"Let the step end: … WHERE depth < 100, mend the data, or {_MORE}"
_ALL_ADVICE = "Write UNION, which has each row once, let the step end: … WHERE depth < 100, or mend the data"
_BLOCK_ADVICE = (
    f"Let it end after n iterations: WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT n) …, mend the data, or {_MORE}"
)
_TAKEN = {"errors", "held", "limit"}
_BY_VALUE, _BY_KEY, _BY_GROUP = "_, row", "row, _", "group, row"
"""The parameters of a function that gets SQL's rows as `row`: from the values of a relation, from its keys (a set), or
from its values under the key of their group.

Only rows of the first kind are under the empty key.
"""


class StatementCompiler:
    """Compiles the nodes of one statement. `tables` has a relation for each table, with SQL's rows as values."""

    def __init__(self, builder: Builder, tables: Mapping[str, Rows], name: str, names: StepNames) -> None:
        self._builder, self._tables, self._name, self._names = builder, tables, name, names
        self._done: dict[Any, tuple[Rows, str]] = {}
        self._variables: dict[tuple[object, str], tuple[Rows, str]] = {}
        self._loops = 0
        self._errors: list[tuple[algebra.Block, Rows]] = []

    @property
    def errors(self) -> list[tuple[algebra.Block, Rows]]:
        """The errors of each outermost block, which include the errors of the blocks inside it."""
        plan = self._builder.plan
        inside, there = Scopes(plan).around, set(plan.nodes)
        return [(block, rows) for block, rows in self._errors if rows._node in there and rows._node not in inside]

    def limit(self, block: algebra.Block, binding: str) -> int:
        """Return the limit that applies to a binding, given the binding's name in the errors of `block`."""
        inner = {f"{found.label}.": found for found, _ in self._errors if found is not block}
        found = next((one for label, one in inner.items() if binding.startswith(label)), block)
        return found.bound.iterations if found.bound else 0

    def rows(self, node: Node) -> Rows:
        """Return the rows of a node, under the empty key."""
        return self._emit(node, (), all_columns(node))

    def _emit(self, node: Node, key: Exprs, value: Exprs) -> Rows:
        """Return a relation of rows (key, value), whose expressions are computed from each row of a node."""
        match node:
            case algebra.Project():
                inner = [replace_columns(expr, node.exprs) for expr in (*key, *value)]
                if _costs_no_more(node.exprs, (*key, *value)):
                    return self._emit(node.input, inner[: len(key)], inner[len(key) :])
                return self._mapped(self._emit(node.input, (), node.exprs), node, key, value)
            case algebra.Filter():
                return self._filter(node, key, value)
            case algebra.Join():
                return self._join(node, key, value)
            case algebra.Semi():
                return self._semi(node, key, value)
            case algebra.Union():
                first, *others = [self._emit(found, key, value) for found in node.inputs]
                return first.union(*others) if others else first
            case _:
                relation, side = self._plain(node)
                return self._mapped(relation, node, key, value, side)

    def _mapped(self, relation: Rows, node: Node, key: Exprs, value: Exprs, side: str = _BY_VALUE) -> Rows:
        """Return a relation's rows with this key and value, or the relation itself if they are the same rows."""
        if side == _BY_VALUE and not key and _is_whole(value, len(node.columns)):
            return relation
        whole = None if _is_whole(value, len(node.columns)) else value
        function = rows_of(side, _names("row", len(node.columns)), key, whole)
        return relation.map(function, None, _serde(key), _serde(value))

    def _filter(self, node: algebra.Filter, key: Exprs, value: Exprs) -> Rows:
        needed = sorted({i for expr in (*key, *value, *node.conditions) for i in columns_of(expr)})
        places = {i: column(place, node.columns[i].type) for place, i in enumerate(needed)}
        narrow = algebra.Project(
            columns=tuple(node.columns[i] for i in needed),
            input=node.input,
            exprs=tuple(column(i, node.columns[i].type) for i in needed),
        )
        conditions = [replace_columns(condition, places) for condition in node.conditions]
        test = predicate_of(_BY_VALUE, _names("row", len(needed)), conditions)
        kept = self._emit(narrow, (), all_columns(narrow)).filter(test)
        moved = [replace_columns(expr, places) for expr in (*key, *value)]
        return self._mapped(kept, narrow, moved[: len(key)], moved[len(key) :])

    def _join(self, node: algebra.Join, key: Exprs, value: Exprs) -> Rows:
        """Return the join. Its merge function computes the requested key and value."""
        width = len(node.left.columns)
        used = {i for expr in (*key, *value) for i in columns_of(expr)}
        ours, theirs = sorted(i for i in used if i < width), sorted(i for i in used if i >= width)
        left = self._keyed(node.left, node.left_key, [column(i, node.columns[i].type) for i in ours])
        right = self._keyed(node.right, node.right_key, [column(i - width, node.columns[i].type) for i in theirs])
        names = {i: f"left[{place}]" for place, i in enumerate(ours)}
        names |= {i: f"right[{place}]" for place, i in enumerate(theirs)}
        merge = rows_of("_, left, right", [names.get(i, "") for i in range(len(node.columns))], key, value)
        return left.join(right, merge, self._names.take(node.name, "join"), _serde(key), _serde(value))

    def _keyed(self, node: Node, key: Exprs, value: Exprs, nulls: bool = False) -> Rows:
        """Return the rows of a node under a key. Rows whose key has a null are dropped, unless `nulls`."""
        found = self._emit(node, key, value)
        return found if nulls or not key or all(_never_null(expr) for expr in key) else found.filter(_without_null)

    def _semi(self, node: algebra.Semi, key: Exprs, value: Exprs) -> Rows:
        """Return the rows of a Semi, by a join with each key once, or of an Anti, by all rows minus the Semi's rows."""
        name = self._names.take(node.name, "match")
        needed = sorted({i for expr in (*key, *value, *node.left_key) for i in columns_of(expr)})
        base = algebra.Project(
            columns=tuple(node.columns[i] for i in needed),
            input=node.left,
            exprs=tuple(column(i, node.columns[i].type) for i in needed),
        )
        rows = self._emit(base, (), all_columns(base))
        places = {i: column(place, node.columns[i].type) for place, i in enumerate(needed)}
        keys, out_key, out_value = (
            [replace_columns(expr, places) for expr in exprs] for exprs in (node.left_key, key, value)
        )
        whole = None if len(needed) == len(base.columns) else all_columns(base)
        left = rows.map(
            rows_of(_BY_VALUE, _names("row", len(needed)), keys, whole), None, _serde(keys), _serde(all_columns(base))
        )
        if keys and not node.nulls:
            left = left.filter(_without_null)
        right = self._keyed(node.right, node.right_key, (), node.nulls).distinct(f"{name}-keys")
        merge = rows_of("_, row, there", _names("row", len(needed)), out_key, out_value)
        semi = left.join(right, merge, name, _serde(key), _serde(value))
        if not isinstance(node, algebra.Anti):
            return semi
        return self._mapped(rows, base, out_key, out_value).union(_negated(semi))

    def _plain(self, node: Node) -> tuple[Rows, str]:
        """Return the relation of a node, and whether SQL's columns are in its keys or in its values."""
        match node:
            case algebra.NamedTable():
                return self._tables[node.table], _BY_VALUE
            case algebra.Variable():
                return self._variables[node.of, node.binding]
            case algebra.Rows():
                return self._constant(node), _BY_VALUE
            case algebra.Shared():
                return self._once(node, lambda: (self.rows(node.input), _BY_VALUE))
            case algebra.Series() | algebra.InWindows() | algebra.Limit():
                return self._repeated(node), _BY_VALUE
            case algebra.Valid():
                return self._valid(node), _BY_KEY
            case algebra.Distinct():
                return self._set(node.input).distinct(self._names.take(node.name)), _BY_KEY
            case algebra.Except() | algebra.Intersect():
                return self._except(node) if isinstance(node, algebra.Except) else self._intersect(node), _BY_KEY
            case algebra.Group() | algebra.InSessions():
                return self._group(node) if isinstance(node, algebra.Group) else self._sessions(node)
            case algebra.Loop():
                return self._loop(node)
            case algebra.Binding():
                return self._block(node.block)[node.binding], _BY_VALUE
            case _:
                return self.rows(node), _BY_VALUE

    def _once(self, key: Any, make: Callable[[], tuple[Rows, str]]) -> tuple[Rows, str]:
        if key not in self._done:
            self._done[key] = make()
        return self._done[key]

    def _constant(self, node: algebra.Rows) -> Rows:
        """Return rows written in the statement. A query without FROM has one row without columns."""

        def make() -> tuple[Rows, str]:
            name = self._names.take(node.name or f"{self._name}-one-row", "rows" if node.name else "")
            serde = _serde(all_columns(node))
            return self._fixed([((), row) for row in node.rows], name, serde), _BY_VALUE

        return self._once(node, make)[0]

    def _fixed(self, rows: list[tuple[Any, Any]], name: str, serde: Any) -> Rows:
        return constant(self._builder, rows, name, row_serde(()), serde).at_one_owner(name)

    def _repeated(self, node: algebra.Series | algebra.InWindows | algebra.Limit) -> Rows:
        """Return each row once for each number of its series, or for each of its windows; for Limit, the first rows."""
        function: Any
        match node:
            case algebra.Limit():
                rows, function = self._first(node), node.first.shown
            case algebra.InWindows():
                rows, function = self.rows(node.input), fixed_windows(node.windows)
            case algebra.Series():
                names = _names("row", len(node.input.columns))
                rows, function = self.rows(node.input), series_function(rows_of("row", names, node.bounds))
        return rows.flat_map_values(function, None, _serde(all_columns(node)))

    def _first(self, node: algebra.Limit) -> Rows:
        """Return a relation with one row, whose value is the tuple of the first rows of the node."""
        groups = self.rows(node.input).group_by_key(row_serde(()))
        return groups.top_k(node.first.most, self._names.take(node.name), node.first.order).to_relation()

    def _sessions(self, node: algebra.InSessions) -> tuple[Rows, str]:
        rows, name = self._emit(node.input, node.keys, all_columns(node.input)), self._names.take(node.name)
        function = session_windows(node.sessions)
        return rows.reduce(function, name, _serde(node.keys), _serde(all_columns(node))), _BY_GROUP

    def _set(self, node: Node) -> Rows:
        """Return the rows of a node as keys, without a value."""
        return self._emit(node, all_columns(node), ())

    def _valid(self, node: algebra.Valid) -> Rows:
        """Return the rows as keys, each at its key's owner, while the present time is between the row's moments."""
        if self._loops:
            raise TopologyError(
                f"sql '{self._name}' {node.where}: now() inside a recursive table, where no time passes; put the "
                "condition into a common table expression before"
            )
        names = _names("row", len(node.columns))

        def moment(exprs: Exprs, first: bool) -> MomentOfRow | None:
            return MomentOfRow(rows_of("row, _", names, exprs), first) if exprs else None

        from_, until = moment(node.from_, False), moment(node.until, True)
        return self._set(node.input).valid(
            clock="wall clock", from_=from_, until=until, name=self._names.take(node.name)
        )

    def _except(self, node: algebra.Except) -> Rows:
        left, right, name = self._set(node.left), self._set(node.right), self._names.take(node.name)
        return (left if node.all else left.distinct(f"{name}-left")).minus(right, name)

    def _intersect(self, node: algebra.Intersect) -> Rows:
        """Return the rows of an INTERSECT: the left rows minus those that the left has more often than the right."""
        left, right, name = self._set(node.left), self._set(node.right), self._names.take(node.name)
        left = left if node.all else left.distinct(f"{name}-left")
        return left.union(_negated(left.minus(right, name)))

    def _group(self, node: algebra.Group) -> tuple[Rows, str]:
        name = self._names.take(node.name)
        arguments = [found.argument for found in node.aggregates]
        value = [argument if argument is not None else literal(None, _NOTHING) for argument in arguments]
        rows = self._emit(node.input, node.keys, value)
        if not node.keys:
            marker = self._fixed([((), MARKER)], f"{name}-empty", _serde(value))
            rows = rows.union(marker)
        types = [None if argument is None else argument.type for argument in arguments]
        fold = None if self._loops else fold_of(node.aggregates, types)
        if fold is not None:
            key, state = _serde(node.keys), row_serde(fold.types)
            grouped = rows.group_by_key(key).aggregate(fold.initial, fold.adder, fold.subtractor, name, state)
            return grouped.to_relation().map(fold.row, None, row_serde(()), _serde(all_columns(node))), _BY_VALUE
        function = group_function(node.aggregates, types)
        return rows.reduce(function, name, _serde(node.keys), _serde(all_columns(node))), _BY_GROUP

    def _loop(self, node: algebra.Loop) -> tuple[Rows, str]:
        """Return the rows of a WITH RECURSIVE: a set for UNION, or a bag for UNION ALL."""
        name = self._names.take(node.name)
        edges = edges_of(node) if not self._loops else None
        if edges is not None:
            return self._reachable(node, edges, name), _BY_KEY
        seed = self._set(node.seed) if node.distinct else self.rows(node.seed)
        outside = self._snapshot()

        def op(rows: Rows) -> Rows:
            self._restore(outside)
            with self._inside():
                variable = node.variable.of, node.variable.binding
                if node.distinct:
                    self._variables[variable] = rows.distinct(f"{name}-seen"), _BY_KEY
                    return self._set(node.step)
                self._variables[variable] = rows, _BY_VALUE
                return self.rows(node.step)

        try:
            words = Words(
                f"sql '{self._name}' {node.where}: '{node.variable.binding}'", _ADVICE if node.distinct else _ALL_ADVICE
            )
            found = seed._bounded(op, name, Bound(words=words))
        except NonTerminatingRecursionError as error:
            binding = node.variable.binding
            raise NonTerminatingRecursionError(
                f"sql '{self._name}' {node.where}: nothing in the step of '{binding}' can drop a row, so that "
                "every row would be repeated for ever; a condition or a join is needed. Write e.g. … WHERE depth < 100"
            ) from error
        return (found.distinct(f"{name}-distinct"), _BY_KEY) if node.distinct else (found, _BY_VALUE)

    def _reachable(self, node: algebra.Loop, edges: Edges, name: str) -> Rows:
        """Return the nodes that are reachable from the seed over edges."""
        nodes = row_serde((Type("boolean"), node.columns[0].type))
        links = self._keyed(edges.node, (edges.key,), (edges.to,)).map(link, None, nodes, nodes)
        starts = self.rows(node.seed).map(from_start, None, nodes, nodes)
        root = self._fixed([((), START)], f"{name}-start", nodes)
        edges_of_all = starts.union(links)
        found = recursive_fixpoint(
            self._builder, roots=root, edges=edges_of_all, name=name, node=nodes, limit=_HOWEVER_DEEP
        )
        below = found.filter(lambda _, row: row.depth > 0)
        return below.map(reached, None, _serde(all_columns(node)), row_serde(()))

    def _snapshot(self) -> tuple[dict[Any, tuple[Rows, str]], frozenset[str]]:
        """Return the steps and names that exist now, before the steps inside a loop are built."""
        return dict(self._done), self._names.mark()

    def _restore(self, outside: tuple[dict[Any, tuple[Rows, str]], frozenset[str]]) -> None:
        """Forget the steps inside a loop that an earlier call has built, since the plan has removed them."""
        done, names = outside
        self._done = dict(done)
        self._names.reset(names)

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """Mark, until the block ends, that the steps inside a loop are being built."""
        self._loops += 1
        try:
            yield
        finally:
            self._loops -= 1

    def _block(self, block: algebra.Block) -> dict[str, Rows]:
        """Return the relations of the bindings of WITH MUTUALLY RECURSIVE, by name."""
        if block not in self._done:
            block_name, outside = self._names.take(block.name), self._snapshot()

            def step(*rows: Rows) -> tuple[Rows, ...]:
                self._restore(outside)
                self._variables |= {
                    (block, name): (found, _BY_VALUE) for (name, _), found in zip(block.bindings, rows, strict=True)
                }
                made = []
                with self._inside():
                    for name, definition in block.bindings:
                        made.append(self.rows(definition))
                        self._variables[block, name] = made[-1], _BY_VALUE
                return tuple(made)

            names = _parameters([name for name, _ in block.bindings])
            parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
            step.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
            serdes = {
                parameter: (row_serde(()), _serde(all_columns(definition)))
                for parameter, (_, definition) in zip(names, block.bindings, strict=True)
            }
            bound = block.bound
            bindings = mutually_recursive(
                self._builder,
                step,
                block_name,
                bound.iterations if bound else None,
                bound.then if bound else "hold",
                serdes,
                single_partition=True,
                label=block.label,
                words=Words(f"sql '{self._name}'", _BLOCK_ADVICE),
            )
            self._errors.append((block, bindings.errors))
            found = {name: bindings[n] for n, (name, _) in zip(names, block.bindings, strict=True)}
            self._done[block] = found  # type: ignore[assignment]
        return self._done[block]  # type: ignore[return-value]


_NOTHING = Type("unknown")


def _negated(relation: Rows) -> Rows:
    return relation._transform("negate", None, None)


def _serde(exprs: Exprs) -> Any:
    return row_serde(tuple(expr.type for expr in exprs))


def _names(row: str, width: int) -> list[str]:
    return [f"{row}[{i}]" for i in range(width)]


def _is_whole(value: Exprs, width: int) -> bool:
    """Return whether the expressions are all columns of a row, in their order."""
    return len(value) == width and all(expr.op == "column" and expr.value == i for i, expr in enumerate(value))


def _costs_no_more(exprs: Exprs, users: Exprs) -> bool:
    """Return whether `users` would compute no expensive expression more than once if `exprs` were inlined in them."""
    read: dict[int, int] = {}
    for user in users:
        for part in walk(user):
            if part.op == "column":
                read[part.value] = read.get(part.value, 0) + 1
    return all(is_cheap(expr) or read.get(i, 0) <= 1 for i, expr in enumerate(exprs))


def _never_null(expr: Expr) -> bool:
    return expr.op == "literal" and expr.value is not None


def _without_null(key: tuple[Any, ...], _: Any) -> bool:
    return None not in key


def _parameters(names: Sequence[str]) -> list[str]:
    """Return the bindings' names as parameter names; an invalid name is replaced by one with its position."""
    possible = {name for name in names if name.isidentifier() and name.isascii() and not iskeyword(name)} - _TAKEN
    made: list[str] = []
    for i, name in enumerate(names):
        found = name if name in possible else f"binding_{i}"
        while found != name and found in possible:
            found += "_"
        made.append(found)
    return made
