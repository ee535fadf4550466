"""Joins of two streams in time, by Spark's own joins.

    pairs        a left record at t and a right record with the same key, from t - before to t + after
    unmatched    a record of an outer side that is in no pair when its window is over
    over         the frontier of the other side has reached the last moment of a record's window

The frontier of a side is the event time that all its source partitions have reached, less the time until a record is
late. Only the spans of windows are computed by the worker's code: `eddy/join_windows.py`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.arrow_functions import FACTS, ROWS, LookedUpEntry, arrow_schema
from eddy.connectors.spark.closing_times import closing_times
from eddy.connectors.spark.cut_clocks import EventTimes
from eddy.connectors.spark.frames import Frames, be64, names
from eddy.connectors.spark.step_frames import PendingRows
from eddy.join_windows import JoinSide
from eddy.partitioner import Partitioner, partitions_of
from eddy.serde import Native, Serde
from eddy.topology.plan.placement import Placement
from eddy.topology.plan.plan import StreamStreamJoin

__all__ = ["CLOSING", "JoinedStreams", "MomentsDue"]

CLOSING = f"{FACTS}, due long, over boolean"
"""Facts, with the moment of their removal, and whether they are removed."""
_BYTES = "CAST(NULL AS BINARY)"


@dataclass(frozen=True)
class MomentsDue:
    """Adds to facts the moment at which their windows end, and whether it is over. `frontiers` are by partition."""

    windows: JoinSide
    frontiers: Sequence[int]
    partitioner: Partitioner
    tail: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield each batch of facts, with further columns for the end of their windows (`CLOSING`)."""
        schema = arrow_schema(CLOSING)
        for batch in batches:
            homes = partitions_of(batch.column("k").to_pylist(), len(self.frontiers), self.partitioner, self.tail)
            due = list(map(self.windows.due_at, batch.column("t").to_pylist()))
            over = [moment <= self.frontiers[home] for moment, home in zip(due, homes, strict=True)]
            columns = [*batch.columns, pa.array(due, pa.int64()), pa.array(over, pa.bool_())]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass
class JoinedStreams:
    """Computes the results of a join at the event times of its sources, and its `states`.

    `states` has, by the name of a state, its kind and its rows.
    """

    frames: Frames
    node: StreamStreamJoin
    left: Placement
    right: Placement
    times: EventTimes
    partitioner: Partitioner
    states: dict[str, tuple[str, DataFrame]] = field(default_factory=dict)

    def of(self, left: DataFrame, right: DataFrame, key: Serde[Any]) -> PendingRows:
        """Return the pairs of a left and a right value, and unmatched values paired with None, and set `states`."""
        node, windows = self.node, self.node.windows
        one = self._closing(left, windows.left, 1, self.left)
        other = self._closing(right, windows.right, 0, self.right)
        pairs = self.frames.kept(self._pairs(one, other))
        parts = [pairs.select(*names(FACTS), "r", "rc")]
        for side, (facts, whose, values) in enumerate(((one, "k1", "v vc r rc"), (other, "k2", "r rc v vc"))):
            matched = pairs.select(f.col(whose).alias("k")).distinct()
            alone = facts.join(matched, "k", "left_anti")
            if node.outer[side]:
                parts.append(_single(alone.where("over"), values.split()))
            self._keep(side, facts, alone)
        entry = LookedUpEntry(node.name, key, node.inputs[0].value or Native, node.inputs[1].value or Native, _pair)
        return PendingRows(self.frames.union(parts, ""), entry)

    def _closing(self, facts: DataFrame, windows: JoinSide, other: int, place: Placement) -> DataFrame:
        """Return a side's records, each with the moment when its window ends; `other` is the other side's number."""
        assigned, count = self.node.assigned[other], place.partitions
        passed = closing_times(self.times, self.node.inputs[other], count)
        frontiers = [max(-1, time - assigned.windows.lag_ms) for time in passed]
        closing = MomentsDue(windows, frontiers, self.partitioner, place.key.tail)
        present = facts.where("k IS NOT NULL AND v IS NOT NULL").select(*names(FACTS))
        told = self.frames.through(present, closing, CLOSING)
        return self.frames.kept(told.withColumn("g", f.expr("substring(k, 1, length(k) - 16)")))

    def _pairs(self, left: DataFrame, right: DataFrame) -> DataFrame:
        """Return a fact for each pair of records: the right value is in `r` and `rc`, the keys in `k1` and `k2`."""
        windows = self.node.windows
        renamed = right.select(*(f.col(name).alias(f"{name}2") for name in ("g", "k", "v", "vc", "w", "t", "s")))
        apart = f.col("t2") - f.col("t")
        near = (f.col("g") == f.col("g2")) & apart.between(-windows.before_ms, windows.after_ms)
        time = f.greatest("t", "t2")
        return left.join(renamed, near).select(
            f.col("g").alias("k"),
            f.expr(_BYTES).alias("kc"),
            "v",
            "vc",
            (f.col("w") * f.col("w2")).alias("w"),
            time.alias("t"),
            f.concat(f.lit(b"\x01"), be64(time), "s", "s2").alias("s"),
            f.expr(_BYTES).alias("h"),
            f.col("v2").alias("r"),
            f.col("vc2").alias("rc"),
            f.col("k").alias("k1"),
            f.col("k2"),
        )

    def _keep(self, side: int, facts: DataFrame, alone: DataFrame) -> None:
        """Add a side's states, as a worker would have them, to `states`."""
        node, name = self.node, f"{self.node.name}-{('left', 'right')[side]}"
        there = facts.where(~f.col("over"))
        entry = f.concat(be64(f.col("due")), f.col("k")).alias("key"), f.lit(b"\x01").alias("value")
        yes, none, one = f.lit(Native.encode(True)), f.expr(_BYTES), f.lit(1).cast("long")
        lonely = alone.where(~f.col("over")).select("k").distinct()
        found = {
            "": ("arrangement", self.frames.consolidated(there.select(*names(ROWS)))),
            "-calendar": ("encoded", there.select("k", *entry).distinct()),
            "-unmatched": (
                "table",
                lonely.select("k", none.alias("kc"), yes.alias("v"), none.alias("vc"), one.alias("w")),
            ),
        }
        declared = {kept.name_of(node.name) for kept in node.keeps}
        self.states |= {f"{name}{suffix}": rows for suffix, rows in found.items() if f"{name}{suffix}" in declared}


def _single(alone: DataFrame, values: Sequence[str]) -> DataFrame:
    """Add `r` and `rc` to records without a match.

    `values` names four columns: the first two get the record's value and its original bytes, the others null.
    """
    made = dict(zip(values, ("v", "vc", _BYTES, _BYTES), strict=True))
    columns = {"k": "g", "kc": _BYTES, "h": _BYTES, **made}
    return alone.select(*(f.expr(columns.get(name, name)).alias(name) for name in (*names(FACTS), "r", "rc")))


def _pair(value: Any, other: Any) -> tuple[Any, Any]:
    return value, other
