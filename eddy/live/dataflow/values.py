"""Defines how values of rows compare, for filters, orders and correlations alike.

    order     null < false < true < NaN < numbers < strings (as UTF-8) < bytes < all else (as JSON)
    =, !=     by kind and value: 1 is 1.0, but neither "1" nor true
    < <= …    within one kind only; between kinds, as with null, every comparison but != is false
    LIKE      % is any text, _ any character, \\ escapes the next one; the whole text has to match

For a comparison a value becomes a pair (rank, item) that Python orders in this way. For an order or a key it becomes
*flat* bytes in this order, which a sorted list compares in one operation (ADR 41): a byte for the kind, and

    number    05 or 06, and the rest as `flat_numbers.py` describes
    string    07, UTF-8 with 1 added to each byte, 00          all else: 09, and its JSON likewise
    bytes     08, hexadecimal, 00

No value's bytes begin with another value's bytes. So several values one after the other sort as a tuple does, and with
all bits inverted they sort in the opposite direction. A key ends with its length, so that it is found at the end of a
position.
"""

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from eddy.live.dataflow.flat_numbers import EXACT, INVERTED, MINUS, PLUS, WHOLE, flat_number, read_number

__all__ = [
    "EMPTY",
    "Flat",
    "Row",
    "ascending",
    "flat",
    "flat_key",
    "join_key",
    "key_of",
    "order_key",
    "order_of",
    "plain",
    "restored",
    "same_row",
    "same_value",
    "spelling",
    "values_of",
]

Row = dict[str, Any]
"""A row of a table by column; a column that is missing is null."""
Flat = bytes
"""Several values as one string of bytes, which sorts as the values do."""

_NULL, _BOOL, _NAN, _NUMBER, _STRING, _BYTES, _OTHER = range(7)
_NULL_TAG, _FALSE_TAG, _TRUE_TAG, _NAN_TAG = range(1, 5)
_STRING_TAG, _BYTES_TAG, _OTHER_TAG = range(7, 10)
_RAISED = bytes(min(byte + 1, 0xFF) for byte in range(256))
"""A table for `bytes.translate` that adds 1 to each byte. UTF-8 has no byte above F4, so 00 is free to end a string."""
_LOWERED = bytes(max(byte - 1, 0) for byte in range(256))
_number = struct.Struct(">BdB").pack
_number_key = struct.Struct(">BdBB").pack
_LONG = struct.Struct(">I")
_SINGLE = {_NULL_TAG: None, _FALSE_TAG: False, _TRUE_TAG: True, _NAN_TAG: float("nan")}
_json = msgspec.json.Encoder(order="sorted").encode


def ascending(value: Any) -> tuple[int, Any]:
    """Return the pair (rank, item) that sorts as the value does."""
    kind = type(value)
    if kind is str:
        return _STRING, value
    if kind is int:
        return _NUMBER, value
    if value is None:
        return _NULL, 0
    if kind is bool:
        return _BOOL, value
    if kind is float or kind is Decimal:
        return (_NUMBER, value) if value == value else (_NAN, 0)
    if kind is bytes:
        return _BYTES, value
    return _OTHER, _json(value)


def spelling(value: Any) -> str:
    """Return a text that tells equal values apart, and sorts them: -0.0, an integer, a decimal, another float.

    >>> sorted([0.0, 0, -0.0], key=spelling)
    [-0.0, 0, 0.0]
    """
    kind = type(value)
    if kind is float:
        return "3" if value or str(value) == "0.0" else "1"
    if kind is Decimal:
        return f"2{value}\0"
    return f"2{msgspec.json.encode(value).decode()}\0" if kind in {dict, list} else "2"


def restored(rank: int, item: Any) -> Any:
    """Return the value of which `ascending` made this pair."""
    if rank == _OTHER:
        return msgspec.json.decode(item)
    return None if rank == _NULL else float("nan") if rank == _NAN else item


def flat(value: Any) -> Flat:
    """Return a value as bytes that sort as the value does.

    >>> sorted([None, "a", "ab", 2, 10, -0.5, True], key=flat)
    [None, True, -0.5, 2, 10, 'a', 'ab']
    """
    kind = type(value)
    if kind is float:
        if value >= 0.0:
            return _number(PLUS, value + 0.0, WHOLE)  # -0.0 is 0.0
    elif kind is int:
        if 0 <= value <= EXACT:
            return _number(PLUS, value, WHOLE)
    elif kind is str:
        return _text(_STRING_TAG, value.encode("utf-8", "surrogatepass"))
    elif value is None:
        return b"\x01"
    return _flat_other(*ascending(value))


def _flat_other(rank: int, item: Any) -> Flat:
    if rank == _NUMBER:
        return flat_number(item)
    if rank == _BYTES:
        return _text(_BYTES_TAG, item.hex().encode())
    if rank == _OTHER:
        return _text(_OTHER_TAG, item)
    return bytes([_NAN_TAG if rank == _NAN else _TRUE_TAG if item else _FALSE_TAG])


