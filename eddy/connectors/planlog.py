"""The topic in which an application remembers the identity of its plan, and the records it left out.

A table that is restored from its source topic has to leave out again what the error policy left out.
"""

from collections.abc import Iterable, Iterator

import msgspec

from eddy.connectors.inbound import Misfit
from eddy.connectors.log import Log, Producer, TopicPartition

__all__ = ["read_left_out", "read_plan", "read_plans", "write_left_out", "write_plan"]

_PLAN = b"plan"


def read_plan(log: Log, topic: str) -> list[str] | None:
    """The lines of the plan that last wrote state, None where none has."""
    plans = read_plans(log, topic)
    return plans[-1] if plans else None


def read_plans(log: Log, topic: str) -> list[list[str]]:
    """The lines of every plan that is still in the log, the latest one last."""
    return [msgspec.json.decode(value, type=list[str]) for key, value in _records(log, topic) if key == _PLAN]


def read_left_out(log: Log, topic: str) -> set[tuple[str, int, int]]:
    """The records, as (topic, partition, offset), that the error policy left out of restorable tables."""
    return {
        msgspec.json.decode(value, type=tuple[str, int, int]) for key, value in _records(log, topic) if key != _PLAN
    }


def write_plan(producer: Producer, topic: str, lines: list[str]) -> None:
    """Send the plan's lines within the open transaction."""
    producer.send(topic, 0, [_PLAN], [msgspec.json.encode(lines)], [0])


def write_left_out(producer: Producer, topic: str, records: Iterable[Misfit]) -> None:
    """Note records that are left out within the open transaction."""
    for record in records:
        where = msgspec.json.encode((record.topic, record.partition, record.offset))
        producer.send(topic, 0, [b"left out " + where], [where], [record.timestamp])


def _records(log: Log, topic: str) -> Iterator[tuple[bytes | None, bytes]]:
    if not log.topics([topic]):
        return
    partition = TopicPartition(topic, 0)
    position, end = log.begin_offsets([partition])[partition], log.end_offsets([partition])[partition]
    while position < end:
        records = log.read(partition, position, end, 1_000)
        yield from ((k, v) for k, v in zip(records.keys, records.values, strict=True) if v is not None)
        position = records.next_offset
