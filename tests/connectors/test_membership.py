"""Positions of a group without members, guarded by a member of another group, on a real broker."""

import struct
import uuid
from collections.abc import Iterator
from contextlib import closing

import confluent_kafka
import pytest

from eddy.connectors.kafka import GuardedGroup, KafkaLog, KafkaSettings, Member
from eddy.connectors.log import Position, TopicPartition, TopicSpec
from eddy.errors import FencedError
from tests.waiting import PATIENCE_S, Deadline


@pytest.fixture
def name() -> str:
    return f"guarded-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def log(broker: str, name: str) -> Iterator[KafkaLog]:
    with closing(KafkaLog(KafkaSettings.of(broker))) as made:
        made.create_topics([TopicSpec(name, 1)])
        yield made


@pytest.fixture
def member(broker: str, name: str, log: KafkaLog) -> Iterator[Member]:
    """A member of a group, kept by a client of its own."""
    client = confluent_kafka.Consumer({"bootstrap.servers": broker, "group.id": f"{name}-guard"})
    client.subscribe([name])
    deadline = Deadline(PATIENCE_S)
    while not client.assignment():
        deadline.check("an assignment")
        client.poll(0.1)
    known = client.consumer_group_metadata()
    (generation,) = struct.unpack_from("=i", known, len(b"CGMDv2:"))
    made = Member(f"{name}-guard", generation, client.memberid())
    assert made.metadata() == known
    yield made
    client.close()


def test_positions_are_committed_only_while_the_guard_is_a_member_in_its_generation(
    log: KafkaLog, name: str, member: Member
) -> None:
    where = TopicPartition(name, 0)
    earlier = Member(member.group, member.generation - 1, member.member)
    with closing(log.producer(None)) as stale:
        stale.begin()
        stale.send(name, 0, [b"k"], [b"stale"], [0])
        with pytest.raises(FencedError):
            stale.commit({where: Position(7)}, GuardedGroup(name, earlier, where))
    assert log.committed(name, [where]) == {}
    told: list[int] = []
    with closing(log.producer(None)) as producer:
        producer.observe(lambda positions: told.append(positions[where].offset))
        producer.begin()
        producer.send(name, 0, [b"k"], [b"good"], [0])
        producer.commit({where: Position(1)}, GuardedGroup(name, member, where))
    assert told == [1]
    assert log.committed(name, [where])[where].offset == 1
    assert log.read(where, 0, log.end_offsets([where])[where], 10).values == [b"good"]