def _text(tag: int, encoded: bytes) -> Flat:
    return b"%c%b\0" % (tag, encoded.translate(_RAISED))


def values_of(key: Flat) -> tuple[Any, ...]:
    """Return the values in a flat key. Whole numbers are returned as int, so that equal keys have the same values.

    >>> values_of(flat_key(["a", "b", "c"])({"a": 2.0, "b": "x", "c": -2.5}))
    (2, 'x', -2.5)
    """
    found: list[Any] = []
    at, end = 0, len(key) - (1 if key[-1] else 1 + _LONG.size)
    while at < end:
        tag = key[at]
        if tag in {MINUS, PLUS}:
            value, at = read_number(key, at)
            found.append(value)
        elif tag >= _STRING_TAG:
            stop = key.index(0, at)
            found.append(_read_text(tag, key[at + 1 : stop].translate(_LOWERED)))
            at = stop + 1
        else:
            found.append(_SINGLE[tag])
            at += 1
    return tuple(found)


def _read_text(tag: int, text: bytes) -> Any:
    if tag == _OTHER_TAG:
        return msgspec.json.decode(text)
    return bytes.fromhex(text.decode()) if tag == _BYTES_TAG else text.decode("utf-8", "surrogatepass")


def plain(value: Any) -> Any:
    """Return a key's value in a form whose JSON differs from the JSON of every other value.

    >>> [plain(value) for value in (2, 2.5, float("inf"), "2", True)]
    [2, 2.5, {'': 'inf'}, '2', True]
    """
    if type(value) is bytes:
        return {"": value.hex()}
    if type(value) is Decimal or (type(value) is float and not abs(value) < float("inf")):
        return {"": str(value)}
    return value


def flat_key(columns: Sequence[str]) -> Callable[[Row], Flat]:
    """Return a function from a row to its key: the flat values of these columns, then the key's length in bytes."""
    if len(columns) != 1:
        return lambda row: _ended(b"".join([flat(row.get(column)) for column in columns]))
    (column,) = columns

    def key(row: Row) -> Flat:
        value = row.get(column)
        if type(value) is int and 0 <= value <= EXACT:
            return _number_key(PLUS, value, WHOLE, 11)
        return _ended(flat(value))

    return key


def _ended(key: bytes) -> Flat:
    size = len(key) + 1
    return key + bytes([size]) if size < 0x100 else b"%b%b\0" % (key, _LONG.pack(size + _LONG.size))


EMPTY: Flat = _ended(b"")
"""The key that a row has if a key has no columns."""


def key_of(position: Flat) -> Flat:
    """Return the key that a position ends with."""
    size = position[-1]
    return position[-size:] if size else position[-_LONG.unpack_from(position, len(position) - _LONG.size - 1)[0] :]


def join_key(columns: Sequence[str]) -> Callable[[Row], Flat | None]:
    """Return a function from a row to the key of these columns, or to None if a value is null: null joins nothing."""
    if not columns:
        return lambda row: EMPTY
    key = flat_key(columns)
    if len(columns) == 1:
        (column,) = columns
        return lambda row: None if row.get(column) is None else key(row)
    return lambda row: None if any(row.get(column) is None for column in columns) else key(row)


def order_key(order: Sequence[tuple[str, bool]], key: Callable[[Row], Flat]) -> Callable[[Row], Flat]:
    """Return a function from a row to its position: the columns of `order`, (column, whether descending), the key."""
    if not order:
        return key
    before = order_of(order)
    return lambda row: before(row) + key(row)


def order_of(order: Sequence[tuple[str, bool]]) -> Callable[[Row], Flat]:
    """Return a function from a row to its position without the key; `order` has pairs (column, whether descending)."""
    if not order:
        return lambda row: b""
    if len(order) == 1:
        ((column, falls),) = order
        return (lambda row: flat(row.get(column)).translate(INVERTED)) if falls else _rising(column)
    return lambda row: b"".join(
        [flat(row.get(column)).translate(INVERTED) if falls else flat(row.get(column)) for column, falls in order]
    )


def _rising(column: str) -> Callable[[Row], Flat]:
    """Return a function from a row to the flat value of one column.

    It encodes positive floats itself, which saves a call.
    """

    def position(row: Row) -> Flat:
        value = row.get(column)
        if type(value) is float and value > 0.0:
            return _number(PLUS, value, WHOLE)
        return flat(value)

    return position


def same_row(old: Row | None, new: Row | None) -> bool:
    """Return whether rows are equal and their values have equal types, since 1 equals True in Python."""
    if old is None or new is None or old != new:
        return old is new
    return all(same_value(value, new[column]) for column, value in old.items())


def same_value(old: Any, new: Any) -> bool:
    """Return whether values are equal and of the same type, with items that are so, too. NaN equals NaN."""
    kind = type(old)
    if kind is not type(new):
        return False
    if kind is dict:
        return old.keys() == new.keys() and all(same_value(value, new[name]) for name, value in old.items())
    if kind is list:
        return len(old) == len(new) and all(map(same_value, old, new))
    return bool(old == new if kind is not float or old else str(old) == str(new)) or (old != old and new != new)
