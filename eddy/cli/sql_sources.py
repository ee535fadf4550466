"""The sources of tables for `eddy sql`: files with named columns, and topics up to their current end.

    NAME=FILE[,header=no]                             .csv, .tsv, .jsonl, .json, also .gz; .parquet
    NAME=TOPIC[,key=TYPE][,value=TYPE]                of a compacted topic the last value of each key, else every record
    NAME=latest:TOPIC, NAME=all:TOPIC                 one of these, for any topic

With a schema registry the values of topics are read by their schemas, unless value= names a type; keys by key=schema.

Columns declared by CREATE TABLE are matched by name; other columns are inferred from the values.
"""

import gzip
import pathlib
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

import click
import msgspec

from eddy.cli.consume import latest_records, read_records
from eddy.cli.fields import BY_REGISTRY, FIELD_TYPES, object_of, types_of
from eddy.cli.logs import Target, opened
from eddy.cli.records import tsv_rows
from eddy.connectors.csv_rows import Cell, csv_rows
from eddy.connectors.log import Log
from eddy.errors import ConfigurationError, ConnectorError, DataError
from eddy.program.sql_rows import named_rows, row_of
from eddy.topology.sql.algebra import NamedColumn
from eddy.topology.sql.answer import AnswerTable
from eddy.topology.sql.casts import cast_function
from eddy.topology.sql.types import BIGINT, BOOLEAN, DOUBLE, NUMERIC, TEXT, TIMESTAMP, Type

__all__ = ["SqlSource", "load", "parse_source"]

_SUFFIXES = {".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet"}
_READINGS = {"all", "latest"}


@dataclass(frozen=True)
class SqlSource:
    """The source of a table: a file, or a topic with the types of its keys and values."""

    name: str
    path: pathlib.Path | None = None
    topic: str = ""
    reading: str = ""
    options: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.path) if self.path else f"topic {self.topic}"


def parse_source(text: str) -> SqlSource:
    """Return the source given by --table. Raises: click.BadParameter."""
    name, equals, rest = text.partition("=")
    place, *pairs = rest.split(",")
    if not equals or not name or not place:
        raise click.BadParameter(f"'{text}' is not a table; NAME=FILE or NAME=TOPIC is needed.", param_hint="'--table'")
    path = pathlib.Path(place)
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    is_file = plain.suffix in _SUFFIXES
    options = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    known = {"header"} if is_file else {"key", "value"}
    if len(options) < len(pairs) or options.keys() - known:
        needed = " and ".join(f"{option}=…" for option in sorted(known))
        raise click.BadParameter(f"'{text}': of options there are {needed}.", param_hint="'--table'")
    if is_file:
        if not path.is_file():
            raise click.BadParameter(f"there is no file '{path}'.", param_hint="'--table'")
        return SqlSource(name, path, options=options)
    reading, colon, topic = place.partition(":")
    if colon and reading not in _READINGS:
        raise click.BadParameter(f"'{text}': latest:TOPIC or all:TOPIC is needed.", param_hint="'--table'")
    for part in options:
        if options[part] not in (*FIELD_TYPES, BY_REGISTRY):
            choices = ", ".join([*FIELD_TYPES, BY_REGISTRY])
            raise click.BadParameter(f"'{text}': {part}= is one of {choices}.", param_hint="'--table'")
    return SqlSource(name, topic=topic if colon else place, reading=reading if colon else "", options=options)


def load(
    source: SqlSource, declared: Sequence[NamedColumn] | None, target: Target, registry: str | None = None
) -> AnswerTable:
    """Read a whole table; `registry` is the address of a schema registry.

    Raises: DataError naming the line or the record; ConnectorError if the topic does not exist, or the registry does
    not answer; ConfigurationError for the type `schema` without a registry.
    """
    if source.path is not None:
        return _file(source, source.path, declared)
    with opened(target) as log:
        return _topic(source, declared, log, registry)


def _file(source: SqlSource, path: pathlib.Path, declared: Sequence[NamedColumn] | None) -> AnswerTable:
    if path.suffix == ".parquet":
        return _parquet(path, declared)
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    opener: Callable[..., TextIO] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as lines:
            if plain.suffix in {".csv", ".tsv"}:
                return _columns(source, path, lines, plain.suffix == ".tsv", declared)
            if plain.suffix == ".json":
                return _array(path, lines.read(), declared)
            return _objects(path, lines, declared)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}; text in UTF-8 is needed, in .gz whole") from error


