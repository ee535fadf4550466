"""How values of rows compare, for filters, orders and correlations alike.

    order     null < false < true < NaN < numbers < strings (as UTF-8) < bytes < all else (as JSON)
    =, !=     by kind and value: 1 is 1.0, but neither "1" nor true
    < <= …    within one kind only; between kinds, as with null, every comparison but != is false
    LIKE      % is any text, _ any character, \\ takes the next one as it is; the whole text has to fit

A value becomes a pair (rank, item) that Python orders in this way; descending, a pair of the negative rank and an item
in the opposite order. Pairs are hashable, whatever the value.
"""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec

__all__ = [
    "Flat",
    "Row",
    "ascending",
    "descending",
    "flat_key",
    "has_null",
    "join_key",
    "like_pattern",
    "order_key",
    "order_of",
    "plain",
    "restored",
    "same_row",
    "same_value",
]

Row = dict[str, Any]
"""A row of a table by column; a column that is missing is null."""
Flat = tuple[Any, ...]
"""Ranks and items of several values in turn: orders and hashes as the values do."""

_NULL, _BOOL, _NAN, _NUMBER, _STRING, _BYTES, _OTHER = range(7)
_FALL = bytes(max(0xFE - byte, 0) for byte in range(256))
"""UTF-8 has no byte above F4: FF, larger than all that is made here, ends a descending text."""
_json = msgspec.json.Encoder(order="sorted").encode


def ascending(value: Any) -> tuple[int, Any]:
    """The pair that orders as the value does."""
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


def descending(value: Any) -> tuple[int, Any]:
    """The pair that orders in the opposite direction.

    >>> sorted([None, "a", "ab", 2, 10], key=descending)
    ['ab', 'a', 10, 2, None]
    """
    rank, item = ascending(value)
    if rank <= _NUMBER:
        return -rank, -item
    text = item.hex().encode() if rank == _BYTES else item if rank == _OTHER else item.encode("utf-8", "surrogatepass")
    return -rank, text.translate(_FALL) + b"\xff"


def restored(rank: int, item: Any) -> Any:
    """The value of an ascending pair."""
    if rank == _OTHER:
        return msgspec.json.decode(item)
    return None if rank == _NULL else float("nan") if rank == _NAN else item


def plain(rank: int, item: Any) -> Any:
    """The value of an ascending pair as JSON tells it apart from all others, the same for equal pairs.

    >>> [plain(*ascending(value)) for value in (2, 2.0, 2.5, float("inf"), "2", True)]
    [2, 2, 2.5, {'': 'inf'}, '2', True]
    """
    if rank == _NUMBER:
        return _plain_number(item)
    return {"": "nan"} if rank == _NAN else {"": item.hex()} if rank == _BYTES else restored(rank, item)


def _plain_number(item: Any) -> Any:
    if type(item) is int:
        return item
    if abs(item) == float("inf"):
        return {"": "inf" if item > 0 else "-inf"}
    if item == int(item):
        return int(item)
    return float(item) if float(item) == item else {"": str(item.normalize())}


def flat_key(columns: Sequence[str]) -> Callable[[Row], Flat]:
    """A function from a row to the pairs of these columns, ascending."""
    if len(columns) == 1:
        (column,) = columns
        return lambda row: ascending(row.get(column))
    return lambda row: tuple(part for column in columns for part in ascending(row.get(column)))


def join_key(columns: Sequence[str]) -> Callable[[Row], Flat | None]:
    """The same, None where one of the values is null: then it joins with nothing."""
    if not columns:
        return lambda row: ()
    if len(columns) == 1:
        (column,) = columns
        return lambda row: None if (value := row.get(column)) is None else ascending(value)
    key = flat_key(columns)
    return lambda row: None if has_null(found := key(row)) else found


def has_null(key: Flat) -> bool:
    """Whether one of the values is null: then it joins with nothing."""
    return 0 in key[::2]


def order_key(order: Sequence[tuple[str, bool]], key: Callable[[Row], Flat]) -> Callable[[Row], Flat]:
    """A function from a row to what it is sorted by: (column, whether descending) in turn, and the key at last."""
    if not order:
        return key
    before = order_of(order)
    return lambda row: before(row) + key(row)


def order_of(order: Sequence[tuple[str, bool]]) -> Callable[[Row], Flat]:
    """The same without the key."""
    if not order:
        return lambda row: ()
    if len(order) == 1:
        ((column, falls),) = order
        return (lambda row: descending(row.get(column))) if falls else lambda row: ascending(row.get(column))
    parts = [(column, descending if falls else ascending) for column, falls in order]
    return lambda row: tuple(item for column, of in parts for item in of(row.get(column)))


def same_row(old: Row | None, new: Row | None) -> bool:
    """Whether rows are equal, of equal kinds too: 1 equals True."""
    if old is None or new is None or old != new:
        return old is new
    return all(same_value(value, new[column]) for column, value in old.items())


def same_value(old: Any, new: Any) -> bool:
    """Whether values are equal, and of equal kinds to their last item. Not a number is itself."""
    kind = type(old)
    if kind is not type(new):
        return False
    if kind is dict:
        return old.keys() == new.keys() and all(same_value(value, new[name]) for name, value in old.items())
    if kind is list:
        return len(old) == len(new) and all(map(same_value, old, new))
    return bool(old == new if kind is not float or old else str(old) == str(new)) or (old != old and new != new)


def like_pattern(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """The regular expression of a LIKE pattern, for `fullmatch`: its time is at most the product of both lengths.

    >>> bool(like_pattern("50\\\\%%").fullmatch("50% off")), bool(like_pattern("a_c").fullmatch("ac"))
    (True, False)
    """
    texts = [""]
    for found in re.finditer(r"\\(.)|(%)|(_)|(.)", pattern, re.DOTALL):
        escaped, many, one, plain = found.groups()
        if many:
            texts.append("")
        else:
            texts[-1] += "." if one else re.escape(escaped or plain)
    whole = texts[0]
    if len(texts) > 1:  # each text between two % at the first place where it fits: no other place has to be tried
        whole += "".join(f"(?>.*?{text})" for text in texts[1:-1] if text) + ".*" + texts[-1]
    return re.compile(whole, re.DOTALL | (re.IGNORECASE if ignore_case else 0))
