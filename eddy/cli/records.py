"""Turns the lines of a file into records: tab- or comma-separated columns, JSON objects, or plain lines.

A reader yields rows with the number of their line, and turns each into a record. A row that is not a record raises
`DataError`; the next rows can be read nevertheless.
"""

import csv
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from eddy.cli.fields import FIELD_TYPES, FieldType, object_of
from eddy.connectors.csv_rows import Cell, Empty, check_width, csv_rows, meant
from eddy.errors import DataError

__all__ = ["FORMATS", "Fields", "FileRecord", "Reader", "tsv_rows"]

# For tsv; above a log's limit, so that a long record gets the log's error, which names it.
csv.field_size_limit(16 << 20)

_WHOLE = "."


class FileRecord(NamedTuple):
    """A record of a file, as bytes. `timestamp` is in milliseconds since 1970."""

    key: bytes | None
    value: bytes | None
    timestamp: int


@dataclass(frozen=True, slots=True)
class Fields:
    """The columns or fields that make a record, and their types; None means the format's default.

    `empty` is the meaning of an empty column. If it is None, csv refuses empty columns, and in tsv they mean no value.
    """

    key: str | None = None
    value: str | None = None
    timestamp: str | None = None
    key_type: FieldType = FIELD_TYPES["string"]
    value_type: FieldType = FIELD_TYPES["string"]
    header: bool | None = None
    empty: Empty = None


class Reader(Protocol):
    """Rows of one file."""

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Yield each non-blank row, with the number of its last line."""

    def record(self, row: Any) -> FileRecord:
        """Return a row's record. Raises: DataError."""


class _Columns:
    """Makes records from columns, named by number from 1 or by the first line. `rows` are pairs (line number, row)."""

    def __init__(self, rows: Iterator[tuple[int, list[Cell]]], fields: Fields, tabs: bool) -> None:
        self._rows, self._fields, self._tabs = rows, fields, tabs
        self._width: int | None = None
        named = [name for name in (fields.key, fields.value, fields.timestamp) if name and not name.isdecimal()]
        self._names: list[str] = []
        if fields.header or (named and fields.header is None):
            self._names = [name or "" for name in next(rows, (0, []))[1]]
            self._width = len(self._names) or None
        self._key = self._column(fields.key or "1")
        self._value = self._column(fields.value or "2")
        self._timestamp = self._column(fields.timestamp) if fields.timestamp else None

    def _column(self, name: str) -> int:
        if name in self._names:
            return self._names.index(name)
        if name.isdecimal() and int(name) > 0:
            return int(name) - 1
        raise DataError(
            f"there is no column '{name}' among {self._names}; one of these names, or a number from 1 on, is needed"
        )

    def __iter__(self) -> Iterator[tuple[int, list[Cell]]]:
        return self._rows

    def record(self, row: list[Cell]) -> FileRecord:
        fields = self._fields
        if not self._tabs:
            self._width = self._width or len(row)
            check_width(row, self._width)
        key, value = self._text(row, self._key, "key"), self._text(row, self._value, "value")
        moment = None if self._timestamp is None else _cell(row, self._timestamp, "timestamp") or ""
        return FileRecord(
            None if key is None else _encoded("key", fields.key_type.encode_text, key),
            None if value is None else _encoded("value", fields.value_type.encode_text, value),
            _milliseconds(moment),
        )

    def _text(self, row: list[Cell], column: int, what: str) -> Cell:
        cell, empty = _cell(row, column, what), self._fields.empty
        if self._tabs:  # in tsv an empty key is an empty text
            return cell or (None if what == "value" and empty != "text" else "")
        return meant(cell, empty, what)


def _cell(row: Sequence[Cell], column: int, what: str) -> Cell:
    if column < len(row):
        return row[column]
    raise DataError(f"{len(row)} columns, and the {what} is to be read from column {column + 1}")


class _Objects:
    """Makes records from JSON objects, one a line; a value of null means no value."""

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
    """Makes a record from each line: the line is the value, and there is no key."""

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
        raise DataError(f"the timestamp {moment!r} is not a number of milliseconds since 1970") from error


def _tsv(lines: Iterable[str], fields: Fields) -> Reader:
    return _Columns(tsv_rows(lines), fields, tabs=True)


def tsv_rows(lines: Iterable[str]) -> Iterator[tuple[int, list[Cell]]]:
    """Yield the rows of a file with tabs between columns, each with the number of its line.

    Raises: DataError naming the line.
    """
    rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    try:
        for row in rows:
            if row:
                if rows.line_num == 1:
                    row[0] = row[0].removeprefix("\ufeff")
                yield rows.line_num, list(row)
    except csv.Error as error:
        raise DataError(f"line {rows.line_num}: {error}") from error


def _csv(lines: Iterable[str], fields: Fields) -> Reader:
    return _Columns(csv_rows(lines), fields, tabs=False)


FORMATS: dict[str, Callable[[Iterable[str], Fields], Reader]] = {
    "tsv": _tsv,
    "csv": _csv,
    "jsonl": _Objects,
    "lines": _Lines,
}
