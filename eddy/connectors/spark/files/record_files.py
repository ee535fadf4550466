"""Files of records: Parquet, ORC, Avro, CSV, JSON lines; the last two also compressed with gzip.

The columns are named in `file_columns.py`: `key` and `value`, and perhaps `timestamp`, in milliseconds or as the
format's own type. Binary columns have the bytes that the topic would have. Text is converted for the source's serde: a
string is unchanged, a number is read from its digits, JSON is parsed. Structs and lists become JSON.

Spark gives several small files to one task, in its own order, and splits large files of Parquet and JSON lines. A row's
place is known nevertheless:

    Parquet             its index in the file, a column that Spark provides
    CSV, ORC, Avro      its index in the file, which one task reads
    JSON lines          the offset of its split plus its index in the split: a line takes more than one byte, so
                        the places in a split are lower than the places in the next split
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from eddy.connectors.csv_rows import Empty
from eddy.connectors.spark.arrow_functions import arrow_schema, record_batch
from eddy.connectors.spark.files.csv_files import csv_frame, whole_files
from eddy.connectors.spark.files.file_columns import FileColumns, as_bytes, event_rows, order_of
from eddy.connectors.spark.files.file_schemas import has_nanoseconds
from eddy.connectors.spark.files.lake_formats import check_format
from eddy.connectors.spark.frames import Frames, spark_errors
from eddy.connectors.spark.inputs import RAW
from eddy.errors import ConfigurationError, DataError
from eddy.serde import Float64, Int64, Serde
from eddy.topology.plan.plan import Source

__all__ = ["FileRows", "FromText", "file_rows"]

_FORMATS = {
    ".parquet": "parquet",
    ".orc": "orc",
    ".avro": "avro",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
}
_NANOSECONDS = 1_000_000
"""The nanoseconds in a millisecond."""
_SHOWN = 80


@dataclass(frozen=True)
class FileRows:
    """Rows of files with columns `k v t seq wrong path place`, and the reader that returns `RAW` columns.

    `t` may be null. `seq` is null unless a column orders the rows. `wrong` is the reason why a row is not a record.
    """

    frame: DataFrame
    reader: "FromText"


def file_rows(
    frames: Frames, source: Source, path: str, empty: Empty = None, columns: FileColumns | None = None
) -> FileRows:
    """Read the rows of the files of one path. `empty` is the meaning of CSV's empty cells.

    Raises: ConfigurationError for an unknown ending, a missing column, or text that the serde cannot read.
    """
    columns = columns or FileColumns()
    where = f"files {path} for topic '{source.topic}'"
    form = _format(path)
    if form is None:
        raise ConfigurationError(
            f"{where}: the format is not clear from the ending; one of {', '.join(_FORMATS)} is needed"
        )
    if form in {"csv", "json"} and not columns.single and not (form == "json" and columns.envelope):
        raise ConfigurationError(
            f"{where}: a value of several columns is made of typed columns, and text has none; one column is needed. "
            f"Write --map {source.topic}:value=COLUMN"
        )
    if form == "csv":
        rows = _found(where, lambda: csv_frame(frames, path, where, empty, columns))
        types = {"key": "text", "value": "text"}
    else:
        rows, types = _typed_columns(frames, path, form, where, columns)
    serdes = (("key", source.key), ("value", source.value))
    for name, serde in serdes:
        if types[name] != "binary" and serde is not None and _reader(serde) is None:
            raise ConfigurationError(
                f"{where}: the {name} is text, and {serde.name} is not read from text; a column of bytes is needed, in "
                "a Parquet file"
            )
    readers = tuple(None if types[name] == "binary" else serde for name, serde in serdes)
    return FileRows(rows, FromText(where, readers, form in {"json", "orc", "avro"}))


def _format(path: str) -> str | None:
    """Return the format of a file, by the ending of its path; None if the ending is unknown."""
    name = path.rstrip("/*")
    plain = name.removesuffix(".gz")
    form = next((form for ending, form in _FORMATS.items() if plain.endswith(ending)), None)
    return None if form == "parquet" and plain != name else form


def _typed_columns(
    frames: Frames, path: str, form: str, where: str, columns: FileColumns
) -> tuple[DataFrame, dict[str, str]]:
    """Read the rows of files with typed columns; return also the types of key and value. Raises: ConfigurationError."""
    check_format(frames.spark, form, where)
    session = whole_files(frames) if form in {"orc", "avro"} else frames.spark
    reader = session.read
    if form == "json":
        # In Spark's default mode a line that is not JSON would be a row of nulls.
        reader = reader.schema(columns.text_schema()).option("mode", "FAILFAST")
    frame = _found(where, lambda: reader.format(form).load(path))
    columns.check(frame.columns, where)
    named = columns.all_of(frame.columns)
    nanoseconds = has_nanoseconds(frames.spark, frame, form, named, columns.timestamp, where)
    if columns.envelope:
        rows, types = event_rows(frame, columns, where)
    else:
        rows, types = _plain_rows(frame, columns, nanoseconds, where)
    place = "row_index" if form == "parquet" else "file_block_start"
    rows = rows.withColumns({"path": f.col("_metadata.file_path"), "place": f.col(f"_metadata.{place}")})
    rows = rows.select("k", "v", "t", "seq", "wrong", "path", "place")
    return (rows.coalesce(frames.partitions) if session is not frames.spark else rows), types


def _plain_rows(
    frame: DataFrame, columns: FileColumns, nanoseconds: bool, where: str
) -> tuple[DataFrame, dict[str, str]]:
    """Turn rows of typed columns into `k v t seq wrong`; return also the types of key and value."""
    types = dict(frame.dtypes)
    value, value_type = columns.value_of(types)
    order, wrong = f.lit(None).cast("bigint"), f.lit(None).cast("string")
    if columns.order:
        order = order_of(columns.order, types, where)
        wrong = f.when(order.isNull(), f.lit(f"column '{columns.order}' has no value, and orders the rows"))
    made = {
        "k": as_bytes(f.col(f"`{columns.key}`"), types[columns.key]),
        "v": as_bytes(value, value_type),
        "t": _time(columns.timestamp, "nanoseconds" if nanoseconds else types.get(columns.timestamp)),
        "seq": order,
        "wrong": wrong,
    }
    return frame.withColumns(made), {"key": types[columns.key], "value": value_type}


def _found(where: str, load: Callable[[], DataFrame]) -> DataFrame:
    try:
        with spark_errors():
            return load()
    except Exception as error:
        raise ConfigurationError(f"{where}: {error}; files that Spark can read are needed. Mend the path") from error


def _time(name: str, kind: str | None) -> Column:
    """Convert the column of times, of the type `kind`, to milliseconds."""
    if kind is None:
        return f.lit(None).cast("long")
    column = f.col(f"`{name}`")
    if kind == "nanoseconds":
        return f.expr(f"(`{name}` - pmod(`{name}`, {_NANOSECONDS})) div {_NANOSECONDS}")
    if kind.startswith("timestamp") or kind == "date":
        return f.unix_millis(column.cast("timestamp"))
    return column.cast("long")


def _reader(serde: Serde[Any]) -> Callable[[str], bytes] | None:
    """Return the function from text to the bytes of a serde; None if the serde cannot read text."""
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

    With `splits`, column `o` has the offset of a row's split, to which the row's index in the split is added. All rows
    of a split arrive in order in one task.
    """

    where: str
    serdes: tuple[Serde[Any] | None, ...]
    splits: bool

    def numbered(self) -> "FromText":
        """Return the same conversion for rows that have their places in the column `o` already."""
        return replace(self, splits=False)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches, with the columns `RAW`, after a conversion of keys and values from text to bytes."""
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
                f"{self.where}: {item[:_SHOWN]!r} is not UTF-8: byte {item[error.start]:#04x} at {error.start}; a file "
                "in UTF-8 is needed. Convert it: iconv -f LATIN1 -t UTF-8 FILE, with the encoding that it has"
            ) from error
        except ValueError as error:
            raise DataError(f"{self.where}: {json.dumps(item.decode(errors='replace'))}: {error}") from error
