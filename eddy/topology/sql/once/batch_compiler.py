"""Compiles the planned algebra of a one-off statement to functions over whole tables.

    Filter, Project, Join, Semi, Anti, Series, InWindows    loops inside the function of the node downstream
    all other nodes                                         a function that makes a table

A join loops over one side and looks up its key in an index of the other side. Inside a recursion the join loops over
the side with the recursive table. Tables that do not depend on the recursive table are made once, before the first
wave. Rows have weights in a UNION ALL recursion, and in joins of which only the number of matches matters.

Columns that no node reads are not computed, as in a circuit.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from typing import Any

from eddy.topology.sql import algebra
from eddy.topology.sql.aggregates import group_function
from eddy.topology.sql.algebra import Node
from eddy.topology.sql.expressions import Expr, columns_of, is_cheap, rows_of
from eddy.topology.sql.once.row_function import MOST_LOOPS, RowCode, RowFunction, WholeTable, row_of
from eddy.topology.sql.once.suitable import depends_on
from eddy.topology.sql.once.waves_of_rows import bag_of_waves, set_of_waves
from eddy.topology.sql.reachability import edges_of
from eddy.topology.sql.row_windows import fixed_windows, session_windows
from eddy.topology.sql.series import series_function

__all__ = ["BatchCompiler"]

Rows = Sequence[tuple[Any, ...]]
_ADDED = ("made = []", "add = made.append")
_GIVEN = ("return made",)


@dataclass(frozen=True)
class _Made:
    """A table made by a function. If `weighted` its rows are pairs with weights. `places` has each column's place."""

    table: WholeTable
    weighted: bool = False
    places: Mapping[int, int] | None = None


class _Scope:
    """The steps that make tables, in order. Inside a recursion these are the steps of each wave."""

    def __init__(self, outside: "_Scope | None" = None, variable: algebra.Variable | None = None) -> None:
        self.steps: list[Callable[[], None]] = []
        self._outside, self.variable = outside, variable

    def of(self, node: Node) -> "_Scope":
        """Return the outermost scope in which a node's rows can be made."""
        scope = self
        while scope._outside is not None and not scope.changes(node):
            scope = scope._outside
        return scope

    def changes(self, node: Node) -> bool:
        """Return whether a node's rows may differ from wave to wave."""
        return self.variable is not None and depends_on(node, self.variable)

    def make(self, function: Callable[[], Any], table: WholeTable | None = None) -> WholeTable:
        """Add a step that sets a table's rows to the result of `function`, and return the table."""
        made = WholeTable() if table is None else table

        def step() -> None:
            made.rows = function()

        self.steps.append(step)
        return made

    def run(self) -> None:
        """Run all steps, which make the tables."""
        for step in self.steps:
            step()


