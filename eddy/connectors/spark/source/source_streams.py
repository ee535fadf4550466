"""Topics as streams of Spark: `readStream` and `writeStream` of the format `eddy`.

A batch of a stream is a range of each partition; Spark's checkpoint has the offsets. Written batches are identified by
the job and Spark's number of the batch, so that a batch that Spark repeats after a crash is written once.

Needs PySpark 4.2: earlier versions do not tell a source where a batch begins, nor the limit that Spark's trigger sets.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from eddy.connectors.log import Log, TopicPartition
from eddy.connectors.spark.inputs import OffsetRange, OpenLog
from eddy.connectors.spark.source.frame_writing import JobTarget, encoded_rows
from eddy.connectors.spark.source.source_reading import TopicReader
from eddy.errors import ConnectorError

__all__ = ["StreamReader", "StreamWriter", "shared_out"]

Offsets = dict[str, int]
"""The next offset to read, by partition as text, because a checkpoint is JSON."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The committed records of a topic from its first one on, batch by batch. `parts` reads ranges in tasks.

    A batch has at most `max_offsets` offsets, if it is not None.
    """

    def __init__(self, topic: str, open_log: OpenLog, parts: TopicReader, max_offsets: int | None) -> None:
        self._topic, self._open_log, self._parts, self._max_offsets = topic, open_log, parts, max_offsets
        self._log: Log | None = None
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Return the first offset of each partition."""
        return self._begins()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a batch."""
        return ReadAllAvailable() if self._max_offsets is None else ReadMaxRows(self._max_offsets)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802 - Spark's name
        """Return the end of the next batch. Raises: ConnectorError if the topic ends before `start`."""
        begins, ends = self._begins(), self._ends()
        for part, offset in start.items():
            if offset > ends.get(part, -1):
                raise self._other(f"the checkpoint is at offset {offset} of partition {part}, beyond its end")
        if self._target is not None:
            ends = {part: min(end, self._target.get(part, begins[part])) for part, end in ends.items()}
        begun = {part: start.get(part, begins[part]) for part in ends}
        ends = {part: max(end, begun[part]) for part, end in ends.items()}
        if not isinstance(limit, ReadMaxRows):
            return ends
        shares = shared_out({part: ends[part] - begun[part] for part in ends}, limit.max_rows)
        return {part: begun[part] + share for part, share in shares.items()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Let the stream end where the topic ends now."""
        self._target = self._ends()

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return the parts of a batch. Raises: ConnectorError if records of the batch were deleted."""
        begins = self._begins()
        ranges = [OffsetRange(int(p), start.get(p, begins[p]), last) for p, last in end.items() if p in begins]
        for wanted in ranges:
            if wanted.start < min(begins[str(wanted.partition)], wanted.end):
                raise self._other(
                    f"partition {wanted.partition} begins at offset {begins[str(wanted.partition)]}: records from "
                    f"{wanted.start} on were deleted before they were read"
                )
        if len(ranges) < len(end):
            raise self._other(f"the checkpoint has {len(end)} partitions, the topic {len(begins)}")
        return self._parts.parts_of(ranges)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the records of one part, as Arrow batches."""
        return self._parts.read(partition)

    def stop(self) -> None:
        """Release the clients."""
        if self._log is not None:
            self._log.close()

    def _begins(self) -> Offsets:
        log = self._opened()
        return _by_text(log.begin_offsets(self._partitions(log)))

    def _ends(self) -> Offsets:
        log = self._opened()
        return _by_text(log.stable_offsets(self._partitions(log)))

    def _opened(self) -> Log:
        self._log = self._log or self._open_log()
        return self._log

    def _partitions(self, log: Log) -> list[TopicPartition]:
        if (spec := log.topics([self._topic]).get(self._topic)) is None:
            raise self._other("it does not exist any more")
        return [TopicPartition(self._topic, p) for p in range(spec.partitions)]

    def _other(self, problem: str) -> ConnectorError:
        return ConnectorError(
            f"spark read of format 'eddy': topic '{self._topic}': {problem}; the topic of the checkpoint is needed. If "
            "it was made anew or its records were deleted, begin with a new checkpoint"
        )


def _by_text(offsets: Mapping[TopicPartition, int]) -> Offsets:
    return {str(part.partition): offset for part, offset in offsets.items()}


def shared_out(lags: Mapping[str, int], most: int) -> Offsets:
    """Return the number of offsets of each partition in a batch of at most `most` offsets.

    Partitions get equal shares. Offsets that partitions with less lag do not need are shared by the others.

    >>> shared_out({"0": 10, "1": 2, "2": 10}, 9)
    {'0': 4, '1': 2, '2': 3}
    """
    shares = dict.fromkeys(lags, 0)
    waiting = sorted(lags, key=lambda part: (lags[part], int(part)))
    for place, part in enumerate(waiting):
        shares[part] = min(lags[part], -(-most // (len(waiting) - place)))
        most -= shares[part]
    return shares


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream: tasks encode, the driver writes."""

    def __init__(self, job: JobTarget) -> None:
        self._job = job

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Encode the rows of a task."""
        return encoded_rows(self._job.encoding, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Write the rows of all tasks, once for each number of a batch."""
        self._job.write(messages, batchId)
