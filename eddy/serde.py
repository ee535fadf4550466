"""Serdes convert keys and values to bytes and back.

Numbers are big-endian, as in Java. `Native` is the default for rows without a serde: None, bool, int, float, str, bytes
and tuples of these, as MessagePack; never pickle.
"""

import datetime
import decimal
import math
import re
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec

from eddy.errors import ConnectorError, DataError, TopologyError
from eddy.json_text import has_unwritable
from eddy.readable_types import check_readable

__all__ = [
    "Bytes",
    "Float64",
    "Int64",
    "Json",
    "Native",
    "Part",
    "Plain",
    "Serde",
    "String",
    "Struct",
    "Tuple",
    "reason_of",
    "refusal",
    "serde_for",
]

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
Part = Literal["key", "value"]
"""A part of a record."""
_Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Serde(Generic[T]):
    """A pair of functions between values of type `T` and bytes. Stored states remember its name.

    `hashable` is False if decoded values cannot be keys of a dict; then a row of a relation cannot have them.
    `identify` is set if values that are equal in Python may be encoded to different bytes. `type` is the type of
    decoded values, if known. `tail` is the number of bytes at the end of an encoded key that do not decide its
    partition: a windowed key ends with its window.

    Records of a user's topic may have another form than states and internal topics, such as a schema registry's form.
    `in_topic` returns the serde of the topic's form.
    """

    name: str
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    hashable: bool = True
    identify: Callable[[T], bytes] | None = None
    type: Any = None
    recipe: tuple[Callable[..., Any], tuple[Any, ...]] | None = field(default=None, compare=False, repr=False)
    """The function and arguments that create the serde in another process, if its functions cannot be pickled."""
    tail: int = 0
    topic_form: "Callable[[str, Part], Serde[T]] | None" = field(default=None, compare=False, repr=False)
    """Returns the serde of a user's topic, if its records have another form. Cost: a look-up after the first call."""
    canonical: bool = field(default=False, compare=False, repr=False)
    """Whether `encode` itself gives equal values equal bytes, so that `identify` only serves comparisons."""
    id_header: str = field(default="", compare=False, repr=False)
    """The header that may have the id of the data's schema, in place of the first bytes of the data; see `with_ids`."""
    id_end: Callable[[bytes], int] | None = field(default=None, compare=False, repr=False)
    """Returns how many of the first bytes of encoded data are written into that header; None if none ever are."""

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and callable(self.encode) and callable(self.decode)):
            raise TopologyError(
                f"Serde: name={self.name!r}, encode={self.encode!r}, decode={self.decode!r}; a name and two "
                "functions are needed. Write: eddy.Serde('date', encode, decode)"
            )

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.recipe or (Serde, (self.name, self.encode, self.decode, self.hashable, self.identify, self.type))

    def in_topic(self, topic: str, part: "Part") -> "Serde[T]":
        """Return the serde of the keys, or of the values, in a user's topic."""
        return self if self.topic_form is None else self.topic_form(topic, part)

    def with_ids(self, data: Sequence[bytes | None], headers: Sequence[_Headers] | None) -> Sequence[bytes | None]:
        """Return a column's data, with the schema id that a record has in a header before the record's data."""
        if not self.id_header or headers is None:
            return data
        ids = [next((found for name, found in pairs if name == self.id_header), b"") for pairs in headers]
        return [item if item is None else found + item for found, item in zip(ids, data, strict=True)]

    def without_ids(self, headers: _Headers) -> _Headers:
        """Return a record's headers without a schema id, for data that this serde has encoded.

        Such an id came with a record that another writer has encoded. Data that this serde encodes has its own id.
        """
        return tuple(pair for pair in headers if pair[0] != self.id_header) if self.id_header else headers

    def ids_apart(
        self, data: Sequence[bytes | None], headers: Sequence[_Headers] | None
    ) -> tuple[Sequence[bytes | None], Sequence[_Headers] | None]:
        """Return a column of encoded data, and the headers of its records, as they are to be written to a topic.

        A serde may move schema ids from the data to the headers.
        """
        end_of, name = self.id_end, self.id_header
        if end_of is None:
            return data, headers
        ends = [0 if item is None else end_of(item) for item in data]
        ids = [() if item is None else ((name, item[:end]),) for end, item in zip(ends, data, strict=True)]
        before = [()] * len(data) if headers is None else headers
        rest = [None if item is None else item[end:] for end, item in zip(ends, data, strict=True)]
        return rest, [(*pairs, *own) for pairs, own in zip(before, ids, strict=True)]

    def identify_many(self, values: Sequence[T]) -> list[bytes]:
        """Return for each value the bytes that all equal values share: 1, 1.0 and True have the same bytes."""
        return list(map(self.identify or self.encode, values))

    def encode_many(self, values: Sequence[T]) -> list[bytes]:
        """Encode each value. Raises: any exception of `encode` for the first value that fails."""
        return list(map(self.encode, values))

    def decode_many(self, data: Sequence[bytes]) -> list[T]:
        """Decode each of `data`. Raises: any exception of `decode` for the first that fails."""
        return list(map(self.decode, data))


