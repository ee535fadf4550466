"""Joins with global tables: each record is joined with the table as it was when a worker processed the record.

    version     the records of a partition from a position on, with the offsets of the tables (`table_versions`); the
                records of files belong to the first version, since a backfill has processed them
    row         a record of a table's topic, valid from its offset up to the next record of its key
    joined      the row of the selected key that is valid at the offsets of the record's version

The notes of versions determine a join if they cover all records of the join, and if the topic of the table still has
all rows that were valid in these versions. Otherwise the join is undetermined, and the reason is told. A backfill has
one version, for all records.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from eddy.connectors.log import Log, TopicPartition
from eddy.connectors.spark.arrow_functions import FACTS, FILE, ArrowFunction, LookedUpEntry, RowsExit, identified
from eddy.connectors.spark.decoded_rows import DecodedRows, calling
from eddy.connectors.spark.frames import Frames, be64, names, spark_errors
from eddy.connectors.spark.step_frames import PendingRows
from eddy.errors import ConfigurationError, DataError
from eddy.runtime.quiescence import Cut
from eddy.runtime.table_versions import FIRST, TableVersion, read_versions
from eddy.serde import Serde
from eddy.topology.plan.global_steps import GlobalJoin
from eddy.topology.plan.plan import Plan
from eddy.topology.plan.record_steps import record_topics

__all__ = ["GlobalJoins", "JoinedTables", "check_partitions", "rows_of_table"]

_LONG = 8
_PLACE, _OFFSET = slice(9, 17), slice(17, 25)
"""The bytes of a record's order that have the numbers of its topic and its partition, and its offset."""
_ASKING = f"{FACTS}, g binary, at binary"
"""Facts with the bytes of the selected key and the offsets of their version, of eight bytes each."""


@dataclass(frozen=True)
class GlobalJoins:
    """The versions of global tables with which the records before a cut were processed, by partition of the records.

    `undetermined` has the names of joins that the versions do not determine, each with the reason.
    """

    versions: Mapping[TopicPartition, Sequence[TableVersion]]
    undetermined: Mapping[str, str]

    @staticmethod
    def at(log: Log, pinned: Cut) -> "GlobalJoins":
        """Return one version for all records before the pinned offsets: the tables as of their pinned offsets."""
        inputs = {TopicPartition(topic, p) for topic, ends in pinned.inputs.items() for p in range(len(ends))}
        begins = log.begin_offsets(inputs) if pinned.tables else {}
        return GlobalJoins({tp: [TableVersion(*tp, at, FIRST, pinned.tables)] for tp, at in begins.items()}, {})

    @staticmethod
    def of(plan: Plan, log: Log, cuts: str, cut: Cut, files: Mapping[str, bool], by_wall: bool) -> "GlobalJoins":
        """Read the versions that a worker has noted, and find out which joins of the plan they determine.

        `files` has the topics with records in files, and whether a backfill has read the files. `by_wall`: operators
        read a wall clock.
        """
        joins = list(plan.global_joins())
        if not joins:
            return GlobalJoins({}, {})
        versions = {
            tp: [v for v in found if v.position < _end(cut, tp) or (v.number == FIRST and tp.topic in files)]
            for tp, found in read_versions(log, cuts).items()
        }
        missing = _missing(log, versions, cut, files)
        reasons = {node.name: missing or _why_not(node, log, versions, by_wall) for node in joins}
        return GlobalJoins(versions, {name: why for name, why in reasons.items() if why})

    def determined(self, plan: Plan) -> list[GlobalJoin]:
        """Return the joins of the plan that the versions determine."""
        return [node for node in plan.global_joins() if node.name not in self.undetermined]

    def ends(self, topic: str) -> list[int]:
        """Return, by partition of a table's topic, the greatest offset of all versions."""
        found = [version.tables[topic] for versions in self.versions.values() for version in versions]
        return list(map(max, *found)) if len(found) > 1 else found[0] if found else []


def _end(cut: Cut, tp: TopicPartition) -> float:
    """Return the position of a partition in the cut; infinity for a partition of an internal topic."""
    ends = cut.inputs.get(tp.topic)
    return float("inf") if ends is None else ends[tp.partition]


