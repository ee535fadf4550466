"""From the lines of a file to records: tab- or comma-separated columns, JSON objects, or plain lines.

A reader yields rows with the number of their line, and makes a record of each; a row that is no
record raises `DataError`, and the next one can be read all the same.
"""

import csv
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from eddy.cli.fields import FIELD_TYPES, FieldType, object_of
from eddy.errors import DataError

__all__ = ["FORMATS", "Fields", "FileRecord", "Reader"]

csv.field_size_limit(16 << 20)  # above the limit of a log, so that the log's message names the record

_WHOLE = "."


class FileRecord(NamedTuple):
    """A record of a file, as bytes. `timestamp` is in milliseconds since 1970."""

    key: bytes | None
    value: bytes | None
    timestamp: int


@dataclass(frozen=True, slots=True)
class Fields:
    """The columns or fields that make a record, and their types; None stands for the format's default."""

    key: str | None = None
    value: str | None = None
    timestamp: str | None = None
    key_type: FieldType = FIELD_TYPES["string"]
    value_type: FieldType = FIELD_TYPES["string"]
    header: bool | None = None
    empty_is_null: bool = True


class Reader(Protocol):
    """Rows of one file."""

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Each non-blank row, with the number of its last line."""

    def record(self, row: Any) -> FileRecord:
        """A row's record. Raises: DataError."""


class _Columns:
    """Columns by number from 1, or by the names in the first line."""

    def __init__(self, lines: Iterable[str], fields: Fields, dialect: dict[str, Any]) -> None:
        self._rows = csv.reader(lines, **dialect)
        self._fields = fields
        named = [name for name in (fields.key, fields.value, fields.timestamp) if name and not name.isdecimal()]
        self._names = next(self._rows, []) if fields.header or (named and fields.header is None) else []
        if self._names:
            self._names[0] = self._names[0].removeprefix("\ufeff")
        self._key = self._column(fields.key or "1")
        self._value = self._column(fields.value or "2")
        self._timestamp = self._column(fields.timestamp) if fields.timestamp else None

    def _column(self, name: str) -> int:
        if name in self._names:
            return self._names.index(name)
        if name.isdecimal() and int(name) > 0:
            return int(name) - 1
        raise DataError(f"there is no column '{name}' among {self._names}; a name of those, or a number from 1 on")

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        try:
            for row in self._rows:
                if row:
                    yield self._rows.line_num, row
        except csv.Error as error:
            raise DataError(f"line {self._rows.line_num}: {error}") from error

    def record(self, row: list[str]) -> FileRecord:
        fields = self._fields
        key, text = _cell(row, self._key, "key"), _cell(row, self._value, "value")
        value = None if not text and fields.empty_is_null else _encoded("value", fields.value_type.encode_text, text)
        moment = None if self._timestamp is None else _cell(row, self._timestamp, "timestamp")
        return FileRecord(_encoded("key", fields.key_type.encode_text, key), value, _milliseconds(moment))


def _cell(row: Sequence[str], column: int, what: str) -> str:
    if column < len(row):
        return row[column]
    raise DataError(f"{len(row)} columns, and the {what} is to come from column {column + 1}")


class _Objects:
    """One JSON object a line; null is no value."""

    def __init__(self, lines: Iterable[str], fields: Fields) -> None:
        self._lines, self._fields = lines, fields

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return ((number, line) for number, line in enumerate(self._lines, 1) if line.strip())

    def record(self, row: str) -> FileRecord:
        fields = self._fields
        found = object_of(row)
        key, value = _field(found, fields.key or "key"), _field(found, fields.value or "value")
        return FileRecord(
            None if key is None else _encoded("key", fields.key_type.encode_json, key),
            None if value is None else _encoded("value", fields.value_type.encode_json, value),
            _milliseconds(_field(found, fields.timestamp) if fields.timestamp else None),
        )


def _field(found: dict[str, Any], name: str) -> Any:
    if name == _WHOLE:
        return found
    if name not in found:
        raise DataError(f"no field '{name}' among {list(found)}")
    return found[name]


class _Lines:
    """Each line a value without a key."""

    def __init__(self, lines: Iterable[str], fields: Fields) -> None:
        self._lines, self._type = lines, fields.value_type

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return enumerate(self._lines, 1)

    def record(self, row: str) -> FileRecord:
        return FileRecord(None, _encoded("value", self._type.encode_text, row.rstrip("\r\n")), _milliseconds(None))


def _encoded(what: str, encode: Callable[[Any], bytes], value: Any) -> bytes:
    try:
        return encode(value)
    except DataError as error:
        raise DataError(f"the {what} {error}") from error


def _milliseconds(moment: Any) -> int:
    if moment is None:
        return time.time_ns() // 1_000_000
    try:
        return int(moment)
    except (TypeError, ValueError) as error:
        raise DataError(f"the timestamp {moment!r} is no number of milliseconds since 1970") from error


def _tsv(lines: Iterable[str], fields: Fields) -> Reader:
    return _Columns(lines, fields, {"delimiter": "\t", "quoting": csv.QUOTE_NONE})


def _csv(lines: Iterable[str], fields: Fields) -> Reader:
    return _Columns(lines, fields, {"strict": True})


FORMATS: dict[str, Callable[[Iterable[str], Fields], Reader]] = {
    "tsv": _tsv,
    "csv": _csv,
    "jsonl": _Objects,
    "lines": _Lines,
}