class BatchCompiler:
    """Compiles the nodes of one suitable statement to functions over the rows of its tables."""

    def __init__(self, tables: Mapping[str, Rows]) -> None:
        self._tables = tables
        self._shared: dict[Node, _Made] = {}
        self._variables: dict[tuple[int, str], _Made] = {}

    def answer(self, node: Node) -> list[tuple[Any, ...]]:
        """Return the rows of a node. Raises: DataError for a row, UndecidedError if a recursion may not end."""
        scope = _Scope()
        made = self._whole(node, scope)
        scope.run()
        rows = made.table.rows
        return list(chain.from_iterable(repeat(row, weight) for row, weight in rows) if made.weighted else rows)

    # Loops over single rows

    def _stream(self, function: RowFunction, node: Node, needed: Iterable[int], scope: _Scope) -> RowCode:
        """Write loops over a node's rows, and return the code of the needed columns."""
        match node:
            case algebra.Project():
                return self._project(function, node, needed, scope)
            case algebra.Filter():
                needed = {*needed, *_read(node.conditions)}
                stream = self._stream(function, node.input, needed, scope)
                function.unless(f"not ({function.truth(node.conditions, stream.columns)})")
                return stream
            case algebra.Join():
                return self._join(function, node, needed, scope)
            case algebra.Semi():
                return self._semi(function, node, needed, scope)
            case algebra.Series() | algebra.InWindows():
                stream = self._row(function, self._stream(function, node.input, _all(node.input), scope), node.input)
                name = function.name(_repeating(node))
                row, _ = function.each(f"{name}({stream.whole})")
                return _columns_of(row, needed, stream.weight)
            case _:
                made = self._made(node, needed, scope)
                row, weight = function.each(function.table(made.table), weighted=made.weighted)
                if made.places is None:
                    return _columns_of(row, needed, weight)
                return RowCode({i: f"{row}[{place}]" for i, place in made.places.items()}, weight)

    def _project(self, function: RowFunction, node: algebra.Project, needed: Iterable[int], scope: _Scope) -> RowCode:
        """Write a projection. An expression that is not cheap is computed here, and only once."""
        exprs = {i: node.exprs[i] for i in needed}
        stream = self._stream(function, node.input, _read(exprs.values()), scope)
        columns = {i: function.value(expr, stream.columns) for i, expr in exprs.items()}
        kept = {i: code if is_cheap(exprs[i]) else function.kept(code) for i, code in columns.items()}
        return RowCode(kept, stream.weight, stream.whole if _is_input(node) else "")

    def _join(self, function: RowFunction, node: algebra.Join, needed: Iterable[int], scope: _Scope) -> RowCode:
        width, needed = len(node.left.columns), set(needed)
        ours, theirs = {i for i in needed if i < width}, {i - width for i in needed if i >= width}
        sides = (node.left, node.left_key, ours, 0), (node.right, node.right_key, theirs, width)
        (one, key, read, start), (other, other_key, looked_up, other_start) = (
            sides[::-1] if scope.changes(node.right) else sides
        )
        stream = self._stream(function, one, {*read, *_read(key)}, scope)
        if function.loops >= MOST_LOOPS:
            stream = self._cut(function, stream, scope)
        columns = {start + i: stream.columns[i] for i in read}
        code = _key(function, key, stream)
        values = sorted(looked_up)
        index, weighted = self._index(other, other_key, values, scope)
        if not values:
            matches = function.kept(f"{function.table(index, '.get')}({code})")
            function.unless(f"{matches} is None")
            return RowCode(columns, stream.times(matches))
        rows = f"{function.table(index, '.get')}({code}, ())" if key else function.table(index)
        row, _ = function.each(rows)
        single = len(values) == 1 and not weighted
        columns |= {other_start + i: row if single else f"{row}[{place}]" for place, i in enumerate(values)}
        return RowCode(columns, stream.times(f"{row}[-1]" if weighted else ""))

    def _cut(self, function: RowFunction, stream: RowCode, scope: _Scope) -> RowCode:
        """Put the rows that the loops make so far into a table, and begin the function again with a loop over it."""
        places = list(stream.columns)
        function.line(f"add({_with_weight(row_of([stream.columns[i] for i in places]), stream.weight)})")
        table = scope.make(function.function("", _ADDED, _GIVEN))
        function.begin_again()
        row, weight = function.each(function.table(table), weighted=bool(stream.weight))
        return RowCode({i: f"{row}[{place}]" for place, i in enumerate(places)}, weight)

    def _semi(self, function: RowFunction, node: algebra.Semi, needed: Iterable[int], scope: _Scope) -> RowCode:
        stream = self._stream(function, node.left, {*needed, *_read(node.left_key)}, scope)
        inside, keys = scope.of(node.right), RowFunction()
        right = self._stream(keys, node.right, _read(node.right_key), inside)
        code = _key(keys, node.right_key, right, nulls=node.nulls)
        keys.line(f"add({code})")
        there = inside.make(keys.function("", ("made = set()", "add = made.add"), _GIVEN))
        negation = "" if isinstance(node, algebra.Anti) else "not "
        function.unless(f"{_key(function, node.left_key, stream, nulls=True)} {negation}in {function.table(there)}")
        return stream

    def _index(self, node: Node, key: Sequence[Expr], values: list[int], scope: _Scope) -> tuple[WholeTable, bool]:
        """Index rows by key: a list of values for each key or, if no values are asked for, the number of rows.

        Returns the table, and whether each value ends with a weight. Without a key the table is a list of all values.
        """
        scope, function = scope.of(node), RowFunction()
        stream = self._stream(function, node, {*values, *_read(key)}, scope)
        code = _key(function, key, stream, nulls=False)
        codes = [stream.columns[i] for i in values] + ([stream.weight] if stream.weight else [])
        value = codes[0] if len(codes) == 1 else row_of(codes)
        if not values:
            place = function.kept(code, "k")
            function.line(f"made[{place}] = made.get({place}, 0) + {stream.weight or 1}")
            return scope.make(function.function("", ("made = {}",), _GIVEN)), True
        if not key:
            function.line(f"add({value})")
            return scope.make(function.function("", _ADDED, _GIVEN)), bool(stream.weight)
        place = function.kept(code, "k")
        function.line(f"if {place} in made:")
        function.line(f"    made[{place}].append({value})")
        function.line("else:")
        function.line(f"    made[{place}] = [{value}]")
        return scope.make(function.function("", ("made = {}",), _GIVEN)), bool(stream.weight)

    def _row(self, function: RowFunction, stream: RowCode, node: Node) -> RowCode:
        """Return the code of the columns together with the code of the whole row."""
        whole = stream.whole or row_of([stream.columns[i] for i in range(len(node.columns))])
        return RowCode(stream.columns, stream.weight, whole)

    # Whole tables

    def _whole(self, node: Node, scope: _Scope) -> _Made:
        """Return a table of a node with all columns in their order."""
        while isinstance(node, algebra.Project) and _is_input(node):
            node = node.input
        if isinstance(node, _FLOWING):
            return self._listed([node], _all(node), scope)
        return self._made(node, _all(node), scope)

    def _listed(self, nodes: Sequence[Node], columns: Sequence[int], scope: _Scope) -> _Made:
        """Return a table of the rows of all `nodes`, with these columns only."""
        parts = []
        for node in nodes:
            function = RowFunction()
            stream = self._stream(function, node, columns, scope)
            parts.append((function, stream, self._row_with(stream, columns, node)))
        weighted = any(stream.weight for _, stream, _ in parts)
        made = []
        for function, stream, row in parts:
            function.line(f"add({_with_weight(row, stream.weight or '1') if weighted else row})")
            made.append(function.function("", _ADDED, _GIVEN))
        is_whole = all(list(columns) == _all(node) for node in nodes)
        places = None if is_whole else {i: place for place, i in enumerate(columns)}
        if len(made) == 1:
            return _Made(scope.make(made[0]), weighted, places)
        return _Made(scope.make(lambda: [row for function in made for row in function()]), weighted, places)

    def _row_with(self, stream: RowCode, columns: Sequence[int], node: Node) -> str:
        if stream.whole and len(columns) == len(node.columns):
            return stream.whole
        return row_of([stream.columns[i] for i in columns])

    def _made(self, node: Node, needed: Iterable[int], scope: _Scope) -> _Made:
        """Return a table of a node, with at least the needed columns."""
        scope = scope.of(node)
        match node:
            case algebra.NamedTable():
                return _Made(WholeTable(self._tables[node.table]))
            case algebra.Rows():
                return _Made(WholeTable(node.rows))
            case algebra.Variable():
                return self._variables[id(node.of), node.binding]
            case algebra.Shared():
                if node not in self._shared:
                    self._shared[node] = self._whole(node.input, scope)
                return self._shared[node]
            case algebra.Union():
                return self._listed(node.inputs, sorted(needed), scope)
            case algebra.Distinct():
                return _Made(self._set(node.input, scope))
            case algebra.Except() | algebra.Intersect():
                return self._compared(node, scope)
            case algebra.Group() | algebra.InSessions():
                return self._group(node, scope) if isinstance(node, algebra.Group) else self._sessions(node, scope)
            case algebra.Limit():
                return self._limit(node, scope)
            case algebra.Loop():
                return self._loop(node, scope)
            case _:
                raise NotImplementedError(type(node).__name__)

    def _set(self, node: Node, scope: _Scope) -> WholeTable:
        """Return a table of a node's rows, each once."""
        function = RowFunction()
        stream = self._row(function, self._stream(function, node, _all(node), scope), node)
        function.line(f"add({stream.whole})")
        return scope.make(function.function("", ("made = set()", "add = made.add"), _GIVEN))

    def _weights(self, node: Node, scope: _Scope) -> WholeTable:
        """Return a table of a node's rows with their weights, as a dict."""
        function = RowFunction()
        stream = self._row(function, self._stream(function, node, _all(node), scope), node)
        row = function.kept(stream.whole)
        function.line(f"made[{row}] = made.get({row}, 0) + {stream.weight or 1}")
        return scope.make(function.function("", ("made = {}",), _GIVEN))

    def _compared(self, node: algebra.Except | algebra.Intersect, scope: _Scope) -> _Made:
        if not node.all:
            left, right = self._set(node.left, scope), self._set(node.right, scope)
            if isinstance(node, algebra.Except):
                return _Made(scope.make(lambda: left.rows - right.rows))
            return _Made(scope.make(lambda: {row for row in left.rows if row in right.rows}))
        ours, theirs = self._weights(node.left, scope), self._weights(node.right, scope)
        both: Callable[[Counter[Any], Counter[Any]], Counter[Any]]
        both = Counter.__sub__ if isinstance(node, algebra.Except) else Counter.__and__
        return _Made(scope.make(lambda: both(Counter(ours.rows), Counter(theirs.rows)).items()), weighted=True)

    def _group(self, node: algebra.Group, scope: _Scope) -> _Made:
        arguments = [found.argument for found in node.aggregates]
        given = [argument for argument in arguments if argument is not None]
        function = RowFunction()
        stream = self._stream(function, node.input, _read((*node.keys, *given)), scope)
        key = function.kept(row_of([function.value(expr, stream.columns) for expr in node.keys]))
        value = row_of(["None" if one is None else function.value(one, stream.columns) for one in arguments])
        _gather(function, key, function.kept(value), stream.weight)
        groups = scope.make(function.function("", ("made = {}" if node.keys else "made = {(): {}}",), _GIVEN))
        types = [None if argument is None else argument.type for argument in arguments]
        return _reduced(group_function(node.aggregates, types), groups, scope)

    def _sessions(self, node: algebra.InSessions, scope: _Scope) -> _Made:
        function = RowFunction()
        stream = self._row(function, self._stream(function, node.input, _all(node.input), scope), node.input)
        key = function.kept(row_of([function.value(expr, stream.columns) for expr in node.keys]))
        _gather(function, key, function.kept(stream.whole), stream.weight)
        groups = scope.make(function.function("", ("made = {}",), _GIVEN))
        return _reduced(session_windows(node.sessions), groups, scope)

    def _limit(self, node: algebra.Limit, scope: _Scope) -> _Made:
        made = self._whole(node.input, scope)
        table, first = made.table, node.first
        return _Made(scope.make(lambda: first.of(table.rows if made.weighted else zip(table.rows, repeat(1)))))

    def _loop(self, node: algebra.Loop, scope: _Scope) -> _Made:
        inside, frontier, function = _Scope(scope, node.variable), WholeTable(), RowFunction()
        seed = (self._set if node.distinct else self._weights)(node.seed, scope)
        self._variables[id(node.variable.of), node.variable.binding] = _Made(frontier, not node.distinct)
        stream = self._row(function, self._stream(function, node.step, _all(node.step), inside), node.step)
        row = function.kept(stream.whole)
        texts = [i for i, found in enumerate(node.columns) if found.type.kind == "text"]
        if not node.distinct:
            function.line(f"made[{row}] = made.get({row}, 0) + {stream.weight or 1}")
            made = _wave(inside, function.function("", ("made = {}",), _GIVEN))
            table = scope.make(lambda: bag_of_waves(seed.rows, frontier, made, texts).items())
            return _Made(table, weighted=True)
        function.line(f"if {row} not in found:")
        function.line(f"    keep({row})")
        function.line(f"    add({row})")
        step = _wave(inside, function.function("found", (*_ADDED, "keep = found.add"), _GIVEN))
        ends = edges_of(node) is not None
        return _Made(scope.make(partial(_set_of_waves, seed, frontier, step, texts, ends)))


