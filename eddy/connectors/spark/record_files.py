"""Files of records: Parquet, CSV, JSON lines; the last two also compressed with gzip.

The columns are `key` and `value`, and `timestamp` where there is one, in milliseconds or as Parquet's own type. Binary
columns have the bytes that the topic would have. Text is converted for the source's serde: a string is unchanged, a
number is read from its digits, JSON is parsed.

Spark gives several small files to one task, in its own order, and splits large ones of Parquet and JSON lines. A row's
place is known nevertheless:

    Parquet             its index in the file, a column that Spark provides
    CSV                 its index in the file, which one task reads
    JSON lines          the offset of its split plus its index in the split: a line takes more than one byte, so
                        the places in a split are lower than the places in the next split
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from eddy.connectors.csv_rows import Empty
from eddy.connectors.spark.arrow_functions import arrow_schema, record_batch
from eddy.connectors.spark.csv_files import csv_frame
from eddy.connectors.spark.frames import Frames, spark_errors
from eddy.connectors.spark.inputs import RAW
from eddy.connectors.spark.parquet_times import has_nanoseconds
from eddy.errors import ConfigurationError, DataError
from eddy.serde import Float64, Int64, Serde
from eddy.topology.plan.plan import Source

__all__ = ["FileRows", "FromText", "file_rows"]

_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json"}
_NANOSECONDS = 1_000_000
"""The number of nanoseconds in a millisecond."""
_SHOWN = 80
_TEXT = "key string, value string, timestamp long"


@dataclass(frozen=True)
class FileRows:
    """Rows of files with columns `k v t path place` (`t` may be null), and the reader that returns `RAW` columns."""

    frame: DataFrame
    reader: "FromText"


def file_rows(frames: Frames, source: Source, path: str, empty: Empty = None) -> FileRows:
    """The rows of the files of one path. `empty` is the meaning of CSV's empty cells.

    Raises: ConfigurationError for an unknown ending, a missing column, or text that the serde cannot read.
    """
    where = f"files {path} for topic '{source.topic}'"
    form = _format(path)
    if form is None:
        raise ConfigurationError(f"{where}: the ending tells no format; one of {', '.join(_FORMATS)} is needed")
    if form == "csv":
        rows, types = _found(where, lambda: csv_frame(frames, path, where, empty)), {"key": "text", "value": "text"}
    else:
        rows, types = _columns(frames, path, form, where)
    serdes = (("key", source.key), ("value", source.value))
    for name, serde in serdes:
        if types[name] != "binary" and serde is not None and _reader(serde) is None:
            raise ConfigurationError(
                f"{where}: column '{name}' is text, and {serde.name} is not read from text; a column of bytes is "
                "needed, in a Parquet file"
            )
    readers = tuple(None if types[name] == "binary" else serde for name, serde in serdes)
    return FileRows(rows, FromText(where, readers, form == "json"))


def _format(path: str) -> str | None:
    """The format that a path's ending tells."""
    name = path.rstrip("/*")
    plain = name.removesuffix(".gz")
    form = next((form for ending, form in _FORMATS.items() if plain.endswith(ending)), None)
    return None if form == "parquet" and plain != name else form


def _columns(frames: Frames, path: str, form: str, where: str) -> tuple[DataFrame, dict[str, str]]:
    """The rows of files with typed columns, and the types of the columns. Raises: ConfigurationError."""
    reader = frames.spark.read
    if form == "json":
        reader = reader.schema(_TEXT).option("mode", "FAILFAST")  # otherwise a line that is no JSON is a row of nulls
    frame = _found(where, lambda: reader.format(form).load(path))
    if missing := sorted({"key", "value"} - set(frame.columns)):
        raise ConfigurationError(
            f"{where}: there is no column '{missing[0]}' among {', '.join(frame.columns)}; the columns key and value "
            "are needed, and timestamp, in milliseconds, may be there"
        )
    nanoseconds = form == "parquet" and has_nanoseconds(frames.spark, frame, where)
    types = dict(frame.dtypes)
    rows = frame.select(
        *(_bytes(name, types[name]).alias(alias) for name, alias in (("key", "k"), ("value", "v"))),
        _time("nanoseconds" if nanoseconds else types.get("timestamp")).alias("t"),
        f.col("_metadata.file_path").alias("path"),
        f.col(f"_metadata.{'row_index' if form == 'parquet' else 'file_block_start'}").alias("place"),
    )
    return rows, types


def _found(where: str, load: Callable[[], DataFrame]) -> DataFrame:
    try:
        with spark_errors():
            return load()
    except Exception as error:
        raise ConfigurationError(f"{where}: {error}; files that Spark can read are needed. Mend the path") from error


def _bytes(name: str, kind: str) -> Column:
    return f.col(name) if kind == "binary" else f.col(name).cast("string").cast("binary")


def _time(kind: str | None) -> Column:
    """The column `timestamp`, of this type, in milliseconds."""
    if kind == "nanoseconds":
        return f.expr(f"(timestamp - pmod(timestamp, {_NANOSECONDS})) div {_NANOSECONDS}")
    if kind is not None and kind.startswith("timestamp"):
        return f.unix_millis(f.col("timestamp").cast("timestamp"))
    return (f.lit(None) if kind is None else f.col("timestamp")).cast("long")


def _reader(serde: Serde[Any]) -> Callable[[str], bytes] | None:
    """From text to the bytes of a serde."""
    if serde.name == "int64":
        return lambda text: Int64.encode(int(text))
    if serde.name == "float64":
        return lambda text: Float64.encode(float(text))
    if serde.name == "string" or serde.name.startswith("json") or serde.name.endswith(", json)"):
        return str.encode
    return None


@dataclass(frozen=True)
class FromText:
    """Converts UTF-8 text to the bytes of a serde; a column whose serde is None already holds bytes.

    With `splits`, column `o` has the offset of a row's split, and the row's index in the split is added: all rows of a
    split arrive in order in one task.
    """

    where: str
    serdes: tuple[Serde[Any] | None, ...]
    splits: bool

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """`RAW` columns in, the same out."""
        schema = arrow_schema(RAW)
        offsets = schema.get_field_index("o")
        split, index = -1, 0
        for arrived in batches:
            columns = [column.to_pylist() for column in arrived.columns]
            for at, serde in enumerate(self.serdes):
                reader = None if serde is None else _reader(serde)
                if reader is not None:
                    columns[at] = [None if item is None else self._read(reader, item) for item in columns[at]]
            if self.splits:
                places = []
                for begin in columns[offsets]:
                    split, index = begin, (index + 1 if begin == split else 0)
                    places.append(begin + index)
                columns[offsets] = places
            yield record_batch(columns, schema)

    def _read(self, reader: Callable[[str], bytes], item: bytes) -> bytes:
        try:
            return reader(item.decode())
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.where}: {item[:_SHOWN]!r} is no UTF-8: byte {item[error.start]:#04x} at {error.start}; a file "
                "in UTF-8 is needed. Convert it: iconv -f LATIN1 -t UTF-8 FILE, with the encoding that it has"
            ) from error
        except ValueError as error:
            raise DataError(f"{self.where}: {json.dumps(item.decode(errors='replace'))}: {error}") from error
