"""Writing a partition: it counts the records that are there, and waits for transactions of others, up to a bound."""

import functools
import uuid
from contextlib import closing
from typing import Any

import pytest

import eddy
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.spark import inputs
from eddy.connectors.spark.arrow_functions import arrow_schema, record_batch
from eddy.connectors.spark.result_writing import Writing
from tests.spark.rig import write
from tests.waiting import wait_for

pytestmark = [pytest.mark.xdist_group("spark-jobs")]


def test_open_transaction_of_another_producer_is_waited_for_up_to_a_bound(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"written-{uuid.uuid4().hex[:8]}"
    open_log = functools.partial(KafkaLog, KafkaSettings.of(broker))
    columns: list[Any] = [[topic] * 3, [None] * 3, [b"a", b"b", b"c"], [b"1"] * 3, [0] * 3, [b""] * 3, [None] * 3]
    rows = record_batch(
        [*columns, [0] * 3],
        arrow_schema("topic string, k binary, key binary, value binary, t long, s binary, h binary, p int"),
    )
    monkeypatch.setattr(inputs, "PATIENCE_S", 0.5)
    with closing(open_log()) as log:
        log.create_topics([TopicSpec(topic, 1)])
        write(log, topic, [(b"a", b"1")])
        first = [TopicPartition(topic, 0)]
        wait_for(lambda: log.stable_offsets(first) == log.end_offsets(first))  # a commit takes effect later
        writing = Writing(open_log, "job", {topic: [0]}, 0)
        with closing(log.producer(None)) as other:
            other.begin()
            other.send(topic, 0, [b"x"], [b"y"], [0])
            other.flush()
            with pytest.raises(eddy.ConnectorError, match="a transaction at offset 2 has not ended"):
                list(writing([rows]))
            other.abort()
        assert [batch.to_pylist() for batch in writing([rows])] == [[{"topic": topic, "n": 3}]]
        wait_for(lambda: log.stable_offsets(first) == log.end_offsets(first))
        found = log.read(TopicPartition(topic, 0), 0, 100, 100)
        assert list(found.keys) == [b"a", b"b", b"c"]
