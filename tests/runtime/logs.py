"""Embedded logs in memory for tests of the worker's parts."""

from collections.abc import Mapping, Sequence

from eddy.connectors.local import LocalLog
from eddy.connectors.log import Consumer, Headers, Position, Producer, Records, TopicPartition, TopicSpec

__all__ = ["log_of", "read", "send"]

Record = tuple[bytes | None, bytes | None]


def log_of(partitions: Mapping[str, int]) -> LocalLog:
    """A log with these topics, none of them compacted."""
    log = LocalLog(None)
    log.create_topics(TopicSpec(name, count) for name, count in partitions.items())
    return log


def begun(log: LocalLog) -> Producer:
    """A producer with an open transaction."""
    producer = log.producer(None)
    producer.begin()
    return producer


def send(
    log: LocalLog,
    where: tuple[str, int],
    records: Sequence[Record],
    *,
    member: Consumer | None = None,
    positions: Mapping[TopicPartition, Position] | None = None,
    headers: Sequence[Headers] | None = None,
) -> None:
    """Write records to a partition in one transaction, with the positions of the member's group."""
    producer = begun(log)
    keys, values = [key for key, _ in records], [value for _, value in records]
    producer.send(*where, keys, values, list(range(len(records))), headers)
    producer.commit(positions or {}, member.group_metadata() if member else None)
    producer.close()


def read(log: LocalLog, topic: str, partition: int = 0) -> Records:
    """All records of a partition."""
    at = TopicPartition(topic, partition)
    return log.read(at, 0, log.end_offsets([at])[at], 10_000)
