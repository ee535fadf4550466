"""The log as the verifier sees it: every record that is kept for good is taken in once, and compared for ever.

One client of librdkafka's own takes in whatever is committed, from the first offset on; none of eddy's
code is between. A read waits for the transactions that are still open before its end, and then for the
event that says that only control records and aborted ones were left.
"""

import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError

from eddy.connectors.kafka import KafkaLog
from eddy.connectors.log import Position, Records, TopicPartition, TopicSpec
from tests.waiting import PATIENCE_S

__all__ = ["Replica"]


_TRANSIENT = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE}


class Replica:
    """What a `Witness` asks of a log. Records of the topics in `purged` are not kept. Not for several threads."""

    def __init__(self, log: KafkaLog, counts: Mapping[str, int], purged: Iterable[str]) -> None:
        self._log, self._counts = log, counts
        kept = [TopicPartition(topic, p) for topic in sorted(counts.keys() - set(purged)) for p in range(counts[topic])]
        self._kept = {tp: Records(*tp, [], [], [], [], None, 0) for tp in kept}
        settings = {
            "bootstrap.servers": log.settings.bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        self._client = confluent_kafka.Consumer(settings)
        self._client.assign([confluent_kafka.TopicPartition(*tp, 0) for tp in kept])

    def topics(self) -> dict[str, TopicSpec]:
        """The topics of the run."""
        return {topic: TopicSpec(topic, count) for topic, count in self._counts.items()}

    def begin_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `Log.begin_offsets`."""
        wanted = list(partitions)
        asked = self._log.begin_offsets(tp for tp in wanted if tp not in self._kept)
        return {tp: asked.get(tp, 0) for tp in wanted}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `Log.end_offsets`."""
        return self._log.end_offsets(partitions)

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """As `Log.committed`."""
        return self._log.committed(group, partitions)

    def read(self, partition: TopicPartition, start: int, end: int, max_records: int) -> Records:
        """The committed records at `start` ≤ offset < `end`, all of them. Raises: TimeoutError if that takes long."""
        if partition not in self._kept:
            return self._log.read(partition, start, end, max_records)
        kept, deadline = self._kept[partition], time.monotonic() + PATIENCE_S
        while kept.next_offset < end:
            for message in self._client.consume(1_000, 0.05):
                self._take(message)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{partition}: a transaction is open at {kept.next_offset}, before {end}")
        part = slice(bisect_left(kept.offsets, start), bisect_left(kept.offsets, end))
        columns: list[Any] = [c[part] for c in (kept.offsets, kept.timestamps, kept.keys, kept.values)]
        return Records(*partition, *columns, None, end)

    def _take(self, message: confluent_kafka.Message) -> None:
        error, topic, partition, offset = message.error(), message.topic(), message.partition(), message.offset()
        if error is not None and error.code() in _TRANSIENT:
            return
        assert topic is not None, error
        assert partition is not None
        assert offset is not None
        kept: Any = self._kept[TopicPartition(topic, partition)]
        if error is None:
            assert offset >= kept.next_offset, f"{topic} {partition}: {offset} came after {kept.next_offset}"
            for column, value in zip(
                (kept.offsets, kept.timestamps, kept.keys, kept.values),
                (offset, message.timestamp()[1], message.key(), message.value()),
                strict=True,
            ):
                column.append(value)
            offset += 1
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
        kept.next_offset = max(kept.next_offset, offset)

    def close(self) -> None:
        """Close the client."""
        self._client.close()
