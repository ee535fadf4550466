"""Keys as text: strings are unchanged, bytes are their text or hexadecimal digits, all other keys are JSON.

Bytes that are not UTF-8 are written as 0x and their hexadecimal digits, such as 0xff. So are bytes whose text has this
form.

In a table whose keys may be strings or other values, text that is not JSON is a string, and a string that is JSON is
written as JSON: the string 5 is "5".
"""

import re
from typing import Any, Literal

import msgspec

from eddy.errors import QueryError
from eddy.json_text import encode
from eddy.tables.catalog import ServedTable

__all__ = ["form_of_keys", "key_of_text", "text_of_key"]

_NO_NUMBERS = frozenset({"Infinity", "-Infinity", "NaN"})
"""Floats that JSON cannot represent; as keys they are texts, as in the rows."""
_hex = re.compile(r"0x((?:[0-9a-f]{2})*)").fullmatch


def form_of_keys(table: ServedTable) -> Literal["text", "bytes", "json"]:
    """Return the form of a table's keys in requests. Any text is a key of a table with the form `text`."""
    return "text" if table.key.type is str else "bytes" if table.key.type is bytes else "json"


def key_of_text(table: ServedTable, text: str) -> Any:
    """Return the key for a text in a URL or on a command line. Raises: QueryError."""
    kind = table.key.type
    try:
        if kind is bytes:
            digits = _hex(text)
            return bytes.fromhex(digits[1]) if digits else text.encode(errors="surrogateescape")
        text.encode()
    except UnicodeEncodeError as error:
        raise QueryError(f"table '{table.name}': key {text[:80]!r} is not UTF-8, which is needed") from error
    if kind is str:
        return text
    if kind is float and text.strip('"') in _NO_NUMBERS:
        return float(text.strip('"'))
    try:
        if kind in (None, Any):
            value = msgspec.json.decode(text)
            return tuple(value) if isinstance(value, list) else value
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        if kind in (None, Any):
            return text
        raise QueryError(f"table '{table.name}': key {text[:80]!r} is not a valid {table.key.name}: {error}") from error


def text_of_key(table: ServedTable, key: Any) -> str:
    """Return the text from which `key_of_text` reads this key."""
    if isinstance(key, bytes):
        return _text_of_bytes(key)
    if isinstance(key, str) and (table.key.type is str or (table.key.type in (None, Any) and not _is_json(key))):
        return key
    return encode(key).decode()


def _text_of_bytes(key: bytes) -> str:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return f"0x{key.hex()}" if _hex(text) else text


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True
