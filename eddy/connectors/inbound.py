"""From records to batches: decoding, with each record that does not fit handed out by name."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eddy.connectors.log import Headers, Records
from eddy.connectors.placement import Placement
from eddy.errors import DataError
from eddy.operators.batch import Batch, concat
from eddy.operators.exchange import Gate, Received
from eddy.serde import Serde
from eddy.topology.plan import Source

__all__ = ["PACKED", "Inbound", "Misfit", "decoded", "misfit"]

PACKED = struct.Struct(">qi?")
"""In front of the value of a loop or repartition record: weight, hop, whether there is a value."""


class Misfit(NamedTuple):
    """A record that cannot be taken in, and why."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    reason: str

    def error(self) -> DataError:
        """The error that names the record."""
        return DataError(
            f"topic '{self.topic}' partition {self.partition} offset {self.offset} key {self.key!r}: {self.reason}"
        )


@dataclass(slots=True)
class Inbound:
    """Decodes what the consumer brought, by topic. `internal` are the gates, by topic."""

    sources: dict[str, Source]
    internal: dict[str, Gate]
    placement: Placement
    misfits: list[Misfit] = field(default_factory=list)

    def decode(self, polled: Sequence[Records]) -> dict[str, Batch]:
        """One batch a topic. Records that do not fit are left out and put into `misfits`."""
        self.misfits = []
        parts: dict[str, list[Batch]] = {}
        for records in polled:
            if not len(records):
                continue
            gate = self.internal.get(records.topic)
            batch = self._received(records, gate) if gate else self._source(records)
            if batch.rows:
                parts.setdefault(records.topic, []).append(batch)
        return {topic: joined(batches) for topic, batches in parts.items()}

    def _source(self, records: Records) -> Batch:
        source = self.sources[records.topic]
        self.placement.check(records)
        assert source.key is not None
        assert source.value is not None
        problems: dict[int, str] = {}
        keys = decoded(records.keys, source.key, "key", problems)
        values = decoded(records.values, source.value, "value", problems)
        if source.kind == "table" and None in records.keys:
            for index, key in enumerate(records.keys):
                if key is None:
                    problems[index] = "the key is null; a table needs one"
        if not source.key.hashable:
            note_unhashable(keys, problems)
        batch = Batch(
            list(zip(keys, values, strict=True)),
            [1] * len(keys),
            max(records.timestamps),
            list(records.timestamps),
            None if records.headers is None else list(records.headers),
        )
        if not problems:
            return batch
        self.misfits += [misfit(records, index, reason) for index, reason in sorted(problems.items())]
        return batch.select([index not in problems for index in range(len(batch))])

    def _received(self, records: Records, gate: Gate) -> Batch:
        heads = [PACKED.unpack_from(value or b"") for value in records.values]
        values = [
            gate.value.decode(value[PACKED.size :]) if value is not None and head[2] else None
            for value, head in zip(records.values, heads, strict=True)
        ]
        keys = [None if key is None else gate.key.decode(key) for key in records.keys]
        batch = Batch(
            list(zip(keys, values, strict=True)),
            [head[0] for head in heads],
            max(records.timestamps),
            list(records.timestamps),
            None if records.headers is None else list(records.headers),
        )
        return Received(batch, [head[1] for head in heads])


def decoded(data: Sequence[bytes | None], serde: Serde[Any], what: str, problems: dict[int, str]) -> list[Any]:
    """Decode a column, null for null; what fails is noted in `problems` by its index."""
    if None not in data:
        try:
            return serde.decode_many(data)  # type: ignore[arg-type]
        except Exception:
            pass
    column: list[Any] = []
    for index, item in enumerate(data):
        value = None
        if item is not None:
            try:
                value = serde.decode(item)
            except Exception as error:
                problems[index] = f"the {what} {item[:80]!r} is no {serde.name}: {error}"
        column.append(value)
    return column


def note_unhashable(keys: Sequence[Any], problems: dict[int, str]) -> None:
    """Note the keys that cannot be hashed."""
    for index, key in enumerate(keys):
        try:
            hash(key)
        except TypeError:
            problems[index] = f"the key {key!r} cannot be hashed; use a serde of scalars or of a frozen struct"


def misfit(records: Records, index: int, reason: str) -> Misfit:
    """One record of a column, with the reason why it is left out."""
    return Misfit(
        records.topic,
        records.partition,
        records.offsets[index],
        records.timestamps[index],
        records.keys[index],
        records.values[index],
        records.headers[index] if records.headers else (),
        reason,
    )


def joined(batches: list[Batch]) -> Batch:
    """The batches of a topic's partitions as one."""
    if len(batches) == 1:
        return batches[0]
    whole = concat(batches)
    if isinstance(batches[0], Received):
        return Received(whole, [hop for batch in batches if isinstance(batch, Received) for hop in batch.hops])
    return whole
