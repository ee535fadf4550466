"""Writing to topics from Spark's tasks, so that a killed task or job can be run again.

Each partition of a topic is written by one task, in transactions, in an order that only the rows determine. A task
first fences an earlier attempt. Then it counts the records committed from the offset `begin` on, which is the number of
rows that are already written, and continues with the next row. So no row is written twice, whatever was killed.

Invariant: only the job writes to the partition from `begin` on while it runs.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.log import Log, Producer, TopicPartition
from eddy.connectors.spark.arrow_functions import arrow_schema, pack_headers, record_batch, unpack_headers
from eddy.connectors.spark.frames import Frames, spark_errors
from eddy.connectors.spark.inputs import OpenLog, committed_records
from eddy.partitioner import Partitioner

__all__ = ["OUTGOING", "DeadLetters", "Writing", "write_topics"]

OUTGOING = "topic string, k binary, key binary, value binary, t long, s binary, h binary"
"""Outgoing records: `k` is hashed for the partition, `s` is the order within it."""
_PLACED = f"{OUTGOING}, p int"
_WRITTEN = "topic string, n long"
_RECORDS_A_TRANSACTION = 50_000


@dataclass(frozen=True)
class Writing:
    """Writes a job's rows to topics. The target has, for each topic and partition, the offset at which the job began.

    `time` is the timestamp of rows that have none.
    """

    open_log: OpenLog
    job: str
    begins: Mapping[str, Sequence[int]]
    time: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Write a task's rows, one partition at a time. Yields the number of records in each partition."""
        written: list[tuple[str, int]] = []
        with contextlib.ExitStack() as stack:
            log: Log | None = None
            for (topic, partition), runs in groupby(chain.from_iterable(map(_runs, batches)), key=itemgetter(0)):
                log = log or stack.enter_context(contextlib.closing(self.open_log()))
                rows = (run for _, run in runs)
                written.append((topic, self._partition(log, TopicPartition(topic, partition), rows)))
        schema = arrow_schema(_WRITTEN)
        columns: list[Any] = [[topic for topic, _ in written], [count for _, count in written]]
        yield record_batch(columns, schema)

    def _partition(self, log: Log, partition: TopicPartition, runs: Iterable[Any]) -> int:
        """Write one partition's rows, in transactions. Returns their number."""
        producer = log.producer(f"{self.job}-{partition.topic}-{partition.partition}")
        try:
            count, skip = 0, self._there(log, partition)
            pending: list[Any] = []
            for run in runs:
                count += run.num_rows
                if count > skip:
                    pending.append(run.slice(max(0, run.num_rows - (count - skip))))
                if sum(part.num_rows for part in pending) >= _RECORDS_A_TRANSACTION:
                    self._send(producer, partition, pending)
                    pending = []
            if pending:
                self._send(producer, partition, pending)
            return count
        finally:
            producer.close()

    def _send(self, producer: Producer, partition: TopicPartition, runs: list[Any]) -> None:
        """Write rows in one transaction."""
        producer.begin()
        for run in runs:
            keys, values, times, headers = (run.column(name).to_pylist() for name in ("key", "value", "t", "h"))
            packed = None if headers.count(None) == len(headers) else [unpack_headers(item) for item in headers]
            stamps = [self.time if time is None else time for time in times]
            producer.send(partition.topic, partition.partition, keys, values, stamps, packed)
        producer.commit({}, None)

    def _there(self, log: Log, partition: TopicPartition) -> int:
        """Return the number of records committed from the job's start offset on.

        Raises: ConnectorError, retriable, if another producer's transaction is open for a minute.
        """
        begin, end = self.begins[partition.topic][partition.partition], log.end_offsets([partition])[partition]
        return sum(map(len, committed_records(log, partition, begin, end)))


def _runs(batch: Any) -> Iterator[tuple[tuple[str, int], Any]]:
    """Yield the rows of each partition in a batch that is sorted by topic and partition."""
    homes = list(zip(batch.column("topic").to_pylist(), batch.column("p").to_pylist(), strict=True))
    start = 0
    for home, group in groupby(homes):
        count = sum(1 for _ in group)
        yield home, batch.slice(start, count)
        start += count


@dataclass(frozen=True)
class _Placing:
    """Adds to each row the partition to which it is written, by its topic and key `k`; without a key partition 0."""

    partitioner: Partitioner
    partitions: Mapping[str, int]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Add the column `p` to `OUTGOING` rows."""
        schema = arrow_schema(_PLACED)
        for arrived in batches:
            keys, counts = (
                arrived.column("k").to_pylist(),
                map(self.partitions.__getitem__, arrived.column("topic").to_pylist()),
            )
            homes = [0 if k is None else self.partitioner(k, count) for k, count in zip(keys, counts, strict=True)]
            yield pa.RecordBatch.from_arrays([*arrived.columns, pa.array(homes, pa.int32())], schema=schema)


@dataclass(frozen=True)
class DeadLetters:
    """Turns rejected records into dead letters, with their origin in headers, as a worker writes them to `topic`."""

    topic: str

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Turn batches of rejected records into batches of dead letters, with the columns `OUTGOING`."""
        schema = arrow_schema(OUTGOING)
        for arrived in batches:
            columns = list(zip(*map(self._letter, arrived.to_pylist()), strict=True)) or [()] * len(schema)
            yield record_batch(columns, schema)

    def _letter(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        where = (
            ("eddy.topic", row["topic"].encode()),
            ("eddy.partition", str(row["p"]).encode()),
            ("eddy.offset", str(row["o"]).encode()),
            ("eddy.error", row["bad"].encode()),
        )
        headers = pack_headers((*unpack_headers(row["h"]), *where))
        return self.topic, None, row["k"], row["v"], row["t"], row["s"], headers


def write_topics(frames: Frames, frame: DataFrame, writing: Writing, partitioner: Partitioner) -> dict[str, int]:
    """Write `OUTGOING` rows. Returns, by topic, the number of the job's records in it. Raises: ConnectorError."""
    counts = {topic: len(begins) for topic, begins in writing.begins.items()}
    alone = max(counts.values()) == 1  # if all topics have one partition, no key has to be hashed
    placed = frame.withColumn("p", f.lit(0)) if alone else frames.through(frame, _Placing(partitioner, counts), _PLACED)
    lying = placed.repartition(frames.partitions, "topic", "p")
    lying = lying.sortWithinPartitions("topic", "p", "s", "key", "value", "t")
    with spark_errors():
        found = frames.through(lying, writing, _WRITTEN).groupBy("topic").agg(f.sum("n").alias("n")).collect()
    return {row["topic"]: row["n"] for row in found}
