"""Topics of a log between two offsets, as frames.

Spark's tasks read a log through the port of `connectors/log.py`. Each task reads a range of one partition, and only
committed records, as a worker does. So Kafka and the embedded log are read in the same way, without a connector's jar;
the embedded log has to be on the machine that runs the tasks.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from eddy.connectors.log import Log, Records, TopicPartition
from eddy.connectors.spark.arrow_functions import (
    FACTS,
    RECORDS,
    Reader,
    RecordsEntry,
    arrow_schema,
    pack_headers,
    record_batch,
)
from eddy.connectors.spark.frames import Frames, Maximum, names
from eddy.errors import ConnectorError

__all__ = [
    "PATIENCE_S",
    "RAW",
    "RECORDS_A_RANGE",
    "OffsetRange",
    "OpenLog",
    "committed_records",
    "facts_of",
    "read_topics",
    "records_of",
    "topics_to_read",
]

RAW = "k binary, v binary, t long, h binary, p int, o long, topic string"
"""The columns of a topic's records, with partition and offset."""

OpenLog = Callable[[], Log]
"""Opens the log anew, in the process that calls it."""

RECORDS_A_RANGE = 250_000
"""The most offsets of a partition that are read as one part."""
_RECORDS_A_BATCH = 10_000
PATIENCE_S, _PAUSE_S = 60.0, 0.05
"""The most seconds that a task waits for the end of an open transaction, and the seconds between two looks."""


@dataclass(frozen=True)
class OffsetRange:
    """The offsets of one partition from `start` on, before `end`."""

    partition: int
    start: int
    end: int


def read_topics(frames: Frames, log: OpenLog, topics: Mapping[str, Sequence[OffsetRange]]) -> DataFrame:
    """Read the committed records of topics in `RAW` columns."""
    return frames.through(*topics_to_read(frames, log, topics), RAW)


def topics_to_read(
    frames: Frames, log: OpenLog, topics: Mapping[str, Sequence[OffsetRange]]
) -> tuple[DataFrame, "RangeReading"]:
    """Return the ranges to read, and the function that reads their committed records in `RAW` columns."""
    parts = [
        (topic, s.partition, at, min(at + RECORDS_A_RANGE, s.end))
        for topic, ranges in topics.items()
        for s in ranges
        for at in range(s.start, s.end, RECORDS_A_RANGE)
    ]
    records = sum(end - start for _, _, start, end in parts)
    tasks = min(len(parts), max(frames.partitions, records // RECORDS_A_RANGE))
    wanted = frames.rows(parts, "topic string, p int, o long, e long").coalesce(1)
    return wanted.repartition(tasks) if tasks > 1 else wanted, RangeReading(log)


@dataclass(frozen=True)
class RangeReading:
    """Reads the ranges that a task is given."""

    log: OpenLog

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Read the ranges (topic, partition, start, end) as `RAW` columns."""
        ranges = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        if not ranges:
            return
        with contextlib.closing(self.log()) as log:
            for topic, partition, start, end in sorted(ranges):
                for records in committed_records(log, TopicPartition(topic, partition), start, end):
                    yield _arrow(records)


def committed_records(log: Log, partition: TopicPartition, start: int, end: int) -> Iterator[Records]:
    """Yield the committed records of a range.

    Waits up to a minute for the end of an open transaction. Raises: ConnectorError, retriable if it is still open.
    """
    position, deadline = start, None
    while position < end:
        records = log.read(partition, position, end, _RECORDS_A_BATCH)
        if records.next_offset == position:
            deadline = deadline or time.monotonic() + PATIENCE_S
            if time.monotonic() > deadline:
                raise ConnectorError(
                    f"topic '{partition.topic}' partition {partition.partition}: a transaction at offset {position} "
                    f"has not ended for {PATIENCE_S:g} s; it has to end before later records can be read. Its "
                    "producer ends it, or its time limit does; try again",
                    retriable=True,
                )
            time.sleep(_PAUSE_S)
            continue
        position, deadline = records.next_offset, None
        if len(records):
            yield records


def _arrow(records: Records) -> Any:
    schema, count = arrow_schema(RAW), len(records)
    headers = [None] * count if records.headers is None else list(map(pack_headers, records.headers))
    columns: list[Any] = [records.keys, records.values, records.timestamps, headers]
    columns += [[records.partition] * count, records.offsets, [records.topic] * count]
    return record_batch(columns, schema)


def records_of(
    frames: Frames, entry: RecordsEntry, raw: Sequence[tuple[DataFrame, Reader]], latest: Maximum, twice: bool = False
) -> DataFrame:
    """Return a source's records, with the columns `RECORDS`.

    They are cached if they are read `twice`, or if some may be rejected.

    `raw` are frames with readers that return `RAW` columns. `latest` observes the times of facts.
    """
    parts = [frames.through(frame, entry.after(reader), RECORDS, latest) for frame, reader in raw]
    records = frames.union(parts, RECORDS)
    return records if entry.fail and not twice else frames.kept(records)


def facts_of(records: DataFrame) -> DataFrame:
    """Return the records that are not rejected, as facts."""
    return records.where("bad IS NULL").select(*names(FACTS))
