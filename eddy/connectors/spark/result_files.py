"""Results as files in a lake: `backfill --out`. Nothing is written to the log, so that workers may run meanwhile.

    DIR/TOPIC/           the rows of a table, or the records of a stream, that the inputs give for an output
    DIR/_eddy.json       the application and the offsets of the inputs and of global tables, written after all rows

A table has the columns `key` and `value`, and a stream also `timestamp` and `headers`. Their types are the types that
`spark.read` has for the format `eddy`. All folders are results of the same offsets. After a run that was killed there
is no `_eddy.json`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from eddy.connectors.spark.arrow_functions import unpack_headers
from eddy.connectors.spark.backfill_checks import check_steps
from eddy.connectors.spark.backfilling import Backfill, Backfilled
from eddy.connectors.spark.computation import Application, Computed
from eddy.connectors.spark.files.history import read_histories
from eddy.connectors.spark.files.lake_formats import check_format
from eddy.connectors.spark.frames import Frames, spark_errors
from eddy.connectors.spark.source.spark_columns import HEADERS, arrow_schema_of, column_of
from eddy.errors import ConfigurationError, DataError
from eddy.runtime.decoded_columns import decoded
from eddy.serde import Plain, Serde
from eddy.topology.compiler.circuit_compiler import sink_serdes
from eddy.topology.plan.plan import Sink

__all__ = ["MANIFEST", "BackfillFiles"]

MANIFEST = "_eddy.json"
"""Spark ignores files whose names begin with an underscore."""
_UNFIT = (OverflowError, pa.ArrowException, TypeError, ValueError)


@dataclass(kw_only=True)
class BackfillFiles(Backfill):
    """A backfill into files below `folder`, in a format of Spark's. `replace` overwrites existing files."""

    folder: str
    form: str = "parquet"

    def run(self) -> Backfilled:
        """Compute and write. Raises: ConfigurationError if it is refused; DataError; LoopLimitError; ConnectorError."""
        self.stage("checks")
        where = f"backfill of application '{self.topology.name}' into {self.folder}"
        frames = Frames(self.spark, self.program, f"backfill {self.topology.name}")
        frames.spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        try:
            check_steps(self.topology, self.spark, self.one_task)
            check_format(self.spark, self.form, where)
            application = Application.of(self.topology, self.log, anew=True)
            forms = _forms(application, where)
            lake = _Lake(frames, self.folder)
            if not self.replace and (there := [name for name in (*forms, MANIFEST) if lake.has(name)]):
                raise ConfigurationError(
                    f"{where}: '{there[0]}' is there already; a folder without it is needed. Name another folder, "
                    "or overwrite the files: --replace"
                )
            histories = read_histories(
                frames, self.topology.name, application.sources, self.files, self.empty, self.columns
            )
            pinned, tick = self._pinned(application), self._tick(application)
            computation = self._computation(application, frames, pinned, histories, tick, traced=False)
            computation.check()
            self._enter(frames, "compute")
            computed = computation.run()
            tables = {topic: _rows(computed, form) for topic, form in forms.items()}
            with spark_errors():
                written = {topic: rows.count() for topic, rows in tables.items()}
            self._enter(frames, "write files")
            lake.remove(MANIFEST)
            for topic, rows in tables.items():
                mode = "overwrite" if lake.has(topic) else "error"  # Iceberg can overwrite only tables that exist
                with spark_errors():
                    _with_times(rows, computed.latest).write.save(lake.path(topic), self.form, mode)
            read = {"inputs": pinned.inputs} | ({"tables": pinned.tables} if pinned.tables else {})
            lake.write(MANIFEST, msgspec.json.encode({"application": self.topology.name} | read))
            return Backfilled(pinned, written, computed.left_out(), self._remarks(computation))
        finally:
            frames.release()


@dataclass(frozen=True)
class _Form:
    """An output: its sinks, and the serdes of its records."""

    sinks: tuple[Sink, ...]
    key: Serde[Any]
    value: Serde[Any]

    @property
    def facts(self) -> bool:
        return self.sinks[0].kind == "stream"

    @property
    def ddl(self) -> str:
        record = f", timestamp bigint, headers {HEADERS}" if self.facts else ""
        return f"key {column_of(self.key).ddl}, value {column_of(self.value).ddl}{record}"


