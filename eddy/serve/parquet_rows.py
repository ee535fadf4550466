"""Writes rows of a table as a Parquet file, in row groups of bounded memory. Only this file of `serve` imports PyArrow.

A first reading of the same version finds the type of each column, so that the rows of every row group fit it:

    whole numbers      int64
    numbers            double, if each whole number among them is exact as a double
    texts, bytes, true and false    string, binary, bool
    anything else, and mixtures     string, each value as JSON

A value that is missing, or null, is null.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow
import pyarrow.parquet

from eddy.serve.answers import encode
from eddy.tables.open_table import OpenTable

__all__ = ["GROUP_BYTES", "GROUP_ROWS", "parquet_chunks"]

GROUP_ROWS, GROUP_BYTES = 20_000, 8 << 20
"""A row group ends at this number of rows, or at this number of bytes of its values as JSON."""
_LOOK_ROWS = 5_000
"""During the first reading, an empty chunk is sent after this many rows, so that the client sees progress."""
_INT, _EXACT = 1 << 63, 1 << 53
_KINDS = {str: "string", bytes: "binary", bool: "bool"}
_ARROW = {
    "int": pyarrow.int64(),
    "float": pyarrow.float64(),
    "string": pyarrow.string(),
    "binary": pyarrow.binary(),
    "bool": pyarrow.bool_(),
    "json": pyarrow.string(),
}

Cells = Callable[[Any, Any], list[Any]]


class _Sink:
    """A file in memory: keeps written bytes until `take` returns them."""

    closed = False

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: Any) -> int:
        """Keep bytes."""
        self._data += data
        return len(data)

    def flush(self) -> None:
        """Do nothing: bytes are kept."""

    def close(self) -> None:
        """Do nothing: bytes are kept."""

    def take(self) -> bytes:
        """Return the bytes that were written since the last call."""
        data, self._data = bytes(self._data), bytearray()
        return data


def parquet_chunks(
    table: OpenTable, rows: Callable[[], Iterator[tuple[Any, Any]]], header: list[str], cells: Cells
) -> Iterator[bytes]:
    """Yield a table's rows as a Parquet file in chunks; the chunks are empty while the types of columns are found."""
    seen: list[set[str]] = [set() for _ in header]
    for number, row in enumerate(rows()):
        for found, value in zip(seen, cells(*row), strict=True):
            found.add(_kind(value))
        if not number % _LOOK_ROWS:
            yield b""
    kinds = list(map(_merged, seen))
    schema = pyarrow.schema([(name, _ARROW[kind]) for name, kind in zip(header, kinds, strict=True)])
    sink = _Sink()
    with pyarrow.parquet.ParquetWriter(pyarrow.PythonFile(sink, mode="w"), schema) as writer:
        for group in _groups(rows(), cells):
            columns = [
                pyarrow.array([_fitting(value, kind) for value in column], _ARROW[kind])
                for column, kind in zip(zip(*group, strict=True), kinds, strict=True)
            ]
            writer.write_table(pyarrow.table(columns, schema=schema))
            yield sink.take()
    yield sink.take()


def _groups(rows: Iterator[tuple[Any, Any]], cells: Cells) -> Iterator[list[list[Any]]]:
    group: list[list[Any]] = []
    size = 0
    for row in rows:
        group.append(cells(*row))
        size += len(encode(group[-1]))
        if len(group) >= GROUP_ROWS or size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _kind(value: Any) -> str:
    kind = type(value)
    if value is None:
        return ""
    if kind is int:
        return "exact int" if -_EXACT <= value <= _EXACT else "int" if -_INT <= value < _INT else "json"
    return "float" if kind is float else _KINDS.get(kind, "json")


def _merged(kinds: set[str]) -> str:
    """Return the kind of a column with values of these kinds."""
    kinds = kinds - {""}
    if kinds <= {"exact int", "int"} and kinds:
        return "int"
    if kinds <= {"exact int", "float"} and kinds:
        return "float"
    return kinds.pop() if len(kinds) == 1 else "json"


def _fitting(value: Any, kind: str) -> Any:
    if value is None:
        return None
    return encode(value).decode() if kind == "json" else float(value) if kind == "float" else value
