"""Files as the history of a source that its topic holds no longer: Parquet, CSV, JSON lines.

The columns are `key` and `value`, and `timestamp` in milliseconds where there is one. Binary columns hold the
bytes that the topic would hold; text is read by the serde of the source: a string as it is, a number from its
digits, JSON as JSON. Records of files come before those of the topic, in the order of the files.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.frames import Frames, told
from eddy.connectors.spark.inputs import RAW
from eddy.connectors.spark.passes import Reader, arrow_schema, record_batch
from eddy.errors import ConfigurationError, DataError
from eddy.serde import Float64, Int64, Serde
from eddy.topology.plan import Source

__all__ = ["read_files"]

_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json"}
_TEXT = "key string, value string, timestamp long"


def read_files(frames: Frames, source: Source, path: str) -> tuple[DataFrame, Reader]:
    """The rows of files, and what makes records in `RAW` columns of them, their partition -1.

    Raises: ConfigurationError where the ending is not known, a column is missing or text cannot tell the bytes.
    """
    where = f"files {path} for topic '{source.topic}'"
    form = next((form for ending, form in _FORMATS.items() if path.rstrip("/*").endswith(ending)), None)
    if form is None:
        raise ConfigurationError(f"{where}: the ending tells no format; one of {', '.join(_FORMATS)} is needed")
    frame = _loaded(frames, path, form, where)
    if missing := sorted({"key", "value"} - set(frame.columns)):
        raise ConfigurationError(
            f"{where}: there is no column '{missing[0]}' among {', '.join(frame.columns)}; the columns key and value "
            "are needed, and timestamp, in milliseconds, may be there"
        )
    types: Mapping[str, str] = dict(frame.dtypes)
    columns = [f.col(name) if types[name] == "binary" else f.col(name).cast("string") for name in ("key", "value")]
    for name, serde in (("key", source.key), ("value", source.value)):
        if types[name] != "binary" and serde is not None and _reader(serde) is None:
            raise ConfigurationError(
                f"{where}: column '{name}' is text, and {serde.name} is not read from text; a column of bytes is "
                "needed, in a Parquet file"
            )
    time = f.col("timestamp").cast("long") if "timestamp" in frame.columns else f.lit(0).cast("long")
    raw = frame.select(
        *(column.cast("binary").alias(name) for name, column in zip("kv", columns, strict=True)),
        f.coalesce(time, f.lit(0)).alias("t"),
        f.lit(None).cast("binary").alias("h"),
        f.lit(-1).alias("p"),
        f.monotonically_increasing_id().alias("o"),
        f.lit(source.topic).alias("topic"),
    )
    readers = tuple(None if types[name] == "binary" else serde for name, serde in _serdes(source))
    return raw, _FromText(where, readers)


def _serdes(source: Source) -> list[tuple[str, Serde[Any] | None]]:
    return [("key", source.key), ("value", source.value)]


def _loaded(frames: Frames, path: str, form: str, where: str) -> DataFrame:
    reader = frames.spark.read
    if form == "csv":
        reader = reader.option("header", "true")
    if form == "json":
        reader = reader.schema(_TEXT)
    try:
        with told():
            return reader.format(form).load(path)
    except Exception as error:
        raise ConfigurationError(f"{where}: {error}; files that Spark can read are needed. Mend the path") from error


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
class _FromText:
    """Text, as bytes of UTF-8, as the bytes of a serde; None for what is bytes already."""

    where: str
    serdes: tuple[Serde[Any] | None, ...]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        schema = arrow_schema(RAW)
        for arrived in batches:
            columns = [column.to_pylist() for column in arrived.columns]
            for index, serde in enumerate(self.serdes):
                reader = None if serde is None else _reader(serde)
                if reader is not None:
                    columns[index] = [None if item is None else self._read(reader, item) for item in columns[index]]
            yield record_batch(columns, schema)

    def _read(self, reader: Callable[[str], bytes], item: bytes) -> bytes:
        try:
            return reader(item.decode())
        except ValueError as error:
            raise DataError(f"{self.where}: {json.dumps(item.decode(errors='replace'))}: {error}") from error
