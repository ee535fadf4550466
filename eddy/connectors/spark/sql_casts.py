"""SQL's casts for `verify`, apart from a worker's code."""

import datetime
import decimal
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from eddy.connectors.spark.sql_numbers import BITS, FLOATS, fitted, in_precision, rounded
from eddy.errors import DataError
from eddy.topology.sql.types import Type

__all__ = ["cast"]


def cast(value: Any, source: Type, target: Type) -> Any:
    """Convert a value from one type to another. Raises: DataError if it does not fit."""
    kind = target.kind
    if kind == "text":
        return _text(value, source)
    if kind in BITS:
        return fitted(_to_whole(value, source.kind, kind), kind)
    if kind == "numeric":
        return _to_numeric(value, source.kind, target)
    if kind in FLOATS:
        return in_precision(_read(float, value, "double") if source.kind == "text" else float(value), kind)
    if kind == "boolean":
        return _to_boolean(value)
    if kind == "timestamp" and source.kind == "text":
        moment: datetime.datetime = _read(datetime.datetime.fromisoformat, value, kind)
        return moment.astimezone(datetime.UTC).replace(tzinfo=None) if moment.tzinfo else moment
    return value


def _read(reader: Callable[[str], Any], text: str, kind: str) -> Any:
    try:
        return reader(text.strip())
    except (ValueError, decimal.InvalidOperation) as error:
        raise DataError(f"{text!r} is not a valid {kind}; a text that reads as one is needed") from error


def _to_whole(value: Any, source: str, kind: str) -> int:
    if source == "text":
        if "_" in value:
            raise DataError(f"{value!r} is not a valid {kind}; a text that reads as one is needed")
        return int(_read(int, value, kind))
    if source in FLOATS:
        return round(value) if math.isfinite(value) else int(fitted(1 << 64, kind))
    if source == "numeric":
        half = Fraction(1, 2)
        return math.floor(Fraction(value) + half) if value >= 0 else math.ceil(Fraction(value) - half)
    return int(value)


def _to_numeric(value: Any, source: str, target: Type) -> decimal.Decimal:
    number: decimal.Decimal
    if source == "text":
        number = _read(decimal.Decimal, value, "numeric")
    else:
        number = decimal.Decimal(repr(value) if source in FLOATS else value)
    if not number.is_finite():
        raise DataError(f"{number} is not a valid numeric; a finite value is needed. double precision has it")
    precision, digits = target.precision, target.scale or 0
    if precision is None:
        return number
    found = rounded(number, digits, decimal.ROUND_HALF_UP)
    if abs(found) >= decimal.Decimal(10) ** (precision - digits):
        raise DataError(f"numeric({precision},{digits}) out of range; a wider type is needed. Cast: x::numeric")
    return found


def _to_boolean(value: Any) -> bool:
    if not isinstance(value, str):
        return bool(value)
    word = value.strip().lower()
    if word in ("t", "true", "y", "yes", "on", "1"):
        return True
    if word in ("f", "false", "n", "no", "off", "0"):
        return False
    raise DataError(f"{value!r} is not a valid boolean; 'true' or 'false' is needed")


def _text(value: Any, source: Type) -> str:
    if source.kind == "boolean":
        return str(value).lower()
    if source.kind == "timestamp":
        return str(value.isoformat(sep=" "))
    if source.kind in FLOATS:
        return _text_of_float(value)
    if source.kind != "numeric":
        return str(value)
    if source.scale is not None:
        return f"{rounded(value, source.scale, decimal.ROUND_HALF_UP):f}"
    text = f"{value:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in {"-0", ""} else text


def _text_of_float(value: float) -> str:
    """Return the shortest text that reads as the same number, with an exponent from 1e+15 on."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "0"
    text = repr(value)
    if "e" in text or abs(value) < 1e15:
        return text[:-2] if text.endswith(".0") else text
    digits = str(int(abs(value)))
    mantissa = digits.rstrip("0")
    fraction = f".{mantissa[1:]}" if mantissa[1:] else ""
    return f"{'-' if value < 0 else ''}{mantissa[0]}{fraction}e+{len(digits) - 1}"
