"""The form of decoded values in states and internal topics. It needs no registry and no schema id.

    a type, Avro      MessagePack by the names of fields; fields that are missing later get their defaults
    a type, JSON      JSON by the names of fields
    dict, Avro        MessagePack, with extensions for tuples, dates, times, decimals and UUIDs
    dict, JSON        JSON
    Protobuf          the message's own bytes, in their deterministic form

identify(v) has the same form, with numbers made canonical and keys sorted, so that equal values have equal bytes.
"""

import datetime
import decimal
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from eddy.json_text import has_unwritable

__all__ = ["LOGICAL", "StoredForm", "of_dicts", "of_json", "of_messages", "of_type", "to_json"]

LOGICAL = (bytes, datetime.datetime, datetime.date, datetime.time, decimal.Decimal, uuid.UUID)
"""The types of values that fastavro has besides the types of JSON."""


class StoredForm(NamedTuple):
    """The functions that encode, decode and identify one kind of values in states and internal topics."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    identify: Callable[[Any], bytes]


_pack = msgspec.msgpack.Encoder(order="deterministic").encode
_json = msgspec.json.Encoder(order="sorted").encode
_TUPLE, _NAIVE, _DATE, _TIME, _DECIMAL, _UUID = range(1, 7)
_WRITTEN: dict[type, tuple[int, Callable[[Any], str]]] = {
    datetime.date: (_DATE, datetime.date.isoformat),
    datetime.time: (_TIME, datetime.time.isoformat),
    decimal.Decimal: (_DECIMAL, str),
    uuid.UUID: (_UUID, str),
}
_READ: dict[int, Callable[[str], Any]] = {
    _NAIVE: datetime.datetime.fromisoformat,
    _DATE: datetime.date.fromisoformat,
    _TIME: datetime.time.fromisoformat,
    _DECIMAL: decimal.Decimal,
    _UUID: uuid.UUID,
}


def to_json(value: Any) -> bytes:
    """Encode as JSON with sorted keys. Raises: ValueError for numbers such as NaN, which would become null."""
    data = _json(value)
    if b"null" in data and has_unwritable(value):
        raise ValueError("JSON has no infinite numbers and no NaN; finite numbers, None or text are needed")
    return data


def of_type(type: Any) -> StoredForm:
    """Return functions that store values of a type as MessagePack. Decoding gives fields their declared types."""
    decode = msgspec.msgpack.Decoder(type).decode
    return StoredForm(_pack, decode, lambda value: _pack(decode(_pack(value))))


def of_json(type: Any) -> StoredForm:
    """Return functions that store values of a type as JSON; None is the type of any JSON data."""
    if type is None:
        return StoredForm(to_json, msgspec.json.decode, lambda value: to_json(_canonical(value)))
    decode = msgspec.json.Decoder(type).decode
    return StoredForm(to_json, decode, lambda value: to_json(decode(to_json(value))))


def of_dicts(marks: bool) -> StoredForm:
    """Return functions that store dicts, lists and scalars as MessagePack.

    With `marks` they also store tuples and values of the types `LOGICAL`.
    """
    if not marks:
        return StoredForm(_pack, _unpack, lambda value: _pack(_canonical(value)))
    return StoredForm(lambda value: _pack(_marked(value)), _unpack, lambda value: _pack(_marked(_canonical(value))))


def of_messages(type: Any) -> StoredForm:
    """Return functions that store Protobuf messages of a generated class, as the messages' own bytes."""

    def encode(value: Any) -> bytes:
        if not isinstance(value, type):
            raise TypeError(f"{value!r} is not a valid {type.__name__}")
        return bytes(value.SerializeToString(deterministic=True))

    return StoredForm(encode, type.FromString, encode)


def _marked(value: Any) -> Any:
    """Replace values of types that MessagePack does not have by extensions, at all levels."""
    kind = type(value)
    if kind is dict:
        return {name: _marked(part) for name, part in value.items()}
    if kind is list:
        return list(map(_marked, value))
    if kind is tuple:
        return msgspec.msgpack.Ext(_TUPLE, _pack(list(map(_marked, value))))
    if kind is datetime.datetime:
        return value if value.tzinfo is not None else msgspec.msgpack.Ext(_NAIVE, value.isoformat().encode())
    written = _WRITTEN.get(kind)
    if written is not None:
        mark, text = written
        return msgspec.msgpack.Ext(mark, text(value).encode())
    return value


def _read(mark: int, data: memoryview) -> Any:
    if mark == _TUPLE:
        return tuple(_unpack(bytes(data)))
    return _READ[mark](bytes(data).decode())


_unpack = msgspec.msgpack.Decoder(ext_hook=_read).decode


def _canonical(value: Any) -> Any:
    """Return the value that represents all equal values: 1 for 1, 1.0, Decimal(1) and True."""
    kind = type(value)
    if kind is dict:
        return {name: _canonical(part) for name, part in value.items()}
    if kind in (list, tuple):
        return kind(map(_canonical, value))
    if kind is bool or (kind is float and value.is_integer() and -(2**63) <= value < 2**64):
        return int(value)
    if kind is decimal.Decimal and value.is_finite():
        whole = value == value.to_integral_value() and -(2**63) <= value < 2**64
        return int(value) if whole else value.normalize(decimal.Context(prec=len(value.as_tuple().digits)))
    return value
