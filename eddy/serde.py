"""Serdes: how keys and values become bytes, and bytes become them again.

Numbers are big-endian, as Java's. `Native` is what eddy uses for rows whose types the author has
not named: None, bool, int, float, str, bytes and tuples of these, as MessagePack; never pickle.
"""

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

import msgspec

from eddy.errors import DataError, TopologyError

__all__ = ["Bytes", "Float64", "Int64", "Json", "Native", "Plain", "Serde", "String", "Struct", "Tuple"]

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Serde(Generic[T]):
    """A pair of functions between `T` and bytes, under a name that the stored state remembers.

    `hashable` is False where what it decodes cannot be the key of a dict, and so no row of a relation.
    `identify` is there where values that are equal in Python may be encoded to different bytes.
    `type` is the type of what it decodes, where that is known.
    """

    name: str
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    hashable: bool = True
    identify: Callable[[T], bytes] | None = None
    type: Any = None
    recipe: tuple[Callable[..., Any], tuple[Any, ...]] | None = field(default=None, compare=False, repr=False)
    """How to make it in another process, where its functions cannot be pickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.recipe or (Serde, (self.name, self.encode, self.decode, self.hashable, self.identify, self.type))

    def identify_many(self, values: Sequence[T]) -> list[bytes]:
        """The bytes under which each value is known: equal values, equal bytes, as 1 and 1.0 and True."""
        return list(map(self.identify or self.encode, values))

    def encode_many(self, values: Sequence[T]) -> list[bytes]:
        """Encode each value. Raises: whatever `encode` raises for the first that it cannot."""
        return list(map(self.encode, values))

    def decode_many(self, data: Sequence[bytes]) -> list[T]:
        """Decode each of `data`. Raises: whatever `decode` raises for the first that it cannot."""
        return list(map(self.decode, data))


_INT64 = struct.Struct(">q")
_FLOAT64 = struct.Struct(">d")


def _decode_int64(data: bytes) -> int:
    return cast("int", _INT64.unpack(data)[0])


def _decode_float64(data: bytes) -> float:
    value = cast("float", _FLOAT64.unpack(data)[0])
    # One NaN object for all: rows are compared by identity first, so that a NaN row can be retracted.
    return value if value == value else math.nan


def _check_bytes(value: bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"bytes expected, {type(value).__name__} given: {value!r}")
    return value


def _named(name: str) -> "Serde[Any]":
    """One of this module's serdes, by its own name."""
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


def Json(type: Any = Any) -> Serde[Any]:  # noqa: N802 - a serde reads as a noun
    """JSON, checked against `type` where one is given; what is decoded untyped may be a dict or list.

    >>> Json().decode(b'{"a": [1]}')
    {'a': [1]}
    """
    hashable = type is not Any and type in {str, int, float, bool}
    name = "json" if type is Any else f"json({getattr(type, '__name__', type)})"
    encode = _json_encoder.encode
    return Serde(
        name,
        encode,
        msgspec.json.Decoder(type).decode,
        hashable,
        identify=lambda value: encode(_canonical(value)),
        type=None if type is Any else type,
        recipe=(Json, (type,)),
    )


def Struct(type: type[S], format: str = "json") -> Serde[S]:  # noqa: N802
    """A `msgspec.Struct`, as JSON or as MessagePack. Make it `frozen=True` to have it in keys and rows.

    Raises: TopologyError where `type` is no Struct or `format` neither of the two.
    """
    if not (isinstance(type, msgspec.StructMeta) and format in {"json", "msgpack"}):
        raise TopologyError(
            f"Struct: {type!r} with format {format!r} is no serde; a msgspec.Struct class and "
            "'json' or 'msgpack' are needed. Write: class Node(msgspec.Struct, frozen=True): ..."
        )
    hashable = type.__struct_config__.frozen
    name = f"struct({type.__qualname__}, {format})"
    encode, decode = (
        (_json_encoder.encode, msgspec.json.Decoder(type).decode)
        if format == "json"
        else (_pack, msgspec.msgpack.Decoder(type).decode)
    )
    # Decoding gives each field its declared type, so that Node(0) and Node(0.0) are written alike.
    made = (Struct, (type, format))
    return Serde(name, encode, decode, hashable, lambda value: encode(decode(encode(value))), type, made)


def _check_native(value: object) -> None:
    if type(value) is tuple:
        for item in value:
            _check_native(item)
    elif type(value) not in _SCALARS:
        raise TypeError(
            f"{type(value).__name__} has no native form: {value!r}. Name its serde where the row is made, "
            "e.g. .map(..., value=eddy.Struct(Node)), or make it a tuple"
        )


def _encode_native(value: object) -> bytes:
    if type(value) not in _SCALARS:
        _check_native(value)
    return _pack(value)


def _canonical(value: Any) -> Any:
    """The one of the values equal to `value` that stands for them: 1 for 1, 1.0 and True."""
    if type(value) is tuple:
        return tuple(map(_canonical, value))
    if type(value) is bool or (type(value) is float and value.is_integer() and -(2**63) <= value < 2**64):
        return int(value)  # beyond these no int can be written, so that the float stands for itself
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
    """Tuples whose items have serdes of their own; None stays None. With `...` as the second one: any number of items.

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
        raise TypeError(
            f"no plain form of {type(value).__name__}: {value!r}. Name the serde, e.g. to(..., key=eddy.Json())"
        )
    return encode(value)


def _refuse_decode(data: bytes) -> Any:
    raise DataError(
        f"serde 'plain': {data!r} does not tell its type; a named serde is needed to read. Use e.g. eddy.String"
    )


Plain: Serde[Any] = Serde("plain", _encode_plain, _refuse_decode, recipe=(_named, ("Plain",)))
"""For writing only: str as UTF-8, bytes as they are, int and float as 64 bits big-endian."""
