"""Writes a table as a file (CSV, JSON Lines or Parquet) of one exact version, in chunks of bounded memory.

    without columns    key and value, as text or JSON
    with columns       key and these members of the values; nothing where a row has no such member

    CSV                RFC 4180 with a header (`connectors/csv_rows.py`): an empty cell is no value, "" an empty text
    JSON Lines         {"key": …, "value": …} a line; with columns the value has these members only
    Parquet            `parquet_rows.py`

A cell of CSV is a text as it is; all other values are JSON.
"""

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.requests import Request

from eddy.connectors.csv_rows import Cell, csv_line
from eddy.errors import QueryError
from eddy.live.server.naming import columns_of
from eddy.serve.answers import encode
from eddy.tables.key_text import text_of_key
from eddy.tables.open_table import OpenTable

__all__ = ["CHUNK_BYTES", "Export", "export_of", "exported", "formats"]

CHUNK_BYTES = 64 << 10
"""The bytes that are sent at a time, unless a row has more."""
_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}

Rows = Callable[[], Iterator[tuple[Any, Any]]]
"""A function that begins to read the rows of one version, from the first row on."""


class Export(NamedTuple):
    """The form of a file: its format, and the members of values that are columns.

    Without members the value is one column.
    """

    form: str
    columns: tuple[str, ...]

    @property
    def media_type(self) -> str:
        """The type of the file."""
        return _TYPES[self.form]

    def disposition(self, name: str) -> str:
        """Return the header that makes a browser save the file under the name of its table."""
        return f"attachment; filename*=UTF-8''{quote(f'{name}.{self.form}', safe='')}"

    @property
    def header(self) -> list[str]:
        """The names of the columns of a file. The key's column is `$key` if a column of values is called `key`."""
        return ["$key" if "key" in self.columns else "key", *(self.columns or ["value"])]

    def cells(self, key: Any, value: Any) -> list[Any]:
        """Return the values of a row, in the order of `header`."""
        if not self.columns:
            return [key, value]
        found = columns_of(value, "value")
        return [key, *map(found.get, self.columns)]


def formats() -> list[str]:
    """Return the formats that are written here."""
    return [form for form in _TYPES if form != "parquet" or importlib.util.find_spec("pyarrow") is not None]


def export_of(request: Request, table: OpenTable) -> Export | None:
    """Return the export that `format=` and `column=` ask for; None without a format. Raises: QueryError."""
    form, columns = request.query_params.get("format"), request.query_params.getlist("column")
    name = table.table.name
    if form is None:
        if columns:
            raise QueryError(f"table '{name}': column= is given without format=; write format=csv")
        return None
    if form not in _TYPES:
        raise QueryError(f"table '{name}': format={form[:20]!r}; one of {', '.join(_TYPES)} is needed")
    if form not in formats():
        raise QueryError(
            f"table '{name}': format=parquet: pyarrow is not installed where the table is served; it is needed there. "
            "pip install pyarrow, or ask for csv or jsonl"
        )
    if len(set(columns)) < len(columns):
        raise QueryError(f"table '{name}': column= names a column twice; each is needed once")
    return Export(form, tuple(columns))


def exported(table: OpenTable, rows: Rows, export: Export) -> Iterator[bytes]:
    """Return the file in chunks, each made when it is read; an empty chunk only says that more chunks follow."""
    if export.form == "parquet":
        from eddy.serve.parquet_rows import parquet_chunks

        return parquet_chunks(table, rows, export.header, export.cells)
    lines = _csv_lines(table, rows, export) if export.form == "csv" else _json_lines(rows, export)
    return _chunks(lines)


def _chunks(lines: Iterator[bytes]) -> Iterator[bytes]:
    chunk = bytearray()
    for line in lines:
        chunk += line
        if len(chunk) >= CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


def _csv_lines(table: OpenTable, rows: Rows, export: Export) -> Iterator[bytes]:
    yield csv_line(export.header).encode()
    for key, value in rows():
        _, *cells = export.cells(key, value)
        yield csv_line([text_of_key(table.table, key), *map(_cell, cells)]).encode("utf-8", "surrogatepass")


def _cell(value: Any) -> Cell:
    return value if value is None or isinstance(value, str) else encode(value).decode()


def _json_lines(rows: Rows, export: Export) -> Iterator[bytes]:
    for key, value in rows():
        kept = value
        if export.columns:
            found = columns_of(value, "value")
            kept = {column: found[column] for column in export.columns if column in found}
        yield encode({"key": key, "value": kept}) + b"\n"