_INT64 = struct.Struct(">q")
_FLOAT64 = struct.Struct(">d")


def _decode_int64(data: bytes) -> int:
    return cast("int", _INT64.unpack(data)[0])


def _decode_float64(data: bytes) -> float:
    value = cast("float", _FLOAT64.unpack(data)[0])
    # Every NaN is the same object. Tuples compare their items by identity first, so a row with NaN can be retracted.
    return value if value == value else math.nan


def _check_bytes(value: bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"bytes expected, {type(value).__name__} given: {value!r}")
    return value


def _named(name: str) -> "Serde[Any]":
    """Return the serde of this module with this name."""
    return cast("Serde[Any]", globals()[name])


Bytes: Serde[bytes] = Serde("bytes", _check_bytes, bytes, type=bytes, recipe=(_named, ("Bytes",)))
String: Serde[str] = Serde("string", str.encode, bytes.decode, type=str, recipe=(_named, ("String",)))
Int64: Serde[int] = Serde("int64", _INT64.pack, _decode_int64, type=int, recipe=(_named, ("Int64",)))
Float64: Serde[float] = Serde(
    "float64",
    _FLOAT64.pack,
    _decode_float64,
    identify=lambda value: _FLOAT64.pack(value + 0.0),  # -0.0 is 0.0
    type=float,
    recipe=(_named, ("Float64",)),
)

_json_encoder = msgspec.json.Encoder(order="sorted")
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode
_SCALARS = frozenset({type(None), bool, int, float, str, bytes})


def _encode_json(value: Any) -> bytes:
    """Encode a value as JSON. Raises: ValueError for numbers that JSON cannot represent, and would write as null."""
    data = _json_encoder.encode(value)
    if b"null" in data and has_unwritable(value):
        raise ValueError("JSON has no infinite numbers and no NaN; finite numbers, None or text are needed")
    return data


def Json(type: Any = Any) -> Serde[Any]:  # noqa: N802 - a serde reads as a noun
    """Return a serde of JSON. Values are checked against `type`, if given; else they may be dicts or lists.

    >>> Json().decode(b'{"a": [1]}')
    {'a': [1]}
    """
    try:
        check_readable(type)
        decode = msgspec.json.Decoder(type).decode
    except (TypeError, ValueError) as error:
        raise TopologyError(
            f"Json: {type!r} is not a type: {error}; a type that JSON can be checked against is needed"
        ) from error
    hashable = type is not Any and type in {str, int, float, bool}
    name = "json" if type is Any else f"json({getattr(type, '__name__', type)})"
    encode = _encode_json
    return Serde(
        name,
        encode,
        decode,
        hashable,
        identify=lambda value: encode(bool(value) if type is bool else _canonical(value)),
        type=None if type is Any else type,
        recipe=(Json, (type,)),
    )


def Struct(type: type[S], format: str = "json") -> Serde[S]:  # noqa: N802
    """Return a serde of a `msgspec.Struct`, as JSON or MessagePack. A `frozen=True` Struct can be in keys and rows.

    Raises: TopologyError if `type` is not a Struct, a field has a type that msgspec cannot read, or `format` is neither
    of the two.
    """
    if not (isinstance(type, msgspec.StructMeta) and format in ("json", "msgpack")):
        raise TopologyError(
            f"Struct: {type!r} with format {format!r} is not a serde; a msgspec.Struct class and "
            "'json' or 'msgpack' are needed. Write: class Node(msgspec.Struct, frozen=True): ..."
        )
    try:
        check_readable(type)
    except (TypeError, ValueError) as error:
        raise TopologyError(
            f"Struct: {type!r} has a field that cannot be read: {error}; other types are needed"
        ) from error
    hashable = type.__struct_config__.frozen
    name = f"struct({type.__qualname__}, {format})"
    encode, decode = (
        (_encode_json, msgspec.json.Decoder(type).decode)
        if format == "json"
        else (_pack, msgspec.msgpack.Decoder(type).decode)
    )
    # Decoding gives each field its declared type, so Node(0) and Node(0.0) are encoded to the same bytes.
    made = (Struct, (type, format))
    return Serde(name, encode, decode, hashable, lambda value: encode(decode(encode(value))), type, made)


def _check_native(value: object) -> None:
    if type(value) is tuple:
        for item in value:
            _check_native(item)
    elif type(value) not in _SCALARS:
        raise TypeError(f"{type(value).__name__} has no native form: {value!r}")


def _encode_native(value: object) -> bytes:
    if type(value) not in _SCALARS:
        _check_native(value)
    return _pack(value)


def _canonical(value: Any) -> Any:
    """Return the one value that represents all values equal to `value`: 1 for 1, 1.0 and True."""
    if type(value) is tuple:
        return tuple(map(_canonical, value))
    if type(value) is bool or (type(value) is float and value.is_integer() and -(2**63) <= value < 2**64):
        return int(value)  # beyond this range no int can be encoded, so the float itself is canonical
    return value


