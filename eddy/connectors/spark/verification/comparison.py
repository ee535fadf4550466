"""Comparison of the topics of sinks and stores with their expected rows, all topics at once.

1  compare all rows by bytes, and the order of a stream's records within a key if the input determines it
2  compare outputs that differ, and whose equal keys may have different bytes, by canonical keys
3  leave out keys that changed after the cut
4  among the remaining differences, separate alike and near values
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as f

from eddy.connectors.log import Log, TopicPartition
from eddy.connectors.spark.arrival_order import Ordered
from eddy.connectors.spark.frames import Frames, names, spark_errors
from eddy.connectors.spark.inputs import OffsetRange, OpenLog, read_topics
from eddy.connectors.spark.readable import Readable
from eddy.connectors.spark.verification.diff import (
    DIFF,
    PLACED,
    KeyPartitions,
    diff,
    diff_by_canonical_keys,
    in_order,
    read_placed,
)
from eddy.connectors.spark.verification.equivalence import CLASSIFIED, Classifying, RowFormat, WithCanonicalKeys
from eddy.connectors.spark.verification.held_rows import key_part
from eddy.connectors.spark.verification.verdict import Compared, Example
from eddy.runtime.quiescence import Cut
from eddy.topology.plan.plan import Node

__all__ = ["ExpectedTopic", "TopicComparison"]

_EXAMPLES = 10


@dataclass(frozen=True)
class ExpectedTopic:
    """A topic and its expected rows, with the columns `k` and `v`: facts, or the latest value of each key.

    Facts also have the column `s`, by which they are sorted. `ordered` tells which of them the input puts in order.
    """

    what: str
    name: str
    topic: str
    partitions: int
    expected: DataFrame
    facts: bool
    readable: Readable
    nodes: tuple[Node, ...]
    form: RowFormat
    uncompared: DataFrame | None = None
    """Keys whose rows are not compared, in a column `group`, in the form of `key_part`."""
    ordered: Ordered = "no"
    keyed: bool = True
    """Whether the records are in the partitions of their keys."""


@dataclass
class TopicComparison:
    """Compares topics, up to a cut, with their expected rows. After `run`, `differing` has the rows that differ."""

    frames: Frames
    log: Log
    open_log: OpenLog
    parts: list[ExpectedTopic]
    cut: Cut
    tolerance: float
    differing: DataFrame = field(init=False)

    def run(self) -> list[Compared]:
        """Compare, and return the result for each topic. Raises: ConnectorError."""
        rows = self._without_uncompared(self._diff())
        counts = _counts(rows)
        again = [part for part in self.parts if counts.get(part.topic, (0, 0))[1] and self._has_canonical_keys(part)]
        if again:
            rows = self._diff_by_canonical_keys(rows, again)
            counts = _counts(rows)
        named = self.frames.rows(
            [(part.topic, part.what, part.name) for part in self.parts], "topic string, part string, name string"
        )
        differing = rows.where("differs").join(named, "topic")
        hows: Mapping[tuple[str, str], int] = {}
        examples: dict[str, list[Example]] = {}
        kinds: Mapping[str, Row] = {}
        if differ := {topic for topic, (_, count) in counts.items() if count}:
            classified = self._classified(rows.where("differs"), [part for part in self.parts if part.topic in differ])
            with spark_errors():
                found = classified.groupBy("topic", "how").agg(
                    f.count("*").alias("n"),
                    f.count("misplaced").alias("misplaced"),
                    f.count_if((f.col("times_expected") > 0) & (f.col("times_found") == 0)).alias("missing"),
                    f.count_if(f.col("times_expected") == 0).alias("extra"),
                )
                counted = found.collect()
            hows = {(row["topic"], row["how"]): row["n"] for row in counted}
            kinds = {row["topic"]: row for row in counted if row["how"] == "differs"}
            differing = classified.where("how = 'differs'").join(named, "topic")
            if kinds:
                examples = self._examples(differing)
        self.differing = differing.withColumnsRenamed({"k": "key", "misplaced": "partition"})
        results = []
        for part in self.parts:
            keys, count = counts.get(part.topic, (0, 0))
            differs, alike, near = (hows.get((part.topic, how), 0) for how in ("differs", "alike", "near"))
            moved = count - differs - alike - near
            compared = Compared(part.what, part.name, keys, differs, moved, examples.get(part.topic, []), near)
            if (kind := kinds.get(part.topic)) is not None:
                away, missing, extra = kind["misplaced"], kind["missing"], kind["extra"]
                compared = replace(compared, misplaced=away, missing=missing, extra=extra)
            results.append(compared)
        return results

    def _has_canonical_keys(self, part: ExpectedTopic) -> bool:
        return part.what == "sink" and not part.facts and part.form.has_canonical_keys

    def _homes(self) -> KeyPartitions:
        counts = {part.topic: part.partitions for part in self.parts}
        kinds = {part.topic: part.form.kind for part in self.parts}
        tails = {part.topic: part.form.key.tail for part in self.parts}
        untold = {part.topic for part in self.parts if part.form.kind == "key-value" or not part.keyed}
        return KeyPartitions(self.log.partitioner, counts, kinds, tails, untold)

    def _found(self, parts: list[ExpectedTopic]) -> DataFrame:
        return read_placed(self.frames, self.open_log, {part.topic: self._until(part) for part in parts}, self._homes())

    def _until(self, part: ExpectedTopic) -> list[OffsetRange]:
        return [OffsetRange(partition, 0, end) for partition, end in enumerate(self.cut.outputs[part.topic])]

    def _diff(self) -> DataFrame:
        """Join the expected and the found rows of all topics by their bytes."""
        sides = []
        for facts in (False, True):
            if chosen := [part for part in self.parts if part.facts is facts]:
                columns = ["k", "v", "s"] if facts else ["k", "v"]
                expected = [part.expected.select(f.lit(part.topic).alias("topic"), *columns) for part in chosen]
                found = self._found(chosen)
                if ordered := [part for part in chosen if part.ordered != "no"]:
                    found = self.frames.kept(found)
                rows = diff(self.frames.union(expected, ""), found, facts)
                sides.append(self._in_order(rows, found, ordered) if ordered else rows)
        return self.frames.kept(self.frames.union(sides, DIFF))

    def _in_order(self, rows: DataFrame, found: DataFrame, parts: list[ExpectedTopic]) -> DataFrame:
        """Return the diff of facts, which for the topics `parts` includes differences of order."""
        keyed = [part.topic for part in parts if part.ordered == "within keys"]
        has_order = f.col("topic").isin([part.topic for part in parts]) & (
            f.col("k").isNotNull() | ~f.col("topic").isin(keyed)
        )
        expected = [part.expected.withColumn("topic", f.lit(part.topic)) for part in parts]
        return in_order(rows, self.frames.union(expected, "").where(has_order), found.where(has_order))

    def _without_uncompared(self, rows: DataFrame) -> DataFrame:
        left_out = [
            part.uncompared.select("group", f.lit(part.topic).alias("topic"))
            for part in self.parts
            if part.uncompared is not None
        ]
        if not left_out:
            return rows
        named = rows.withColumn("group", key_part(f.col("k")))
        left = named.join(self.frames.union(left_out, ""), ["topic", "group"], "left_anti")
        return self.frames.kept(left.select(*names(DIFF)))

    def _diff_by_canonical_keys(self, rows: DataFrame, parts: list[ExpectedTopic]) -> DataFrame:
        """Replace the rows of `parts` in the diff by rows that are joined by canonical keys."""
        sides = [rows.where(~f.col("topic").isin([part.topic for part in parts]))]
        for part in parts:
            schema = "topic string, k binary, v binary"
            expected = part.expected.select(f.lit(part.topic).alias("topic"), "k", "v")
            sides.append(
                diff_by_canonical_keys(
                    self.frames.through(expected, WithCanonicalKeys(part.form, schema), f"{schema}, known binary"),
                    self.frames.through(
                        self._found([part]), WithCanonicalKeys(part.form, PLACED), f"{PLACED}, known binary"
                    ),
                )
            )
        return self.frames.kept(self.frames.union(sides, DIFF))

    def _classified(self, differing: DataFrame, parts: list[ExpectedTopic]) -> DataFrame:
        """Classify the rows that differ, without those that changed after the cut."""
        if (later := self._later([part for part in parts if not part.facts])) is not None:
            later = later.withColumn("later", f.lit(1))
            differing = differing.join(later, ["topic", "k"], "left").where("later IS NULL OR misplaced IS NOT NULL")
            differing = differing.drop("later")
        forms = {part.topic: part.form for part in parts if not part.facts}
        theirs = f.col("topic").isin(list(forms))
        of_rows = f.col("topic").isin([topic for topic, form in forms.items() if form.rows])
        group = f.when(of_rows, key_part(f.col("k"))).otherwise(f.col("k"))
        lying = differing.where(theirs).withColumn("group", group).repartition(self.frames.partitions, "topic", "group")
        lying = lying.sortWithinPartitions("topic", "group").select(*names(DIFF))
        classified = self.frames.through(lying, Classifying(forms, self.tolerance), CLASSIFIED)
        others = differing.where(~theirs).withColumn("how", f.lit("differs"))
        return self.frames.kept(classified.unionByName(others))

    def _later(self, parts: list[ExpectedTopic]) -> DataFrame | None:
        """Return the keys of compacted topics that have records after the cut, which may have replaced others."""
        specs = self.log.topics([part.topic for part in parts])
        ranges = {}
        for part in parts:
            if specs[part.topic].drops_replaced:
                ends = self.log.end_offsets(TopicPartition(part.topic, p) for p in range(part.partitions))
                later = [
                    OffsetRange(p, at, ends[TopicPartition(part.topic, p)])
                    for p, at in enumerate(self.cut.outputs[part.topic])
                ]
                ranges[part.topic] = [range_ for range_ in later if range_.start < range_.end]
        if not any(ranges.values()):
            return None
        return read_topics(self.frames, self.open_log, ranges).select("topic", "k").distinct()

    def _examples(self, differing: DataFrame) -> dict[str, list[Example]]:
        """Return the first differing rows of each topic, in readable form."""
        order = Window.partitionBy("topic").orderBy("k", "expected", "found")
        numbered = differing.withColumn("at", f.row_number().over(order))
        with spark_errors():
            rows = numbered.where(f.col("at") <= _EXAMPLES).orderBy("topic", "at").collect()
        by_topic, homes = {part.topic: part for part in self.parts}, self._homes()
        examples: dict[str, list[Example]] = {}
        for row in rows:
            part, key = by_topic[row["topic"]], row["k"]
            read = part.readable
            remark = ""
            if row["misplaced"] is not None:
                (home,) = homes.of(part.topic, [None if key is None else bytes(key)], row["misplaced"])
                where = "" if part.facts else ", and a record of the key"
                remark = f"{where} in partition {row['misplaced']}, while the key's partition is {home}"
            if part.facts and row["expected"] != row["found"] and row["times_expected"] and row["times_found"]:
                remark += " in its place: another order"
            expected = read.value(key, row["expected"], row["times_expected"])
            found = read.value(key, row["found"], row["times_found"]) + remark
            sides = row["times_expected"] > 0, row["times_found"] > 0
            examples.setdefault(part.topic, []).append(Example(read.key(key), expected, found, *sides, remark))
        return examples


def _counts(rows: DataFrame) -> dict[str, tuple[int, int]]:
    """Return, by topic, the number of keys and the number of keys that differ."""
    with spark_errors():
        found = rows.groupBy("topic").agg(f.count("*").alias("keys"), f.count_if("differs").alias("differ")).collect()
    return {row["topic"]: (row["keys"], row["differ"]) for row in found}
