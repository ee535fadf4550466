"""The types that keys and values can have on the command line, each as text, as JSON and as bytes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from eddy.errors import ConfigurationError, ConnectorError, DataError
from eddy.json_text import encode
from eddy.serde import Bytes, Float64, Int64, Json, Part, Serde, String

__all__ = ["BY_REGISTRY", "FIELD_TYPES", "FieldType", "json_type", "object_of", "types_of"]

BY_REGISTRY = "schema"
"""The type of keys or values whose schemas a registry has."""


@dataclass(frozen=True, slots=True)
class FieldType:
    """A type of keys or values.

    `parse` makes a value of text, `show` makes text of a value; `json` is its type in JSON.
    """

    serde: Serde[Any]
    parse: Callable[[str], Any]
    show: Callable[[Any], str]
    json: Any

    def encode_text(self, text: str) -> bytes:
        """Return the bytes of a text. Raises: DataError."""
        check_utf8(text)
        try:
            return self.serde.encode(self.parse(text))
        except ConnectorError:
            raise
        except Exception as error:
            raise DataError(f"{text!r} is not a valid {self.serde.name}: {error}") from error

    def encode_json(self, value: Any) -> bytes:
        """Return the bytes of a value read from JSON. Raises: DataError."""
        try:
            converted = msgspec.convert(value, self.json)
            return self.serde.encode(self.parse(converted) if self.serde is Bytes else converted)
        except ConnectorError:
            raise
        except Exception as error:
            raise DataError(f"{value!r} is not a valid {self.serde.name}: {error}") from error

    def to_json(self, value: Any) -> Any:
        """Return a decoded value as a JSON value."""
        return value.hex() if self.serde is Bytes else value


def check_utf8(text: str) -> None:
    """Refuse text with surrogates: it was read from bytes that are not UTF-8. Raises: DataError naming the bytes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        data = text.encode(errors="surrogateescape")
        utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data
        bad = text[error.start].encode(errors="surrogateescape")[0]
        shown = data if len(data) <= _SHOWN else text[: _SHOWN // 2].encode(errors="surrogateescape") + b"..."
        raise DataError(
            f"{shown!r} is not UTF-8: byte {bad:#04x} at character {error.start + 1}; a file in UTF-8 is needed. "
            f"Convert it: iconv -f {'UTF-16' if utf16 else 'LATIN1'} -t UTF-8 FILE, with the encoding that it has"
        ) from error


_SHOWN = 80


def object_of(line: str) -> dict[str, Any]:
    """Return the JSON object of a line. Raises: DataError."""
    check_utf8(line)
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DataError(f"no JSON object: {error}") from error


def _json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


FIELD_TYPES: dict[str, FieldType] = {
    "string": FieldType(String, str, str, str),
    "int64": FieldType(Int64, int, str, int),
    "float64": FieldType(Float64, float, repr, float),
    "json": FieldType(Json(), msgspec.json.decode, _json_text, Any),
    "bytes": FieldType(Bytes, bytes.fromhex, bytes.hex, str),
}


def json_type(serde: Serde[Any]) -> FieldType:
    """Return the type for a serde whose values are shown and parsed as JSON."""
    return FieldType(serde, msgspec.json.decode, lambda value: encode(value).decode(), Any)


def types_of(
    topic: str, key: str, value: str | None, registry: str | None, ids_in_headers: bool = False
) -> tuple[FieldType, FieldType]:
    """Return the types of a topic's keys and values.

    If `value` is None, values are text; with a registry they are read by their schemas.

    With `ids_in_headers` ids of schemas are written into headers.

    Raises: ConfigurationError for the type `schema` without a registry.
    """
    value = value or ("string" if registry is None else BY_REGISTRY)
    by_guid = ids_in_headers
    return _type_of(topic, "key", key, registry, by_guid), _type_of(topic, "value", value, registry, by_guid)


def _type_of(topic: str, part: Part, name: str, registry: str | None, by_guid: bool) -> FieldType:
    if name != BY_REGISTRY:
        return FIELD_TYPES[name]
    if registry is None:
        raise ConfigurationError(
            f"topic '{topic}': its {part}s are of the type '{BY_REGISTRY}', and no registry has their schemas; "
            "name one: --registry URL"
        )
    # Its packages are optional.
    from eddy.connectors.schema_registry import SchemaRegistry
    from eddy.connectors.schema_registry.by_id import TopicById
    from eddy.connectors.schema_registry.client import id_header

    by_id = TopicById(SchemaRegistry(registry).client_settings, topic, part, by_guid)
    end = by_id.id_end if by_guid else None
    serde = Serde(BY_REGISTRY, by_id.encode, by_id.decode, id_header=id_header(part), id_end=end)
    return json_type(serde)
