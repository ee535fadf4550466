"""SQL's operators on numbers: integers are checked for range, numerics are exact, NaN is the largest value."""

import decimal
import math
from typing import Any

from eddy.errors import DataError
from eddy.topology.sql.casts import CONTEXT, one_nan

__all__ = [
    "divide_float",
    "divide_int",
    "divide_numeric",
    "float_equal",
    "float_less",
    "float_less_equal",
    "logarithm",
    "modulo",
    "modulo_numeric",
    "power",
    "power_numeric",
    "round_float",
    "round_numeric",
    "square_root",
    "square_root_numeric",
    "truncate_numeric",
]


def _check(divisor: Any) -> None:
    if not divisor:
        raise DataError("division by zero; another divisor is needed. Make it null where it is 0: x / nullif(y, 0)")


def divide_int(dividend: int, divisor: int) -> int:
    """The quotient, truncated towards 0."""
    _check(divisor)
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) is (divisor < 0) else -quotient


def modulo(dividend: int, divisor: int) -> int:
    """The remainder, with the sign of the dividend."""
    _check(divisor)
    rest = abs(dividend) % abs(divisor)
    return -rest if dividend < 0 else rest


def divide_numeric(dividend: decimal.Decimal, divisor: decimal.Decimal) -> decimal.Decimal:
    """The quotient, to 39 digits."""
    _check(divisor)
    return CONTEXT.divide(dividend, divisor)


def modulo_numeric(dividend: decimal.Decimal, divisor: decimal.Decimal) -> decimal.Decimal:
    """The remainder, with the sign of the dividend."""
    _check(divisor)
    return CONTEXT.remainder(dividend, divisor)


def divide_float(dividend: float, divisor: float) -> float:
    """The quotient."""
    _check(divisor)
    return one_nan(dividend / divisor)


def float_equal(one: float, other: float) -> bool:
    """Whether two floats are equal; NaN is equal to itself."""
    return one == other or (one != one and other != other)


def float_less(one: float, other: float) -> bool:
    """Whether the first is less than the second; NaN is the greatest."""
    return one < other or (other != other and one == one)


def float_less_equal(one: float, other: float) -> bool:
    """Whether the second is not less than the first."""
    return not float_less(other, one)


def round_numeric(value: decimal.Decimal, digits: int = 0) -> decimal.Decimal:
    """The number rounded to `digits` decimals, or, if `digits` is negative, to a power of ten; halves are rounded away
    from 0.
    """
    return value.quantize(decimal.Decimal(1).scaleb(-digits), decimal.ROUND_HALF_UP, CONTEXT)


def truncate_numeric(value: decimal.Decimal, digits: int = 0) -> decimal.Decimal:
    """Truncated after `digits` decimals."""
    return value.quantize(decimal.Decimal(1).scaleb(-digits), decimal.ROUND_DOWN, CONTEXT)


def round_float(value: float) -> float:
    """The number rounded to a whole number; halves are rounded to the even one."""
    return float(round(value)) if math.isfinite(value) else value


def square_root(value: float) -> float:
    """The square root."""
    if value < 0:
        raise DataError(f"square root of {value}; 0 or more is needed")
    return math.sqrt(value)


def square_root_numeric(value: decimal.Decimal) -> decimal.Decimal:
    """The square root, to 39 digits."""
    if value < 0:
        raise DataError(f"square root of {value}; 0 or more is needed")
    return CONTEXT.sqrt(value)


def logarithm(value: float) -> float:
    """The natural logarithm."""
    if value <= 0:
        raise DataError(f"logarithm of {value}; more than 0 is needed")
    return math.log(value)


def power(base: float, exponent: float) -> float:
    """The base to the power of the exponent."""
    try:
        found = base**exponent
    except (OverflowError, ZeroDivisionError) as error:
        raise DataError(f"power({base}, {exponent}): {error}") from error
    if isinstance(found, complex):
        raise DataError(f"power({base}, {exponent}) is no real number; a whole exponent or a base above 0 is needed")
    return one_nan(float(found))


def power_numeric(base: decimal.Decimal, exponent: decimal.Decimal) -> decimal.Decimal:
    """The base to the power of the exponent, to 39 digits."""
    found = CONTEXT.power(base, exponent)
    if not found.is_finite():
        raise DataError(f"power({base}, {exponent}) is no number; a whole exponent or a base above 0 is needed")
    return found