def _identify_native(value: object) -> bytes:
    return _encode_native(value if type(value) is str else _canonical(value))


def _tupled(value: Any) -> Any:
    if type(value) is list:
        return tuple(map(_tupled, value))
    return math.nan if value != value else value


def _decode_native(data: bytes) -> Any:
    return _tupled(_unpack(data))


Native: Serde[Any] = Serde(
    "native", _encode_native, _decode_native, identify=_identify_native, recipe=(_named, ("Native",))
)


def Tuple(*parts: Any) -> Serde[tuple[Any, ...]]:  # noqa: N802
    """Return a serde of tuples, given a serde for each item, which may also be None. A second `...` allows any length.

    >>> Tuple(String, Int64).decode(Tuple(String, Int64).encode(("a", None)))
    ('a', None)
    """
    serdes = [part for part in parts if part is not ...]
    if all(serde is Native for serde in serdes):
        return Native
    many = len(serdes) < len(parts)

    def written(by: list[Callable[[Any], bytes]]) -> Callable[[tuple[Any, ...]], bytes]:
        def encode(value: tuple[Any, ...]) -> bytes:
            encoders = by * len(value) if many else by
            return _pack([None if x is None else f(x) for f, x in zip(encoders, value, strict=True)])

        return encode

    def decode(data: bytes) -> tuple[Any, ...]:
        items = _unpack(data)
        readers = serdes * len(items) if many else serdes
        return tuple(None if x is None else serde.decode(x) for serde, x in zip(readers, items, strict=True))

    name = f"tuple({', '.join(serde.name for serde in serdes)}{', ...' if many else ''})"
    by_identity = [serde.identify or serde.encode for serde in serdes]
    encode = written([serde.encode for serde in serdes])
    return Serde(name, encode, decode, identify=written(by_identity), recipe=(Tuple, parts))


_PLAIN: dict[type, Callable[[Any], bytes]] = {
    str: String.encode,
    bytes: Bytes.encode,
    int: Int64.encode,
    float: Float64.encode,
}


def _encode_plain(value: object) -> bytes:
    encode = _PLAIN.get(type(value))
    if encode is None:
        raise TypeError(f"{type(value).__name__} has no plain form")
    return encode(value)


def _refuse_decode(data: bytes) -> Any:
    raise DataError(
        f"serde 'plain': {data!r} does not tell its type; a named serde is needed to read. Use e.g. eddy.String"
    )


Plain: Serde[Any] = Serde("plain", _encode_plain, _refuse_decode, recipe=(_named, ("Plain",)))
"""For writing only: str as UTF-8, bytes unchanged, int and float as 64 bits big-endian."""


def refusal(serde: Serde[Any], value: Any) -> str:
    """Return the reason why a serde cannot encode a value; empty if it can. Raises: a ConnectorError of the serde.

    >>> refusal(Int64, "x"), refusal(Int64, 1)
    ('int expected, str given', '')
    """
    try:
        serde.encode(value)
    except ConnectorError:
        raise
    except Exception as error:
        why = reason_of(error)
        return f"{why}, {type(value).__name__} given" if why in {"int expected", "float expected"} else why
    return ""


def reason_of(error: Exception) -> str:
    """Return the text of a serde's exception. Messages of Python's C encoders are rewritten to name the types.

    >>> try:
    ...     String.encode(7)
    ... except TypeError as error:
    ...     reason_of(error)
    'str expected, int given'
    """
    text = str(error) or type(error).__name__
    for pattern, words in _REASONS:
        text = pattern.sub(words, text)
    return text


_REASONS = [
    (
        re.compile(r"^descriptor 'encode' for 'str' objects doesn't apply to an? '(.+)' object$"),
        r"str expected, \1 given",
    ),
    (re.compile(r"^required argument is not an integer$"), "int expected"),
    (re.compile(r"^(required argument is not a float|must be real number, not \w+)$"), "float expected"),
    (
        re.compile(r"^'utf-8' codec can't encode .*surrogates not allowed$"),
        "it is not valid text: a part of it is not a character of UTF-8, such as a byte of a file in another encoding",
    ),
]


def serde_for(value: Any) -> str:
    """Return the code of a serde that fits a value.

    >>> serde_for("x"), serde_for((1, 2))
    ('eddy.String', 'eddy.Json()')
    """
    if isinstance(value, msgspec.Struct):
        return f"eddy.Struct({type(value).__name__})"
    if isinstance(value, decimal.Decimal | datetime.date | datetime.time | uuid.UUID):
        return f"eddy.Json({type(value).__name__})"
    return _NAMES.get(type(value), "eddy.Json()")


_NAMES = {str: "eddy.String", bytes: "eddy.Bytes", int: "eddy.Int64", float: "eddy.Float64"}
