"""A full outer join of expected and found rows: by key, or by record for the facts of a stream.

A record outside of the partition of its key is *misplaced*: a reader of the key's partition does not see it. If the
input determines the order of a key's facts, equal records in another order are a difference.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from eddy.connectors.spark.arrow_functions import Reader, arrow_schema
from eddy.connectors.spark.frames import Frames, be64, names
from eddy.connectors.spark.inputs import RAW, OffsetRange, OpenLog, topics_to_read
from eddy.partitioner import Partitioner, partitions_of
from eddy.state.row_layout import key_in

__all__ = ["DIFF", "KeyPartitions", "diff", "diff_by_canonical_keys", "in_order", "read_placed"]

DIFF = (
    "topic string, k binary, expected binary, found binary, times_expected long, times_found long, misplaced int, "
    "differs boolean"
)
"""The columns of a diff. `misplaced` is a partition other than the key's that has a record of the key, or null."""
PLACED = f"{RAW}, misplaced int"


@dataclass(frozen=True)
class KeyPartitions:
    """Finds the partitions to which the records of topics belong by their keys.

    `partitions` has the topics' partition counts, `kinds` the kinds of the states whose rows they have.

    `untold` are the topics whose keys do not determine partitions: of key-value stores, and of sinks with a partitioner
    of the author's. `tails` has, by topic, the number of last bytes of keys that do not count, see `Serde.tail`.
    """

    partitioner: Partitioner
    partitions: Mapping[str, int]
    kinds: Mapping[str, str]
    tails: Mapping[str, int]
    untold: Set[str]

    def of(self, topic: str, keys: list[bytes | None], partition: int) -> list[int]:
        """Return the partition to which each record found in `partition` belongs; 0 for a record without a key."""
        count, kind = self.partitions[topic], self.kinds[topic]
        if count == 1 or topic in self.untold:
            return [partition] * len(keys)
        found = iter(
            partitions_of([key_in(kind, k) for k in keys if k is not None], count, self.partitioner, self.tails[topic])
        )
        return [0 if key is None else next(found) for key in keys]


