"""Frames: the few things that the compiler asks of Spark, all on rows under the columns of `passes`.

Spark's adaptive execution is off in the session used here: a loop is many small jobs over frames that lie as
the next one needs them, and adaptive plans forget how frames lie.
"""

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

from eddy.connectors.spark.passes import FACTS, ROWS, arrow_schema
from eddy.connectors.spark.ship import Shipped
from eddy.errors import ConnectorError, DataError, EddyError, LoopLimitError

__all__ = ["Frames", "Maximum", "Piles", "be32", "be64", "names", "told", "with_suffix"]

_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
}
_RAISED: Mapping[str, type[EddyError]] = {kind.__name__: kind for kind in (LoopLimitError, DataError)}
_RAISED_IN_A_WORKER = re.compile(
    r"^eddy\.errors\.(\w+): (.*?)(?=\n\s*\n|\n\tat |\nDriver stacktrace|\Z)", re.MULTILINE | re.DOTALL
)
_MERGED = 16


def names(schema: str) -> list[str]:
    """The columns of a schema."""
    return [column.split()[0] for column in schema.split(",")]


def be64(number: Column) -> Column:
    """A number as eight bytes, big-endian."""
    return f.unhex(f.lpad(f.hex(number.cast("long")), 16, "0"))


def be32(number: Column) -> Column:
    """A number from 0 on as four bytes, big-endian."""
    return f.unhex(f.lpad(f.hex(number.cast("long")), 8, "0"))


