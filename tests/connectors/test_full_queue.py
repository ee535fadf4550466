"""A producer of Kafka's whose queue is full: it waits, and sends each record once, in its order."""

import uuid
from collections.abc import Iterator

import pytest

from eddy.connectors.kafka import KafkaSettings
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.errors import ConnectorError
from tests.connectors.steps import KEPT, TidyKafkaLog, numbered, read_all

RECORDS, PARTITIONS = 2_000, 3


@pytest.fixture
def log(broker: str) -> Iterator[TidyKafkaLog]:
    """The queue of its producers has ten records."""
    log = TidyKafkaLog(KafkaSettings.of(broker, pairs=["producer.queue.buffering.max.messages=10"]))
    yield log
    log.close()


def test_records_beyond_a_full_queue_are_sent_once_and_in_order(log: TidyKafkaLog) -> None:
    topic = f"queue-{uuid.uuid4().hex[:8]}"
    log.create_topics([TopicSpec(topic, PARTITIONS, KEPT)])
    producer = log.producer(f"{topic}-writer")
    values, partitions = numbered("v", RECORDS), [number % PARTITIONS for number in range(RECORDS)]
    producer.begin()
    producer.send(topic, partitions, values, values, [1_000] * RECORDS)
    producer.send(topic, 0, [b"last"], [b"last"], [1_000])
    ends = producer.flush()
    producer.commit({}, None)
    for partition in range(PARTITIONS):
        sent = [*values[partition::PARTITIONS], *([b"last"] if partition == 0 else [])]
        assert ends[TopicPartition(topic, partition)] == len(sent)
        assert read_all(log, topic, partition).values == sent


def test_a_queue_that_stays_full_is_an_error_that_may_be_retried(
    log: TidyKafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"queue-{uuid.uuid4().hex[:8]}"
    log.create_topics([TopicSpec(topic, 1, KEPT)])
    producer = log.producer(f"{topic}-writer")
    producer.begin()
    monkeypatch.setattr("eddy.connectors.kafka.producer.PATIENCE_S", 0.0)
    values = numbered("v", RECORDS)
    with pytest.raises(ConnectorError, match="the queue has been full for 0 s") as raised:
        producer.send(topic, 0, values, values, [1_000] * RECORDS)
    assert raised.value.retriable
    monkeypatch.undo()
    producer.abort()
    producer.begin()
    producer.send(topic, 0, values[:5], values[:5], [1_000] * 5)
    producer.commit({}, None)
    assert list(read_all(log, topic).values) == values[:5]
