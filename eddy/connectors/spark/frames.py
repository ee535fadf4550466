"""The operations on DataFrames that the compiler uses, all on rows with the columns of `arrow_functions`.

Spark's adaptive execution is off in the session used here. A loop is many small jobs over frames that are partitioned
as the next job needs them, and adaptive plans forget the partitioning.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyspark.errors
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from eddy.connectors.spark.arrow_functions import FACTS, ROWS, arrow_schema
from eddy.connectors.spark.job_descriptions import JobDescriptions
from eddy.connectors.spark.pickling import Pickled
from eddy.errors import ConfigurationError, ConnectorError, DataError, EddyError, LoopLimitError

__all__ = [
    "Frames",
    "Maximum",
    "RunningUnion",
    "activate",
    "be32",
    "be64",
    "names",
    "spark_errors",
    "with_suffix",
]

_log = logging.getLogger("eddy.spark")
_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.session.timeZone": "UTC",  # the zone of timestamps without a zone, on every machine
}
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings for the few records of one partition, for which generated Java code costs more than it saves."""
_KINDS = (ConfigurationError, ConnectorError, DataError, LoopLimitError)
_RAISED: Mapping[str, type[EddyError]] = {kind.__name__: kind for kind in _KINDS}
_CHAINED = re.compile(
    r"^(?:During handling of the above exception, another|The above exception was the direct).*\n", re.M
)
_MALFORMED = re.compile(
    r"FAILED_READ_FILE.*? reading file (\S+?)\.\s.*?MALFORMED_RECORD_IN_PARSING.*?: (\[.*?\])\.", re.S
)
_JSON_REASON = re.compile(r"Json(?:Parse|EOF)Exception: (.+?)(?: \(start marker.*)?$", re.M)
"""Find, in Spark's error for a line that does not fit the schema, the file with the fields that were read, and why."""
_RAISED_IN_A_WORKER = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ ]{2}[^\n]*\n)*(.*?)"
    r"(?=\n\s*(?:\tat (?:org\.apache|java|scala)|SQLSTATE: \w+$|JVM stacktrace|Driver stacktrace)|\s*\Z)",
    re.MULTILINE | re.DOTALL,
)
_OF_EDDY = re.compile(r"eddy\.errors\.(\w+): (.*)", re.DOTALL)
_LONGEST_MESSAGE = 1500
_MERGED = 16
_RECORDS_A_PARTITION = 5_000
_FEW_RECORDS = 50_000
"""Up to this many records, plans cost more than rows, so each kept frame begins a new plan."""


def names(schema: str) -> list[str]:
    """Return the names of the columns of a schema."""
    return [column.split()[0] for column in schema.split(",")]


def be64(number: Column) -> Column:
    """Encode a number as eight bytes, big-endian."""
    return f.unhex(f.lpad(f.hex(number.cast("long")), 16, "0"))


def be32(number: Column) -> Column:
    """Encode a non-negative number as four bytes, big-endian."""
    return f.unhex(f.lpad(f.hex(number.cast("long")), 8, "0"))