@dataclass(frozen=True)
class _Placed:
    """Reads records and marks those that are misplaced."""

    reading: Reader
    homes: KeyPartitions

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Read the ranges (topic, partition, start, end) as `PLACED` columns."""
        schema = arrow_schema(PLACED)
        for batch in self.reading(batches):  # all rows of a batch are from one partition
            topic, partition = batch.column("topic")[0].as_py(), batch.column("p")[0].as_py()
            homes = self.homes.of(topic, batch.column("k").to_pylist(), partition)
            misplaced = pa.array([int(home != partition) for home in homes], pa.int32())
            yield pa.RecordBatch.from_arrays([*batch.columns, misplaced], schema=schema)


def read_placed(
    frames: Frames, open_log: OpenLog, topics: Mapping[str, Sequence[OffsetRange]], homes: KeyPartitions
) -> DataFrame:
    """Read the committed records of topics in `PLACED` columns."""
    wanted, reading = topics_to_read(frames, open_log, topics)
    return frames.through(wanted, _Placed(reading, homes), PLACED)


def diff(expected: DataFrame, found: DataFrame, facts: bool) -> DataFrame:
    """Join expected and found rows; both sides are shuffled once, together.

    `expected` has the columns `topic k v`, `found` has `PLACED` columns. In a table only the last record of each key
    counts, and a deleted key is absent.
    """
    expects, misplaced = f.col("side") == 0, f.col("misplaced") == 1
    nowhere = (f.lit(None).cast(kind).alias(name) for name, kind in (("o", "long"), ("p", "int"), ("misplaced", "int")))
    one = expected.select("topic", "k", "v", *nowhere, f.lit(0).alias("side"))
    whole = one.unionByName(found.select("topic", "k", "v", "o", "p", "misplaced", f.lit(1).alias("side")))
    times = f.count_if(expects).alias("times_expected")
    if facts:
        misplaced = f.max(f.when(misplaced, f.col("p"))).alias("misplaced")
        rows = whole.groupBy("topic", "k", "v").agg(times, f.count_if(~expects).alias("times_found"), misplaced)
        rows = rows.withColumns({"expected": _if("times_expected"), "found": _if("times_found")})
        return _judged(rows, f.col("expected").eqNullSafe(f.col("found")))
    last = f.max_by(f.struct("v"), f.when(~expects & ~misplaced, f.col("o"))).alias("last")
    what = f.max(f.when(expects, f.col("v"))).alias("expected")
    rows = whole.groupBy("topic", "k").agg(times, what, last, _misplaced(misplaced))
    rows = rows.where("times_expected > 0 OR last.v IS NOT NULL OR misplaced IS NOT NULL")
    rows = rows.withColumns({"found": f.col("last.v"), "times_found": f.col("last.v").isNotNull().cast("long")})
    return _judged(rows, f.col("expected").eqNullSafe(f.col("found")))


def in_order(rows: DataFrame, expected: DataFrame, found: DataFrame) -> DataFrame:
    """Mark in `rows`, the diff of facts, the first record of each key that was found in another record's place.

    `expected` has the columns `topic k v s`, sorted by `s` within a key; `found` has `PLACED` columns. A key's order is
    compared only if the found records of the key are the expected records.
    """
    one = expected.select("topic", "k", "v", f.col("s").alias("place"), f.lit(0).alias("side"))
    other = found.where("misplaced = 0").select(
        "topic", "k", "v", be64(f.col("o")).alias("place"), f.lit(1).alias("side")
    )
    nth = f.row_number().over(Window.partitionBy("topic", "k", "side").orderBy("place"))
    sides = (
        one.unionByName(other)
        .repartition("topic", "k")
        .withColumns({"at": nth, "hash": f.xxhash64("v").cast("decimal(20,0)")})
    )
    expects = f.col("side") == 0
    each = sides.groupBy("topic", "k", "at").agg(
        f.count("*").alias("sides"),
        f.max(f.when(expects, f.col("v"))).alias("expected"),
        f.max(f.when(~expects, f.col("v"))).alias("found"),
        f.sum(f.when(expects, f.col("hash")).otherwise(-f.col("hash"))).alias("hash"),
    )
    apart = ~f.col("expected").eqNullSafe(f.col("found"))
    first = f.min_by(f.struct("expected", "found"), f.when(apart, f.col("at"))).alias("first")
    totals = each.groupBy("topic", "k").agg(first, f.sum("hash").alias("hash"), f.min("sides").alias("sides"))
    moved = totals.where("first IS NOT NULL AND hash = 0 AND sides = 2").select(
        f.col("topic").alias("its_topic"), f.col("k").alias("its_k"), "first"
    )
    same = [
        f.col("topic") == f.col("its_topic"),
        f.col("k").eqNullSafe(f.col("its_k")),
        f.col("v").eqNullSafe(f.col("first.expected")),
    ]
    joined = rows.withColumn("v", f.col("expected")).join(moved, same, "left")
    is_moved = f.col("first").isNotNull() & (f.col("times_expected") > 0)
    return joined.withColumns(
        {
            "found": f.when(is_moved, f.col("first.found")).otherwise(f.col("found")),
            "times_expected": f.when(is_moved, 1).otherwise(f.col("times_expected")),
            "times_found": f.when(is_moved, 1).otherwise(f.col("times_found")),
            "differs": f.col("differs") | is_moved,
        }
    ).select(*names(DIFF))


def diff_by_canonical_keys(expected: DataFrame, found: DataFrame) -> DataFrame:
    """Join expected and found rows as `diff` does, for tables whose equal keys may have different bytes.

    Expected and found rows have a column `known`, which is equal for equal keys. If the encodings of a key are in
    different partitions, it is undetermined which last record counts. So one of these records has to be right.
    """
    misplaced = f.col("misplaced") == 1
    last = f.max_by(f.struct("k", "v"), f.when(~misplaced, f.col("o"))).alias("last")
    each = found.groupBy("topic", "known", "p").agg(last, _misplaced(misplaced))
    found_ = f.collect_list(f.struct(f.col("last.v").isNull().alias("gone"), "last.v", "last.k")).alias("lasts")
    held = each.groupBy("topic", "known").agg(found_, f.max("misplaced").alias("misplaced"))
    wanted = expected.groupBy("topic", "known").agg(
        f.max("k").alias("ek"), f.max("v").alias("expected"), f.count("*").alias("times_expected")
    )
    rows = wanted.join(held, ["topic", "known"], "full").withColumns(
        {"lasts": f.coalesce("lasts", f.array()), "times_expected": f.coalesce("times_expected", f.lit(0))}
    )
    one = f.array_min("lasts")  # a value sorts before a deletion
    rows = rows.withColumns({"k": f.coalesce("ek", one["k"]), "found": one["v"]})
    rows = rows.withColumn("times_found", f.col("found").isNotNull().cast("long"))
    rows = rows.where("times_expected > 0 OR found IS NOT NULL OR misplaced IS NOT NULL")
    right = f.exists("lasts", lambda last: last["v"].eqNullSafe(f.col("expected")))
    return _judged(rows, right | (f.col("expected").isNull() & f.col("found").isNull()), times=False)


def _misplaced(misplaced: Column) -> Column:
    """Return the partition of the last misplaced record; null if that record is a deletion."""
    last = f.max_by(f.struct("v", "p"), f.when(misplaced, f.col("o")))
    return f.when(last["v"].isNotNull(), last["p"]).alias("misplaced")


def _judged(rows: DataFrame, same: Column, times: bool = True) -> DataFrame:
    if times:
        same = same & (f.col("times_expected") == f.col("times_found"))
    differs = ~same | f.col("misplaced").isNotNull()
    return rows.withColumn("differs", differs).select(*names(DIFF))


def _if(times: str) -> Column:
    return f.when(f.col(times) > 0, f.col("v"))
