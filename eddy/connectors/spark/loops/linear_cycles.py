"""The rows of a linear recursion that cycles reach, from a frontier on, found with DataFrames.

    R    the frontier, and all rows that repeated applications of op make of it
    L    the largest part of R such that op makes each row of L from a row of L

If R is finite, each row of L has a predecessor in L, and so an endless path backwards. So a cycle leads to the row.
Only rows are compared, not weights, so the result is right as long as no row is retracted.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.arrow_functions import ROWS
from eddy.connectors.spark.frames import Frames, names, spark_errors

__all__ = ["TakenBackError", "reached_by_cycles", "without"]

_AHEAD = 4
"""The number of iterations in one job."""

Op = Callable[[DataFrame], DataFrame]


class TakenBackError(Exception):
    """The rows that cycles reach cannot be found, because the recursion has rows of negative weight."""


def reached_by_cycles(frames: Frames, start: DataFrame, op: Op, most: int) -> tuple[DataFrame, int] | None:
    """Return the rows that cycles reach, with weight 1, and their number.

    Returns None if there were new rows even after `most` iterations. `op` need not merge rows. Raises: TakenBackError.
    """
    rows = _reach(frames, start, op, most)
    return None if rows is None else _peel(frames, rows, op)


def without(rows: DataFrame, others: DataFrame, *columns: str, keep: bool = False, few: bool = False) -> DataFrame:
    """Return the rows that are not in `others`, compared by `columns`; with `keep` the rows that are in `others`.

    If `others` are `few`, they are sent to all tasks, and `rows` are not shuffled.
    """
    same = f.lit(True)
    theirs = others.select(*(f.col(name).alias(f"other_{name}") for name in columns)).distinct()
    theirs = f.broadcast(theirs) if few else theirs
    for name in columns:
        same = same & f.col(name).eqNullSafe(f.col(f"other_{name}"))
    return rows.join(theirs, same, "left_semi" if keep else "left_anti")


def _reach(frames: Frames, start: DataFrame, op: Op, most: int) -> DataFrame | None:
    came = (
        f.max("kc").alias("kc"),
        f.max("vc").alias("vc"),
        f.min("w").alias("w"),
        f.min("iteration").alias("iteration"),
    )
    rows, done = start.withColumn("iteration", f.lit(0)), 0
    while done < most:
        for _ in range(_AHEAD):
            newest = rows.where(f.col("iteration") == done).withColumn("w", f.lit(1).cast("long"))
            done += 1
            made = op(newest.select(*names(ROWS))).select(*names(ROWS)).withColumn("iteration", f.lit(done))
            merged = frames.partitioned(rows.unionByName(made)).groupBy("k", "v").agg(*came)
            rows = frames.lazy(merged.select(*names(ROWS), "iteration"))
        with spark_errors():
            told = rows.agg(f.count_if(f.col("iteration") == done), f.min("w")).first()
        assert told is not None
        if (told[1] or 0) < 0:
            raise TakenBackError
        if not told[0]:
            return rows.withColumn("w", f.lit(1).cast("long")).select(*names(ROWS))
    return None


def _peel(frames: Frames, rows: DataFrame, op: Op) -> tuple[DataFrame, int]:
    came = f.max("kc").alias("kc"), f.max("vc").alias("vc"), f.lit(1).cast("long").alias("w")
    both = f.min("made").alias("least"), f.max("made").alias("most")
    before = -1
    while True:
        chain = []
        for _ in range(_AHEAD):
            made = op(rows).select(*names(ROWS)).withColumn("made", f.lit(1))
            whole = frames.partitioned(rows.withColumn("made", f.lit(0)).unionByName(made))
            whole = whole.groupBy("k", "v").agg(*came, *both).where("least = 0 AND most = 1")
            rows = frames.lazy(whole.select(*names(ROWS)))
            chain.append(rows)
        for count, _ in frames.marks(chain):
            if count == before:
                return rows, count
            before = count
