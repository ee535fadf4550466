"""Reading a pinned source in Spark's tasks: each task reads a range of one partition, as Arrow batches."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from eddy.connectors.log import Log, Records, TopicPartition
from eddy.connectors.spark.inputs import RECORDS_A_RANGE, OffsetRange, OpenLog, committed_records
from eddy.connectors.spark.pickling import Pickled
from eddy.connectors.spark.source.frame_columns import FrameColumn
from eddy.connectors.spark.source.pinned_source import PinnedSource, TopicForm
from eddy.connectors.spark.source.spark_columns import arrow_schema_of
from eddy.errors import DataError
from eddy.runtime.decoded_columns import decoded
from eddy.serde import Serde, String

__all__ = ["RecordReading", "Request", "TopicReader", "check_decoding", "parts_of"]

_PROBED = 10


class Request(NamedTuple):
    """A range to read, and the Arrow schema of its batches."""

    wanted: OffsetRange
    schema: Any


@dataclass(frozen=True)
class RecordReading:
    """Reads ranges of a topic as batches with the columns of `TopicForm.ddl`.

    `before_ms`: records with that timestamp or a later one are left out.
    """

    form: TopicForm
    open_log: OpenLog
    before_ms: int | None = None

    def __call__(self, requests: Iterable["Request"]) -> Iterator[Any]:
        """Yield the records as Arrow batches. Raises: DataError for a record that does not decode; ConnectorError."""
        with contextlib.closing(self.open_log()) as log:
            for wanted, schema in requests:
                part = TopicPartition(self.form.topic, wanted.partition)
                for records in committed_records(log, part, wanted.start, wanted.end):
                    yield self.batch(records, schema)

    def batch(self, records: Records, schema: Any) -> Any:
        """Turn records into an Arrow batch. Raises: DataError."""
        parts = {part: decoded_or_error(records, serde, part) for part, serde in self.form.decoded.items()}
        arrays = [
            _converted(records, column, parts[column.part], field.type)
            if column.part in parts
            else pa.array(_of_record(records, column.part), field.type)
            for column, field in zip(self.form.columns, schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        if self.before_ms is not None:
            kept = [place for place, time in enumerate(records.timestamps) if time < self.before_ms]
            batch = batch.take(pa.array(kept, pa.int64()))
        return batch


def _of_record(records: Records, part: str) -> Sequence[Any]:
    match part:
        case "topic":
            return [records.topic] * len(records)
        case "partition":
            return [records.partition] * len(records)
        case "offset":
            return records.offsets
        case "timestamp":
            return [None if time < 0 else time * 1000 for time in records.timestamps]
        case _:
            headers = records.headers or [()] * len(records)
            return [[{"key": name, "value": data} for name, data in pairs] for pairs in headers]


def _converted(records: Records, column: FrameColumn, values: Sequence[Any], type: Any) -> Any:
    """Convert decoded keys or values to an Arrow array. Raises: DataError naming the first that does not fit."""
    part, data = column.part, records.keys if column.part == "key" else records.values
    try:
        return pa.array(column.values(values), type)
    except (OverflowError, pa.ArrowException, TypeError, ValueError):
        for place, value in enumerate(values):
            try:
                pa.array(column.values([value]), type)
            except (OverflowError, pa.ArrowException, TypeError, ValueError) as error:
                raise _data_error(
                    records,
                    place,
                    f"the {part} {data[place]!r:.100} does not fit Spark's {column.column.ddl}: {error}",
                    part,
                ) from error
        raise


def decoded_or_error(records: Records, serde: Serde[Any], part: str) -> list[Any]:
    """Decode the keys or the values of records. Raises: DataError naming the first record that does not decode."""
    problems: dict[int, str] = {}
    values = decoded(records.keys if part == "key" else records.values, serde, part, problems, headers=records.headers)
    for place, problem in problems.items():
        raise _data_error(records, place, problem, part)
    return values


def _data_error(records: Records, place: int, problem: str, part: str) -> DataError:
    return DataError(
        f"spark read of format 'eddy': topic '{records.topic}' partition {records.partition} offset "
        f"{records.offsets[place]}: {problem}; a serde that fits is needed. Write .option('{part}', …), or read the "
        f"bytes: .option('{part}', 'bytes')"
    )


def check_decoding(source: PinnedSource, log: Log) -> None:
    """Decode the first records of a topic, so that a wrong serde shows before any job. Raises: DataError."""
    for wanted in source.ranges:
        if wanted.start < wanted.end:
            end = min(wanted.end, wanted.start + _PROBED)
            records = log.read(TopicPartition(source.form.topic, wanted.partition), wanted.start, end, _PROBED)
            for part, serde in source.form.decoded.items():
                texts = decoded_or_error(records, serde, part)
                if serde is String and any("\0" in text for text in texts if text):
                    raise _data_error(records, 0, f"the {part}s are not text: they contain zero bytes", part)
            if len(records):
                return


class RangePart(InputPartition):
    """A range of offsets of one partition, for one task."""

    def __init__(self, wanted: OffsetRange) -> None:
        self.wanted = wanted


def parts_of(ranges: Iterable[OffsetRange], split: bool = True) -> list[InputPartition]:
    """Return a part for each partition with records; with `split`, several parts for a long partition.

    Spark needs at least one part, so without records there is an empty one.
    """
    ranges = list(ranges)
    longest = RECORDS_A_RANGE if split else max((whole.end - whole.start for whole in ranges), default=0) or 1
    parts: list[InputPartition] = [
        RangePart(OffsetRange(whole.partition, at, min(at + longest, whole.end)))
        for whole in ranges
        for at in range(whole.start, whole.end, longest)
    ]
    return parts or [RangePart(OffsetRange(0, 0, 0))]


class TopicReader(DataSourceReader):
    """Reads the records of offset ranges by `function`, in Spark's Python workers.

    With `split` a long range is read in several parts.
    """

    def __init__(self, ranges: tuple[OffsetRange, ...], function: Pickled, schema: StructType, split: bool) -> None:
        self._ranges, self._function, self._schema, self._split = ranges, function, arrow_schema_of(schema), split

    def partitions(self) -> list[InputPartition]:
        """Return the parts, one for each task."""
        return parts_of(self._ranges, self._split)

    def parts_of(self, ranges: Iterable[OffsetRange]) -> list[InputPartition]:
        """Return the parts of other ranges."""
        return parts_of(ranges, self._split)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the records of one part, as Arrow batches."""
        assert isinstance(partition, RangePart)
        return self._function([Request(partition.wanted, self._schema)])
