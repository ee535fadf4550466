"""The topic in which an application remembers the identity of its plan."""

import msgspec

from eddy.connectors.log import Log, Producer, TopicPartition

__all__ = ["read_plan", "write_plan"]


def read_plan(log: Log, topic: str) -> list[str] | None:
    """The lines of the plan that last wrote state, None where none has."""
    if not log.topics([topic]):
        return None
    partition = TopicPartition(topic, 0)
    position, end = log.begin_offsets([partition])[partition], log.end_offsets([partition])[partition]
    latest = None
    while position < end:
        records = log.read(partition, position, end, 1_000)
        latest = records.values[-1] if len(records) else latest
        position = records.next_offset
    return None if latest is None else msgspec.json.decode(latest, type=list[str])


def write_plan(producer: Producer, topic: str, lines: list[str]) -> None:
    """Send the plan's lines within the open transaction."""
    producer.send(topic, 0, [b"plan"], [msgspec.json.encode(lines)], [0])
