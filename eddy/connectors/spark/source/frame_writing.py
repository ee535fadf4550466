"""Writing frames and streams of Spark to a topic.

Tasks encode their rows; the driver's Python process writes the rows of all tasks, by `job_writing.py`. So a task that
Spark repeats writes nothing twice, even if its rows are others the second time.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from eddy.connectors.log import Headers
from eddy.connectors.spark.arrow_functions import pack_headers
from eddy.connectors.spark.inputs import OpenLog
from eddy.connectors.spark.pickling import Pickled
from eddy.connectors.spark.source.job_writing import ENCODED, JobWriting
from eddy.connectors.spark.source.pinned_source import topic_form
from eddy.connectors.spark.source.source_options import (
    WRITE_OPTIONS,
    NamedLog,
    check_names,
    needed,
    option_error,
)
from eddy.connectors.spark.source.spark_columns import HEADERS, column_of
from eddy.errors import ConnectorError, DataError
from eddy.serde import Serde, reason_of

__all__ = ["FrameWriter", "JobTarget", "RowEncoding", "TaskRows"]

_ALIKE = {"tinyint": "bigint", "smallint": "bigint", "int": "bigint", "float": "double"}
"""For types of Spark, the wider type that has all their values."""


@dataclass(frozen=True)
class JobTarget:
    """The topic that the options of a write name, the encoding of its rows, and the job."""

    open_log: OpenLog
    topic: str
    job: str
    batch: int
    tail: int
    encoding: Pickled

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, overwrite: bool) -> "JobTarget":
        """Check the options and the columns. Raises: ConfigurationError; ConnectorError."""
        check_names("write", options, WRITE_OPTIONS)
        if overwrite:
            raise option_error("write", "a topic is only appended to. Write .mode('append')")
        job, batch = needed("write", options, "job", "'NAME-OF-THIS-WRITE'"), options.get("batch", "0")
        if not batch.isdecimal():
            raise option_error("write", f"option 'batch' is '{batch}'; a number from 0 on is needed. Correct it")
        named = NamedLog.of("write", options)
        with contextlib.closing(named.open_log()) as log:
            form = topic_form("write", options, named, log)
        _check_columns(schema, form.key, form.value)
        encoding = Pickled(RowEncoding(form.topic, form.key, form.value), form.module)
        return cls(named.open_log, form.topic, job, int(batch), form.key.tail, encoding)

    def write(self, messages: Iterable[Any], batch: int | None = None) -> None:
        """Write the rows of all tasks. Raises: as `JobWriting.write`."""
        tables = [pa.ipc.open_stream(message.data).read_all() for message in messages if message is not None]
        writing = JobWriting(self.job, self.topic, self.batch if batch is None else batch, self.tail)
        with contextlib.closing(self.open_log()) as log:
            writing.write(log, tables)


def _check_columns(schema: StructType, key: Serde[Any], value: Serde[Any]) -> None:
    """Refuse columns that a record does not have, or whose type the topic's serdes do not accept."""
    wanted = {"key": column_of(key).ddl, "value": column_of(value).ddl, "timestamp": "timestamp", "headers": HEADERS}
    given = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in given:
        raise option_error("write", f"the frame has the columns {', '.join(given)}; 'value' is needed. Name it so")
    for name, type in given.items():
        if name not in wanted:
            raise option_error(
                "write",
                f"column '{name}' has no place in a record; columns among {', '.join(wanted)} are needed. Select them: "
                ".select('key', 'value')",
            )
        if wanted[name].replace("`", "") not in (type, _ALIKE.get(type)):
            raise option_error(
                "write",
                f"column '{name}' is {type}; {wanted[name]} is needed for the serde of the {name}s. Cast it, or name a "
                f"serde that fits: .option('{name}', …)",
            )


class TaskRows(WriterCommitMessage):
    """The encoded rows of a task, as a stream of Arrow."""

    def __init__(self, data: bytes) -> None:
        self.data = data


@dataclass(frozen=True)
class RowEncoding:
    """Encodes batches with the columns of a frame as `ENCODED` batches."""

    topic: str
    key: Serde[Any]
    value: Serde[Any]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Encode rows. Raises: DataError for a value that its serde does not accept."""
        for batch in batches:
            count, columns = batch.num_rows, dict(zip(batch.schema.names, batch.columns, strict=True))
            nothing = [None] * count
            headers: Sequence[Headers] | None = None
            if "headers" in columns:
                headers = list(map(self._headers, columns["headers"].to_pylist()))
            keys = self._encoded(self.key, columns["key"], "key") if "key" in columns else nothing
            data, headers = self.key.ids_apart(keys, headers)
            bodies, headers = self.value.ids_apart(self._encoded(self.value, columns["value"], "value"), headers)
            encoded = [
                _times(columns["timestamp"]) if "timestamp" in columns else nothing,
                data,
                bodies,
                nothing if headers is None else list(map(pack_headers, headers)),
            ]
            arrays = [pa.array(column, field.type) for column, field in zip(encoded, ENCODED, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=ENCODED)

    def _headers(self, pairs: Any) -> Headers:
        headers = tuple((pair["key"], pair["value"] or b"") for pair in pairs or ())
        return self.key.without_ids(self.value.without_ids(headers))

    def _encoded(self, serde: Serde[Any], column: Any, part: str) -> list[bytes | None]:
        back, values, found = column_of(serde).back, column.to_pylist(), []
        if back is None and None not in values:
            with contextlib.suppress(Exception):  # the loop below finds the value that fails, and names it
                return [*serde.encode_many(values)]
        for value in values:
            try:
                found.append(None if value is None else serde.encode(back(value) if back else value))
            except ConnectorError:
                raise
            except Exception as error:
                raise DataError(
                    f"spark write of format 'eddy': topic '{self.topic}': the {part} {value!r:.200} is not a "
                    f"valid {serde.name}: {reason_of(error)}; a value that fits is needed. Correct it, or filter it out"
                ) from error
        return found


def _times(column: Any) -> list[int | None]:
    """Convert timestamps to milliseconds since 1970. Raises: DataError for an earlier time."""
    micros: list[int | None] = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    if (earliest := min((at for at in micros if at is not None), default=0)) < 0:
        raise DataError(
            f"spark write of format 'eddy': a timestamp is {-earliest} µs before 1970; a later one is needed. "
            "Correct it, or filter it out"
        )
    return [None if at is None else at // 1000 for at in micros]


def encoded_rows(encoding: Pickled, batches: Iterable[Any]) -> TaskRows:
    """Encode the rows of a task, for its message to the driver."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ENCODED, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        for batch in encoding(batches):
            stream.write_batch(batch)
    return TaskRows(sink.getvalue().to_pybytes())


class FrameWriter(DataSourceArrowWriter):
    """Writes a frame: tasks encode, the driver writes."""

    def __init__(self, job: JobTarget) -> None:
        self._job = job

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Encode the rows of a task."""
        return encoded_rows(self._job.encoding, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the rows of all tasks."""
        self._job.write(messages)
