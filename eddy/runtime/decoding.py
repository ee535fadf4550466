"""From records to batches: decoding, with the rejected records and their reasons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from eddy.connectors.log import Headers, Records
from eddy.errors import DataError, UnknownSchemaError
from eddy.operators.batch import Batch, Place, concat
from eddy.operators.exchange import Gate, Received
from eddy.runtime.decoded_columns import decoded, note_unhashable
from eddy.runtime.origins import Senders
from eddy.runtime.partitioner_check import PartitionerCheck
from eddy.runtime.row_wire_format import row_heads
from eddy.runtime.timestamp_extractors import TimestampExtractors
from eddy.runtime.timestamp_limits import TimestampLimits
from eddy.topology.plan.plan import Source

__all__ = ["Decoder", "Place", "Rejected", "reject"]

_NONE: Mapping[Place, "Rejected"] = MappingProxyType({})


class Rejected(NamedTuple):
    """A record that cannot be processed, and the reason. `cause` is the error of the failing step.

    `processed`: it was decoded, and a step or a sink failed on it.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    reason: str
    cause: Exception | None = None
    processed: bool = False

    @property
    def place(self) -> Place:
        """The record's topic, partition and offset."""
        return self.topic, self.partition, self.offset

    def error(self) -> DataError:
        """Return the error that names the record and the reason."""
        error = DataError(
            f"topic '{self.topic}' partition {self.partition} offset {self.offset} key {self.key!r}: {self.reason}"
        )
        error.__cause__ = self.cause
        return error


@dataclass(slots=True)
class Decoder:
    """Decodes polled records into a batch for each topic.

    `internal` has the gate that reads each internal topic. With `placed` each row carries
    the topic, partition and offset of its record.
    """

    sources: dict[str, Source]
    internal: dict[str, Gate]
    partitioner_check: PartitionerCheck
    senders: Senders
    extractors: TimestampExtractors = field(default_factory=lambda: TimestampExtractors({}))
    timestamp_limits: TimestampLimits | None = None
    placed: bool = False
    rejected: list[Rejected] = field(default_factory=list)
    _left_out: Mapping[Place, Rejected] = field(default_factory=dict)

    def decode(self, polled: Sequence[Records], left_out: Mapping[Place, Rejected] = _NONE) -> dict[str, Batch]:
        """Return one batch for each topic; records of `left_out` and records that do not decode are in `rejected`."""
        self.rejected, self._left_out = [], left_out
        parts: dict[str, list[Batch]] = {}
        for records in polled:
            if not len(records):
                continue
            gate = self.internal.get(records.topic)
            batch = self._received(records, gate) if gate else self._source(records)
            if batch.rows:
                parts.setdefault(records.topic, []).append(batch)
        return {topic: joined(batches) for topic, batches in parts.items()}

    def refusal(self, records: Records, index: int, error: DataError) -> DataError:
        """Return the error that names the record; for an internal topic also its row and that row's source records."""
        told = str(reject(records, index, str(error)).error())
        gate = self.internal.get(records.topic)
        if gate is not None:
            batch = self._received(records.slice(index, index + 1), gate)
            ((key, value),), (weight,) = batch.rows, batch.weights
            told += f" (row {key!r}: {value!r} of weight {weight}, of {self.senders.of_record(records, index)})"
        return type(error)(told)

    def _source(self, records: Records) -> Batch:
        source = self.sources[records.topic]
        self.partitioner_check.check(records)
        key, value = source.topic_key, source.topic_value
        problems: dict[int, str] = {}
        causes: dict[int, UnknownSchemaError] = {}
        keys = decoded(records.keys, key, "key", problems, causes, headers=records.headers)
        values = decoded(records.values, value, "value", problems, causes, headers=records.headers)
        if not key.hashable:
            note_unhashable(keys, problems)
        if timeless := self.extractors.problems:
            place = (records.topic, records.partition)
            for index, offset in enumerate(records.offsets):
                if reason := timeless.get((*place, offset)):
                    problems.setdefault(index, reason)
        batch = Batch(
            list(zip(keys, values, strict=True)),
            [1] * len(keys),
            max(records.timestamps),
            list(records.timestamps),
            None if records.headers is None else list(records.headers),
            [(records.topic, records.partition, offset) for offset in records.offsets] if self.placed else None,
        )
        rejected = [reject(records, index, reason, causes.get(index)) for index, reason in problems.items()]
        ahead = self.timestamp_limits.refused(records) if self.timestamp_limits else {}
        rejected += [reject(records, index, str(e), e) for index, e in ahead.items() if index not in problems]
        if self._left_out:
            here, offsets = (records.topic, records.partition), set(records.offsets)
            found = self._left_out.items()
            left_out = [record for place, record in found if place[:2] == here and place[2] in offsets]
            rejected = [*left_out, *(record for record in rejected if record.place not in self._left_out)]
        if not rejected:
            return batch
        self.rejected += sorted(rejected, key=lambda record: record.offset)
        gone = {record.offset for record in rejected}
        kept = batch.select([offset not in gone for offset in records.offsets])
        kept.time = max(kept.times_of_rows(), default=0)
        return kept

    def _received(self, records: Records, gate: Gate) -> Batch:
        heads = row_heads(records.values)
        values = [
            None if value is None or head.size is None else gate.value.decode(value[head.size :])
            for value, head in zip(records.values, heads, strict=True)
        ]
        keys = [None if key is None else gate.key.decode(key) for key in records.keys]
        times = [head.event_time for head in heads]
        batch = Batch(
            list(zip(keys, values, strict=True)),
            [head.weight for head in heads],
            max(records.timestamps),
            list(records.timestamps),
            self.senders.see(records),
            event_times=times if any(time is not None for time in times) else None,
        )
        return Received(batch, [head.iteration for head in heads])


def reject(
    records: Records, index: int, reason: str, cause: Exception | None = None, processed: bool = False
) -> Rejected:
    """Return the rejected record at `index`, with the reason."""
    return Rejected(
        records.topic,
        records.partition,
        records.offsets[index],
        records.timestamps[index],
        records.keys[index],
        records.values[index],
        records.headers[index] if records.headers else (),
        reason,
        cause,
        processed,
    )


def joined(batches: list[Batch]) -> Batch:
    """Return one batch with the rows of the batches of a topic's partitions."""
    if len(batches) == 1:
        return batches[0]
    whole = concat(batches)
    if isinstance(batches[0], Received):
        return Received(whole, [one for batch in batches if isinstance(batch, Received) for one in batch.iterations])
    return whole
