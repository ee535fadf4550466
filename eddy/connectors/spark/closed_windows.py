"""Windows of records, and whether they are over at the clocks of a computation.

    late       the source partition's greatest timestamp up to a record has reached end + grace: computed by Spark
    over       every source partition of the window's records has a timestamp of at least end + grace
    removed    a window that ends at least `retention` after this window is over

`s`, the order of a record, has the event time of its partition in bytes 1 to 9. Event times never decrease within a
partition, so they keep the order. The numbers of the topic and of the partition follow. The only code shared with the
worker is the division of time into windows: `eddy/windows.py`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from eddy.connectors.spark.arrow_functions import FACTS, RECORDS, ROWS, RowsEntry, arrow_schema, record_batch
from eddy.connectors.spark.closing_times import closing_times
from eddy.connectors.spark.cut_clocks import EventTimes, homes_of
from eddy.connectors.spark.decoded_rows import DecodedRows, Row, Stamp
from eddy.connectors.spark.frames import Frames, be32, be64, names
from eddy.connectors.spark.step_frames import PendingRows
from eddy.errors import DataError
from eddy.partitioner import Partitioner, partitions_of
from eddy.serde import Native, Serde
from eddy.topology.plan import plan as nodes
from eddy.topology.plan.placement import Placement
from eddy.topology.plan.record_steps import record_topics
from eddy.windows import SlidingWindows, Windowed, Windows

__all__ = [
    "ClosedWindows",
    "WindowStep",
    "WindowedNode",
    "assigned",
    "slid",
    "topic_numbers",
    "with_event_times",
]

_CLOSING = f"{ROWS}, due long, over boolean, removed boolean"
"""Rows of windows, with their next moment in a worker's calendar, and whether they are over and removed."""
WindowedNode = (
    nodes.WindowedCount
    | nodes.WindowedAggregate
    | nodes.WindowedSum
    | nodes.SessionCount
    | nodes.SessionAggregate
    | nodes.SessionSum
    | nodes.WindowedValues
    | nodes.SessionValues
    | nodes.Suppressed
)
"""A step that passes on the rows of windows."""
_HOMED = f"{RECORDS}, home int"
_TIME = slice(1, 9)


@dataclass(frozen=True)
class _Homed:
    """Adds to each record the column `home`: the partition whose event time the record may advance; -1 for none."""

    count: int
    partitioner: Partitioner

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        schema = arrow_schema(_HOMED)
        for batch in batches:
            places = zip(batch.column("p").to_pylist(), batch.column("k").to_pylist(), strict=True)
            homes = pa.array(homes_of(places, self.count, self.partitioner), pa.int32())
            yield pa.RecordBatch.from_arrays([*batch.columns, homes], schema=schema)


def topic_numbers(plan: nodes.Plan) -> dict[str, int]:
    """Number, in the order of names, the topics whose records carry event times and places in their order `s`.

    The event times decide which records are late; the places select the offsets of a joined global table.
    """
    topics = {topic for node in plan.nodes for topic in node.topics_of_windows}
    topics |= {topic for join in plan.global_joins() for topic in record_topics(join.inputs[0]) or ()}
    return {topic: number for number, topic in enumerate(sorted(topics))}


def with_event_times(
    frames: Frames, records: DataFrame, number: int, count: int, partitioner: Partitioner
) -> DataFrame:
    """Put into the order `s` of each record the event time of its partition: the greatest timestamp so far.

    The topic's number and the partition follow in the order; the partition is 0 for a record that moves no clock.
    """
    homed = frames.through(records.select(*names(RECORDS)), _Homed(count, partitioner), _HOMED)
    before = Window.partitionBy("home").orderBy("s").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    time = f.max(f.when(f.col("bad").isNull(), f.col("t"))).over(before)
    place = be32(f.lit(number)), be32(f.greatest("home", f.lit(0)))
    order = f.concat(f.substring("s", 1, 1), be64(f.coalesce(time, f.lit(-1)) + 1), *place, f.expr("substring(s, 2)"))
    return homed.withColumn("s", order).select(*names(RECORDS))


@dataclass(frozen=True)
class WindowStep:
    """The step that puts a record under its key with each of its windows."""

    name: str
    windows: Windows

    def __call__(self, given: DecodedRows) -> DecodedRows:
        """Return a row (key and window, value) for each window of a record that is not over; none without a key.

        Raises: DataError.
        """
        rows: list[Row] = []
        weights: list[int] = []
        stamps: list[Stamp] = []
        assert given.stamps is not None
        for (key, value), weight, stamp in zip(given.rows, given.weights, given.stamps, strict=True):
            time, order, _ = stamp
            if key is None:
                continue
            if time is None or time < 0:
                raise DataError(f"windows '{self.name}': the record of key {key!r} has timestamp {time}")
            now = int.from_bytes(order[_TIME], "big") - 1
            for start, end in self.windows.of(time):
                if end + self.windows.lag_ms > now:
                    if isinstance(self.windows, SlidingWindows):
                        end = self.windows.first_end(time, now)
                    rows.append((Windowed(key, start, end), value))
                    weights.append(weight)
                    stamps.append(stamp)
        return DecodedRows(rows, weights, stamps)