def _columns(
    source: SqlSource, path: pathlib.Path, lines: TextIO, tabs: bool, declared: Sequence[NamedColumn] | None
) -> AnswerTable:
    try:
        cells = list(tsv_rows(lines) if tabs else csv_rows(lines))
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    if source.options.get("header") == "no":
        width = len(cells[0][1]) if cells else len(declared or [])
        names = [column.name for column in declared] if declared else [f"column{i + 1}" for i in range(width)]
    else:
        first = cells.pop(0)[1] if cells else [column.name for column in declared or []]
        names = [name or "" for name in first]
    for number, row in cells:
        if len(row) != len(names):
            raise DataError(f"{path}:{number}: {len(row)} columns; {len(names)} are needed: {', '.join(names)}")
    columns = (
        list(declared)
        if declared
        else [NamedColumn(n, _text_type([row[i] for _, row in cells])) for i, n in enumerate(names)]
    )
    places = _places(path, names, columns)
    readers = [_cell_reader(column.type, has_empty_texts=not tabs) for column in columns]
    rows = []
    for number, row in cells:
        try:
            rows.append(tuple(read(row[i]) for i, read in zip(places, readers, strict=True)))
        except DataError as error:
            raise DataError(f"{path}:{number}: {error}") from error
    return AnswerTable(tuple(columns), rows)


def _places(path: pathlib.Path, names: Sequence[str], columns: Iterable[NamedColumn]) -> list[int]:
    for column in columns:
        if column.name not in names:
            raise DataError(
                f"{path}: there is no column '{column.name}' in its first line; there are {', '.join(names)}"
            )
    return [names.index(column.name) for column in columns]


_TEXT_TYPES: list[tuple[re.Pattern[str], Type]] = [
    (re.compile(r"-?(0|[1-9]\d{0,17})"), BIGINT),
    (re.compile(r"-?(0|[1-9]\d*)(\.\d+)?"), NUMERIC),
    (re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?"), DOUBLE),
    (re.compile(r"true|false"), BOOLEAN),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?"), TIMESTAMP),
]


def _text_type(values: Iterable[Cell]) -> Type:
    """Return the first of SQL's types that can read all values that are not empty; text if no other type can."""
    there = [value for value in values if value]
    for pattern, type in _TEXT_TYPES:
        if there and all(pattern.fullmatch(value) for value in there):
            return type
    return TEXT


def _cell_reader(type: Type, *, has_empty_texts: bool) -> Callable[[Cell], Any]:
    """Return a function that reads a cell. An empty cell is null, and so is `""` unless the type is text."""
    read = cast_function(TEXT, type)
    assert read is not None
    empty = "" if has_empty_texts and type == TEXT else None
    return lambda cell: read(cell) if cell else None if cell is None else empty


def _objects(path: pathlib.Path, lines: Iterable[str], declared: Sequence[NamedColumn] | None) -> AnswerTable:
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found.append((f"{path}:{number}", object_of(line)))
            except DataError as error:
                raise DataError(f"{path}:{number}: {error}") from error
    return named_rows(found, declared, [])


def _array(path: pathlib.Path, text: str, declared: Sequence[NamedColumn] | None) -> AnswerTable:
    try:
        found = msgspec.json.decode(text, type=list[dict[str, Any]])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DataError(
            f"{path}: {error}; an array of objects is needed. With an object on each line its name ends in .jsonl"
        ) from error
    return named_rows([(f"{path} object {number}", row) for number, row in enumerate(found, 1)], declared, [])


def _parquet(path: pathlib.Path, declared: Sequence[NamedColumn] | None) -> AnswerTable:
    try:
        from eddy.cli.parquet_files import read_parquet
    except ImportError as error:
        raise ConfigurationError(
            f"{path}: PyArrow is needed to read Parquet. Install it: pip install pyarrow"
        ) from error
    return read_parquet(path, declared)


def _topic(source: SqlSource, declared: Sequence[NamedColumn] | None, log: Log, registry: str | None) -> AnswerTable:
    """Return a topic's records as a table: the columns are key and value or, for JSON objects, key and the fields."""
    spec = log.topics([source.topic]).get(source.topic)
    if spec is None:
        raise ConnectorError(
            f"table '{source.name}': topic '{source.topic}' does not exist; a topic of the log, or a file, is "
            f"needed. List topics: eddy topics"
        )
    fields = declared is not None and any(column.name not in {"key", "value"} for column in declared)
    others = "json" if fields and registry is None else None
    given = source.options.get("key", "string"), source.options.get("value", others)
    key, value = types_of(source.topic, *given, registry)
    latest = source.reading == "latest" or (not source.reading and spec.compacted)
    batches = (
        latest_records(log, source.topic, None)
        if latest
        else read_records(log, source.topic, None, from_beginning=True, follow=False)
    )
    found = []
    for records in batches:
        keys = key.serde.with_ids(records.keys, records.headers)
        values = value.serde.with_ids(records.values, records.headers)
        for offset, k, v in zip(records.offsets, keys, values, strict=True):
            where = f"topic '{source.topic}' partition {records.partition} offset {offset}"
            decoded_key = None if k is None else _decoded(key.serde.decode, k, where, "key")
            decoded = None if v is None else _decoded(value.serde.decode, v, where, "value")
            found.append((where, row_of(decoded_key, decoded)))
    return named_rows(found, declared, ["key"])


def _decoded(decode: Callable[[bytes], Any], data: bytes, where: str, what: str) -> Any:
    try:
        found = decode(data)
    except ConnectorError:
        raise
    except Exception as error:
        raise DataError(f"{where}: the {what} {data[:40]!r}: {error}. Name its type: --table …,{what}=int64") from error
    return found.hex() if isinstance(found, bytes) else found
