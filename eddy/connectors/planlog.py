"""What an application remembers of itself in a topic of its own.

    plan        the identity of the plan that writes its states
    left out    records that the error policy kept out of tables, which a restore leaves out again
    life        a name drawn when the application first ran, and noted in every store: after a reset
                there is another, and states of the old life are told from those of the new one
    backfill    one that has begun and has not finished: until it has, the states are of no use to a worker

Workers that start at once may each draw a name: any of them is one of this life.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from eddy.connectors.inbound import Misfit
from eddy.connectors.log import Log, Producer, TopicPartition

__all__ = ["Memory", "Unfinished", "read_memory", "write_backfill", "write_left_out", "write_plan"]

_PLAN = b"plan"
_LIFE = b"life "
_BACKFILL = b"backfill"


class Unfinished(msgspec.Struct, frozen=True):
    """A backfill under way: up to where it takes the inputs, where its outputs begin, and the plan it is for."""

    inputs: dict[str, list[int]]
    outputs: dict[str, list[int]]
    plan: list[str]


@dataclass(slots=True)
class Memory:
    """What is remembered: plans, the latest one last; records left out, as (topic, partition, offset); lives."""

    plans: list[list[str]] = field(default_factory=list)
    left_out: set[tuple[str, int, int]] = field(default_factory=set)
    lives: set[str] = field(default_factory=set)
    backfill: Unfinished | None = None

    @property
    def plan(self) -> list[str] | None:
        """The lines of the plan that last wrote state, None where none has."""
        return self.plans[-1] if self.plans else None


def read_memory(log: Log, topic: str) -> Memory:
    """All that is still in the log."""
    memory = Memory()
    for key, value in _records(log, topic):
        if key == _PLAN:
            memory.plans.append(msgspec.json.decode(value, type=list[str]))
        elif key == _BACKFILL:
            memory.backfill = msgspec.json.decode(value, type=Unfinished | None)
        elif key is not None and key.startswith(_LIFE):
            memory.lives.add(value.decode())
        else:
            memory.left_out.add(msgspec.json.decode(value, type=tuple[str, int, int]))
    return memory


def write_plan(producer: Producer, topic: str, lines: list[str], life: str) -> None:
    """Send the plan's lines and the life within the open transaction."""
    values = [msgspec.json.encode(lines), life.encode()]
    producer.send(topic, 0, [_PLAN, _LIFE + life.encode()], values, [0, 0])


def write_backfill(producer: Producer, topic: str, unfinished: Unfinished | None) -> None:
    """Note, within the open transaction, that a backfill begins; or, with None, that it has finished."""
    producer.send(topic, 0, [_BACKFILL], [msgspec.json.encode(unfinished)], [0])


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
