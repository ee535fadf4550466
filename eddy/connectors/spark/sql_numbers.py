"""SQL's numbers for `verify`, apart from a worker's code: ranges, comparisons, arithmetic and functions.

Numerics are computed exactly and rounded once, to 39 digits, halves away from 0; NaN is the greatest float.
"""

import decimal
import math
import operator
import struct
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from eddy.errors import DataError
from eddy.topology.sql.value_limits import MOST_DIGITS

__all__ = [
    "BITS",
    "COMPARISONS",
    "FLOATS",
    "FLOAT_FUNCTIONS",
    "NUMERICS",
    "calculated",
    "equal",
    "fitted",
    "in_precision",
    "nearest",
    "place",
    "rounded",
]

NUMERIC = decimal.Context(prec=39, rounding=decimal.ROUND_HALF_UP, traps=[])
BITS = {"smallint": 16, "integer": 32, "bigint": 64}
FLOATS = {"real", "double"}


def place(value: Any) -> Any:
    """Return a value by which a number is sorted: NaN is the greatest, and equal to itself."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


def equal(one: Any, other: Any) -> bool:
    """Whether two values are equal; NaN is equal to itself."""
    return bool(place(one) == place(other))


COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def fitted(value: Any, kind: str) -> Any:
    """Return a whole number if it is in the range of its type. Raises: DataError if it is not."""
    if value is not None and kind in BITS and not -(1 << BITS[kind] - 1) <= value <= (1 << BITS[kind] - 1) - 1:
        raise DataError(f"{kind} out of range; a wider type is needed. Cast its operands: x::numeric")
    return value


def calculated(sign: str, kind: str, args: list[Any]) -> Any:
    """Compute +, -, *, / or % of two numbers of one type, or - of one. Raises: DataError out of range, or by 0."""
    if len(args) == 1:
        (value,) = args
        return NUMERIC.minus(value) if kind == "numeric" else fitted(-value, kind)
    one, other = args
    if sign in "/%" and other == 0:
        raise DataError("division by zero; another divisor is needed. Make it null where it is 0: x / nullif(y, 0)")
    if kind in BITS:
        return fitted(_whole(sign, one, other), kind)
    if kind == "numeric":
        return _exact(sign, one, other)
    return in_precision(_FLOATING[sign](one, other), kind)


def _whole(sign: str, one: int, other: int) -> int:
    """Compute with whole numbers. Division truncates, and a remainder has the sign of the dividend."""
    if sign in "+-*":
        return int(_FLOATING[sign](one, other))
    quotient = one // other
    if quotient < 0 and quotient * other != one:
        quotient += 1
    return quotient if sign == "/" else one - quotient * other


def _exact(sign: str, one: decimal.Decimal, other: decimal.Decimal) -> decimal.Decimal:
    if sign == "%":
        left, right = Fraction(one), Fraction(other)
        return nearest(left - right * math.trunc(left / right))
    return _in_range(nearest(_FLOATING[sign](Fraction(one), Fraction(other))))


def _in_range(number: decimal.Decimal) -> decimal.Decimal:
    if abs(number) < decimal.Decimal(10) ** MOST_DIGITS:
        return number
    raise DataError(f"numeric out of range; at most {MOST_DIGITS:,} digits before the point are possible")


def nearest(number: Fraction) -> decimal.Decimal:
    """Return the nearest numeric."""
    return NUMERIC.divide(decimal.Decimal(number.numerator), decimal.Decimal(number.denominator))


_FLOATING: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def in_precision(value: float, kind: str) -> float:
    """Round a number to the precision of its type; all NaNs become one object."""
    if kind == "real" and math.isfinite(value):
        try:
            (value,) = struct.unpack("<f", struct.pack("<f", value))
        except OverflowError as error:
            raise DataError("real out of range; a wider type is needed. Cast its operands: x::numeric") from error
    return math.nan if math.isnan(value) else value


def rounded(value: decimal.Decimal, digits: int, rounding: str) -> decimal.Decimal:
    """Round a numeric to `digits` decimals; if `digits` is negative, to a power of ten."""
    if -digits > MOST_DIGITS:
        return decimal.Decimal(0)
    step = decimal.Decimal((0, (1,), -digits))
    found = value.quantize(step, rounding, NUMERIC)
    if found.is_finite():
        return _in_range(found)
    _, figures, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent >= -digits:
        return value
    return _in_range(value.quantize(step, rounding, decimal.Context(prec=len(figures) + 2)))


def _power(base: float, exponent: float) -> float:
    try:
        found = base**exponent
    except (OverflowError, ZeroDivisionError) as error:
        raise DataError(f"power({base}, {exponent}): {error}") from error
    if isinstance(found, complex):
        raise DataError(f"power({base}, {exponent}) is not a real number")
    return float(found)


def _exponential(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError as error:
        raise DataError(f"exp({value}) is out of range; a smaller number is needed") from error


def _numeric_power(base: decimal.Decimal, exponent: decimal.Decimal) -> decimal.Decimal:
    found = NUMERIC.power(base, exponent)
    if not found.is_finite():
        raise DataError(f"power({base}, {exponent}) is not a number")
    return _in_range(found)


def _root(value: Any) -> Any:
    if value < 0:
        raise DataError(f"square root of {value}; 0 or more is needed")
    return math.sqrt(value) if isinstance(value, float) else NUMERIC.sqrt(value)


def _logarithm(value: float) -> float:
    if not value > 0 and not math.isnan(value):
        raise DataError(f"logarithm of {value}; more than 0 is needed")
    return math.log(value)


def _floating(whole: Callable[[float], int]) -> Callable[[float], float]:
    return lambda value: float(whole(value)) if math.isfinite(value) else value


NUMERICS: Mapping[str, Callable[..., Any]] = {
    "abs": lambda value: NUMERIC.plus(value.copy_abs()),
    "sign": lambda value: decimal.Decimal((value > 0) - (value < 0)),
    "floor": lambda value: decimal.Decimal(math.floor(value)),
    "ceil": lambda value: decimal.Decimal(math.ceil(value)),
    "round": lambda value, digits=0: rounded(value, digits, decimal.ROUND_HALF_UP),
    "trunc": lambda value, digits=0: rounded(value, digits, decimal.ROUND_DOWN),
    "sqrt": _root,
    "power": _numeric_power,
}
FLOAT_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "sign": lambda value: float((value > 0) - (value < 0)),
    "floor": _floating(math.floor),
    "ceil": _floating(math.ceil),
    "round": _floating(round),
    "trunc": _floating(math.trunc),
    "sqrt": _root,
    "ln": _logarithm,
    "exp": _exponential,
    "power": _power,
}
"""Functions of floats; `abs` accepts whole numbers, too."""