def _forms(application: Application, where: str) -> dict[str, _Form]:
    """Return the outputs by topic. Raises: ConfigurationError if there is none, or one without serdes."""
    found: dict[str, _Form] = {}
    for sink, serdes in sink_serdes(application.topology.plan, application.counts).items():
        for part, serde in zip(("key", "value"), serdes, strict=True):
            if serde is Plain:
                raise ConfigurationError(
                    f"{where}: the topology does not tell the type of the {part}s of output '{sink.topic}'; a serde is "
                    f"needed. Name one: .to('{sink.topic}', {part}=…)"
                )
        before = found.get(sink.topic)
        found[sink.topic] = _Form((*(before.sinks if before else ()), sink), *serdes)
    if not found:
        raise ConfigurationError(f"{where}: the topology has no output; one is needed. Add .to(TOPIC)")
    return found


def _rows(computed: Computed, form: _Form) -> DataFrame:
    """Return the typed rows of an output, cached. Times are in milliseconds, null for merged rows.

    Deleted keys of a table are left out.
    """
    frames = computed.frames
    sent = frames.union([computed.results.sinks[sink] for sink in form.sinks], "")
    chosen = sent if form.facts else sent.where("v IS NOT NULL")
    schema = frames.spark.createDataFrame([], form.ddl).schema
    return frames.kept(frames.through(chosen, _Typed(form.sinks[0].topic, form.key, form.value, schema), form.ddl))


def _with_times(rows: DataFrame, latest: int) -> DataFrame:
    """Convert times to Spark's type. Merged rows get the latest time of the input, as in the topic."""
    if "timestamp" not in rows.columns:
        return rows
    return rows.withColumn("timestamp", f.timestamp_millis(f.coalesce("timestamp", f.lit(latest))))


@dataclass(frozen=True)
class _Typed:
    """Turns records of an output into typed columns."""

    topic: str
    key: Serde[Any]
    value: Serde[Any]
    schema: StructType

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Turn batches of encoded records, with the columns `SENT`, into batches with the output's typed columns.

        Raises: DataError for a value beyond Spark's type.
        """
        schema = arrow_schema_of(self.schema)
        for arrived in batches:
            read = {name: arrived.column(name).to_pylist() for name in ("k", "v", "t", "h")}
            columns = [self._column("key", read["k"], schema), self._column("value", read["v"], schema)]
            if "timestamp" in schema.names:
                headers = [[{"key": n, "value": data} for n, data in unpack_headers(row)] for row in read["h"]]
                columns += [pa.array(read["t"], pa.int64()), pa.array(headers, schema.field("headers").type)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _column(self, part: str, data: list[bytes | None], schema: Any) -> Any:
        serde = self.key if part == "key" else self.value
        column, kind, problems = column_of(serde), schema.field(part).type, dict[int, str]()
        values = decoded(data, serde, part, problems, headers=None)
        for place, problem in problems.items():
            raise self._error(part, data[place], problem)
        try:
            return pa.array(column.values(values), kind)
        except _UNFIT:
            for item, value in zip(data, values, strict=True):
                try:
                    pa.array(column.values([value]), kind)
                except _UNFIT as error:
                    raise self._error(part, item, f"it does not fit Spark's {column.ddl}: {error}") from error
            raise

    def _error(self, part: str, data: bytes | None, problem: str) -> DataError:
        return DataError(
            f"output '{self.topic}': the {part} {data!r:.100}: {problem}; a serde that fits is needed. Name it: "
            f".to('{self.topic}', {part}=…)"
        )


class _Lake:
    """A folder on any file system that Spark can write."""

    def __init__(self, frames: Frames, folder: str) -> None:
        self._hadoop: Any = frames.spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
        self._root = self._hadoop.Path(folder)
        self._files = self._root.getFileSystem(frames.spark.sparkContext._jsc.hadoopConfiguration())
        self._root = self._files.makeQualified(self._root)

    def path(self, name: str) -> str:
        return f"{self._root.toString()}/{name}"

    def has(self, name: str) -> bool:
        with spark_errors():
            return bool(self._files.exists(self._hadoop.Path(self._root, name)))

    def remove(self, name: str) -> None:
        with spark_errors():
            self._files.delete(self._hadoop.Path(self._root, name), True)

    def write(self, name: str, data: bytes) -> None:
        with spark_errors():
            stream = self._files.create(self._hadoop.Path(self._root, name), True)
            stream.write(bytearray(data))
            stream.close()
