"""Clients that have lost their brokers for ever are replaced, and nothing is lost or read twice.

A broker that has just started may answer that there are no brokers; a client that hears this asks nobody any more. Here
a client that knows only an address where nobody listens takes the place of one that has heard it.
"""

import socket
import time
import uuid
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from eddy.connectors.kafka import KafkaSettings
from eddy.connectors.kafka.admin import REQUEST_S
from eddy.connectors.log import Position, Records, TopicPartition, TopicSpec
from tests.connectors.steps import (
    KEPT,
    QUICK_SESSIONS,
    TidyKafkaLog,
    drained,
    numbered,
    settle,
    settled_end,
    values_of,
    wait_for,
    write,
)


@pytest.fixture
def log(broker: str) -> Iterator[TidyKafkaLog]:
    log = TidyKafkaLog(KafkaSettings.of(broker, pairs=QUICK_SESSIONS))
    yield log
    log.close()


@pytest.fixture
def topic(log: TidyKafkaLog) -> str:
    """A topic of three records."""
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    log.create_topics([TopicSpec(topic, 1, KEPT)])
    write(log, topic, 0, numbered("v", 3))
    return topic


@pytest.fixture
def nowhere() -> Iterator[dict[str, object]]:
    """The setting of a client that no broker answers."""
    with socket.socket() as taken:  # bound, so that nobody else listens there; nobody does here either
        taken.bind(("127.0.0.1", 0))
        yield {"bootstrap.servers": f"127.0.0.1:{taken.getsockname()[1]}"}


def test_a_read_goes_on(log: TidyKafkaLog, topic: str, nowhere: dict[str, object]) -> None:
    # private: a client is put in place of another
    where, end = TopicPartition(topic, 0), settled_end(log, topic)
    assert list(log.read(where, 0, end, 2).values) == numbered("v", 2)
    reader = log._reader
    reader._client = confluent_kafka.Consumer(reader._settings | nowhere)
    reader._client.assign([confluent_kafka.TopicPartition(*where, 2)])
    assert list(log.read(where, 2, end, 2).values) == [b"v2"]


def test_a_member_joins_again_and_goes_on(log: TidyKafkaLog, topic: str, nowhere: dict[str, object]) -> None:
    # private: a client is put in place of another
    consumer = log.consumer(f"group-{topic}", [topic], "m")
    assert drained(consumer, 3) == numbered("v", 3)
    producer, end = log.producer(None), settled_end(log, topic)
    producer.begin()
    producer.commit({TopicPartition(topic, 0): Position(end)}, consumer.group_metadata())
    consumer._client = consumer._live = confluent_kafka.Consumer(consumer._settings | nowhere)
    write(log, topic, 0, [b"later"])
    assert drained(consumer, 1) == [b"later"]
    settle([consumer], 1)


def test_a_follower_goes_on_where_it_was(log: TidyKafkaLog, topic: str, nowhere: dict[str, object]) -> None:
    # private: a client is put in place of another
    where = TopicPartition(topic, 0)
    follower = log.follower({where: 0})

    def followed(count: int) -> list[bytes | None]:
        came: list[Records] = []
        wait_for(lambda: sum(map(len, came)) >= count or bool(came.extend(follower.poll(1_000, 0.1))))
        return [value for records in came for value in records.values]

    assert followed(3) == numbered("v", 3)
    assert follower._client is not None
    follower._client.close()
    follower._client = confluent_kafka.Consumer(follower._settings | nowhere)
    write(log, topic, 0, [b"later"])
    assert followed(1) == [b"later"]
    follower.close()


def test_requests_are_answered(log: TidyKafkaLog, topic: str, nowhere: dict[str, object]) -> None:
    # private: a client is put in place of another
    where, group = TopicPartition(topic, 0), f"group-{topic}"
    admin = log._admin
    log.set_positions(group, {where: Position(2, "note")})
    assert log.committed(group, [where]) == {where: Position(2, "note")}
    admin._client = AdminClient(dict(nowhere))  # type: ignore[arg-type]
    began = time.monotonic()
    assert topic in log.topics([topic])
    admin._outsiders[group] = confluent_kafka.Consumer(log._alone | nowhere | {"group.id": group})
    assert log.committed(group, [where]) == {where: Position(2, "note")}
    assert time.monotonic() - began < 3 * REQUEST_S
    admin._client = AdminClient(dict(nowhere))  # type: ignore[arg-type]
    wait_for(log._trouble.reachable)
    assert values_of(log, topic) == numbered("v", 3)
