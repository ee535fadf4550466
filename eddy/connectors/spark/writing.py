"""Writing to topics from Spark's tasks, so that a task or a job that was killed can be run again.

Each partition of a topic is written by one task, in transactions, in an order that the rows alone determine. A
task first fences what an earlier attempt left open, then counts what is committed from `begin` on: these rows
are there already, and it goes on behind them. So nothing is written twice, whoever was killed when.

Invariant: only the job writes behind `begin` while it runs.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.log import Log, Producer, TopicPartition
from eddy.connectors.spark.frames import Frames, told
from eddy.connectors.spark.inputs import OpenLog
from eddy.connectors.spark.passes import arrow_schema, pack_headers, unpack_headers

__all__ = ["OUTGOING", "Writing", "as_letters", "write_topic"]

OUTGOING = "k binary, key binary, value binary, t long, s binary, h binary"
"""What is written: `k` is what the partition is found by, `s` the order within it."""
_PLACED = f"{OUTGOING}, p int"
_WRITTEN = "p int, n long"
_RECORDS_A_TRANSACTION = 50_000


@dataclass(frozen=True)
class Writing:
    """One topic to be written: its partitions, and where in each of them the job began."""

    open_log: OpenLog
    job: str
    topic: str
    partitions: int
    begins: tuple[int, ...]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Write the rows of a task's partitions, which follow one another. Yields how many of each are there."""
        rows = (tuple(row.values()) for batch in batches for row in batch.to_pylist())
        written: list[tuple[int, int]] = []
        with contextlib.closing(self.open_log()) as log:
            pending = next(rows, None)
            while pending is not None:
                partition = pending[-1]
                count, pending = self._partition(log, partition, pending, rows)
                written.append((partition, count))
        schema = arrow_schema(_WRITTEN)
        columns: list[Any] = [[p for p, _ in written], [n for _, n in written]]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _partition(self, log: Log, partition: int, first: Any, rest: Iterator[Any]) -> tuple[int, Any]:
        """Write one partition's rows. Returns how many, and the first row of the next partition."""
        producer = log.producer(f"{self.job}-{self.topic}-{partition}")
        try:
            there = self._there(log, partition)
            group = _Group(partition, first, rest)
            rows = iter(group)
            count = sum(1 for _ in islice(rows, there))
            while chunk := list(islice(rows, _RECORDS_A_TRANSACTION)):
                _send(producer, self.topic, partition, chunk)
                count += len(chunk)
            return count, group.next
        finally:
            producer.close()

    def _there(self, log: Log, partition: int) -> int:
        """How many records are committed behind where the job began."""
        tp = TopicPartition(self.topic, partition)
        position, end, count = self.begins[partition], log.end_offsets([tp])[tp], 0
        while position < end:
            records = log.read(tp, position, end, _RECORDS_A_TRANSACTION)
            position, count = records.next_offset, count + len(records)
        return count


@dataclass
class _Group:
    """The rows of one partition out of rows of several; `next` is then the first of the next one."""

    partition: int
    first: Any
    rest: Iterator[Any]
    next: Any = field(default=None)

    def __iter__(self) -> Iterator[Any]:
        row = self.first
        while row is not None and row[-1] == self.partition:
            yield row
            row = next(self.rest, None)
        self.next = row


def _send(producer: Producer, topic: str, partition: int, rows: list[Any]) -> None:
    _, keys, values, times, _, headers, _ = zip(*rows, strict=True)
    producer.begin()
    packed = None if headers.count(None) == len(headers) else [unpack_headers(item) for item in headers]
    producer.send(topic, partition, keys, values, times, packed)
    producer.commit({}, None)


@dataclass(frozen=True)
class _Placing:
    """The partition of each row by its `k`; what has none is at home in partition 0."""

    partitioner: Callable[[bytes, int], int]
    partitions: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        schema = arrow_schema(_PLACED)
        for arrived in batches:
            keys = arrived.column("k").to_pylist()
            homes = [0 if key is None else self.partitioner(key, self.partitions) for key in keys]
            yield pa.RecordBatch.from_arrays([*arrived.columns, pa.array(homes, pa.int32())], schema=schema)


def as_letters(batches: Iterable[Any]) -> Iterator[Any]:
    """Records that are left out, with where they came from in their headers, as a worker writes them."""
    schema = arrow_schema(OUTGOING)
    for arrived in batches:
        rows = []
        for row in arrived.to_pylist():
            where = (
                ("eddy.topic", row["topic"].encode()),
                ("eddy.partition", str(row["p"]).encode()),
                ("eddy.offset", str(row["o"]).encode()),
                ("eddy.error", row["bad"].encode()),
            )
            headers = pack_headers((*unpack_headers(row["h"]), *where))
            rows.append((None, row["k"], row["v"], row["t"], row["s"], headers))
        columns = zip(*rows, strict=True) if rows else [[]] * len(schema)
        arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def write_topic(frames: Frames, frame: DataFrame, writing: Writing, partitioner: Callable[[bytes, int], int]) -> int:
    """Write `OUTGOING` rows. Returns the number of records that are then there. Raises: ConnectorError."""
    if writing.partitions == 1:
        placed = frame.withColumn("p", f.lit(0))
    else:
        placed = frames.through(frame, _Placing(partitioner, writing.partitions), _PLACED)
    tasks = min(writing.partitions, frames.partitions)
    lying = placed.repartition(tasks, "p").sortWithinPartitions("p", "s", "key", "value", "t")
    with told():
        found = frames.through(lying, writing, _WRITTEN).agg(f.sum("n").alias("n")).first()
    return (found["n"] or 0) if found is not None else 0
