"""Writes JSON for clients. Values may be of any depth, and numbers that JSON cannot represent become text.

    inf, -inf, nan    "Infinity", "-Infinity", "NaN", which `float` and JavaScript's `Number` read

The encoder writes null for these numbers, and fails if a value is nested more deeply than Python's stack allows. So a
value is encoded again, piece by piece, if its text has a null and the value contains such a number, or if it is nested
too deeply.

Cost: each value is encoded once; if its text has a null, each value inside it is checked.
"""

import math
from collections.abc import Iterable
from typing import Any

import msgspec

__all__ = ["encode", "has_unwritable", "written"]

_encode = msgspec.json.Encoder(enc_hook=str).encode
_PLAIN = frozenset({str, int, bool, type(None), bytes, msgspec.Raw})
_LISTS = frozenset({list, tuple})


class _Text(bytes):
    """JSON text that is to be written unchanged."""


def encode(value: Any) -> bytes:
    """Return the value as JSON.

    >>> encode({"a": [float("inf"), None, 0.5]})
    b'{"a":["Infinity",null,0.5]}'
    """
    try:
        data = _encode(value)
    except RecursionError:
        return written(value)
    return written(value) if b"null" in data and has_unwritable(value) else data


def has_unwritable(value: Any) -> bool:
    """Return whether the value contains, at any depth, a number that JSON cannot represent."""
    todo = [value]
    for each in todo:  # the list grows in the loop
        kind = type(each)
        if kind is float:
            if not math.isfinite(each):
                return True
        elif kind not in _PLAIN:
            todo += _parts(each)
    return False


def _parts(value: Any) -> Iterable[Any]:
    """Return the values inside a list, an object or a struct, one level deep."""
    kind = type(value)
    if kind is dict:
        return value.values()  # type: ignore[no-any-return]
    if kind in _LISTS:
        return value  # type: ignore[no-any-return]
    return _members(value).values() if isinstance(value, msgspec.Struct) else [_builtin(value)]


def _members(value: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a struct by their names in JSON, one level deep."""
    config = value.__struct_config__
    tagged = {} if config.tag is None else {str(config.tag_field): config.tag}
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    return tagged | {name: getattr(value, field) for name, field in names}


def _builtin(value: Any) -> Any:
    """Convert a value of another type to plain data."""
    found = msgspec.to_builtins(value, enc_hook=str)
    return found if type(found) in _PLAIN | _LISTS | {dict, float} else str(found)


def written(value: Any) -> bytes:
    """Encode a value as `encode` does, without recursion, so that a value of any depth can be written.

    A list serves as the stack: the value to write next is at its end.
    """
    out = bytearray()
    todo = [value]
    while todo:
        each = todo.pop()
        kind = type(each)
        if kind is _Text:
            out += each
        elif kind is float and not math.isfinite(each):
            out += b'"NaN"' if each != each else b'"Infinity"' if each > 0 else b'"-Infinity"'
        elif kind is float or kind in _PLAIN:
            out += _encode(each)
        elif kind is dict:
            todo += _reversed(b"{", b"}", ((_name(name), item) for name, item in each.items()))
        elif kind in _LISTS:
            todo += _reversed(b"[", b"]", ((b"", item) for item in each))
        else:
            todo.append(_members(each) if isinstance(each, msgspec.Struct) else _builtin(each))
    return bytes(out)


def _name(name: Any) -> bytes:
    return _encode(name if type(name) is str else str(name)) + b":"


def _reversed(begin: bytes, end: bytes, items: Iterable[tuple[bytes, Any]]) -> list[Any]:
    """Return the parts of a list or of an object with its brackets and commas, the last part first."""
    parts: list[Any] = []
    for name, item in items:
        parts += [_Text((b"," if parts else begin) + name), item]
    parts.append(_Text(end if parts else begin + end))
    parts.reverse()
    return parts
