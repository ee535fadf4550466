"""The rows of states as they lie in changelogs, byte for byte as a worker writes them.

    table        key                        ->  value as it came
    arrangement  len(key)(4) key value      ->  weight(8), and the value as it came where that differs
    trace        len(key)(4) key time value ->  weight(8), and time and value as they came where they differ

What is arranged by depth has the depth as its time; what an operator at one owner remembers is encoded already.
All else is Spark's own work; only the partition of a key takes a function of the log's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.frames import be32, be64
from eddy.topology.plan import Node, Sink

__all__ = ["Results", "StateRows", "changelog_rows"]


@dataclass(frozen=True)
class StateRows:
    """The rows of a state; those of a trace, or of what is arranged by depth, have a column `time`."""

    kind: str
    frame: DataFrame
    node: Node


@dataclass(frozen=True)
class Results:
    """What has been computed: the rows of states, the records of sinks, and why the states that are missing are."""

    states: Mapping[str, StateRows]
    sinks: Mapping[Sink, DataFrame]
    untold: Mapping[str, str]


def changelog_rows(state: StateRows) -> DataFrame:
    """The columns `k`, by which a row's partition is found, `key` and `value`."""
    frame = state.frame
    if state.kind == "encoded":
        return frame
    if state.kind == "table":
        return frame.select("k", f.col("k").alias("key"), f.coalesce("vc", "v").alias("value"))
    timed = "time" in frame.columns
    parts = [be32(f.length("k")), f.col("k")]
    came = f.col("vc")
    if timed:
        parts.append(be32(f.col("time")))
        came = f.concat(be32(f.col("time")), came)
    key = f.concat(*parts, f.col("v"))
    return frame.select("k", key.alias("key"), f.concat(be64(f.col("w")), f.coalesce(came, f.lit(b""))).alias("value"))
