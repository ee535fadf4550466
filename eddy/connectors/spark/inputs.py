"""Topics of a log between two offsets, as frames.

A log is read by Spark's tasks through the port of `connectors/log.py`, each a stretch of one partition: what is
committed, and nothing else, as a worker reads it. So it is one way for Kafka and for the embedded log, without
a connector's jar; the embedded log has to be on the machine that the tasks run on.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from eddy.connectors.log import Log, TopicPartition
from eddy.connectors.spark.frames import Frames, names
from eddy.connectors.spark.passes import FACTS, RECORDS, RecordsEntry, arrow_schema, pack_headers
from eddy.topology.plan import Source

__all__ = ["RAW", "OpenLog", "Stretch", "facts_of", "read_topic"]

RAW = "k binary, v binary, t long, h binary, p int, o long"
"""Records as they are in a topic, with partition and offset."""

OpenLog = Callable[[], Log]
"""Opens the log anew, in the process that calls it."""

_RECORDS_A_STRETCH = 250_000
_RECORDS_A_BATCH = 10_000


@dataclass(frozen=True)
class Stretch:
    """The offsets of one partition from `start` on, before `end`."""

    partition: int
    start: int
    end: int


def read_topic(frames: Frames, log: OpenLog, topic: str, stretches: Iterable[Stretch]) -> DataFrame:
    """The committed records of a topic in `RAW` columns."""
    parts = [
        (s.partition, at, min(at + _RECORDS_A_STRETCH, s.end))
        for s in stretches
        for at in range(s.start, s.end, _RECORDS_A_STRETCH)
    ]
    if not parts:
        return frames.empty(RAW)
    tasks = frames.rows(parts, "p int, o long, e long").repartitionByRange(len(parts), "p", "o")
    return frames.through(tasks, _Reading(log, topic), RAW)


@dataclass(frozen=True)
class _Reading:
    """Reads the stretches that a task is given."""

    log: OpenLog
    topic: str

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        schema = arrow_schema(RAW)
        stretches = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        if not stretches:
            return
        with contextlib.closing(self.log()) as log:
            for partition, start, end in stretches:
                position = start
                while position < end:
                    records = log.read(TopicPartition(self.topic, partition), position, end, _RECORDS_A_BATCH)
                    position = records.next_offset
                    count = len(records)
                    headers = [None] * count if records.headers is None else list(map(pack_headers, records.headers))
                    columns: list[Any] = [records.keys, records.values, records.timestamps, headers]
                    columns += [[partition] * count, records.offsets]
                    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def facts_of(
    frames: Frames, source: Source, raw: DataFrame, fail: bool, left_out: frozenset[tuple[int, int]] = frozenset()
) -> tuple[DataFrame, DataFrame]:
    """A source's records as facts; and those that are left out, with the reason as `bad`."""
    assert source.key is not None
    assert source.value is not None
    entry = RecordsEntry(source.topic, source.key, source.value, source.kind == "table", fail, left_out)
    records = frames.through(raw, entry, RECORDS)
    if fail:
        return records.select(*names(FACTS)), frames.empty(RECORDS)
    records = frames.kept(records)
    return records.where("bad IS NULL").select(*names(FACTS)), records.where("bad IS NOT NULL")
