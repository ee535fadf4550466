"""From the client's messages to columns, one set a partition.

Invariant: what is returned moves the positions kept beside it, and nothing else does.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from confluent_kafka import Message

from eddy.connectors.log import Headers, Records, TopicPartition

__all__ = ["Columns", "records_of"]


class Columns:
    """Messages of one partition, column by column."""

    __slots__ = ("headers", "keys", "offsets", "timestamps", "values")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.timestamps: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[Headers] = []

    def add(self, messages: Sequence[Message]) -> None:
        """Take in messages that are records."""
        before = len(self.offsets)
        self.offsets += [message.offset() for message in messages]  # type: ignore[misc]
        self.timestamps += [message.timestamp()[1] for message in messages]
        self.keys += [message.key() for message in messages]
        self.values += [message.value() for message in messages]
        headers = [message.headers() for message in messages]
        if any(headers):
            self.headers.extend([()] * (before - len(self.headers)))
            self.headers += [tuple((name, value or b"") for name, value in cast("list[Any]", h or ())) for h in headers]

    def records(self, topic: str, partition: int, next_offset: int | None = None) -> Records:
        """As the port's records; `next_offset` where it is known to lie further on."""
        behind = self.offsets[-1] + 1 if self.offsets else 0
        if self.headers:
            self.headers.extend([()] * (len(self.offsets) - len(self.headers)))
        return Records(
            topic,
            partition,
            self.offsets,
            self.timestamps,
            self.keys,
            self.values,
            self.headers or None,
            behind if next_offset is None else max(behind, next_offset),
        )


def records_of(
    columns: Mapping[tuple[str, int], Columns], ends: Mapping[TopicPartition, int], positions: dict[TopicPartition, int]
) -> list[Records]:
    """The records of a poll. `ends` are positions at partitions' ends; `positions` move behind what is returned."""
    found = []
    for where in columns.keys() | ends.keys():
        partition = TopicPartition(*where)
        at = positions.get(partition)
        if at is None:
            continue  # it was revoked
        records = columns.get(where, Columns()).records(*partition, ends.get(partition))
        if records.next_offset > at:
            positions[partition] = records.next_offset
            found.append(records)
    return sorted(found, key=lambda records: (records.topic, records.partition))
