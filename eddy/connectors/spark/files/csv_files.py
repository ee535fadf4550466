"""Files of CSV, each read whole and in order by one task, with the parser of `eddy produce`.

Spark finds the files, decompresses them and passes their lines. Spark's own CSV reader is not used: it does not
distinguish `""` from an empty cell. A quoted value may contain line breaks, so the start of a row depends on the whole
file before it. Therefore files are not split, and several files are read at a time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from eddy.connectors.csv_rows import Empty, check_width, csv_rows, meant
from eddy.connectors.spark.arrow_functions import arrow_schema, record_batch
from eddy.connectors.spark.files.file_columns import FileColumns
from eddy.connectors.spark.frames import Frames
from eddy.errors import ConfigurationError, ConnectorError, DataError

__all__ = ["TEXT_ROWS", "csv_frame", "whole_files"]

TEXT_ROWS = "k binary, v binary, t long, seq long, wrong string, path string, place long"
"""Columns of the rows of text files: UTF-8, milliseconds or null, the number that orders rows or null, the reason why
a row is not a record, and the row's index in its file."""

_WHOLE = str(1 << 60)
_SETTINGS = {"spark.sql.files.maxPartitionBytes": _WHOLE, "spark.sql.files.openCostInBytes": _WHOLE}
_ROWS_A_BATCH = 10_000
_INT64 = range(-(2**63), 2**63)
_MILLISECONDS = "the timestamp {!r} is not a number of milliseconds since 1970"
_ORDER = "{!r} is not a whole number, and orders the rows"


def whole_files(frames: Frames) -> SparkSession:
    """Return a session in which one task reads a whole file."""
    session = frames.spark.newSession()
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    return session


def csv_frame(frames: Frames, path: str, where: str, empty: Empty, columns: FileColumns) -> DataFrame:
    """Read the rows of a path's files in `TEXT_ROWS` columns. Raises: Spark's own error for a path without files."""
    lines = whole_files(frames).read.option("lineSep", "\n").text(path)
    place = f.col("_metadata.file_path"), f.col("_metadata.file_block_start"), f.col("_metadata.file_block_length")
    whole = (place[1] == 0) & (place[2] == f.col("_metadata.file_size"))
    chosen = lines.select(f.col("value").cast("binary").alias("text"), place[0].alias("path"), whole.alias("whole"))
    return frames.through(chosen.coalesce(frames.partitions), CsvFiles(where, empty, columns), TEXT_ROWS)


@dataclass(frozen=True)
class CsvFiles:
    """Turns the lines of CSV files, one file after the other, into rows with keys, values and timestamps."""

    where: str
    empty: Empty
    columns: FileColumns = field(default_factory=FileColumns)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Turn columns `text path whole` into `TEXT_ROWS`. Raises: DataError; ConfigurationError; ConnectorError."""
        schema = arrow_schema(TEXT_ROWS)
        rows = self._rows(batches)
        while some := list(islice(rows, _ROWS_A_BATCH)):
            yield record_batch(list(zip(*some, strict=True)), schema)

    def _rows(self, batches: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        lines = (
            line for batch in batches for line in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        )
        for path, found in groupby(lines, key=lambda line: line[1]):
            where = f"{self.where}: {unquote(path)}"
            try:
                for place, row in enumerate(self.rows_of(self._text(found), where)):
                    yield *row, path, place
            except DataError as error:
                raise DataError(f"{where}: {error}") from error

    def _text(self, lines: Iterable[tuple[bytes, str, bool]]) -> Iterator[str]:
        for text, _, whole in lines:
            if not whole:
                raise ConnectorError(f"{self.where}: Spark has split a file; one task has to read all of it")
            yield text.decode(errors="surrogateescape") + "\n"

    def rows_of(self, lines: Iterator[str], where: str) -> Iterator[tuple[Any, ...]]:
        """Yield (key, value, timestamp, order, None) for each row of one file. Raises: DataError."""
        rows = csv_rows(lines)
        names = [name or "" for name in next(rows, (0, []))[1]]
        if not names:
            return
        at = self._places(names, where)
        time, order = at.get(self.columns.timestamp), at.get(self.columns.order)
        for number, row in rows:
            try:
                check_width(row, len(names))
                moment = None if time is None else row[time]
                yield (
                    _bytes(meant(row[at[self.columns.key]], self.empty, "key")),
                    _bytes(meant(row[at[self.columns.values[0]]], self.empty, "value")),
                    None if moment is None else _number(moment, _MILLISECONDS),
                    None if order is None else _number(row[order] or "", _ORDER),
                    None,
                )
            except DataError as error:
                raise DataError(f"line {number}: {error}") from error

    def _places(self, names: list[str], where: str) -> dict[str, int]:
        """Return the index of each column. Raises: ConfigurationError for a column that is missing, or there twice."""
        columns = self.columns
        named = [columns.key, columns.values[0], columns.timestamp, *([columns.order] if columns.order else [])]
        for name in named:
            there = names.count(name)
            if there > 1 or (not there and name != "timestamp"):
                raise ConfigurationError(
                    f"{where}: there {'are two columns' if there else 'is no column'} '{name}' among "
                    f"{', '.join(names)}; the columns key and value are needed, and timestamp, in milliseconds, may be "
                    "there. Name others: --map TOPIC:key=COLUMN"
                )
        return {name: names.index(name) for name in named if name in names}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode(errors="surrogateescape")


def _number(text: str, what: str) -> int:
    try:
        if (number := int(text)) in _INT64:
            return number
    except ValueError:
        pass
    raise DataError(what.format(text))
