"""Writing the rows of a named job to a topic exactly once.

    rows     sorted by time, key, value and headers: one order, however Spark partitioned them
    digest   of the sorted rows
    note     in the topic `eddy-spark-jobs`, by job and topic: batch, digest, number of rows, number of written rows

Each transaction writes the next rows, and the note with the new number of written rows. A repeated job reads the note
and continues after the written rows. If its rows have another digest, it is refused, since it is unknown which of its
rows are written. A producer of the job fences all earlier producers of the job.

Invariant: the committed rows of a job in its topic are the first `written` of its sorted rows, each once.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.connectors.spark.arrow_functions import arrow_schema, unpack_headers
from eddy.connectors.spark.inputs import committed_records
from eddy.connectors.spark.source.source_options import option_error
from eddy.errors import ConnectorError
from eddy.partitioner import partitions_of

__all__ = ["ENCODED", "JOBS", "JobNote", "JobWriting"]

JOBS = "eddy-spark-jobs"
"""The topic of the notes of all jobs. It is compacted."""
ENCODED = arrow_schema("t long, k binary, v binary, h binary")
"""Encoded rows: the time, which may be null, the key, the value, packed headers."""
_RECORDS_A_TRANSACTION = 50_000
_pack = msgspec.msgpack.Encoder().encode


class JobNote(msgspec.Struct, frozen=True):
    """The progress of a job. `time_ms` is the timestamp of rows without a time."""

    batch: int
    digest: str
    records: int
    written: int
    time_ms: int


@dataclass(frozen=True)
class JobWriting:
    """Writes the rows of a job to a topic. `tail` belongs to the serde of the keys, see `Serde.tail`.

    `batch` counts the sets of rows that the job writes one after the other, such as the batches of a stream.
    """

    job: str
    topic: str
    batch: int
    tail: int = 0
    records_a_transaction: int = _RECORDS_A_TRANSACTION

    def write(self, log: Log, tables: Sequence[Any]) -> int:
        """Write the rows of `tables` that no earlier attempt has written. Returns the number of rows written now.

        Raises: ConfigurationError if an earlier attempt had other rows; ConnectorError; RecordRefusedError.
        """
        rows = self._sorted(tables)
        digest = _digest(rows)
        self._make_jobs(log)
        count = log.topics([self.topic])[self.topic].partitions
        producer = log.producer(f"eddy-spark-{self.topic}-{self.job}")
        try:
            now_ms = int(time.time() * 1000)
            note = self._note(log)
            if note is None or note.batch < self.batch:
                self._check_finished(note)
                note = JobNote(self.batch, digest, rows.num_rows, 0, now_ms)
            elif note.batch == self.batch and note.written == note.records and note.digest == digest:
                return 0
            self._check_same(note, digest, rows.num_rows)
            begun = note.written
            while True:
                part = rows.slice(note.written, self.records_a_transaction)
                note = self._send(log, producer, part, note, count)
                if note.written == note.records:
                    return note.written - begun
        finally:
            producer.close()

    def _send(self, log: Log, producer: Any, part: Any, note: JobNote, count: int) -> JobNote:
        """Write rows and the note that they are written, in one transaction. Returns the note."""
        times, keys, values, packed = (column.to_pylist() for column in part.columns)
        known = iter(partitions_of([key for key in keys if key is not None], count, log.partitioner, self.tail))
        homes = [place % count if key is None else next(known) for place, key in enumerate(keys, note.written)]
        headers = [unpack_headers(data) for data in packed] if any(packed) else None
        then = msgspec.structs.replace(note, written=note.written + part.num_rows)
        producer.begin()
        if keys:
            stamps = [note.time_ms if at is None else at for at in times]
            producer.send(self.topic, homes, keys, values, stamps, headers)
        producer.send(JOBS, 0, [self._key], [msgspec.json.encode(then)], [int(time.time() * 1000)])
        producer.commit({}, None)
        return then

    @property
    def _key(self) -> bytes:
        return msgspec.json.encode([self.job, self.topic])

    def _make_jobs(self, log: Log) -> None:
        if log.topics([JOBS]):
            return
        try:
            log.create_topics([TopicSpec(JOBS, 1, {"cleanup.policy": "compact"})])
        except ConnectorError:
            # Another job has made the topic meanwhile.
            if not log.topics([JOBS]):
                raise

    def _note(self, log: Log) -> JobNote | None:
        """Return the last committed note of the job; None if there is none. No earlier producer can add one now."""
        part, found = TopicPartition(JOBS, 0), None
        for records in committed_records(log, part, log.begin_offsets([part])[part], log.end_offsets([part])[part]):
            for key, value in zip(records.keys, records.values, strict=True):
                if key == self._key and value is not None:
                    found = msgspec.json.decode(value, type=JobNote)
        return found

    def _sorted(self, tables: Sequence[Any]) -> Any:
        whole = pa.concat_tables([ENCODED.empty_table(), *tables])
        return whole.sort_by([(name, "ascending") for name in ENCODED.names])

    def _check_finished(self, note: JobNote | None) -> None:
        if note is not None and note.written < note.records:
            raise option_error(
                "write",
                f"job '{self.job}': batch {note.batch} was interrupted after {note.written} of {note.records} rows to "
                f"'{self.topic}'; it has to be finished before batch {self.batch}. Repeat it with the same rows",
            )

    def _check_same(self, note: JobNote, digest: str, records: int) -> None:
        if note.batch > self.batch:
            raise option_error(
                "write",
                f"job '{self.job}' has written batch {note.batch} to '{self.topic}', and batch {self.batch} is "
                "before it; a job has one sequence of batches. Give a query with a new checkpoint a new job",
            )
        if (note.digest, note.records) != (digest, records):
            raise option_error(
                "write",
                f"job '{self.job}', batch {note.batch}, has written {note.written} of {note.records} rows to "
                f"'{self.topic}', and the {records} rows given now are not the same; a repeated job needs the same "
                "rows. Give other rows another job; or compute these from fixed data, without random numbers or "
                "the present time",
            )


def _digest(rows: Any) -> str:
    found = hashlib.sha256()
    for batch in rows.to_batches(max_chunksize=10_000):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            found.update(_pack(row))
    return found.hexdigest()