def _missing(
    log: Log, versions: Mapping[TopicPartition, Sequence[TableVersion]], cut: Cut, files: Mapping[str, bool]
) -> str:
    """Return the reason why the versions do not cover all records; empty if they do."""
    inputs = {TopicPartition(topic, p): end for topic, ends in cut.inputs.items() for p, end in enumerate(ends)}
    begins = log.begin_offsets(inputs)
    for tp, end in inputs.items():
        first = versions.get(tp, ())[:1]
        if tp.topic in files and not (files[tp.topic] and first and first[0].number == FIRST):
            return f"records of '{tp.topic}' are in files, and no note is kept of the table's offsets for them"
        if begins[tp] < end and not (first and first[0].position <= begins[tp]):
            since = f"before offset {first[0].position}" if first else "at all"
            return (
                f"no note is kept of the table's offsets for records of '{tp.topic}' partition {tp.partition} {since}"
            )
    return ""


def _why_not(
    node: GlobalJoin, log: Log, versions: Mapping[TopicPartition, Sequence[TableVersion]], by_wall: bool
) -> str:
    """Return the reason why a join is undetermined, although all versions are known; empty if it is determined."""
    topic = node.table.topic
    offsets = {tuple(version.tables.get(topic, ())) for found in versions.values() for version in found}
    partitions = log.topics([topic])[topic].partitions
    tps = [TopicPartition(topic, p) for p in range(partitions)]
    if any(len(at) != partitions for at in offsets):
        return f"the notes of earlier records do not have the offsets of topic '{topic}'"
    in_place = record_topics(node.inputs[0]) is not None
    if not in_place and (len(offsets) > 1 or by_wall):
        return "its rows come from other workers or later epochs, and the table has changed meanwhile, or may have"
    least = list(map(min, *offsets)) if len(offsets) > 1 else next(iter(offsets), (0,) * partitions)
    ends, begins = log.end_offsets(tps), log.begin_offsets(tps)
    if any(offset > ends[tp] for at in offsets for tp, offset in zip(tps, at, strict=True)):
        return f"topic '{topic}' was deleted and made anew"
    if log.topics([topic])[topic].drops_replaced and any(least[tp.partition] < ends[tp] for tp in tps):
        return f"topic '{topic}' is compacted, and has changed since the first records were joined"
    if any(begins[tp] for tp in tps) and any(at != (0,) * partitions for at in offsets):
        return f"records of topic '{topic}' were deleted"
    return ""


@dataclass(frozen=True)
class _AskingExit:
    """Encodes facts with the key that they select in a global table, and with the table's offsets in their version.

    `versions` has the first positions and the offsets of each version, by the bytes of the topic's number and the
    partition. `only` are the offsets in all versions if these are equal, otherwise None.
    """

    facts: RowsExit
    name: str
    select: Callable[[Any, Any], Any]
    selected: Serde[Any]
    versions: Mapping[bytes, tuple[Sequence[int], Sequence[bytes]]]
    only: bytes | None
    schema: str = _ASKING

    def columns(self, rows: DecodedRows) -> list[list[Any]]:
        """Encode facts; for a record without a value, `select` is not called. Raises: DataError."""
        with calling(self.name):
            keys = [None if value is None else self.select(key, value) for key, value in rows.rows]
        self._check_hashable(keys)
        asked, _ = identified(keys, self.selected, f"join '{self.name}': selected key", nulls=True)
        assert rows.stamps is not None
        return [*self.facts.columns(rows), list(asked), [self._at(order) for _, order, _ in rows.stamps]]

    def _check_hashable(self, keys: Sequence[Any]) -> None:
        """Refuse keys that cannot be hashed, as a worker does. Raises: DataError."""
        for key in keys:
            try:
                hash(key)
            except TypeError as error:
                raise DataError(
                    f"step '{self.name}': select returned {key!r}, which cannot be hashed; a key of the table is "
                    "needed. Return a scalar, a tuple or a frozen struct"
                ) from error

    def _at(self, order: bytes) -> bytes:
        if self.only is not None:
            return self.only
        positions, offsets = self.versions[order[_PLACE]]
        if order.startswith(FILE):
            return offsets[0]
        return offsets[bisect_right(positions, int.from_bytes(order[_OFFSET], "big")) - 1]


