"""The rows of states as they are in changelogs, byte for byte as a worker writes them.

    table        key                        ->  original value
    arrangement  len(key)(4) key value      ->  weight(8), and the original value if it differs
    trace        len(key)(4) key time value ->  weight(8), and time and original value if it differs

The rows of a recursion with a bound of depths are stored as a trace is, with the depth as time. States of operators on
a single partition are already encoded. All rows are made by Spark's own expressions; only the partition of a key needs
a function of the log.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.frames import be32, be64
from eddy.topology.plan.plan import Node, Sink

__all__ = ["ComputedResults", "StateRows", "changelog_rows"]


@dataclass(frozen=True)
class StateRows:
    """The rows of a state, and the step that it belongs to.

    A column `time` has the iteration of a trace's row, or the depth of a row in a recursion with a bound of depths.
    Other states have no such column."""

    kind: str
    frame: DataFrame
    node: Node


@dataclass(frozen=True)
class ComputedResults:
    """Computed results: the rows of states, the records of sinks, and the reasons for missing states."""

    states: Mapping[str, StateRows]
    sinks: Mapping[Sink, DataFrame]
    undetermined: Mapping[str, str]


def changelog_rows(state: StateRows) -> DataFrame:
    """Return a state's changelog records: columns `key`, `value`, and `k`, the key whose hash gives the partition."""
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
