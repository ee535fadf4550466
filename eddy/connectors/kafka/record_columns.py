"""From the client's messages to columns, one set of columns for each partition.

Invariant: the positions move exactly with the records that are returned.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, cast

import confluent_kafka
from confluent_kafka import KafkaError, Message

from eddy.connectors.log import Headers, Records, TopicPartition

__all__ = ["CHUNK", "Columns", "fitting", "gather", "records_of", "take", "within"]

CHUNK = 500  # larger chunks cost more for each record: the client fills a queue of its own first


def _is_one_run(batch: list[Message]) -> bool:
    """Whether all messages are records of one partition, as they usually are.

    No Python bytecode runs for each message.
    """
    topics, partitions = set(map(Message.topic, batch)), set(map(Message.partition, batch))
    return len(topics) == len(partitions) == 1 and not any(map(Message.error, batch))


def _whereabouts(message: Message) -> tuple[str, int] | None:
    """Return the topic and the partition of a message that is a record; None for an event."""
    return (message.topic(), message.partition()) if message.error() is None else None  # type: ignore[return-value]


class Columns:
    """Messages of one partition, column by column."""

    __slots__ = ("bytes", "headers", "keys", "offsets", "timestamps", "values")

    def __init__(self) -> None:
        self.bytes = 0
        self.offsets: list[int] = []
        self.timestamps: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[Headers] = []

    def add(self, messages: Sequence[Message]) -> None:
        """Add messages that are records."""
        before = len(self.offsets)
        self.offsets += [message.offset() for message in messages]  # type: ignore[misc]
        self.timestamps += [message.timestamp()[1] for message in messages]
        keys, values = [message.key() for message in messages], [message.value() for message in messages]
        self.keys += keys
        self.values += values
        self.bytes += sum(map(len, filter(None, chain(keys, values))))
        headers = [message.headers() for message in messages]
        if any(headers):
            self.headers.extend([()] * (before - len(self.headers)))
            given = [tuple((name, value or b"") for name, value in cast("list[Any]", h or ())) for h in headers]
            self.headers += given
            self.bytes += sum(len(name) + len(value) for pairs in given for name, value in pairs)

    def records(self, topic: str, partition: int, next_offset: int | None = None) -> Records:
        """Return the columns as `Records`. `next_offset` is given if it is higher than the last offset plus one."""
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


def take(batch: list[Message], columns: dict[tuple[str, int], Columns]) -> list[Message]:
    """Add a batch's records to the columns of their partitions. Returns the messages that are no records."""
    if _is_one_run(batch) and (where := _whereabouts(batch[0])) is not None:
        columns.setdefault(where, Columns()).add(batch)
        return []
    events: list[Message] = []
    for where, run in groupby(batch, _whereabouts):
        if where is None:
            events += run
        else:
            columns.setdefault(where, Columns()).add(list(run))
    return events


def fitting(columns: Mapping[tuple[str, int], Columns], max_bytes: int) -> int:
    """Return how many more records, of the average size so far, fit into `max_bytes`; 0 if no bytes are left."""
    left = max_bytes - sum(column.bytes for column in columns.values())
    records = sum(len(column.offsets) for column in columns.values())
    return 0 if left <= 0 else max(1, left * records // (max_bytes - left or 1)) if records else CHUNK


def gather(
    client: confluent_kafka.Consumer,
    columns: dict[tuple[str, int], Columns],
    ends: dict[TopicPartition, int],
    room: int,
    max_bytes: int,
    timeout_s: float,
    event: Callable[[Message, KafkaError], None],
) -> None:
    """Wait for one message, and read all that have been fetched: `room` records at most, and about `max_bytes`.

    The ends of partitions are stored in `ends`. `event` is called with every other message that is not a record.
    """
    first = client.poll(max(timeout_s, 0.0))
    batch = [] if first is None else [first]
    while batch:
        events = take(batch, columns)
        for message in events:
            error: KafkaError = message.error()  # type: ignore[assignment]
            if error.code() == KafkaError._PARTITION_EOF:
                ends[TopicPartition(message.topic(), message.partition())] = message.offset()  # type: ignore
            else:
                event(message, error)
        room -= len(batch) - len(events)
        more = min(room, CHUNK, fitting(columns, max_bytes))
        batch = client.consume(more, 0.0) if more > 0 else []


def records_of(
    columns: Mapping[tuple[str, int], Columns], ends: Mapping[TopicPartition, int], positions: dict[TopicPartition, int]
) -> list[Records]:
    """Return the records of a poll. `ends` are positions at partitions' ends; `positions` move past the records."""
    found = []
    for where in columns.keys() | ends.keys():
        partition = TopicPartition(*where)
        at = positions.get(partition)
        if at is None:
            continue  # the partition was revoked
        records = columns.get(where, Columns()).records(*partition, ends.get(partition))
        if records.next_offset > at:
            positions[partition] = records.next_offset
            found.append(records)
    return sorted(found, key=lambda records: (records.topic, records.partition))


def within(polled: list[Records], max_bytes: int) -> list[Records]:
    """Return the first records of each partition, together at most `max_bytes`, but at least one record.

    The partitions get equal shares of the bytes. Bytes that smaller partitions do not use are shared by larger ones.
    """
    sizes = {id(records): records.bytes() for records in polled}
    if sum(sizes.values()) <= max_bytes:
        return polled
    kept: dict[int, Records] = {}
    for records in sorted(polled, key=lambda records: sizes[id(records)]):
        size, room = sizes[id(records)], max_bytes // (len(polled) - len(kept))
        stop = len(records)
        while stop and size > room:
            stop -= 1
            size -= records.slice(stop, stop + 1).bytes()
        kept[id(records)] = records.slice(0, stop) if stop < len(records) else records
        max_bytes -= size
    if not any(map(len, kept.values())):
        largest = max(polled, key=len)
        kept[id(largest)] = largest.slice(0, 1)
    return [kept[id(records)] for records in polled]