def rows_of_table(records: DataFrame) -> DataFrame:
    """Turn a table's records into rows that are valid from offset `lo` to before `hi`, as bytes; `g` is the key."""
    following = Window.partitionBy("k", "p").orderBy("o")
    there = records.where("bad IS NULL AND k IS NOT NULL")
    value = f.col("k").alias("g"), f.col("v").alias("r"), f.col("vc").alias("rc")
    span = be64(f.col("o")).alias("lo"), be64(f.lead("o").over(following)).alias("hi")
    return there.select(*value, (f.col("p") * f.lit(_LONG) + f.lit(1)).alias("place"), *span)


def check_partitions(topic: str, rows: DataFrame) -> None:
    """Refuse a table with records of a key in several partitions, as a worker may read any of them last.

    `rows` are the result of `rows_of_table`. Raises: ConfigurationError.
    """
    with spark_errors():
        places = rows.groupBy("g").agg(f.min("place").alias("first"), f.max("place").alias("last"))
        found = places.where("first < last").limit(1).collect()
    if found:
        key, first, last = found[0]
        raise ConfigurationError(
            f"topic '{topic}' of a global table has records of the key {bytes(key)!r} in the partitions "
            f"{first // _LONG} and {last // _LONG}, and which of them a worker reads last is not determined; each key "
            "is needed in one partition. Let a worker compute the joins with it: eddy run …; leave them out of a "
            "comparison: eddy verify … --accept STEP"
        )


@dataclass(frozen=True)
class JoinedTables:
    """Computes the joins with global tables that are determined.

    `rows` has the rows of tables by topic, `numbers` the numbers of the sources' topics.
    """

    frames: Frames
    joins: GlobalJoins
    rows: Mapping[str, DataFrame]
    numbers: Mapping[str, int]

    def of(self, node: GlobalJoin, facts: PendingRows, *serdes: Serde[Any]) -> PendingRows | None:
        """Return facts joined with the table of `node`; None if the join is undetermined.

        `serdes` are the serdes of the facts' keys and values, and of the table's keys and values.
        """
        topic = node.table.topic
        if topic not in self.rows or node.name in self.joins.undetermined:
            return None
        key, value, selected, right = serdes
        exit_ = _AskingExit(
            RowsExit(node.label, key, value, True), node.name, node.select, selected, *self._versions(topic)
        )
        asking = self.frames.through(facts.frame, ArrowFunction(facts.entry, facts.steps, exit_), exit_.schema)
        included = f.expr("substring(at, place, 8) > lo AND (hi IS NULL OR substring(at, place, 8) <= hi)")
        asking, rows = asking.where("v IS NOT NULL").alias("a"), self.rows[topic].alias("b")
        joined = asking.join(rows, (f.col("a.g") == f.col("b.g")) & included, "left")
        made = joined if node.left else joined.where("r IS NOT NULL")
        columns = [f.col(f"a.{name}").alias(name) for name in names(FACTS)]
        return PendingRows(made.select(*columns, "r", "rc"), LookedUpEntry(node.name, key, value, right, node.joiner))

    def _versions(self, topic: str) -> tuple[dict[bytes, tuple[list[int], list[bytes]]], bytes | None]:
        found: dict[bytes, tuple[list[int], list[bytes]]] = {}
        offsets: set[bytes] = set()
        for tp, versions in self.joins.versions.items():
            at = [b"".join(offset.to_bytes(_LONG, "big") for offset in v.tables[topic]) for v in versions]
            offsets.update(at)
            if tp.topic in self.numbers:
                place = self.numbers[tp.topic].to_bytes(4, "big") + tp.partition.to_bytes(4, "big")
                found[place] = [version.position for version in versions], at
        return found, offsets.pop() if len(offsets) == 1 else None
