"""Encodes keys as bytes that sort as the keys do. So a range or a prefix of keys is one range of the store.

    None < false < true < numbers < strings < bytes < tuples, item by item
         < all others, in the order of their encoded bytes

    constant  01 None, 02 false, 03 true
    number    04, the nearest float as bytes that sort as floats do (8), the remainder of an integer (2)
    text      05, UTF-8;  bytes: 06, as they are;  inside tuples with 00 as 00 FF and an end of 00 00
    tuple     07, the items, 00
    others    7F, as their serde identifies them

Keys that are one key to a worker have equal bytes: equal numbers, such as 1 and 1.0, and also 1 and True, unless the
serde tells them apart, as the booleans' serde does. NaN is greater than every other number.
"""

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from eddy.serde import Bytes, Serde, String, Tuple

__all__ = ["canonical_key", "decode_key", "encode_key", "encoder_of", "prefix_of"]

_NONE, _FALSE, _TRUE, _NUMBER, _TEXT, _BYTES, _TUPLE, _OTHER = (bytes([tag]) for tag in (1, 2, 3, 4, 5, 6, 7, 0x7F))
_CONSTANTS = {_NONE: None, _FALSE: False, _TRUE: True}
_FLOAT, _BITS, _REST = struct.Struct(">d"), struct.Struct(">Q"), struct.Struct(">H")
_SIGN, _MIDDLE = 1 << 63, 1 << 15
_END = b"\x00\x00"
_NUMBER_BYTES = 11


def encoder_of(serde: Serde[Any], in_topic: Serde[Any] | None = None) -> Callable[[Sequence[bytes]], list[bytes]]:
    """Return a function from encoded keys to bytes that sort as the keys do.

    `in_topic` is the serde of the encoded keys. The function raises any error of the serde, for bytes that it cannot
    decode.
    """
    if serde is String:
        return _texts
    if serde is Bytes:
        return lambda keys: [_BYTES + key for key in keys]
    decode_many = (in_topic or serde).decode_many
    return lambda keys: [encode_key(serde, key) for key in decode_many(keys)]


def _texts(keys: Sequence[bytes]) -> list[bytes]:
    String.decode_many(keys)  # raises unless all are UTF-8
    return [_TEXT + key for key in keys]


def encode_key(serde: Serde[Any], key: Any) -> bytes:
    """Return a key as bytes that sort as keys do. The keys of the table have this serde."""
    if isinstance(key, str):
        return _TEXT + key.encode()
    if isinstance(key, bytes):
        return _BYTES + key
    known = _item(canonical_key(serde, key) if _has_boolean(key) else key)
    return known or _OTHER + serde.identify_many([key])[0]


def canonical_key(serde: Serde[Any], key: Any) -> Any:
    """Return the key that a worker stores for all keys equal to it. Raises: any error of the serde."""
    return serde.decode(serde.identify_many([key])[0])


def _has_boolean(key: Any) -> bool:
    return type(key) is bool or (type(key) is tuple and any(map(_has_boolean, key)))


def prefix_of(serde: Serde[Any], prefix: Any) -> bytes:
    """Return the bytes with which the keys with a prefix begin: a string, bytes, or the first items of a tuple.

    Raises: any error of the serde; ValueError for items that have no order here.
    """
    if type(prefix) is not tuple:
        return encode_key(serde, prefix)
    made, parts = serde.recipe or (None, ())
    if made is Tuple or _has_boolean(prefix):
        missing = max(0, len(parts) - len(prefix)) if made is Tuple and ... not in parts else 0
        prefix = canonical_key(serde, (*prefix, *[None] * missing))[: len(prefix)]
    known = _item(prefix)
    if not known:
        raise ValueError("keys with such items are not in the order of their items")
    return known[:-1]


def decode_key(serde: Serde[Any], data: bytes) -> Any:
    """Return the key of bytes that `encode_key` made; whole numbers are returned as int."""
    tag = data[:1]
    if tag == _TEXT:
        return data[1:].decode()
    if tag == _BYTES:
        return data[1:]
    if tag == _OTHER:
        return serde.decode(data[1:])
    return _read(data, 0)[0]


def _item(value: Any) -> bytes:
    """Return an item of a tuple, or a key that is not a string, as bytes; empty for types without an order here."""
    if value is None:
        return _NONE
    if type(value) is bool:
        return _TRUE if value else _FALSE
    if type(value) in (int, float):
        return _number(value)
    if isinstance(value, str):
        return _TEXT + value.encode().replace(b"\x00", b"\x00\xff") + _END
    if isinstance(value, bytes):
        return _BYTES + value.replace(b"\x00", b"\x00\xff") + _END
    if type(value) is tuple:
        items = list(map(_item, value))
        return _TUPLE + b"".join(items) + b"\x00" if all(items) else b""
    return b""


def _number(value: float) -> bytes:
    try:
        near = float(value)
    except OverflowError:
        return b""
    rest = int(value) - int(near) if isinstance(value, int) else 0
    if not -_MIDDLE <= rest < _MIDDLE:
        return b""
    if near != near:
        near = math.nan
    bits: int = _BITS.unpack(_FLOAT.pack(near + 0.0))[0]
    return _NUMBER + _BITS.pack(~bits & (2 * _SIGN - 1) if bits & _SIGN else bits | _SIGN) + _REST.pack(rest + _MIDDLE)


def _read(data: bytes, at: int) -> tuple[Any, int]:
    """Return the item at an index, and the index after it."""
    tag = data[at : at + 1]
    if tag in _CONSTANTS:
        return _CONSTANTS[tag], at + 1
    if tag == _NUMBER:
        return _read_number(data[at + 1 : at + _NUMBER_BYTES]), at + _NUMBER_BYTES
    if tag == _TUPLE:
        items, at = [], at + 1
        while data[at : at + 1] != b"\x00":
            item, at = _read(data, at)
            items.append(item)
        return tuple(items), at + 1
    end = at + 1
    while (end := data.index(b"\x00", end)) and data[end + 1 : end + 2] == b"\xff":
        end += 2
    raw = data[at + 1 : end].replace(b"\x00\xff", b"\x00")
    return raw.decode() if tag == _TEXT else raw, end + 2


def _read_number(data: bytes) -> float:
    (bits,) = _BITS.unpack_from(data)
    near: float = _FLOAT.unpack(_BITS.pack(bits & (_SIGN - 1) if bits & _SIGN else ~bits & (2 * _SIGN - 1)))[0]
    if not near.is_integer() or not -(2.0**63) <= near <= 2.0**64:
        return near
    (rest,) = _REST.unpack_from(data, 8)
    return int(near) + int(rest) - _MIDDLE
