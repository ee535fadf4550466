"""Writing to topics from Spark's tasks, so that a task or a job that was killed can be run again.

Each partition of a topic is written by one task, in transactions, in an order that the rows alone determine. A
task first fences what an earlier attempt left open, then counts what is committed from `begin` on: these rows
are there already, and it goes on behind them. So nothing is written twice, whoever was killed when.

Invariant: only the job writes behind `begin` while it runs.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.log import Log, Producer, TopicPartition
from eddy.connectors.spark.frames import Frames, told
from eddy.connectors.spark.inputs import OpenLog
from eddy.connectors.spark.passes import arrow_schema, pack_headers, unpack_headers

__all__ = ["OUTGOING", "Letters", "Writing", "write_topics"]

OUTGOING = "topic string, k binary, key binary, value binary, t long, s binary, h binary"
"""What is written: `k` is what the partition is found by, `s` the order within it."""
_PLACED = f"{OUTGOING}, p int"
_WRITTEN = "topic string, n long"
_RECORDS_A_TRANSACTION = 50_000


@dataclass(frozen=True)
class Writing:
    """What a job writes: for each topic, where in its partitions the job began."""

    open_log: OpenLog
    job: str
    begins: Mapping[str, Sequence[int]]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Write a task's rows, partition after partition. Yields how many records of each are there."""
        rows = (tuple(row.values()) for batch in batches for row in batch.to_pylist())
        first = next(rows, None)
        written: list[tuple[str, int]] = []
        if first is not None:
            with contextlib.closing(self.open_log()) as log:
                for (topic, partition), group in groupby(chain((first,), rows), key=lambda row: (row[0], row[-1])):
                    written.append((topic, self._partition(log, TopicPartition(topic, partition), group)))
        schema = arrow_schema(_WRITTEN)
        columns: list[Any] = [[topic for topic, _ in written], [count for _, count in written]]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _partition(self, log: Log, partition: TopicPartition, rows: Iterator[Any]) -> int:
        """Write one partition's rows. Returns how many there are."""
        producer = log.producer(f"{self.job}-{partition.topic}-{partition.partition}")
        try:
            count = sum(1 for _ in islice(rows, self._there(log, partition)))
            while chunk := list(islice(rows, _RECORDS_A_TRANSACTION)):
                _send(producer, partition, chunk)
                count += len(chunk)
            return count
        finally:
            producer.close()

    def _there(self, log: Log, partition: TopicPartition) -> int:
        """How many records are committed behind where the job began."""
        position, end, count = (
            self.begins[partition.topic][partition.partition],
            log.end_offsets([partition])[partition],
            0,
        )
        while position < end:
            records = log.read(partition, position, end, _RECORDS_A_TRANSACTION)
            position, count = records.next_offset, count + len(records)
        return count


def _send(producer: Producer, partition: TopicPartition, rows: list[Any]) -> None:
    _, _, keys, values, times, _, headers, _ = zip(*rows, strict=True)
    packed = None if headers.count(None) == len(headers) else [unpack_headers(item) for item in headers]
    producer.begin()
    producer.send(partition.topic, partition.partition, keys, values, times, packed)
    producer.commit({}, None)


@dataclass(frozen=True)
class _Placing:
    """The partition of each row by its topic and `k`; what has none is at home in partition 0."""

    partitioner: Callable[[bytes, int], int]
    partitions: Mapping[str, int]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """`OUTGOING` in, the same with `p` out."""
        schema = arrow_schema(_PLACED)
        for arrived in batches:
            keys, counts = (
                arrived.column("k").to_pylist(),
                map(self.partitions.__getitem__, arrived.column("topic").to_pylist()),
            )
            homes = [0 if k is None else self.partitioner(k, count) for k, count in zip(keys, counts, strict=True)]
            yield pa.RecordBatch.from_arrays([*arrived.columns, pa.array(homes, pa.int32())], schema=schema)


@dataclass(frozen=True)
class Letters:
    """Records that are left out, with where they came from in their headers, as a worker writes them to `topic`."""

    topic: str

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """`RECORDS` with their topic in, `OUTGOING` out."""
        schema = arrow_schema(OUTGOING)
        for arrived in batches:
            columns = list(zip(*map(self._letter, arrived.to_pylist()), strict=True)) or [()] * len(schema)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _letter(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        where = (
            ("eddy.topic", row["topic"].encode()),
            ("eddy.partition", str(row["p"]).encode()),
            ("eddy.offset", str(row["o"]).encode()),
            ("eddy.error", row["bad"].encode()),
        )
        headers = pack_headers((*unpack_headers(row["h"]), *where))
        return self.topic, None, row["k"], row["v"], row["t"], row["s"], headers


def write_topics(
    frames: Frames, frame: DataFrame, writing: Writing, partitioner: Callable[[bytes, int], int]
) -> dict[str, int]:
    """Write `OUTGOING` rows. Returns by topic the number of records that are then there. Raises: ConnectorError."""
    counts = {topic: len(begins) for topic, begins in writing.begins.items()}
    placed = frames.through(frame, _Placing(partitioner, counts), _PLACED)
    lying = placed.repartition(frames.partitions, "topic", "p")
    lying = lying.sortWithinPartitions("topic", "p", "s", "key", "value", "t")
    with told():
        found = frames.through(lying, writing, _WRITTEN).groupBy("topic").agg(f.sum("n").alias("n")).collect()
    return {row["topic"]: row["n"] for row in found}