def with_suffix(frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """These columns alone, under other names."""
    return frame.select(*(f.col(old).alias(new) for old, new in columns.items()))


class Frames:
    """A session, and how many partitions its shuffles have. `program` is the module of the author's file."""

    def __init__(self, spark: SparkSession, program: str | None = None) -> None:
        self.spark = spark.newSession()
        for name, value in _SETTINGS.items():
            self.spark.conf.set(name, value)
        self.partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 200)
        self.spark.conf.set("spark.sql.shuffle.partitions", str(self.partitions))
        self._program = program
        self._reliable = spark.sparkContext.getCheckpointDir() is not None
        self._kept: list[DataFrame] = []

    def empty(self, schema: str = ROWS) -> DataFrame:
        """No rows."""
        return self.rows([], schema)

    def rows(self, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
        """Some rows of the driver's."""
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
        """`frame` through a function over Arrow batches, in Python workers. `latest` is told the times of `RECORDS`."""
        shipped = Shipped(function, self._program)
        return frame.mapInArrow(shipped if latest is None else latest.told_by(shipped), schema)

    def maximum(self) -> "Maximum":
        """A number that tasks make larger."""
        return Maximum(self.spark.sparkContext.accumulator(0, _Larger()))

    def consolidated(self, frame: DataFrame) -> DataFrame:
        """Equal rows merged, none with weight 0, lying by key."""
        return (
            frame.repartition(self.partitions, "k")
            .groupBy("k", "v")
            .agg(f.max("kc").alias("kc"), f.max("vc").alias("vc"), f.sum("w").alias("w"))
            .where("w <> 0")
            .select(*names(ROWS))
        )

    def difference(self, new: DataFrame, old: DataFrame) -> DataFrame:
        """What of rows has come and, with weights below 0, gone."""
        return self.consolidated(new.unionByName(old.withColumn("w", -f.col("w"))))

    def by_key(self, frame: DataFrame, *within: str | Column) -> DataFrame:
        """Rows lying by key, and sorted by it and then by `within`."""
        return frame.repartition(self.partitions, "k").sortWithinPartitions("k", *within)

    def union(self, frames: Sequence[DataFrame], schema: str | StructType) -> DataFrame:
        """All rows of all."""
        if not frames:
            return self.spark.createDataFrame([], schema)
        whole = frames[0]
        for other in frames[1:]:
            whole = whole.unionByName(other)
        return whole

    def settled(self, frame: DataFrame) -> DataFrame:
        """The same, computed, without what it came of: a checkpoint where the session has a place for one."""
        with told():
            return frame.checkpoint() if self._reliable else frame.localCheckpoint()

    def kept(self, frame: DataFrame) -> DataFrame:
        """The same, kept where it is computed first, until `release`."""
        self._kept.append(frame.persist())
        return self._kept[-1]

    def release(self) -> None:
        """Let go what was kept."""
        for frame in reversed(self._kept):  # what was made of others first: else Spark plans it anew each time
            frame.unpersist()
        self._kept = []

    def lazy(self, frame: DataFrame) -> DataFrame:
        """The same, to be settled by the first job that reads all of it."""
        with told():
            return frame.checkpoint(eager=False) if self._reliable else frame.localCheckpoint(eager=False)

    def marks(self, made: Sequence[DataFrame]) -> list[tuple[int, int]]:
        """For each frame the number of its rows and a hash of them all, whatever their order: one job."""
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
        with told():
            row = self.union(each, "").agg(*totals).first()
        assert row is not None
        return [(row[2 * at], row[2 * at + 1] or 0) for at in range(len(made))]

    def marked(self, made: Sequence[DataFrame]) -> tuple[list[DataFrame], list[tuple[int, int]]]:
        """Frames settled, with their marks, in one job."""
        settled = [self.lazy(frame) for frame in made]
        return settled, self.marks(settled)

    def facts(self, frame: DataFrame) -> DataFrame:
        """Rows as facts without a time of their own."""
        stamps = {"t": f.lit(None).cast("long"), "s": f.lit(b""), "h": f.lit(None).cast("binary")}
        return frame.withColumns(stamps).select(*names(FACTS))


class _Larger(AccumulatorParam[int]):
    def zero(self, value: int) -> int:
        return 0

    def addInPlace(self, value1: int, value2: int) -> int:  # noqa: N802 - Spark's name
        return max(value1, value2)


class Maximum:
    """The largest of the times that tasks have seen, at least 0. A task that is run again changes nothing."""

    def __init__(self, accumulator: Accumulator[int]) -> None:
        self._accumulator = accumulator

    @property
    def value(self) -> int:
        """What it is behind the jobs so far."""
        return self._accumulator.value

    def told_by(self, function: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
        """A function that makes `RECORDS`; the times of those that are not left out are seen."""
        return _Telling(function, self._accumulator)


class _Telling:
    """Pickled anew for each task, as accumulators have to be."""

    def __init__(self, function: Callable[[Any], Iterator[Any]], latest: Accumulator[int]) -> None:
        self._function, self._latest = function, latest

    def __call__(self, batches: Any) -> Iterator[Any]:
        for batch in self._function(batches):
            times = batch.column("t").filter(pyarrow.compute.is_null(batch.column("bad")))
            self._latest.add(pyarrow.compute.max(times).as_py() or 0)
            yield batch


class Piles:
    """Frames that are summed up as they come: a loop of many rounds leaves few frames behind."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._pile: list[DataFrame] = []

    def add(self, frame: DataFrame) -> None:
        """Take one in, settled before."""
        self._pile.append(frame)
        if len(self._pile) >= _MERGED:
            self._pile = [self._frames.settled(self.sum().coalesce(self._frames.partitions))]

    def sum(self) -> DataFrame:
        """All rows, not consolidated."""
        return self._frames.union(self._pile, ROWS)


class told:  # noqa: N801 - reads as a part of a sentence
    """Within it, what went wrong in a Spark job is raised as eddy's error."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, pyspark.errors.PySparkException) or type(error).__name__ == "Py4JJavaError":
            raise error_of(str(error)) from error


def error_of(text: str) -> EddyError:
    """The error of eddy's that a Python worker raised, or else one of Spark's.

    >>> error_of("…\\nTraceback …\\neddy.errors.DataError: step 'x': the function raised E\\n\\tat org.apache…")
    DataError("step 'x': the function raised E")
    """
    found = _RAISED_IN_A_WORKER.search(text)
    if found:
        return _RAISED.get(found[1], DataError)(found[2].strip())
    lines = [line for line in text.splitlines() if line.strip()]
    return ConnectorError(f"spark: {' '.join(lines[:3])[:1500]}; a job that ends is needed. See Spark's own log")
