"""The example's job on Spark in this process; the session's start is not counted.

backfill|verify LOG CORES [ONE_TASK]   eddy's own, over the example's history on the embedded log
recursive|loop RECORDS CORES EXPECTED  Spark's WITH RECURSIVE, or a loop over DataFrames with a join and an aggregation
                                       a level, over a file "node parent"; its counts are compared with EXPECTED
"""

import functools
import logging
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.embedded import family
from benchmarks.processes import cpu_seconds, peak_bytes, tree
from benchmarks.systems.process import report, settle
from benchmarks.workloads import read_counts
from eddy.connectors.local import LocalLog
from eddy.connectors.spark import backfill, local_session, verify
from eddy.connectors.spark.session import ONE_TASK

_RECURSIVE = """
WITH RECURSIVE up(anc, node) AS (
  SELECT parent, node FROM edges UNION ALL SELECT e.parent, up.node FROM up JOIN edges e ON up.anc = e.node)
SELECT anc, count(*) AS n FROM up GROUP BY anc
"""
_NO_LIMIT = {"spark.sql.cteRecursionLevelLimit": "100000", "spark.sql.cteRecursionRowLimit": "-1"}


def main() -> None:
    """Run as `python -m benchmarks.systems.spark`."""
    what, path, cores = sys.argv[1:4]
    logging.getLogger("py4j").setLevel(logging.ERROR)
    spark = local_session(f"local[{cores}]", "4g", _NO_LIMIT)
    spark.range(10).selectExpr("sum(id)").collect()
    if what in {"recursive", "loop"}:
        _peer(spark, what, path, Path(sys.argv[4]))
    else:
        _ours(spark, what, Path(path), int(sys.argv[4]) if len(sys.argv) > 4 else ONE_TASK)
    spark.stop()


def _ours(spark: SparkSession, what: str, folder: Path, one_task: int) -> None:
    open_log = functools.partial(LocalLog, folder, busy_timeout_s=60.0)
    log = open_log()
    figures: dict[str, Any]
    start, spent = settle(), _tree_cpu()
    if what == "backfill":
        done = backfill(family(), spark, log, open_log, one_task=one_task)
        figures = {"written": sum(done.written.values())}
    else:
        verdict = verify(family(), spark, log, open_log, quick=bool(one_task))
        figures = {"status": verdict.status, "keys": sum(part.keys for part in verdict.compared)}
    report(start, **figures, **_of_tree(spent))
    log.close()


def _peer(spark: SparkSession, what: str, records: str, expected: Path) -> None:
    start, spent = settle(), _tree_cpu()
    edges = spark.read.csv(records, sep=" ", schema="node INT, parent INT").cache()
    edges.createOrReplaceTempView("edges")
    want = {node: count for node, count in read_counts(expected).items() if int(count)}
    rows = (spark.sql(_RECURSIVE) if what == "recursive" else _loop(edges)).collect()
    report(start, right={str(row["anc"]): str(row["n"]) for row in rows} == want, **_of_tree(spent))


def _tree_cpu() -> float:
    """Processor time of this process, the JVM and Spark's Python workers."""
    return cpu_seconds(tree(os.getpid()), waited_for=True)


def _of_tree(spent: float) -> dict[str, float]:
    return {"tree_cpu_seconds": _tree_cpu() - spent, "tree_peak_bytes": peak_bytes(tree(os.getpid()))}


def _loop(edges: DataFrame) -> DataFrame:
    """Each node with its number of descendants, distance by distance."""
    frontier = edges.groupBy(f.col("parent").alias("anc")).agg(f.count("*").alias("n")).localCheckpoint()
    total = frontier
    while not frontier.isEmpty():
        up = frontier.join(edges, frontier.anc == edges.node)
        frontier = up.groupBy(f.col("parent").alias("anc")).agg(f.sum("n").alias("n")).localCheckpoint()
        total = total.union(frontier)
    return total.groupBy("anc").agg(f.sum("n").alias("n"))


if __name__ == "__main__":
    main()
