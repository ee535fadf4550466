"""SQL's expressions, evaluated a second time: by walking their trees, with functions written for that.

A worker compiles an expression to Python; the compiled function has the expression in its attribute `written`. `own`
makes a second function from `written`. The two share no code for operators, functions, casts and aggregates. Parsing,
binding and the choice of types happen once, when the topology is built.

Null is None. A call with a null argument returns null, except for the functions in `_EXTREMES`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eddy.connectors.spark.sql_aggregates import Aggregates
from eddy.connectors.spark.sql_casts import cast
from eddy.connectors.spark.sql_numbers import COMPARISONS, FLOAT_FUNCTIONS, NUMERICS, calculated, equal, fitted, place
from eddy.connectors.spark.sql_texts import TEXT_FUNCTIONS
from eddy.connectors.spark.sql_windows import OwnSessions, OwnWindows
from eddy.errors import DataError
from eddy.topology.sql.aggregates import Grouped
from eddy.topology.sql.expressions import Expr, Written
from eddy.topology.sql.folds import GroupRow
from eddy.topology.sql.moment_of_row import MomentOfRow
from eddy.topology.sql.row_windows import FixedWindows, SessionsOfRows
from eddy.topology.sql.series import SeriesBounds
from eddy.topology.sql.types import Type
from eddy.topology.sql.value_limits import MOST_NUMBERS

__all__ = ["own"]

Cells = Sequence[Any]


def own(function: Any) -> Any:
    """A function that evaluates the expressions of a function made of some; any other function as it is."""
    if isinstance(function, MomentOfRow):
        return _BoundOfRow(own(function.values), function.first)
    match getattr(function, "written", None):
        case Written() as written:
            return _Expressions.of(written)
        case SeriesBounds(bounds):
            return _Series(_Expressions.of(bounds))
        case Grouped() as grouped:
            return Aggregates.of(grouped)
        case GroupRow(grouped):
            return Aggregates.of(grouped).row
        case FixedWindows() as windows:
            return OwnWindows(windows)
        case SessionsOfRows() as sessions:
            return OwnSessions(sessions)
        case _:
            return function


_FIRST, _LAST = 0, 253_402_300_799_999
"""The moments within which rows can be true for a while: 1970 and the end of the year 9999."""


@dataclass(frozen=True)
class _BoundOfRow:
    """The earliest or the latest one of the moments of a row, or None for no bound."""

    moments: Callable[[Any, Any], tuple[int | None, ...]]
    earliest: bool

    def __call__(self, row: Any, value: Any) -> int | None:
        found = self.moments(row, value)
        if any(moment is None for moment in found):
            return _FIRST if self.earliest else _LAST
        ordered = sorted(moment for moment in found if moment is not None)
        if self.earliest:
            return None if ordered[0] > _LAST else max(_FIRST, ordered[0])
        return None if ordered[-1] <= _FIRST else min(_LAST, ordered[-1])


@dataclass(frozen=True)
class _Tree:
    """An expression without its functions: of a call the name."""

    op: str
    type: Type
    args: tuple["_Tree", ...]
    value: Any
    where: str

    @classmethod
    def of(cls, expr: Expr) -> "_Tree":
        """The tree of an expression of `topology/sql`."""
        type_, value, args = expr.type, expr.value, tuple(map(cls.of, expr.args))
        if expr.op == "call":
            type_, value = expr.value.target or type_, expr.value.name
        return cls(expr.op, type_, args, value, expr.where)


@dataclass(frozen=True)
class _Expressions:
    """A function of rows: the values of expressions as tuples, or whether all are true."""

    parameters: tuple[str, ...]
    columns: tuple[tuple[int, int] | None, ...]
    """By column, its parameter and its place there; None where it is not read."""
    shape: tuple[tuple[_Tree, ...] | None, ...]
    test: bool

    @classmethod
    def of(cls, written: Written) -> "_Expressions":
        """The function of what was written."""
        parameters = tuple(written.parameters.replace(" ", "").split(","))
        columns = []
        for text in written.columns:
            found = re.fullmatch(r"(\w+)\[(\d+)\]", text)
            columns.append((parameters.index(found[1]), int(found[2])) if found else None)
        shape = tuple(None if exprs is None else tuple(map(_Tree.of, exprs)) for exprs in written.shape)
        return cls(parameters, tuple(columns), shape, written.test)

    def __call__(self, *args: Any) -> Any:
        """Evaluate. Raises: DataError naming the place in the text."""
        cells = [None if at is None else args[at[0]][at[1]] for at in self.columns]
        if self.test:
            (exprs,) = self.shape
            return all(_value(expr, cells) is True for expr in exprs or ())
        whole = args[self.parameters.index("row")] if "row" in self.parameters else None
        made = [whole if exprs is None else tuple(_value(expr, cells) for expr in exprs) for exprs in self.shape]
        return made[0] if len(made) == 1 else tuple(made)


@dataclass(frozen=True)
class _Series:
    """A row with each number of its series appended."""

    bounds: _Expressions

    def __call__(self, row: Any) -> list[Any]:
        """The rows."""
        first, last, step = self.bounds(row)
        if None in (first, last, step):
            return []
        if not step:
            raise DataError("generate_series by steps of 0; another number is needed")
        if (many := (last - first) // step + 1) > MOST_NUMBERS:
            raise DataError(f"generate_series has {many:,} numbers; at most {MOST_NUMBERS:,} are possible")
        rows = []
        while (first <= last) if step > 0 else (first >= last):
            rows.append((*row, first))
            first += step
        return rows


def _value(tree: _Tree, cells: Cells) -> Any:
    match tree.op:
        case "column":
            return cells[tree.value]
        case "literal":
            return tree.value
        case "call":
            return _call(tree, cells)
        case "and" | "or":
            return _of_three(tree.op == "or", (_value(arg, cells) for arg in tree.args))
        case "not":
            found = _value(tree.args[0], cells)
            return None if found is None else not found
        case "is-null":
            return _value(tree.args[0], cells) is None
        case "distinct":
            one, other = (_value(arg, cells) for arg in tree.args)
            if one is None or other is None:
                return one is not other
            return not equal(one, other)
        case "case":
            *pairs, otherwise = tree.args
            found = next(
                (then for when, then in zip(pairs[::2], pairs[1::2], strict=True) if _value(when, cells) is True),
                otherwise,
            )
            return _value(found, cells)
        case "coalesce":
            return next((found for arg in tree.args if (found := _value(arg, cells)) is not None), None)
        case _:
            raise AssertionError(tree.op)


def _of_three(decisive: bool, values: Iterable[bool | None]) -> bool | None:
    """The first value that decides; else null if one is null."""
    unknown = False
    for found in values:
        if found is decisive:
            return decisive
        unknown = unknown or found is None
    return None if unknown else not decisive


def _call(tree: _Tree, cells: Cells) -> Any:
    args = [_value(arg, cells) for arg in tree.args]
    if tree.value not in _EXTREMES and any(arg is None for arg in args):
        return None
    try:
        return _called(tree, args)
    except DataError as error:
        raise DataError(f"sql {tree.where}: {error}") from error


def _called(tree: _Tree, args: list[Any]) -> Any:
    name = tree.value
    if name == "cast":
        (arg,) = tree.args
        return cast(args[0], arg.type, tree.type)
    if name in COMPARISONS:
        return COMPARISONS[name](place(args[0]), place(args[1]))
    if name in set("+-*/%"):
        return calculated(name, tree.args[0].type.kind, args)
    if name in {"abs", "sign", "floor", "ceil", "round", "trunc", "sqrt", "power"} and tree.type.kind == "numeric":
        return NUMERICS[name](*args)
    return fitted(_FUNCTIONS[name](*args), tree.args[0].type.kind if name == "abs" else tree.type.kind)


def _extreme(choose: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: choose((value for value in values if value is not None), default=None)


_EXTREMES: Mapping[str, Callable[..., Any]] = {"greatest": _extreme(max), "least": _extreme(min)}
_FUNCTIONS = {**TEXT_FUNCTIONS, **FLOAT_FUNCTIONS, **_EXTREMES}
