"""Deduplication on Spark: selects the first record of each `by` value, from the order of all records and their times.

    order     (event time of the partition, number of the topic, partition, offset, number of the row), in the bytes of
              `s`; after an exchange a hash of the row in place of its number
    known     of an order: all source partitions have reached it, by the event times of the computation; after an
              exchange the order has to be before the least of these event times
    passes    of a record, in this order: no earlier record of its `by` value that passes is near in time

Only the span that is near, and the time until a record is late, are computed by the worker's code:
`eddy/join_windows.py`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.arrow_functions import (
    FACTS,
    FILE,
    ROWS,
    RowsEntry,
    arrow_schema,
    record_batch,
    unpack_headers,
)
from eddy.connectors.spark.closing_times import closing_times, keys_in_partitions
from eddy.connectors.spark.cut_clocks import EventTimes
from eddy.connectors.spark.decoded_rows import DecodedRows, Row, Stamp
from eddy.connectors.spark.frames import Frames, be64, names
from eddy.connectors.spark.step_frames import PendingRows
from eddy.errors import ConfigurationError, DataError
from eddy.join_windows import JoinSide
from eddy.partitioner import Partitioner, partitions_of
from eddy.row_hash import row_hash
from eddy.serde import Int64, Native, Serde, Tuple
from eddy.state.calendar import MOST_MS
from eddy.topology.plan.placement import Placement
from eddy.topology.plan.plan import Deduplicate

__all__ = ["DeduplicatedFrames", "FactOrders", "OrderStep", "VersionsStep"]

_FATES = f"{FACTS}, fate int, home int"
"""Facts with their fate (it waits, passes or is a duplicate), and the partition of their keys."""
_WAITS, _PASSES, _DUPLICATE = range(3)
_MOMENTS = f"{ROWS}, due long"
_ENTRIES = "k binary, key binary, value binary"
_KNOWN = slice(1, 17)
"""The bytes of `s` that have the event time + 1, the number of the topic, and the partition."""
_PLACE, _OFFSET, _SENT = Struct(">QII"), slice(17, 25), slice(0, 25)
_ORDER = Struct(">qIIqI")


@dataclass(frozen=True)
class FactOrders:
    """Computes, for each record, bytes that sort as the records are ordered.

    `numbers` has the number of each topic, by its number in the plan. `sent` has the serdes of keys and values if
    exchanges have sent the records, else None. `files` tells whether records of files may be among them, which have no
    offset.
    """

    where: str
    numbers: Mapping[int, int]
    files: bool
    sent: tuple[Serde[Any], Serde[Any]] | None
    counts: Counter[bytes] = field(default_factory=Counter)

    def of(self, row: Row, stamp: Stamp) -> tuple[bytes, Stamp]:
        """Return the bytes that order a row, and a stamp for the row by which Spark sorts rows in the same order."""
        time, place, headers = stamp
        assert time is not None
        after, number, partition = _PLACE.unpack(place[_KNOWN])
        nth, last = 0, b""
        if self.sent is not None:
            last = row_hash(self.sent, row, time)
            stamp = (time, place[_SENT] + last, headers)
        else:
            nth = self.counts[place[_SENT]]
            self.counts[place[_SENT]] += 1
        order = _ORDER.pack(after - 1, self.numbers[number], partition, self._offset(place), nth)
        return order + last, stamp

    def _offset(self, place: bytes) -> int:
        """Return the offset of a record; 0 for a record of a file, whose order is never written."""
        if place[:1] != FILE:
            return int.from_bytes(place[_OFFSET], "big")
        if self.files:
            return 0
        raise ConfigurationError(
            f"{self.where}: it orders the records of several partitions by their offsets, and those of files have "
            "none; the records of the topic are needed. Leave --input out, or let a worker read the input"
        )


@dataclass(frozen=True)
class OrderStep:
    """The step that drops late records and adds to each record the bytes that order it."""

    name: str
    lag_ms: int
    orders: FactOrders

    def __call__(self, given: DecodedRows) -> DecodedRows:
        """Drop late rows, and turn rows (by, (key, value)) into rows (by, (order, timestamp, key, value)).

        Raises: DataError.
        """
        rows: list[Row] = []
        weights: list[int] = []
        stamps: list[Stamp] = []
        orders = replace(self.orders, counts=Counter())
        assert given.stamps is not None
        for (by, row), weight, stamp in zip(given.rows, given.weights, given.stamps, strict=True):
            time, place, _ = stamp
            if by is None:
                continue
            if time is None or time < 0:
                raise DataError(f"deduplicate '{self.name}': the record of {by!r} has timestamp {time}")
            order, stamp = orders.of(row, stamp)
            if time + self.lag_ms > _PLACE.unpack(place[_KNOWN])[0] - 1:
                rows.append((by, (order, time, *row)))
                weights.append(weight)
                stamps.append(stamp)
        return DecodedRows(rows, weights, stamps)


@dataclass(frozen=True)
class VersionsStep:
    """The step that adds the order of its record to each value of a stream, to find the later of two values."""

    orders: FactOrders

    def __call__(self, given: DecodedRows) -> DecodedRows:
        """Turn rows (key, (value or None,)) into rows (key, (value or None, order)). Raises: DataError.

        Late rows remain, because the window step that follows drops them.
        """
        orders = replace(self.orders, counts=Counter())
        rows: list[Row] = []
        weights: list[int] = []
        stamps: list[Stamp] = []
        assert given.stamps is not None
        for (key, value), weight, stamp in zip(given.rows, given.weights, given.stamps, strict=True):
            if key is None:
                continue
            if stamp[0] is None or stamp[0] < 0:
                raise DataError(f"{self.orders.where}: the record of {key!r} has timestamp {stamp[0]}")
            order, stamp = orders.of((key, value[0]), stamp)
            rows.append((key, (*value, order)))
            weights.append(weight)
            stamps.append(stamp)
        return DecodedRows(rows, weights, stamps)


@dataclass
class DeduplicatedFrames:
    """Computes the results of a deduplication at the event times of its sources, and its `states`.

    `states` has, by the name of a state, its kind and its rows. `numbers` has the number of each topic in the plan.
    """

    frames: Frames
    node: Deduplicate
    place: Placement
    times: EventTimes
    numbers: Mapping[str, int]
    partitioner: Partitioner
    states: dict[str, tuple[str, DataFrame]] = field(default_factory=dict)

    def of(self, facts: DataFrame) -> PendingRows:
        """Return the records that pass, and keep the states."""
        present = self.frames.by_key(facts.where("k IS NOT NULL"), "s")
        fates = _Fates(self.node.assigned.windows, self._known(), self._own, self.partitioner, self.place.key.tail)
        told = self.frames.kept(self.frames.through(present, fates, _FATES))
        passes = told.where(f.col("fate") == _PASSES)
        self._keep(told.where(f.col("fate") == _WAITS), passes)
        made = passes.select(*names(FACTS)).withColumn("w", f.lit(1).cast("long"))
        return PendingRows(made, RowsEntry(self.node.by, self._value, True), (_plain,))

    @property
    def _own(self) -> bool:
        """Whether a record is in the partition from which it was read, rather than in the partition of its key."""
        return self.node.inputs[0].role != "exchange" and not self.node.assigned.sent

    @property
    def _value(self) -> Serde[Any]:
        return self.node.inputs[0].value or Native

    def _known(self) -> list[bytes]:
        """Return, by partition, the place in the order of records that all source partitions have reached."""
        topics, count = self.node.assigned.topics_of_windows, self.place.partitions
        places = [(time + 1, self.numbers[topic], p) for topic in topics for p, time in enumerate(self.times[topic])]
        if self.node.assigned.sent:
            least = int.from_bytes(_PLACE.pack(min(places)[0], 0, 0), "big")
            return [max(0, least - 1).to_bytes(_PLACE.size, "big")] * count
        if self.node.inputs[0].role == "exchange":
            return [_PLACE.pack(*min(places))] * count
        return [_PLACE.pack(*min(place for place in places if place[2] == home)) for home in range(count)]

    def _keep(self, waiting: DataFrame, passes: DataFrame) -> None:
        """Set `states` to the states that a worker would have."""
        node, name, place = self.node, self.node.name, self.place
        (source,), windows = node.inputs, node.assigned.windows
        passed = closing_times(self.times, source, place.partitions)
        moments = _KeptMoments(windows.lag_ms + windows.later_ms + 1, passed, self.partitioner, place.key.tail)
        times = passes.groupBy("k").agg(f.sort_array(f.collect_list("t")).alias("times"))
        kept = self.frames.kept(self.frames.through(times, moments, _MOMENTS))
        homes = keys_in_partitions(place.partitions, self.partitioner) if self._own else None
        if node.assigned.sent:  # equal rows of one record have the same order, so they are one row of the state
            others = [name for name in waiting.columns if name != "w"]
            waiting = waiting.groupBy(*others).agg(f.sum("w").alias("w")).select(*waiting.columns)
        rows = _WaitingRows(node.by, self._value, Tuple(node.by, Int64, *node.record, Int64, Native), homes)
        there = self.frames.kept(self.frames.through(waiting, rows, _ENTRIES))
        mark = f.lit(b"\x01").alias("value")
        ordered = f.concat(f.expr("substring(key, 1, 8)"), "key").alias("key")
        self.states = {
            f"{name}-passed": ("table", kept.select(*names(ROWS))),
            f"{name}-calendar": ("encoded", kept.select("k", f.concat(be64(f.col("due")), "k").alias("key"), mark)),
            f"{name}-waiting": ("encoded", there),
            f"{name}-waiting-calendar": ("encoded", there.select("k", ordered, mark)),
        }


@dataclass(frozen=True)
class _Fates:
    """Decides whether each record passes, is a duplicate or waits. The records are sorted by `by` value and order.

    `known` has, by partition, the last place in the order up to which no earlier record can arrive. `own` tells whether
    a record is in the partition from which it was read, rather than in the partition of its key.
    """

    windows: JoinSide
    known: Sequence[bytes]
    own: bool
    partitioner: Partitioner
    tail: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        schema = arrow_schema(_FATES)
        last: bytes | None = None
        passed: list[int] = []
        for batch in batches:
            keys, times, places = (batch.column(name).to_pylist() for name in ("k", "t", "s"))
            homes = partitions_of(keys, len(self.known), self.partitioner, self.tail)
            if self.own:
                homes = [_PLACE.unpack(place[_KNOWN])[2] for place in places]
            fates: list[int] = []
            for key, time, place, home in zip(keys, times, places, homes, strict=True):
                if key != last:
                    last, passed = key, []
                if place[_KNOWN] > self.known[home]:
                    fates.append(_WAITS)
                    continue
                first, until = self.windows.others(time)
                fates.append(_DUPLICATE if any(first <= other <= until for other in passed) else _PASSES)
                if fates[-1] == _PASSES:
                    passed.append(time)
            columns = [*batch.columns, pa.array(fates, pa.int32()), pa.array(homes, pa.int32())]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class _KeptMoments:
    """Makes the rows in which a worker stores each key's times, and the moment at which the first time is removed.

    The input has the columns `k times`. `passed` has, by partition, the event time that removes old times.
    """

    kept_ms: int
    passed: Sequence[int]
    partitioner: Partitioner
    tail: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        schema = arrow_schema(_MOMENTS)
        for batch in batches:
            keys = batch.column("k").to_pylist()
            homes = partitions_of(keys, len(self.passed), self.partitioner, self.tail)
            kept = [
                (key, [time for time in times if time + self.kept_ms > self.passed[home]])
                for key, times, home in zip(keys, batch.column("times").to_pylist(), homes, strict=True)
            ]
            rows = [
                (key, None, Native.encode(tuple(times)), None, 1, min(times[0] + self.kept_ms, MOST_MS))
                for key, times in kept
                if times
            ]
            if rows:
                yield record_batch(list(zip(*rows, strict=True)), schema)


@dataclass(frozen=True)
class _WaitingRows:
    """Turns waiting records into the rows that a worker's state has of them.

    `homes` has, for each partition, a key by which a row is placed there; None if the rows' own keys place them.
    """

    by: Serde[Any]
    value: Serde[Any]
    stored: Serde[Any]
    homes: Sequence[bytes] | None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        schema = arrow_schema(_ENTRIES)
        for batch in batches:
            keys, values = ([], []) if not batch.num_rows else (self._first(batch, "k"), self._first(batch, "v"))
            found: list[tuple[bytes, bytes, bytes]] = []
            columns = (batch.column(name).to_pylist() for name in ("k", "w", "h", "home"))
            for by, value, k, weight, headers, home in zip(keys, values, *columns, strict=True):
                order, at_ms, *record = self.value.decode(value)
                row = (self.by.decode(by), at_ms, *record, weight, unpack_headers(headers))
                found.append((k if self.homes is None else self.homes[home], order, self.stored.encode(row)))
            if found:
                yield record_batch(list(zip(*found, strict=True)), schema)

    def _first(self, batch: Any, name: str) -> list[bytes]:
        """Return the original bytes of a column; they are the identity if no others are stored."""
        pairs = zip(batch.column(f"{name}c").to_pylist(), batch.column(name).to_pylist(), strict=True)
        return [identity if came is None else came for came, identity in pairs]


def _plain(given: DecodedRows) -> DecodedRows:
    """Turn rows (by, (order, timestamp, key, value)) into rows (key, value)."""
    return DecodedRows([(key, value) for _, (_, _, key, value) in given.rows], given.weights, given.stamps)