@dataclass(frozen=True)
class _Closing:
    """Adds to rows of windows whether their window is over.

    `times` has, by partition, the event time that closes windows.
    """

    windows: Windows
    retention_ms: int
    at_end: bool
    """Whether a worker's calendar has, for an open window, the end of the window rather than of its retention."""
    key: Serde[Any]
    times: Sequence[int]
    partitioner: Partitioner

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield each batch of rows, with further columns that tell whether the rows' windows are over (`_CLOSING`)."""
        schema = arrow_schema(_CLOSING)
        for batch in batches:
            keys = batch.column("k").to_pylist()
            homes = partitions_of(keys, len(self.times), self.partitioner, self.key.tail)
            told = list(map(self._moments, self.key.decode_many(keys), homes))
            columns = [pa.array(column, schema.field(name).type) for name, column in self._columns(told).items()]
            yield pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=schema)

    @staticmethod
    def _columns(told: list[tuple[int, bool, bool]]) -> Mapping[str, list[Any]]:
        return {name: [row[index] for row in told] for index, name in enumerate(("due", "over", "removed"))}

    def _moments(self, key: Windowed[Any], home: int) -> tuple[int, bool, bool]:
        end, lag, now = self.windows.closes_at(key.end_ms), self.windows.lag_ms, self.times[home]
        last = self.windows.next_end(end + self.retention_ms) if self.retention_ms else end
        over = now >= end + lag
        return end if self.at_end and not over else last, over, now >= last + lag


@dataclass(frozen=True)
class ClosedWindows:
    """Computes which windows of an aggregate are over at the event times `times`, and the states of the aggregate."""

    frames: Frames
    node: WindowedNode | nodes.Slide
    place: Placement
    times: EventTimes
    partitioner: Partitioner

    def with_closing_times(self, rows: DataFrame) -> DataFrame:
        """Add to the rows of all windows, even removed ones, whether a window is over (the columns `_CLOSING`)."""
        node, key = self.node, self.place.key
        windows = node.assigned.windows
        closing = _Closing(windows, node.retention_ms, node.final, key, self._closing_times(), self.partitioner)
        return self.frames.kept(self.frames.by_key(self.frames.through(rows, closing, _CLOSING)))

    def _closing_times(self) -> list[int]:
        """Return, by partition, the event time that closes its windows."""
        return closing_times(self.times, self.node.facts, self.place.partitions)

    @property
    def grows(self) -> Any:
        """The condition that holds for the windows to which a worker may still add records."""
        return ~f.col("over" if self.node.final else "removed")

    def values(self, facts: DataFrame, told: DataFrame, merges: bool) -> DataFrame:
        """Return the rows of the state in which a worker stores the values of windows, computed from facts.

        The rows are by window. If windows merge (`merges`), they are by key, with each value's time before the value.
        """
        kept = self.beside(facts, told).where(self.grows)
        if merges:
            kept = kept.withColumns(
                {"k": f.expr("substring(k, 1, length(k) - 16)"), "v": f.concat(be64(f.col("t")), "v")}
            )
        none = f.lit(None).cast("binary")
        rows = kept.groupBy("k", "v").agg(f.sum("w").alias("w"))
        return rows.select("k", none.alias("kc"), "v", none.alias("vc"), "w")

    def finals(self, told: DataFrame) -> DataFrame:
        """Return the rows of the windows that are over."""
        return told.where("over").select(*names(ROWS))

    def beside(self, rows: DataFrame, told: DataFrame) -> DataFrame:
        """Add to `rows` of windows the `_CLOSING` columns that `told` has for each window."""
        columns = [name for name in names(_CLOSING) if name not in names(ROWS)]
        return rows.join(told.select("k", *columns), "k")

    def states(self, told: DataFrame, rows: DataFrame) -> dict[str, tuple[str, DataFrame]]:
        """Return the kind and the rows of each state except marks and values, by name.

        `told` has all windows, `rows` the windows that have a row.
        """
        node, there = self.node, told.where(~f.col("removed"))
        entry = f.concat(be64(f.col("due")), f.col("k")).alias("key"), f.lit(b"\x01").alias("value")
        found = {
            "": ("table", rows.where(~f.col("removed")).select(*names(ROWS))),
            "calendar": ("encoded", there.select("k", *entry)),
            "open": ("table", self._open(told)),
        }
        return {kept.name_of(node.name): found[kept.suffix] for kept in node.keeps if kept.suffix in found}

    def records(self, facts: DataFrame) -> dict[str, tuple[str, DataFrame]]:
        """Return the kind and the rows of the states of sliding windows, by name.

        The states are the stored records, and a calendar of the moments at which they are removed.
        """
        windows = self.node.assigned.windows
        assert isinstance(windows, SlidingWindows)
        behind = f.concat(f.expr("substring(k, 1, length(k) - 16)"), be64(f.col("t") + 1)).alias("k")
        data = f.concat(be64(f.col("t")), f.expr("substring(k, -16, 8)"), f.coalesce("vc", "v")).alias("v")
        none = f.lit(None).cast("binary")
        rows = facts.groupBy(behind, data).agg(f.sum("w").alias("w"))
        told = self.with_closing_times(rows.select("k", none.alias("kc"), "v", none.alias("vc"), "w")).where(
            ~f.col("over")
        )
        end = be64(_number(f.expr("substring(k, -8)")) + windows.difference_ms)
        whose = f.expr("substring(k, 1, length(k) - 8)").alias("k")
        entry = f.concat(end, whose).alias("key"), f.lit(b"\x01").alias("value")
        found = {
            "": ("arrangement", told.select(whose, "kc", "v", "vc", "w")),
            "calendar": ("encoded", told.select(whose, *entry).distinct()),
        }
        return {kept.name_of(self.node.name): found[kept.suffix] for kept in self.node.keeps if kept.suffix in found}

    def _open(self, told: DataFrame) -> DataFrame:
        """Return, by key, the spans of the sessions to which a worker may still add."""
        key = f.expr("substring(k, 1, length(k) - 16)").alias("g")
        rows = told.where(self.grows).select(key, f.expr("substring(k, -16)").alias("span"))
        spans = rows.groupBy("g").agg(f.collect_list("span").alias("spans"))
        return self.frames.through(spans, _spans, ROWS)


