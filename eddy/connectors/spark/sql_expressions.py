"""SQL's expressions, evaluated a second time: by a walk through their trees, with functions of this package alone.

A worker compiles an expression to Python; the compiled function has the expression in its attribute `written`. `own`
makes a second function from `written`. The two functions share no code for operators, functions, casts and aggregates.
Parsing, binding and the choice of types happen once, when the topology is built.

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
    """Return a second function with the expressions of a compiled function; return other functions unchanged."""
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
"""The first and the last moment from which or until which rows can be true: 1970, and the end of the year 9999."""


@dataclass(frozen=True)
class _BoundOfRow:
    """Computes a bound of a row's validity: the earliest or the latest of its moments, or None for no bound."""

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
    """An expression that can be pickled: the `value` of a call is the function's name, not the compiled function."""

    op: str
    type: Type
    args: tuple["_Tree", ...]
    value: Any
    where: str

    @classmethod
    def of(cls, expr: Expr) -> "_Tree":
        """Make the tree of an expression of `topology/sql`."""
        type_, value, args = expr.type, expr.value, tuple(map(cls.of, expr.args))
        if expr.op == "call":
            type_, value = expr.value.target or type_, expr.value.name
        return cls(expr.op, type_, args, value, expr.where)


@dataclass(frozen=True)
class _Expressions:
    """Returns, for a row, the values of expressions as a tuple; with `test`, whether all values are true."""

    parameters: tuple[str, ...]
    columns: tuple[tuple[int, int] | None, ...]
    """For each column, the number of the parameter that has it, and its index there; None if it is not read."""
    shape: tuple[tuple[_Tree, ...] | None, ...]
    test: bool

    @classmethod
    def of(cls, written: Written) -> "_Expressions":
        """Make the function from the attribute `written` of a compiled function."""
        parameters = tuple(written.parameters.replace(" ", "").split(","))
        columns = []
        for text in written.columns:
            found = re.fullmatch(r"(\w+)\[(\d+)\]", text)
            columns.append((parameters.index(found[1]), int(found[2])) if found else None)
        shape = tuple(None if exprs is None else tuple(map(_Tree.of, exprs)) for exprs in written.shape)
        return cls(parameters, tuple(columns), shape, written.test)

    def __call__(self, *args: Any) -> Any:
        """Evaluate the expressions. Raises: DataError naming the place in the text."""
        cells = [None if at is None else args[at[0]][at[1]] for at in self.columns]
        if self.test:
            (exprs,) = self.shape
            return all(_value(expr, cells) is True for expr in exprs or ())
        whole = args[self.parameters.index("row")] if "row" in self.parameters else None
        made = [whole if exprs is None else tuple(_value(expr, cells) for expr in exprs) for exprs in self.shape]
        return made[0] if len(made) == 1 else tuple(made)


@dataclass(frozen=True)
class _Series:
    """Makes a row for each number of a row's series, with the number appended."""

    bounds: _Expressions

    def __call__(self, row: Any) -> list[Any]:
        """Return the rows with the numbers of the series."""
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
    """Return AND of values if `decisive` is False, OR if it is True, as SQL defines them with null."""
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
