"""Serdes for Faust's values: models (`faust.Record`) and codecs (`json`, `raw`), byte for byte as Faust writes them.

A codec is named as in Faust, also as a chain such as `json|binary`. Codecs that unpickle are refused: unpickling
executes code from the record.

    identify(v) = encode(numbers made canonical in loads(dumps(v)))     so that Model(1) and Model(1.0) are one row
"""

import typing
from collections.abc import Callable
from typing import Any, TypeVar

import faust
from faust.serializers.codecs import Codec, get_codec

from eddy.errors import TopologyError
from eddy.serde import Serde

__all__ = ["codec", "record"]

R = TypeVar("R", bound=faust.Record)

_DEFAULT = "json"
_UNHASHABLE = (list, dict, set)
_KNOWN = "'json', 'raw' or another codec of Faust's that does not unpickle is needed"


def codec(name: str = _DEFAULT, type: type | None = None) -> Serde[Any]:
    """Return a serde for a codec of Faust. With `type`, decoded values have to be of that type, and can be keys.

    Raises: TopologyError for a codec that Faust does not know, and for `pickle`.

    >>> codec("json", str).encode("ann"), codec("raw").decode(b"ann")
    (b'"ann"', b'ann')
    """
    found = _codec(name)
    if name == "raw" and type is None:
        type = bytes

    def decode(data: bytes) -> Any:
        value = found.loads(data)
        if type is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)  # JSON has only one type of numbers
        if type is not None and not isinstance(value, type):
            raise TypeError(f"{value!r} is not a valid {type.__name__}")
        return value

    hashable = type is not None and not issubclass(type, _UNHASHABLE)
    named = name if type is None else f"{name}, {type.__name__}"
    identify = None if name == "raw" else lambda value: found.dumps(_canonical(value))
    return Serde(f"faust({named})", found.dumps, decode, hashable, identify, type, (codec, (name, type)))


def record(model: type[R], serializer: str | None = None) -> Serde[R]:
    """Return a serde for a Faust model.

    As in a Faust topic, the codec is the model's own serializer, else `serializer`, else JSON.

    A model whose fields are lists, dicts or sets cannot be in rows of relations or in keys.
    Raises: TopologyError if `model` is not a Faust model, or if its codec unpickles.
    """
    if not (isinstance(model, type) and issubclass(model, faust.Record)):
        raise TopologyError(
            f"faust.record: {model!r} is not a model; a subclass of faust.Record is needed. "
            "Write: class Node(faust.Record): ..."
        )
    name = str(model._options.serializer or serializer or _DEFAULT)
    found = _codec(name)

    def encode(value: R) -> bytes:
        if not isinstance(value, model):
            raise TypeError(f"{value!r} is not a valid {model.__name__}")
        return found.dumps(value.to_representation())

    def decode(data: bytes) -> R:
        return typing.cast("R", model.from_data(found.loads(data)))

    def identify(value: R) -> bytes:
        return found.dumps(_canonical(found.loads(encode(value))))

    named = f"faust({model._options.namespace}, {name})"
    return Serde(named, encode, decode, _is_hashable(model), identify, model, (record, (model, serializer)))


def _codec(name: str) -> Codec:
    try:
        found = get_codec(name)
    except (KeyError, TypeError) as error:
        raise TopologyError(f"faust codec {name!r}: there is none of this name; {_KNOWN}") from error
    if not isinstance(found, Codec):
        raise TopologyError(f"faust codec {name!r}: there is none of this name; {_KNOWN}")
    if "pickle" in name or any("pickle" in type(node).__name__.lower() for node in found.nodes):
        raise TopologyError(f"faust codec {name!r}: a record that is unpickled can execute code; {_KNOWN}")
    return found


def _is_hashable(model: type[faust.Record]) -> bool:
    """Whether the values of all fields can be in keys, judging by their types."""

    def allowed(kind: Any) -> bool:
        origin = typing.get_origin(kind) or kind
        if origin in _UNHASHABLE or (isinstance(origin, type) and issubclass(origin, _UNHASHABLE)):
            return False
        return all(map(allowed, (part for part in typing.get_args(kind) if part is not ...)))

    return all(map(allowed, model._options.fields.values()))


def _canonical(value: Any) -> Any:
    """Return the value that represents all equal values in the bytes of keys: 1 for 1, 1.0 and True."""
    walk: Callable[[Any], Any] = _canonical
    if isinstance(value, dict):
        return {name: walk(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [walk(part) for part in value]
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    return value
