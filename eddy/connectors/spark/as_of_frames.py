"""Joins of a stream with the values of another stream as of each record's time, by Spark's own window functions.

    version    the last record, by `s`, of the right side with a key and a time
    value      the value of the last version of a record's key that is not after the record
    over       the frontier of the right side has reached the record's time t, so that its value is final
    old        a version of a key that has a later version up to both frontiers

The frontier of a side is the event time that all its source partitions have reached, less the time until a record is
late. The only code shared with the worker computes the spans of time: `eddy/as_of.py`.
"""

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from eddy.connectors.spark.arrow_functions import FACTS, ROWS, LookedUpEntry
from eddy.connectors.spark.closing_times import closing_times
from eddy.connectors.spark.cut_clocks import EventTimes
from eddy.connectors.spark.frames import Frames, be64, names
from eddy.connectors.spark.joined_streams import CLOSING, MomentsDue
from eddy.connectors.spark.step_frames import PendingRows
from eddy.partitioner import Partitioner
from eddy.serde import Native, Serde
from eddy.topology.plan.placement import Placement
from eddy.topology.plan.plan import AsOfJoin

__all__ = ["AsOfFrames"]

_BYTES = "CAST(NULL AS BINARY)"


@dataclass
class AsOfFrames:
    """Computes the results of a join at the event times of its sources, and its `states`.

    `states` has, by the name of a state, its kind and its rows.
    """

    frames: Frames
    node: AsOfJoin
    left: Placement
    right: Placement
    times: EventTimes
    partitioner: Partitioner
    states: dict[str, tuple[str, DataFrame]] = field(default_factory=dict)

    def of(self, left: DataFrame, right: DataFrame, key: Serde[Any]) -> PendingRows:
        """Return the joined rows of the left records whose right value is final, and set `states`."""
        node, (asking, answering) = self.node, self._frontiers()
        records = self._due(left, answering, self.left)
        lows = [min(both) for both in zip(asking, answering, strict=True)]
        latest = Window.partitionBy("k").orderBy(f.col("s").desc())
        versions = self._due(right, lows, self.right).withColumn("n", f.row_number().over(latest)).where("n = 1")
        versions = self.frames.kept(versions.drop("n"))
        serde = node.inputs[1].value or Native
        self._keep(records, versions.withColumn("deleted", self._deleted("v", serde)))
        made = _with_values(records.where("over"), versions)
        if not node.left:
            made = made.where(f.col("r").isNotNull() & ~self._deleted("r", serde))
        entry = LookedUpEntry(node.name, key, node.inputs[0].value or Native, serde, _unwrapped)
        return PendingRows(made, entry)

    def _deleted(self, column: str, serde: Serde[Any]) -> Column:
        """Whether the value of a version is null.

        A version is encoded in MessagePack, as a tuple of the value and, if versions have an order, the order. So the
        first two bytes, array and nil, tell that the value is null.
        """
        if self.node.ordered:
            return f.substring(column, 1, 2) == f.lit(serde.encode((None, b""))[:2])
        return f.col(column) == f.lit(serde.encode((None,)))

    def _frontiers(self) -> tuple[list[int], list[int]]:
        """Return the frontiers of the left and of the right side, by partition, in milliseconds."""
        found = []
        for source, assigned in zip(self.node.inputs, self.node.assigned, strict=True):
            passed = closing_times(self.times, source, self.left.partitions)
            found.append([max(-1, time - assigned.windows.lag_ms) for time in passed])
        return found[0], found[1]

    def _due(self, facts: DataFrame, frontiers: list[int], place: Placement) -> DataFrame:
        due = MomentsDue(self.node.as_of.versions, frontiers, self.partitioner, place.key.tail)
        present = facts.where("k IS NOT NULL AND v IS NOT NULL").select(*names(FACTS))
        told = self.frames.through(present, due, CLOSING)
        return self.frames.kept(told.withColumn("g", f.expr("substring(k, 1, length(k) - 16)")))

    def _keep(self, records: DataFrame, versions: DataFrame) -> None:
        """Set `states` to the states that a worker would have."""
        name = self.node.name
        entry = f.concat(be64(f.col("due")), f.col("k")).alias("key"), f.lit(b"\x01").alias("value")
        waiting = records.where(~f.col("over"))
        newest = Window.partitionBy("g", "over").orderBy(f.col("t").desc())
        ranked = versions.withColumn("n", f.row_number().over(newest))
        kept = ranked.where(~f.col("over") | ((f.col("n") == 1) & ~f.col("deleted")))
        self.states = {
            f"{name}-waiting": ("arrangement", self.frames.consolidated(waiting.select(*names(ROWS)))),
            f"{name}-waiting-calendar": ("encoded", waiting.select("k", *entry).distinct()),
            f"{name}-versions": ("arrangement", kept.withColumn("w", f.lit(1).cast("long")).select(*names(ROWS))),
            f"{name}-versions-calendar": ("encoded", versions.where(~f.col("over")).select("k", *entry)),
        }


def _with_values(records: DataFrame, versions: DataFrame) -> DataFrame:
    """Return the records with the value as of their time in `r` and `rc`; null if there is none."""
    columns = [*names(FACTS), "g"]
    answer = f.struct(f.col("v").alias("r"), f.col("vc").alias("rc"))
    asked = records.select(*columns, f.lit(1).alias("side"), f.lit(None).cast("struct<r:binary,rc:binary>").alias("a"))
    given = versions.select(*columns, f.lit(0).alias("side"), answer.alias("a"))
    up_to = Window.partitionBy("g").orderBy("t", "side").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    found = asked.unionByName(given).withColumn("a", f.last("a", ignorenulls=True).over(up_to)).where("side = 1")
    made = {
        "k": f.col("g"),
        "kc": f.expr(_BYTES),
        "h": f.expr(_BYTES),
        "s": f.concat(f.lit(b"\x01"), be64(f.col("t")), "s"),
    }
    return found.select(*(made.get(name, f.col(name)).alias(name) for name in names(FACTS)), "a.r", "a.rc")


def _unwrapped(value: Any, other: tuple[Any, ...] | None) -> tuple[Any, Any]:
    return value, None if other is None else other[0]
