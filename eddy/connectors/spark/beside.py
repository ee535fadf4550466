"""What is expected beside what was found: by key, or by record where these are the facts of a stream."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

__all__ = ["BESIDE", "beside"]

BESIDE = "topic string, k binary, expected binary, found binary, times_expected long, times_found long, differs boolean"


def beside(expected: DataFrame, found: DataFrame, facts: bool) -> DataFrame:
    """`expected` has columns `topic k v`, `found` the `RAW` ones; both sides are shuffled once, together.

    Of a table the last record of each key counts, and what it has taken away is not there.
    """
    expects = f.col("side") == 0
    nowhere = f.lit(None).cast("long").alias("o"), f.lit(None).cast("int").alias("p")
    one = expected.select("topic", "k", "v", *nowhere, f.lit(0).alias("side"))
    whole = one.unionByName(found.select("topic", "k", "v", "o", "p", f.lit(1).alias("side")))
    times = f.count_if(expects).alias("times_expected")
    if facts:
        rows = whole.groupBy("topic", "k", "v").agg(times, f.count_if(~expects).alias("times_found"))
        rows = rows.withColumns({"expected": _if("times_expected"), "found": _if("times_found")})
    else:
        last = f.max_by(f.struct("v"), f.when(~expects, f.struct("o", "p"))).alias("last")
        what = f.max(f.when(expects, f.col("v"))).alias("expected")
        rows = whole.groupBy("topic", "k").agg(times, what, last).where("times_expected > 0 OR last.v IS NOT NULL")
        rows = rows.withColumns({"found": f.col("last.v"), "times_found": f.col("last.v").isNotNull().cast("long")})
    same = f.col("expected").eqNullSafe(f.col("found")) & (f.col("times_expected") == f.col("times_found"))
    return rows.withColumn("differs", ~same).select(*(column.split()[0] for column in BESIDE.split(", ")))


def _if(times: str) -> Column:
    return f.when(f.col(times) > 0, f.col("v"))