def with_suffix(frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """Select columns of a frame, and rename each to its name in `columns`."""
    return frame.select(*(f.col(old).alias(new) for old, new in columns.items()))


def activate(spark: SparkSession) -> None:
    """Make a session the active session of this thread, in which Spark looks up the formats of frames to be written.

    This is needed because PySpark makes each session active in which a frame is made of rows.
    """
    jvm: Any = spark._jvm
    SparkSession._activeSession = spark  # private: as PySpark itself does
    jvm.SparkSession.setActiveSession(spark._jsparkSession)


class Frames:
    """The operations on frames of one Spark session.

    `partitions` is the partition count of shuffles. `program` is the module of the author's file. `command` begins the
    descriptions of Spark's `jobs`.
    """

    def __init__(self, spark: SparkSession, program: str | None = None, command: str = "eddy") -> None:
        self._active = SparkSession.getActiveSession() or spark
        self.spark = spark.newSession()
        for name, value in _SETTINGS.items():
            self.spark.conf.set(name, value)
        self.partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 200)
        self._few = False
        self.fit(None)
        self.jobs = JobDescriptions(spark.sparkContext, command)
        self._program = program
        self._reliable = spark.sparkContext.getCheckpointDir() is not None
        if not self._reliable and not str(spark.sparkContext.master).startswith("local"):
            _log.warning(
                "spark: master %s without a folder for checkpoints: if an executor is lost, the job fails; a folder "
                "that all executors reach is needed. Set it: --conf spark.checkpoint.dir=…",
                spark.sparkContext.master,
            )
        self._kept: list[DataFrame] = []
        self._settled: list[DataFrame] = []

    def fit(self, records: int | None) -> None:
        """Adapt to the number of input records: if they are few, use fewer partitions, and interpret plans."""
        if records is not None:
            self._few = records <= _FEW_RECORDS
            self.partitions = min(self.partitions, records // _RECORDS_A_PARTITION + 1)
            if records <= _RECORDS_A_PARTITION:
                for name, value in _INTERPRETED.items():
                    self.spark.conf.set(name, value)
        self.spark.conf.set("spark.sql.shuffle.partitions", str(self.partitions))

    def empty(self, schema: str = ROWS) -> DataFrame:
        """Return a frame without rows."""
        return self.rows([], schema)

    def rows(self, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
        """Make a frame of rows that the driver has."""
        arrow = arrow_schema(schema)
        columns = list(zip(*rows, strict=True)) or [()] * len(arrow)
        table = pa.table([pa.array(column, field.type) for column, field in zip(columns, arrow, strict=True)], arrow)
        return self.spark.createDataFrame(table, schema)

    def through(
        self,
        frame: DataFrame,
        function: Callable[[Any], Iterator[Any]],
        schema: str,
        latest: "Maximum | None" = None,
    ) -> DataFrame:
        """Return the batches that `function` makes of a frame's Arrow batches, as a frame; it runs in Python workers.

        `latest` observes the times of records, if the result has the columns `RECORDS`.
        """
        pickled = Pickled(function, self._program)
        return frame.mapInArrow(pickled if latest is None else latest.observing(pickled), schema)

    def maximum(self, known: int = 0) -> "Maximum":
        """Return a new maximum over all tasks, which is at least `known`."""
        return Maximum(self.spark.sparkContext.accumulator(known, _Larger()))

    def partitioned(self, frame: DataFrame, key: str = "k") -> DataFrame:
        """Partition a frame by a column. One partition needs no shuffle, and so no stage of its own."""
        return frame.coalesce(1) if self.partitions == 1 else frame.repartition(self.partitions, key)

    def consolidated(self, frame: DataFrame) -> DataFrame:
        """Merge equal rows and drop rows of weight 0. The result is partitioned by key."""
        return (
            self.partitioned(frame)
            .groupBy("k", "v")
            .agg(f.max("kc").alias("kc"), f.max("vc").alias("vc"), f.sum("w").alias("w"))
            .where("w <> 0")
            .select(*names(ROWS))
        )

    def difference(self, new: DataFrame, old: DataFrame) -> DataFrame:
        """Return the rows that `new` has more than `old`, and, with negative weights, the rows that it has less."""
        return self.consolidated(new.unionByName(old.withColumn("w", -f.col("w"))))

    def by_key(self, frame: DataFrame, *within: str | Column) -> DataFrame:
        """Partition rows by key, and sort them by key and then by `within`."""
        return self.partitioned(frame).sortWithinPartitions("k", *within)

    def in_order(self, raw: DataFrame, timed: Sequence[str]) -> DataFrame:
        """Put `RAW` records into one partition, sorted by topic, then partition, then offset.

        Records of files are sorted by time first, if their topic is in `timed`.
        """
        by_time = f.when((f.col("p") < 0) & f.col("topic").isin(list(timed)), f.col("t"))
        return raw.coalesce(1).sortWithinPartitions("topic", "p", by_time, "o")

    def union(self, frames: Sequence[DataFrame], schema: str | StructType) -> DataFrame:
        """Return the rows of all frames. Halves are united first, since Spark checks the whole plan at each union."""
        if not frames:
            return self.spark.createDataFrame([], schema)
        if len(frames) == 1:
            return frames[0]
        half = len(frames) // 2
        return self.union(frames[:half], schema).unionByName(self.union(frames[half:], schema))

    def settled(self, frame: DataFrame) -> DataFrame:
        """Compute a frame, and return its rows without a plan, as a checkpoint if the session has a folder for them."""
        with spark_errors():
            return frame.checkpoint() if self._reliable else frame.localCheckpoint()

    def kept(self, frame: DataFrame) -> DataFrame:
        """Return a frame that is cached from its first computation until `release`.

        With each step after a frame, Spark checks, plans and serializes the frame's whole plan, even if the frame is
        cached. So if there are few records, the frame begins a plan of its own.
        """
        if self._few:
            self._settled.append(self.settled(frame) if self._reliable else self.lazy(frame))
            return self._settled[-1]
        self._kept.append(frame.persist())
        return self._kept[-1]

    def release(self) -> None:
        """Drop all kept frames and the description of jobs, and restore the active session."""
        self.jobs.close()
        activate(self._active)
        self.drop([*self._settled, *self._kept])

    def drop(self, frames: Sequence[DataFrame]) -> None:
        """Release the cached rows of `frames`, as far as `kept` has cached them. No frame may be made from them later.

        The last frames are released first. Otherwise Spark would plan frames derived from a released frame again.
        """
        for frame in reversed(frames):
            if frame in self._kept:
                self._kept.remove(frame)
                frame.unpersist()
            elif frame in self._settled:
                self._settled.remove(frame)
                frame._jdf.queryExecution().logical().rdd().unpersist(False)  # private: PySpark has no way to drop one

    def lazy(self, frame: DataFrame) -> DataFrame:
        """Return a frame that becomes a checkpoint with the first job that reads all its rows."""
        with spark_errors():
            return frame.checkpoint(eager=False) if self._reliable else frame.localCheckpoint(eager=False)

    def marks(self, made: Sequence[DataFrame]) -> list[tuple[int, int]]:
        """Return, for each frame, the number of its rows and a hash of them that ignores their order. Runs one job."""
        hashed = f.xxhash64("k", "v", "w").alias("hash")
        each = [frame.select(f.lit(at).alias("at"), hashed) for at, frame in enumerate(made)]
        totals = [
            total
            for at in range(len(made))
            for total in (
                f.count_if(f.col("at") == at),
                f.bit_xor(f.when(f.col("at") == at, f.col("hash")).otherwise(0)),
            )
        ]
        with spark_errors():
            row = self.union(each, "").agg(*totals).first()
        assert row is not None
        return [(row[2 * at], row[2 * at + 1] or 0) for at in range(len(made))]

    def marked(self, made: Sequence[DataFrame]) -> tuple[list[DataFrame], list[tuple[int, int]]]:
        """Checkpoint frames, and return them with their `marks`, in one job."""
        settled = [self.lazy(frame) for frame in made]
        return settled, self.marks(settled)

    def facts(self, frame: DataFrame) -> DataFrame:
        """Turn rows into facts without times."""
        stamps = {"t": f.lit(None).cast("long"), "s": f.lit(b""), "h": f.lit(None).cast("binary")}
        return frame.withColumns(stamps).select(*names(FACTS))


def without_tail(keys: Column, tail: int) -> Column:
    """Return the part of encoded keys that decides their partition, see `Serde.tail`."""
    return keys if tail == 0 else f.substring(keys, f.lit(1), f.length(keys) - tail)


class _Larger(AccumulatorParam[int]):
    def zero(self, value: int) -> int:
        return 0

    def addInPlace(self, value1: int, value2: int) -> int:  # noqa: N802 - Spark's name
        return max(value1, value2)


class Maximum:
    """The greatest time of the records that Spark's tasks have seen, at least 0, even if tasks run again."""

    def __init__(self, accumulator: Accumulator[int]) -> None:
        self._accumulator = accumulator

    @property
    def value(self) -> int:
        """The maximum over the jobs so far."""
        return self._accumulator.value

    def observing(self, function: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
        """Return a function that makes the records that `function` makes, and adds their times to the maximum."""
        return _Observing(function, self._accumulator)


class _Observing:
    """Adds the times of the records that a function makes to a maximum. It is pickled anew for each task.

    Spark's accumulators require this.
    """

    def __init__(self, function: Callable[[Any], Iterator[Any]], latest: Accumulator[int]) -> None:
        self._function, self._latest = function, latest

    def __call__(self, batches: Any) -> Iterator[Any]:
        for batch in self._function(batches):
            times = batch.column("t").filter(pyarrow.compute.is_null(batch.column("bad")))
            self._latest.add(pyarrow.compute.max(times).as_py() or 0)
            yield batch


class RunningUnion:
    """A union to which frames are added. They are merged from time to time, so that a long loop has few frames."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._parts: list[DataFrame] = []

    def add(self, frame: DataFrame) -> None:
        """Add a checkpointed frame."""
        self._parts.append(frame)
        if len(self._parts) >= _MERGED:
            self._parts = [self._frames.settled(self.sum().coalesce(self._frames.partitions))]

    def sum(self) -> DataFrame:
        """Return the rows of all added frames. Equal rows are not merged."""
        return self._frames.union(self._parts, ROWS)


class spark_errors:  # noqa: N801 - reads as a part of a sentence
    """A context manager that re-raises failures of a Spark job as errors of eddy."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, pyspark.errors.PySparkException) or type(error).__name__ == "Py4JJavaError":
            raise error_of(str(error)) from error


def error_of(text: str) -> EddyError:
    """Return eddy's error that a Python worker raised, from Spark's text of the failure.

    If there is none, return a ConnectorError with the last lines of Spark's traceback.

    >>> trace = "…: An exception was thrown:\\nTraceback (most recent call last):\\n  File …\\n    raise …\\n"
    >>> error_of(f"{trace}eddy.errors.DataError: step 'x':\\n\\nthe function raised E\\n\\n\\tat org.apache…")
    DataError("step 'x':\\n\\nthe function raised E")
    >>> print(error_of(f"{trace}ImportError: no 'family'\\n SQLSTATE: 38000"))
    spark: a Python worker raised ImportError: no 'family'; the job has failed. See Spark's own log
    """
    found = _RAISED_IN_A_WORKER.search(_CHAINED.split(text)[-1])
    if found is None and (malformed := _MALFORMED.search(text)):
        reason = _JSON_REASON.search(text)
        return DataError(
            f"file {malformed[1]}: a line is not a JSON object: "
            f"{reason[1] if reason else 'a field is of another type'}, "
            f"after {malformed[2]}; an object in each line, in UTF-8, with key, value and perhaps timestamp, is needed"
        )
    if found is None:
        lines = [line for line in text.splitlines() if line.strip()]
        return ConnectorError(
            f"spark: {' '.join(lines[:3])[:_LONGEST_MESSAGE]}; the job has failed. See Spark's own log"
        )
    if ours := _OF_EDDY.fullmatch(found[1]):
        return _RAISED.get(ours[1], DataError)(ours[2])
    return ConnectorError(
        f"spark: a Python worker raised {found[1][-_LONGEST_MESSAGE:]}; the job has failed. See Spark's own log"
    )
