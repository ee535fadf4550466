"""SQL's operators on numbers. The range of integers is checked, numerics are exact, and NaN is the largest value."""

import decimal
import math
from typing import Any

from eddy.errors import DataError
from eddy.topology.sql.casts import CONTEXT, one_nan
from eddy.topology.sql.value_limits import MOST_DIGITS

__all__ = [
    "divide_float",
    "divide_int",
    "divide_numeric",
    "exponential",
    "float_equal",
    "float_less",
    "float_less_equal",
    "in_range",
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


_WIDE = decimal.Context(prec=4 * MOST_DIGITS, traps=[])
"""A context for intermediate results, which have more digits than a numeric."""


def _check(divisor: Any) -> None:
    if not divisor:
        raise DataError("division by zero; another divisor is needed. Make it null where it is 0: x / nullif(y, 0)")


def divide_int(dividend: int, divisor: int) -> int:
    """Return the quotient, truncated towards 0."""
    _check(divisor)
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) is (divisor < 0) else -quotient


def modulo(dividend: int, divisor: int) -> int:
    """Return the remainder, with the sign of the dividend."""
    _check(divisor)
    rest = abs(dividend) % abs(divisor)
    return -rest if dividend < 0 else rest


def in_range(number: decimal.Decimal) -> decimal.Decimal:
    """Return a computed numeric. Raises: DataError if it has too many digits before its point."""
    if number.is_finite() and (not number or number.adjusted() < MOST_DIGITS):
        return number
    raise DataError(f"numeric out of range; at most {MOST_DIGITS:,} digits before the point are possible")


def divide_numeric(dividend: decimal.Decimal, divisor: decimal.Decimal) -> decimal.Decimal:
    """Return the quotient, to 39 digits."""
    _check(divisor)
    return in_range(CONTEXT.divide(dividend, divisor))


def modulo_numeric(dividend: decimal.Decimal, divisor: decimal.Decimal) -> decimal.Decimal:
    """Return the remainder, with the sign of the dividend."""
    _check(divisor)
    found = CONTEXT.remainder(dividend, divisor)
    return found if found.is_finite() else in_range(CONTEXT.plus(_WIDE.remainder(dividend, divisor)))


def divide_float(dividend: float, divisor: float) -> float:
    """Return the quotient."""
    _check(divisor)
    return one_nan(dividend / divisor)


def float_equal(one: float, other: float) -> bool:
    """Return whether two floats are equal; NaN is equal to itself."""
    return one == other or (one != one and other != other)


def float_less(one: float, other: float) -> bool:
    """Return whether the first float is less than the second; NaN is the greatest."""
    return one < other or (other != other and one == one)


def float_less_equal(one: float, other: float) -> bool:
    """Return whether the first float is less than the second, or equal to it; NaN is the greatest."""
    return not float_less(other, one)


def round_numeric(value: decimal.Decimal, digits: int = 0) -> decimal.Decimal:
    """Round to `digits` decimals or, if `digits` is negative, to a power of ten. Halves are rounded away from 0."""
    return _quantized(value, digits, decimal.ROUND_HALF_UP)


def truncate_numeric(value: decimal.Decimal, digits: int = 0) -> decimal.Decimal:
    """Truncate a number after `digits` decimals."""
    return _quantized(value, digits, decimal.ROUND_DOWN)


def _quantized(value: decimal.Decimal, digits: int, rounding: str) -> decimal.Decimal:
    if digits < -MOST_DIGITS:  # a power of ten that is more than twice any numeric
        return decimal.Decimal(0)
    step = decimal.Decimal((0, (1,), -digits))
    found = value.quantize(step, rounding, CONTEXT)
    if not found.is_finite():  # the result has more than 39 digits
        exponent = value.as_tuple().exponent
        found = value if isinstance(exponent, int) and exponent >= -digits else value.quantize(step, rounding, _WIDE)
    return in_range(found)


def round_float(value: float) -> float:
    """Round to a whole number; halves are rounded to the even number."""
    return float(round(value)) if math.isfinite(value) else value


def square_root(value: float) -> float:
    """Return the square root."""
    if value < 0:
        raise DataError(f"square root of {value}; 0 or more is needed")
    return math.sqrt(value)


def square_root_numeric(value: decimal.Decimal) -> decimal.Decimal:
    """Return the square root, to 39 digits."""
    if value < 0:
        raise DataError(f"square root of {value}; 0 or more is needed")
    return CONTEXT.sqrt(value)


def logarithm(value: float) -> float:
    """Return the natural logarithm."""
    if value <= 0:
        raise DataError(f"logarithm of {value}; more than 0 is needed")
    return math.log(value)


def exponential(value: float) -> float:
    """Return e to the power of the value."""
    try:
        return math.exp(value)
    except OverflowError as error:
        raise DataError(f"exp({value}) is out of range; a smaller number is needed") from error


def power(base: float, exponent: float) -> float:
    """Return the base to the power of the exponent."""
    try:
        found = base**exponent
    except (OverflowError, ZeroDivisionError) as error:
        raise DataError(f"power({base}, {exponent}): {error}") from error
    if isinstance(found, complex):
        raise DataError(f"power({base}, {exponent}) is not a real number; a whole exponent or a base above 0 is needed")
    return one_nan(float(found))


def power_numeric(base: decimal.Decimal, exponent: decimal.Decimal) -> decimal.Decimal:
    """Return the base to the power of the exponent, to 39 digits."""
    found = CONTEXT.power(base, exponent)
    if not found.is_finite():
        raise DataError(f"power({base}, {exponent}) is not a number; a whole exponent or a base above 0 is needed")
    return in_range(found)
