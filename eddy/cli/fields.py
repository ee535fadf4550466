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
        check_utf8(text)
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


def check_utf8(text: str) -> None:
    """Refuse the text of bytes that are not UTF-8, which it has as surrogates. Raises: DataError naming the bytes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        data = text.encode(errors="surrogateescape")
        utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data
        bad = text[error.start].encode(errors="surrogateescape")[0]
        shown = data if len(data) <= _SHOWN else text[: _SHOWN // 2].encode(errors="surrogateescape") + b"..."
        raise DataError(
            f"{shown!r} is no UTF-8: byte {bad:#04x} at character {error.start + 1}; a file in UTF-8 is needed. "
            f"Convert it: iconv -f {'UTF-16' if utf16 else 'LATIN1'} -t UTF-8 FILE, with the encoding that it has"
        ) from error


_SHOWN = 80


def object_of(line: str) -> dict[str, Any]:
    """The JSON object of a line. Raises: DataError."""
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
