"""Encodes numbers as bytes that sort as the numbers do: integers of any size, floats and decimals, but not NaN.

    x ≥ 0        06, near(x) in 8 bytes, the remainder x − near(x)
    x < 0        05, and the two parts of −x with all bits inverted
    near(x)      the nearest float: near(x) ≤ near(y) where x ≤ y, so that (near, remainder) orders as x does
    remainder r  r < 0: 7F and −r with all bits inverted; r = 0: 80; r > 0: 81 and r
    r > 0        the exponent of its first digit in 8 bytes, its digits, 00

For a number beyond the largest float, `near` is the largest float and the remainder is the number itself, which exceeds
all remainders. No number's bytes begin with another number's bytes, and equal numbers have equal bytes.
"""

import struct
import sys
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact
from typing import Any

__all__ = ["EXACT", "INVERTED", "MINUS", "PLUS", "WHOLE", "flat_number", "read_number"]

MINUS, PLUS = 5, 6
EXACT = 2**53
"""The largest integer up to which all integers are floats."""
WHOLE = 0x80
"""The byte of the remainder of a number that equals its nearest float."""
INVERTED = bytes(range(255, -1, -1))
"""A table for `bytes.translate` that inverts all bits, for descending orders."""

_LESS, _MORE = 0x7F, 0x81
_MOST = sys.float_info.max
_SIMPLE, _FLOAT, _EXPONENT = struct.Struct(">dB"), struct.Struct(">d"), struct.Struct(">Q")
_MIDDLE = 1 << 63
_MOST_DIGITS = 10_000
"""A whole decimal with more digits is not read as an integer, because that might need too much memory."""
_exactly = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact])


def flat_number(number: Any) -> bytes:
    """Return the bytes of a number."""
    if number < 0:
        return b"\x05" + _magnitude(_negated(number)).translate(INVERTED)
    return b"\x06" + _magnitude(number)


def _negated(number: Any) -> Any:
    return number.copy_negate() if type(number) is Decimal else -number


def _magnitude(number: Any) -> bytes:
    if type(number) is float or (type(number) is int and number <= EXACT):
        return _SIMPLE.pack(number + 0.0, WHOLE)  # -0.0 is 0.0
    try:
        near = float(number)
    except OverflowError:
        near = _MOST
    if near == number:
        return _SIMPLE.pack(near, WHOLE)
    near, exact = min(near, _MOST), Decimal(number)
    rest = exact if exact > _MOST else _exactly.subtract(exact, Decimal(near))
    if rest > 0:
        return _SIMPLE.pack(near, _MORE) + _rest(rest)
    return _SIMPLE.pack(near, _LESS) + _rest(rest).translate(INVERTED)


def _rest(number: Decimal) -> bytes:
    digits = bytes(number.as_tuple().digits).translate(_DIGITS).rstrip(b"0")
    return _EXPONENT.pack(number.adjusted() + _MIDDLE) + digits + b"\0"


_DIGITS = bytes((byte + 0x30) & 0xFF for byte in range(256))


def read_number(data: bytes, at: int) -> tuple[Any, int]:
    """Return the number at index `at`, as an int if it is whole, and the index after its bytes."""
    is_less = data[at] == MINUS
    number, end = _read_magnitude(data.translate(INVERTED) if is_less else data, at + 1)
    return (_negated(number) if is_less else number), end


def _read_magnitude(data: bytes, at: int) -> tuple[Any, int]:
    near, sign = _SIMPLE.unpack_from(data, at)
    at += _SIMPLE.size
    if sign == WHOLE:
        return (int(near) if near.is_integer() else near), at
    if sign == _LESS:
        data = data.translate(INVERTED)
    end = data.index(0, at + _EXPONENT.size)
    digits = data[at + _EXPONENT.size : end].decode()
    exponent = _EXPONENT.unpack_from(data, at)[0] - _MIDDLE - len(digits) + 1
    rest = Decimal((sign == _LESS, tuple(map(int, digits)), exponent))
    number = rest if rest > _MOST else _exactly.add(Decimal(near), rest)
    if number.adjusted() < _MOST_DIGITS and number == number.to_integral_value():
        return int(number), end + 1
    return number.normalize(_exactly), end + 1
