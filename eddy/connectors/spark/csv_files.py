"""Files of CSV, each read whole and in order by one task, with the parser of `eddy produce`.

Spark finds the files, decompresses them and passes their lines. Spark's own CSV reader is not used: it does not
distinguish `""` from an empty cell. A quoted value may contain line breaks, so the start of a row depends on the whole
file before it: files are not split, and several files are read at a time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.csv_rows import Empty, check_width, csv_rows, meant
from eddy.connectors.spark.arrow_functions import arrow_schema, record_batch
from eddy.connectors.spark.frames import Frames
from eddy.errors import ConfigurationError, ConnectorError, DataError

__all__ = ["TEXT_ROWS", "csv_frame"]

TEXT_ROWS = "k binary, v binary, t long, path string, place long"
"""Columns of the rows of text files: UTF-8, milliseconds or null, and the row's index in its file."""

_WHOLE = str(1 << 60)
_SETTINGS = {"spark.sql.files.maxPartitionBytes": _WHOLE, "spark.sql.files.openCostInBytes": _WHOLE}
_ROWS_A_BATCH = 10_000
_INT64 = range(-(2**63), 2**63)


def csv_frame(frames: Frames, path: str, where: str, empty: Empty) -> DataFrame:
    """The rows of a path's files in `TEXT_ROWS` columns. Raises: an error of Spark's for a path without files."""
    session = frames.spark.newSession()
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    lines = session.read.option("lineSep", "\n").text(path)
    place = f.col("_metadata.file_path"), f.col("_metadata.file_block_start"), f.col("_metadata.file_block_length")
    whole = (place[1] == 0) & (place[2] == f.col("_metadata.file_size"))
    chosen = lines.select(f.col("value").cast("binary").alias("text"), place[0].alias("path"), whole.alias("whole"))
    return frames.through(chosen.coalesce(frames.partitions), CsvFiles(where, empty), TEXT_ROWS)


@dataclass(frozen=True)
class CsvFiles:
    """Reads files, the lines of each one after the other."""

    where: str
    empty: Empty

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Columns `text path whole` → `TEXT_ROWS` columns. Raises: DataError; ConfigurationError; ConnectorError."""
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

    def rows_of(self, lines: Iterator[str], where: str) -> Iterator[tuple[bytes | None, bytes | None, int | None]]:
        """Key, value and timestamp of the rows of one file. Raises: DataError."""
        rows = csv_rows(lines)
        names = [name or "" for name in next(rows, (0, []))[1]]
        for name in ("key", "value", "timestamp"):
            if (there := names.count(name)) != 1 and names and not (name == "timestamp" and there == 0):
                raise ConfigurationError(
                    f"{where}: there {'are two columns' if there else 'is no column'} '{name}' among "
                    f"{', '.join(names)}; the columns key and value are needed, and timestamp, in milliseconds, may be "
                    "there"
                )
        if not names:
            return
        key, value = names.index("key"), names.index("value")
        time = names.index("timestamp") if "timestamp" in names else None
        for number, row in rows:
            try:
                check_width(row, len(names))
                moment = None if time is None else row[time]
                yield (
                    _bytes(meant(row[key], self.empty, "key")),
                    _bytes(meant(row[value], self.empty, "value")),
                    None if moment is None else _milliseconds(moment),
                )
            except DataError as error:
                raise DataError(f"line {number}: {error}") from error


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode(errors="surrogateescape")


def _milliseconds(text: str) -> int:
    try:
        if (number := int(text)) in _INT64:
            return number
    except ValueError:
        pass
    raise DataError(f"the timestamp {text!r} is no number of milliseconds since 1970")
