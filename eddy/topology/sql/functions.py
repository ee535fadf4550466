"""The functions and operators of SQL: the types of their arguments and results, and their implementation in Python."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from eddy.errors import DataError
from eddy.topology.sql import arithmetic, string_functions
from eddy.topology.sql.casts import CONTEXT, LIMITS, Cast, cast_function, one_nan
from eddy.topology.sql.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    NUMERIC,
    REAL,
    SMALLINT,
    TEXT,
    UNKNOWN,
    Type,
)

__all__ = ["FUNCTIONS", "Call", "Overload", "arithmetic_call", "cast_call", "comparison_call", "overload_for"]


@dataclass(frozen=True, slots=True)
class Call:
    """The implementation of a call: a Python function, or Python source with `{0}`, `{1}` for its arguments.

    A result of `template` that is not from -limit to limit - 1 is out of range. `raises` says that the function may
    raise DataError; the place in the text is then added to the error. `target` is the type of a cast; the type of the
    cast's expression may be wider.
    """

    name: str
    function: Callable[..., Any] | None = None
    template: str | None = None
    limit: int = 0
    raises: bool = False
    takes_nulls: bool = False
    target: Type | None = None


@dataclass(frozen=True, slots=True)
class Overload:
    """A function for arguments of these types; the last `optional` arguments may be omitted."""

    parameters: tuple[Type, ...]
    result: Type
    call: Call
    optional: int = 0


def cast_call(cast: Cast, target: Type) -> Call:
    """Return the call of a cast."""
    return Call("cast", cast, raises=True, target=target)


def comparison_call(sign: str, type: Type) -> Call:
    """Return the call that compares two values of one type: =, <>, <, <=, > or >=."""
    if type.floating:
        return _FLOAT_COMPARISONS[sign]
    return Call(sign, template=f"{{0}} {_PYTHON_SIGNS.get(sign, sign)} {{1}}")


_PYTHON_SIGNS = {"=": "==", "<>": "!="}
_FLOAT_COMPARISONS = {
    "=": Call("=", arithmetic.float_equal),
    "<>": Call("<>", lambda one, other: not arithmetic.float_equal(one, other)),
    "<": Call("<", arithmetic.float_less),
    "<=": Call("<=", arithmetic.float_less_equal),
    ">": Call(">", lambda one, other: arithmetic.float_less(other, one)),
    ">=": Call(">=", lambda one, other: arithmetic.float_less_equal(other, one)),
}


def arithmetic_call(sign: str, type: Type) -> Call:
    """Return the call of +, -, *, / or % for two numbers of one type, or of `neg` for one number."""
    return _ARITHMETIC[sign, type.kind]


def _arithmetic() -> Iterator[tuple[tuple[str, str], Call]]:
    for kind, limit in LIMITS.items():
        for sign in "+-*":
            yield (sign, kind), Call(sign, template=f"{{0}} {sign} {{1}}", limit=limit)
        yield ("neg", kind), Call("-", template="-{0}", limit=limit)
        yield ("/", kind), Call("/", _bounded(arithmetic.divide_int, limit), raises=True)
        yield ("%", kind), Call("%", arithmetic.modulo, raises=True)
    exact = {"+": CONTEXT.add, "-": CONTEXT.subtract, "*": CONTEXT.multiply}
    for sign, function in exact.items():
        yield (sign, "numeric"), Call(sign, _of_numerics(function), raises=True)
    yield ("neg", "numeric"), Call("-", CONTEXT.minus)
    yield ("/", "numeric"), Call("/", arithmetic.divide_numeric, raises=True)
    yield ("%", "numeric"), Call("%", arithmetic.modulo_numeric, raises=True)
    for single in (False, True):
        kind = "real" if single else "double"
        for sign, floating in _FLOATING.items():
            yield (sign, kind), Call(sign, _rounded(floating, single), raises=True)
        yield ("neg", kind), Call("-", lambda value: -value if value == value else math.nan)


def _of_numerics(function: Callable[[Decimal, Decimal], Decimal]) -> Callable[[Decimal, Decimal], Decimal]:
    """Return the function, changed so: a result that is out of range is an error."""
    return lambda one, other: arithmetic.in_range(function(one, other))


def _bounded(function: Callable[[int, int], int], limit: int) -> Callable[[int, int], int]:
    """Return the function, changed so: the one quotient out of range, the least number divided by -1, is an error."""

    def divide(dividend: int, divisor: int) -> int:
        found = function(dividend, divisor)
        if found == limit:
            raise DataError(f"{dividend} / {divisor} is out of range; a wider type is needed. Cast before: x::numeric")
        return found

    return divide


_FLOATING: dict[str, Callable[[float, float], float]] = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "/": arithmetic.divide_float,
}


def _rounded(function: Callable[[float, float], float], single: bool) -> Callable[[float, float], float]:
    """Return the function, changed so: its result has the type's precision, and every NaN is the same object."""
    if single:
        fit = cast_function(DOUBLE, REAL)
        assert fit is not None
        return lambda one, other: fit(function(one, other))

    return lambda one, other: one_nan(function(one, other))


_ARITHMETIC = dict(_arithmetic())


def overload_for(overloads: Sequence[Overload], types: Sequence[Type]) -> Overload | None:
    """Return the overload that accepts arguments of these types, unchanged or after widening numbers; else None."""
    fitting = [o for o in overloads if len(o.parameters) - o.optional <= len(types) <= len(o.parameters)]
    for fits in (_equal, _widens):
        for found in fitting:
            if all(fits(type, parameter) for type, parameter in zip(types, found.parameters, strict=False)):
                return found
    return None


