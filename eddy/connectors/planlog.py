"""The topic in which an application remembers the identity of its plan."""

import msgspec

from eddy.connectors.log import Log, Producer, TopicPartition

__all__ = ["read_plan", "read_plans", "write_plan"]


def read_plan(log: Log, topic: str) -> list[str] | None:
    """The lines of the plan that last wrote state, None where none has."""
    plans = read_plans(log, topic)
    return plans[-1] if plans else None


def read_plans(log: Log, topic: str) -> list[list[str]]:
    """The lines of every plan that is still in the log, the latest one last."""
    if not log.topics([topic]):
        return []
    partition = TopicPartition(topic, 0)
    position, end = log.begin_offsets([partition])[partition], log.end_offsets([partition])[partition]
    plans = []
    while position < end:
        records = log.read(partition, position, end, 1_000)
        plans += [msgspec.json.decode(value, type=list[str]) for value in records.values if value is not None]
        position = records.next_offset
    return plans


def write_plan(producer: Producer, topic: str, lines: list[str]) -> None:
    """Send the plan's lines within the open transaction."""
    producer.send(topic, 0, [b"plan"], [msgspec.json.encode(lines)], [0])