_FLOWING = (
    algebra.Project,
    algebra.Filter,
    algebra.Join,
    algebra.Semi,
    algebra.Series,
    algebra.InWindows,
)
"""The nodes that are loops in the function of the node downstream, and make no table."""


def _set_of_waves(seed: WholeTable, frontier: WholeTable, step: Any, texts: Sequence[int], ends: bool) -> set[Any]:
    return set_of_waves(seed.rows, frontier, step, texts, ends=ends)


def _wave(scope: _Scope, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that first makes the tables of the scope and then calls `function`."""
    if not scope.steps:
        return function

    def wave(*arguments: Any) -> Any:
        scope.run()
        return function(*arguments)

    return wave


def _reduced(function: Callable[[Any, Mapping[Any, int]], list[Any]], groups: WholeTable, scope: _Scope) -> _Made:
    """Return a table of the rows that a function makes from each key and its values."""
    return _Made(scope.make(lambda: [row for key, values in groups.rows.items() for row in function(key, values)]))


def _gather(function: RowFunction, key: str, value: str, weight: str) -> None:
    """Write the code that adds a value with its weight to the group of its key."""
    function.line(f"values = made.get({key})")
    function.line("if values is None:")
    function.line(f"    values = made[{key}] = {{}}")
    function.line(f"values[{value}] = values.get({value}, 0) + {weight or 1}")


def _repeating(node: algebra.Series | algebra.InWindows) -> Callable[[Any], Iterable[Any]]:
    """Return the function that makes the node's rows from a row of its input."""
    if isinstance(node, algebra.InWindows):
        return fixed_windows(node.windows)
    names = [f"row[{i}]" for i in range(len(node.input.columns))]
    return series_function(rows_of("row", names, node.bounds))


def _key(function: RowFunction, key: Sequence[Expr], stream: RowCode, nulls: bool = True) -> str:
    """Return the code of a key: its only value, or a tuple. Unless `nulls`, rows whose key has a null are skipped."""
    codes = [function.value(expr, stream.columns) for expr in key]
    if not nulls:
        codes = [code if is_cheap(expr) else function.kept(code, "k") for code, expr in zip(codes, key, strict=True)]
        tests = [
            f"{code} is None"
            for code, expr in zip(codes, key, strict=True)
            if not (expr.op == "literal" and expr.value is not None)
        ]
        if tests:
            function.unless(" or ".join(tests))
    return codes[0] if len(codes) == 1 else row_of(codes)


def _columns_of(row: str, needed: Iterable[int], weight: str) -> RowCode:
    return RowCode({i: f"{row}[{i}]" for i in needed}, weight, row)


def _with_weight(row: str, weight: str) -> str:
    return f"({row}, {weight})" if weight else row


def _all(node: Node) -> list[int]:
    return list(range(len(node.columns)))


def _read(exprs: Iterable[Expr]) -> set[int]:
    """Return the columns that expressions read."""
    return {i for expr in exprs for i in columns_of(expr)}


def _is_input(node: algebra.Project) -> bool:
    """Return whether a projection only renames columns."""
    return len(node.exprs) == len(node.input.columns) and all(
        expr.op == "column" and expr.value == i for i, expr in enumerate(node.exprs)
    )