def assigned(
    records: PendingRows, frames: Frames, node: nodes.AssignWindows, key: Serde[Any], value: Serde[Any]
) -> PendingRows:
    """Return a row for each record and each of its windows or its session, under the key with the window.

    Windows that are over are left out.
    """
    windowed = records.then(WindowStep(node.name, node.windows))
    if not node.merges:
        return windowed
    facts = _sessions(windowed.under(frames, key, value, node.label), node.windows.closes_at(0))
    return PendingRows(facts, RowsEntry(key, value, True))


def slid(facts: DataFrame, windows: SlidingWindows) -> DataFrame:
    """Return a row for each fact and each sliding window that contains it and that a record of its key has made.

    The given facts are under their key, their time and the end of their first window that is not over.
    """
    key, difference = f.expr("substring(k, 1, length(k) - 16)"), f.lit(windows.difference_ms)
    first_end = _number(f.expr("substring(k, -16, 8)"))
    facts = facts.withColumns({"g": key, "first_end": first_end})
    own = f.greatest(f.col("t") - difference, f.lit(0)).alias("start")
    made = facts.where(own + difference >= f.col("first_end")).select("g", own)
    made = made.union(facts.select("g", (f.col("t") + 1).alias("start"))).distinct()
    end = f.col("start") + difference
    found = facts.join(made, "g").where((f.col("t").between(f.col("start"), end)) & (f.col("first_end") <= end))
    window = f.concat("g", be64(f.col("start")))
    original = f.when(
        f.col("kc").isNotNull(), f.concat(f.expr("substring(kc, 1, length(kc) - 16)"), be64(f.col("start")))
    )
    return found.withColumns({"k": window, "kc": original}).select(*names(FACTS))


def _number(data: Any) -> Any:
    """Read eight bytes as a number that is not negative."""
    return f.conv(f.hex(data), 16, 10).cast("long")


def _sessions(facts: DataFrame, gap_ms: int) -> DataFrame:
    """Put each fact under the session that it belongs to, by Spark's windows.

    The key of each fact has a session of the fact's time alone, which is replaced by the merged session.
    """
    whose = f.expr("substring(k, 1, length(k) - 16)")
    by_time = Window.partitionBy("g").orderBy("t", "s")
    begins = f.coalesce(f.col("t") - f.lag("t").over(by_time) > gap_ms, f.lit(False)).cast("long")
    whole = Window.partitionBy("g", "session")
    span = f.concat(be64(f.max("t").over(whole)), be64(f.min("t").over(whole)))
    spanned = (
        facts.where("v IS NOT NULL")  # a record without a value belongs to no session
        .withColumn("g", whose)
        .withColumn("begins", begins)
        .withColumn("session", f.sum("begins").over(by_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)))
        .withColumn("span", span)
    )
    original = f.when(f.col("kc").isNotNull(), f.concat(f.expr("substring(kc, 1, length(kc) - 16)"), f.col("span")))
    return spanned.withColumns({"k": f.concat("g", "span"), "kc": original}).select(*names(FACTS))


def _spans(batches: Iterable[Any]) -> Iterator[Any]:
    """Turn columns `g spans` into `ROWS` with each key's spans, sorted. A span is 16 bytes: the end and the start."""
    schema = arrow_schema(ROWS)
    for batch in batches:
        keys, values = batch.column("g").to_pylist(), []
        for spans in batch.column("spans").to_pylist():
            pairs = ((int.from_bytes(span[8:], "big"), int.from_bytes(span[:8], "big")) for span in spans)
            values.append(Native.encode(tuple(sorted(pairs))))
        none, ones = [None] * len(keys), [1] * len(keys)
        yield record_batch([keys, none, values, none, ones], schema)
