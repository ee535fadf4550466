"""Casts: a Python function for each pair of SQL types between which there is a cast.

Rounding is as in PostgreSQL: halves of floats are rounded to even, halves of numerics away from zero. A value that does
not fit raises DataError, because the fault is in the row, not in the statement.
"""

import datetime
import decimal
import math
import struct
from collections.abc import Callable
from typing import Any

from eddy.errors import DataError
from eddy.topology.sql.types import Type
from eddy.topology.sql.value_limits import MOST_DIGITS

__all__ = [
    "CONTEXT",
    "LIMITS",
    "Cast",
    "cast_function",
    "finite_numeric",
    "numeric_text",
    "one_nan",
    "out_of_range",
    "unchanged",
]

Cast = Callable[[Any], Any]

CONTEXT = decimal.Context(prec=39, rounding=decimal.ROUND_HALF_UP, traps=[])
"""A context with the precision of numerics: the 39 digits of Materialize's type."""

LIMITS = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}
_TRUE = {"t", "true", "y", "yes", "on", "1"}
_FALSE = {"f", "false", "n", "no", "off", "0"}
_SINGLE = struct.Struct(">f")


def out_of_range(kind: str) -> Any:
    """Raise the error for a number that does not fit the type `kind`. Raises: DataError."""
    raise DataError(f"{kind} out of range; a wider type is needed. Cast its operands: x::numeric")


def unchanged(value: Any) -> Any:
    """Return the value: this is the cast between types with the same Python values."""
    return value


def cast_function(source: Type, target: Type) -> Cast | None:
    """Return the function that casts non-null values; `unchanged` if no change is needed; None if there is no cast."""
    if source == target or source.kind == target.kind != "numeric":
        return unchanged
    if source.kind == target.kind and target.precision is None:
        return unchanged
    if target.kind == "text":
        return _to_text(source)
    if target.kind in LIMITS:
        return _to_integer(source, target.kind)
    if target.kind == "numeric":
        return _to_numeric(source, target)
    if target.floating:
        return _to_float(source, target)
    if target.kind == "boolean":
        return bool if source.integral else _boolean if source.kind == "text" else None
    return _timestamp if source.kind == "text" else None


def _to_text(source: Type) -> Cast:
    if source.kind == "numeric":
        return lambda value: numeric_text(value, source.scale)
    return {
        "boolean": lambda value: "true" if value else "false",
        "timestamp": lambda value: value.isoformat(" "),
        "real": _float_text,
        "double": _float_text,
    }.get(source.kind, str)


def numeric_text(value: decimal.Decimal, scale: int | None = None) -> str:
    """Return a numeric as text: with `scale` decimals, or without trailing zeros if `scale` is None."""
    if scale is not None:
        return format(value.quantize(decimal.Decimal(1).scaleb(-scale), context=CONTEXT), "f")
    return format(value.normalize(CONTEXT), "f") if value else "0"


def _float_text(value: float) -> str:
    """Return the shortest text that is read as the same number, in PostgreSQL's form; -0 is written as 0."""
    if not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    text = repr(value or 0.0)
    if "e" not in text and abs(value) >= 1e15:
        digits = text.removesuffix(".0").lstrip("-")
        mantissa = digits.rstrip("0")
        exponent = len(digits) - 1
        text = f"{'-' * (value < 0)}{mantissa[0]}{'.' * (len(mantissa) > 1)}{mantissa[1:]}e+{exponent}"
    return text.removesuffix(".0")


def _to_integer(source: Type, kind: str) -> Cast | None:
    limit = LIMITS[kind]

    def checked(value: int) -> int:
        if -limit <= value < limit:
            return value
        return out_of_range(kind)

    if source.integral:
        return unchanged if LIMITS[source.kind] <= limit else checked
    if source.floating:
        return lambda value: checked(round(value)) if math.isfinite(value) else out_of_range(kind)
    if source.kind == "numeric":
        return lambda value: checked(int(value.to_integral_value(decimal.ROUND_HALF_UP)))
    if source.kind == "boolean":
        return int
    return (lambda value: checked(_parsed(int, value, kind))) if source.kind == "text" else None


def _parsed(parse: Callable[[str], Any], text: str, kind: str) -> Any:
    try:
        if "_" in text or not text.isascii():  # Python would read 1_0 and digits of other scripts, too
            raise ValueError(text)
        return parse(text.strip())
    except (ValueError, decimal.InvalidOperation) as error:
        raise DataError(f"{text!r} is not a valid {kind}; a text that reads as one is needed") from error


def _to_numeric(source: Type, target: Type) -> Cast | None:
    convert: Callable[[Any], decimal.Decimal]
    if source.floating:
        convert = lambda value: finite_numeric(decimal.Decimal(repr(value)))  # noqa: E731
    elif source.kind == "text":
        convert = lambda value: finite_numeric(_parsed(decimal.Decimal, value, "numeric"))  # noqa: E731
    elif source.number:
        convert = decimal.Decimal
    else:
        return None
    if target.precision is None:
        return convert
    step, limit = decimal.Decimal(1).scaleb(-(target.scale or 0)), target.precision - (target.scale or 0)

    def fitted(value: Any) -> decimal.Decimal:
        number = convert(value).quantize(step, context=CONTEXT)
        return number if number.is_finite() and number.adjusted() < limit else out_of_range(str(target))

    return fitted


def finite_numeric(number: decimal.Decimal) -> decimal.Decimal:
    """Return the number, or 0 for -0. Raises: DataError if it is not finite, or has too many digits for a numeric."""
    if not number.is_finite():
        raise DataError(f"{number} is not a valid numeric; a finite value is needed. double precision has it")
    if number and number.adjusted() >= MOST_DIGITS:
        raise DataError(
            f"{number} is out of range of numeric; at most {MOST_DIGITS} digits before the point are allowed"
        )
    return number or number.copy_abs()


def _to_float(source: Type, target: Type) -> Cast | None:
    if source.kind == "text":
        parsed: Cast = lambda value: one_nan(_parsed(float, value, "double"))  # noqa: E731
        return parsed if target.kind == "double" else lambda value: _single(parsed(value))
    if not source.number:
        return None
    if target.kind == "real":
        return lambda value: _single(float(value))
    return unchanged if source.floating else lambda value: one_nan(float(value))


def _single(value: float) -> float:
    """Return the nearest number that a four-byte float can represent."""
    try:
        return one_nan(_SINGLE.unpack(_SINGLE.pack(value))[0])
    except OverflowError:
        return float(out_of_range("real"))


def one_nan(value: float) -> float:
    """Return one object for every NaN. Tuples compare by identity first, so a row with NaN can be retracted."""
    return value if value == value else math.nan


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise DataError(f"{text!r} is not a valid boolean; 'true' or 'false' is needed")


def _timestamp(text: str) -> datetime.datetime:
    moment: datetime.datetime = _parsed(datetime.datetime.fromisoformat, text, "timestamp")
    return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)
