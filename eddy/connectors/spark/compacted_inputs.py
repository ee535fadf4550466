"""Inputs that compaction may have changed: records before a cut that the worker read may be missing now.

Compaction drops a record when a later record of its key exists, and no log says which records it has dropped. The
remaining offsets and keys show where it may have done so:

    gap        an offset without a record: compaction dropped it, or it is the end of a transaction
    repeated   a record whose key has an earlier record in the log

A pass of compaction covers a partition from its beginning, and leaves one record for each key. So no pass has reached
the first repeated record: the part before it may be *cleaned*, and no record from it on has replaced an earlier one.
Records before the cut may be missing

    of a table     if the cut is in the cleaned part, with a gap before it, and a cleaned record after the cut may have
                   replaced a record before the cut: the later record's key has no record before the cut, or there is a
                   gap after the cut, and tombstones may be dropped by now
    of a stream    if a gap before the cut is in the cleaned part, because each record of a stream counts

Keys and offsets are read after the results were computed. So a record that exists then existed before, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Window
from pyspark.sql import functions as f

from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.connectors.spark.frames import Frames, spark_errors
from eddy.connectors.spark.inputs import OffsetRange, OpenLog, read_topics
from eddy.topology.plan.topic_steps import TopicRead

__all__ = ["compacted_below"]

_TOMBSTONES_MS = 24 * 3600 * 1000
"""Kafka's own `delete.retention.ms`."""


def compacted_below(
    frames: Frames,
    log: Log,
    open_log: OpenLog,
    sources: Sequence[TopicRead],
    cut: Mapping[str, Sequence[int]],
    age_s: float | None,
) -> dict[str, str]:
    """Return, by topic of a source or a global table, why records before the cut may be missing.

    `cut` has offsets by topic, `age_s` is its age in seconds, None if it is unknown. Raises: ConnectorError.

    Cost: a pass over the compacted topics; a topic of tables is omitted if it has no records after the cut.
    """
    specs = {spec.name: spec for spec in log.topics([source.topic for source in sources]).values()}
    keeps_last = {source.topic: source.kind == "table" or source.role == "global table" for source in sources}
    tables = {topic: last for topic, last in keeps_last.items() if specs[topic].drops_replaced}
    parts = [
        _ReadPartition(tp, begin, cut[topic][tp.partition], ends[tp], tables[topic])
        for topic in tables
        for tps in [[TopicPartition(topic, p) for p in range(len(cut.get(topic, ())))]]
        for ends in [log.stable_offsets(tps)]
        for tp, begin in log.begin_offsets(tps).items()
    ]
    parts = [part for part in parts if part.begin < part.cut and (part.cut < part.end or not part.table)]
    found: dict[str, str] = {}
    for part, left in _left(frames, open_log, parts).items():
        tombstones = _tombstones_may_be_gone(specs[part.place.topic], age_s)
        if why := part.lost(left, tombstones):
            found.setdefault(part.place.topic, f"compacted below the cut: in partition {part.place.partition} {why}")
    return found


def _tombstones_may_be_gone(spec: TopicSpec, age_s: float | None) -> bool:
    kept_ms = float(spec.configs.get("delete.retention.ms", _TOMBSTONES_MS))
    return age_s is None or age_s * 1000 >= kept_ms


@dataclass(frozen=True)
class _Remaining:
    """Counts of a partition's remaining records, up to the first record whose key has an earlier one.

    They are the number of records before the cut, the number after the cut, and the number of keys with records only
    after the cut.
    """

    before: int
    after: int
    new_keys: int
    repeated: int | None


@dataclass(frozen=True)
class _ReadPartition:
    """A partition with its first offset, the offset of the cut, and its end or first open transaction.

    The last field tells whether only tables read the partition.
    """

    place: TopicPartition
    begin: int
    cut: int
    end: int
    table: bool

    def lost(self, left: _Remaining, tombstones: bool) -> str:
        """Return the reason why records before the cut may be lost; empty if none is lost."""
        cleaned = self.end if left.repeated is None else left.repeated
        gaps = min(cleaned, self.cut) - self.begin - left.before
        if not gaps:
            return ""
        missing = f"{gaps:,} offsets before the cut's {self.cut:,} have no record"
        if not self.table:
            return f"{missing}: each record of a stream counts, and compaction may have dropped some"
        if cleaned <= self.cut:
            return ""
        if left.new_keys:
            return f"{missing}, and {left.new_keys:,} keys have records after it alone"
        if tombstones and left.after < cleaned - self.cut:
            return f"{missing}, and deletions after it may have been dropped, too"
        return ""


def _left(frames: Frames, open_log: OpenLog, parts: Sequence[_ReadPartition]) -> dict[_ReadPartition, _Remaining]:
    """Count the remaining records of each partition."""
    if not parts:
        return {}
    ranges: dict[str, list[OffsetRange]] = {}
    for part in parts:
        ranges.setdefault(part.place.topic, []).append(OffsetRange(part.place.partition, part.begin, part.end))
    cuts = frames.rows([(*part.place, part.cut) for part in parts], "topic string, p int, cut long")
    keys = Window.partitionBy("topic", "p", "k").orderBy("o")
    records = read_topics(frames, open_log, ranges).select("topic", "p", "k", "o").join(cuts, ["topic", "p"])
    records = frames.kept(
        records.withColumn("first", f.min("o").over(keys)).withColumn(
            "repeated", f.when(f.col("k").isNotNull() & (f.col("o") > f.col("first")), f.col("o"))
        )
    )
    first = records.groupBy("topic", "p").agg(f.min("repeated").alias("until"))
    cleaned = records.join(first, ["topic", "p"]).where("until IS NULL OR o < until")
    counted = cleaned.groupBy("topic", "p").agg(
        f.count_if(f.col("o") < f.col("cut")).alias("before"),
        f.count_if(f.col("o") >= f.col("cut")).alias("after"),
        f.count_if(f.col("first") >= f.col("cut")).alias("new"),
        f.first("until").alias("until"),
    )
    with spark_errors():
        found = {TopicPartition(row["topic"], row["p"]): row for row in counted.collect()}
    rows = {part: found.get(part.place) for part in parts}
    return {
        part: _Remaining(0, 0, 0, None)
        if row is None
        else _Remaining(row["before"], row["after"], row["new"], row["until"])
        for part, row in rows.items()
    }
