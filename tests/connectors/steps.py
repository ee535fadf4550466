"""Steps on a log that its tests share. A log may take its time, so these wait for conditions; none counts offsets."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.kafka.producer import KafkaProducer
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Consumer, Log, Poll, Position, Producer, Records, TopicPartition
from tests import waiting
from tests.waiting import PATIENCE_S, Deadline

KEPT = {"retention.ms": "-1"}
"""For topics whose records are of 1970: a broker would find them old, and delete them."""

QUICK_SESSIONS = ["consumer.session.timeout.ms=2000", "consumer.heartbeat.interval.ms=200"]


class TidyKafkaLog(KafkaLog):
    """Closes the producers too that a test leaves open: their threads would talk to a broker that has gone."""

    def producer(self, transactional_id: str | None) -> KafkaProducer:
        made = super().producer(transactional_id)
        self.__dict__.setdefault("made", []).append(made)
        return made

    def close(self) -> None:
        for producer in self.__dict__.get("made", []):
            producer.close()
        super().close()


def log_of(request: pytest.FixtureRequest, folder: Path) -> Log:
    """The log that the request's parameter names: "memory", "disk", which is in the folder, or "kafka"."""
    if request.param == "kafka":
        return TidyKafkaLog(KafkaSettings.of(request.getfixturevalue("broker"), pairs=QUICK_SESSIONS))
    return LocalLog(None if request.param == "memory" else folder / "log")


def write(log: Log, topic: str, partition: int, values: Iterable[bytes]) -> None:
    """Append records in one transaction, the key being the value too."""
    producer = log.producer(None)
    producer.begin()
    send(producer, topic, partition, values)
    producer.commit({}, None)
    producer.close()


def send(producer: Producer, topic: str, partition: int, values: Iterable[bytes]) -> None:
    column = list(values)
    producer.send(topic, partition, column, column, [1_000] * len(column))


def commit_one(producer: Producer, topic: str) -> None:
    producer.begin()
    send(producer, topic, 0, [b"x"])
    producer.commit({}, None)


def numbered(stem: str, count: int) -> list[bytes]:
    return [f"{stem}{i}".encode() for i in range(count)]


def read_all(log: Log, topic: str, partition: int = 0) -> Records:
    """All that is committed, as soon as no transaction is open: one that has just ended may take a moment to show."""
    where = TopicPartition(topic, partition)
    begin, end = log.begin_offsets([where])[where], log.end_offsets([where])[where]
    deadline = Deadline(PATIENCE_S)
    while (records := log.read(where, begin, end, 1_000_000)).next_offset < end:
        deadline.check(f"{where}: a transaction is open at {records.next_offset}, before {end}")
    return records


def settled_end(log: Log, topic: str, partition: int = 0) -> int:
    """The end of a partition that holds committed records, its last control record included."""
    where = TopicPartition(topic, partition)
    deadline = Deadline(PATIENCE_S)
    while True:
        end = log.end_offsets([where])[where]
        if end > read_all(log, topic, partition).offsets[-1] + 1:
            return end
        deadline.check("a control record")


def wait_for(condition: Callable[[], bool]) -> None:
    waiting.wait_for(condition, PATIENCE_S, pause_s=0.0)


def values_of(log: Log, topic: str, partition: int = 0) -> list[bytes | None]:
    return list(read_all(log, topic, partition).values)


def drain(consumer: Consumer, count: int, max_records: int = 1_000) -> list[Records]:
    """Poll until `count` records came."""
    came: list[Records] = []
    deadline = Deadline(PATIENCE_S)
    while sum(map(len, came)) < count:
        deadline.check(f"{count} records; {sum(map(len, came))} came")
        came += consumer.poll(max_records, 0.1).records
    assert sum(map(len, came)) == count
    return came


def drained(consumer: Consumer, count: int) -> list[bytes | None]:
    return [value for records in drain(consumer, count) for value in records.values]


def settle(consumers: Sequence[Consumer], partitions: int) -> list[Poll]:
    """Poll all members in turn until every partition and member has its share; what they were told meanwhile."""
    polls = []
    deadline = Deadline(PATIENCE_S)
    while True:
        polls += [consumer.poll(1_000, 0.05) for consumer in consumers]
        owned = [consumer.assignment() for consumer in consumers]
        shared = sum(map(len, owned)) == len(frozenset().union(*owned)) == partitions
        if shared and sum(map(bool, owned)) == min(len(consumers), partitions):
            return polls
        deadline.check(f"a settled assignment, but {[sorted(c.assignment()) for c in consumers]}")


def ends(log: Log, topic: str) -> dict[TopicPartition, Position]:
    """Positions at the end of all three partitions."""
    partitions = [TopicPartition(topic, i) for i in range(3)]
    return {partition: Position(end) for partition, end in log.end_offsets(partitions).items()}
