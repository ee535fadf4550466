"""The types that keys and values can have on the command line, each as text, as JSON and as bytes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from eddy.errors import DataError
from eddy.serde import Bytes, Float64, Int64, Json, Serde, String

__all__ = ["FIELD_TYPES", "FieldType", "object_of"]


@dataclass(frozen=True, slots=True)
class FieldType:
    """One type. `parse` and `show` convert between values and text; `json` is its type in JSON."""

    serde: Serde[Any]
    parse: Callable[[str], Any]
    show: Callable[[Any], str]
    json: Any

    def encode_text(self, text: str) -> bytes:
        """The bytes of a text. Raises: DataError."""
        try:
            return self.serde.encode(self.parse(text))
        except Exception as error:
            raise DataError(f"{text!r} is no {self.serde.name}: {error}") from error

    def encode_json(self, value: Any) -> bytes:
        """The bytes of a value read from JSON. Raises: DataError."""
        try:
            converted = msgspec.convert(value, self.json)
            return self.serde.encode(self.parse(converted) if self.serde is Bytes else converted)
        except Exception as error:
            raise DataError(f"{value!r} is no {self.serde.name}: {error}") from error

    def to_json(self, value: Any) -> Any:
        """A decoded value as a JSON value."""
        return value.hex() if self.serde is Bytes else value


def object_of(line: str) -> dict[str, Any]:
    """The JSON object of a line. Raises: DataError."""
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