def _equal(type: Type, parameter: Type) -> bool:
    return type.kind in (parameter.kind, UNKNOWN.kind)


def _widens(type: Type, parameter: Type) -> bool:
    return _equal(type, parameter) or (type.number and parameter.number and type.rank <= parameter.rank)


def _one(name: str, function: Callable[..., Any], result: Type, *parameters: Type, optional: int = 0) -> list[Overload]:
    return [Overload(parameters, result, Call(name, function, raises=True), optional)]


def _each(name: str, **functions: Callable[..., Any]) -> list[Overload]:
    """Return an overload for each type, with arguments and result of this type. Every NaN is the same object."""
    types = {Type(kind): function for kind, function in functions.items()}
    return [
        Overload((type,), type, Call(name, _of_float(function) if type.floating else function, raises=True))
        for type, function in types.items()
    ]


def _of_float(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda value: function(value) if value == value else math.nan


def _absolute(limit: int) -> Callable[[int], int]:
    def absolute(value: int) -> int:
        if value == -limit:
            raise DataError(f"abs({value}) is out of range; a wider type is needed. Cast before: x::numeric")
        return abs(value)

    return absolute


def _sign(value: Any) -> Any:
    return type(value)((value > 0) - (value < 0))


def _whole(rounding: Callable[[float], int]) -> Callable[[float], float]:
    return lambda value: float(rounding(value)) if math.isfinite(value) else value


_ROUNDED_NUMERIC = Call("round", arithmetic.round_numeric, raises=True)
_TRUNCATED_NUMERIC = Call("trunc", arithmetic.truncate_numeric, raises=True)

FUNCTIONS: dict[str, list[Overload]] = {
    "length": _one("length", len, INTEGER, TEXT),
    "lower": _one("lower", str.lower, TEXT, TEXT),
    "upper": _one("upper", str.upper, TEXT, TEXT),
    "initcap": _one("initcap", string_functions.initcap, TEXT, TEXT),
    "reverse": _one("reverse", lambda text: text[::-1], TEXT, TEXT),
    "repeat": _one("repeat", string_functions.repeat, TEXT, TEXT, INTEGER),
    "substring": [
        *_one("substring", string_functions.substring_from, TEXT, TEXT, INTEGER),
        *_one("substring", string_functions.substring, TEXT, TEXT, INTEGER, INTEGER),
    ],
    "position": _one("position", string_functions.position, INTEGER, TEXT, TEXT),
    "left": _one("left", string_functions.left, TEXT, TEXT, INTEGER),
    "right": _one("right", string_functions.right, TEXT, TEXT, INTEGER),
    "trim": _one("trim", string_functions.trimmed(str.strip), TEXT, TEXT, TEXT, optional=1),
    "ltrim": _one("ltrim", string_functions.trimmed(str.lstrip), TEXT, TEXT, TEXT, optional=1),
    "rtrim": _one("rtrim", string_functions.trimmed(str.rstrip), TEXT, TEXT, TEXT, optional=1),
    "replace": _one("replace", string_functions.replace, TEXT, TEXT, TEXT, TEXT),
    "split_part": _one("split_part", string_functions.split_part, TEXT, TEXT, TEXT, INTEGER),
    "starts_with": _one("starts_with", str.startswith, BOOLEAN, TEXT, TEXT),
    "lpad": _one("lpad", string_functions.pad(True), TEXT, TEXT, INTEGER, TEXT, optional=1),
    "rpad": _one("rpad", string_functions.pad(False), TEXT, TEXT, INTEGER, TEXT, optional=1),
    "like": _one("like", string_functions.like(False), BOOLEAN, TEXT, TEXT),
    "ilike": _one("ilike", string_functions.like(True), BOOLEAN, TEXT, TEXT),
    "||": [Overload((TEXT, TEXT), TEXT, Call("||", template="{0} + {1}"))],
    "abs": [
        *(
            Overload((type,), type, Call("abs", _absolute(LIMITS[type.kind]), raises=True))
            for type in (SMALLINT, INTEGER, BIGINT)
        ),
        *_each("abs", numeric=CONTEXT.abs, real=abs, double=abs),
    ],
    "sign": _each("sign", double=_sign, numeric=_sign),
    "floor": _each("floor", double=_whole(math.floor), numeric=lambda value: value.to_integral_value("ROUND_FLOOR")),
    "ceil": _each("ceil", double=_whole(math.ceil), numeric=lambda value: value.to_integral_value("ROUND_CEILING")),
    "round": [
        *_each("round", double=arithmetic.round_float),
        Overload((NUMERIC, INTEGER), NUMERIC, _ROUNDED_NUMERIC, optional=1),
    ],
    "trunc": [
        *_each("trunc", double=_whole(math.trunc)),
        Overload((NUMERIC, INTEGER), NUMERIC, _TRUNCATED_NUMERIC, optional=1),
    ],
    "sqrt": _each("sqrt", double=arithmetic.square_root, numeric=arithmetic.square_root_numeric),
    "ln": _each("ln", double=arithmetic.logarithm),
    "exp": _each("exp", double=arithmetic.exponential),
    "power": [
        *_one("power", arithmetic.power, DOUBLE, DOUBLE, DOUBLE),
        *_one("power", arithmetic.power_numeric, NUMERIC, NUMERIC, NUMERIC),
    ],
}
FUNCTIONS |= {"char_length": FUNCTIONS["length"], "ceiling": FUNCTIONS["ceil"], "substr": FUNCTIONS["substring"]}
FUNCTIONS |= {"btrim": FUNCTIONS["trim"], "strpos": FUNCTIONS["position"], "pow": FUNCTIONS["power"]}
