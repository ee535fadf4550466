"""Input that keeps coming: bursts of a program's events, by an idempotent producer or by a transactional one.

What is *acknowledged* is in the log for certain. What is not may be there too: the oracle reads the topics.
A transactional feed aborts one burst in ten, and leaves control records behind the last record.
"""

import contextlib
import random
import threading
from collections.abc import Callable

import confluent_kafka

from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.log import TopicPartition
from eddy.errors import ConnectorError
from eddy.partitioner import partition_of
from tests.simulation.programs import Program
from tests.torture.programs import PARTITIONS
from tests.waiting import PATIENCE_S, Deadline

__all__ = ["Feed"]

ABORTED = 0.1
LOST_AFTER_S = 20.0
"""A client that has written nothing for so long may have lost its brokers for ever, as others do (ADR 11)."""
Row = tuple[str, int, bytes, bytes | None]


class Feed:
    """Produces a program's events while `running`. Whoever holds the `gate` keeps further ones back, and whoever ends
    `running` and then holds it has seen the last one.
    """

    def __init__(self, settings: KafkaSettings, program: Program, seed: int, *, transactional: bool) -> None:
        self._program, self._rng, self._settings = program, random.Random(seed), settings
        self._sources = {source.topic: source for source in program.topology().plan.sources()}
        self._write: Callable[[list[Row]], None] = self._in_transaction if transactional else self._one_by_one
        self._client: confluent_kafka.Producer | None = None
        self._log = KafkaLog(settings)
        self.gate = threading.RLock()
        self.acknowledged: dict[TopicPartition, int] = {}
        self.running = threading.Event()
        self._ended = threading.Event()
        self.trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def burst(self, events: int) -> None:
        """Produce so many events."""
        with self.gate:
            rows = [self._row(*self._program.event(self._rng)) for _ in range(events)]
            self._write(rows)

    def _row(self, topic: str, key: str, value: object) -> Row:
        source = self._sources[topic]
        data = source.key.encode(key)
        return topic, partition_of(data, PARTITIONS), data, None if value is None else source.value.encode(value)

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                if self.running.wait(0.1):
                    with self.gate:
                        if self.running.is_set():  # it may have been told to stop while it waited for the gate
                            self.burst(self._rng.randrange(1, 20))
                    self._ended.wait(self._rng.choice([0.0, 0.05, 0.2, 0.5]))
        except BaseException as trouble:
            self.trouble = trouble

    def _one_by_one(self, rows: list[Row]) -> None:
        if self._client is None:
            own = {"enable.idempotence": True, "linger.ms": 1, "reconnect.backoff.max.ms": 500, "log_level": 0}
            self._client = confluent_kafka.Producer({"bootstrap.servers": self._settings.bootstrap, **own})
        for topic, partition, key, value in rows:
            self._client.produce(topic, value, key, partition, on_delivery=self._delivered)
        if self._client.flush(LOST_AFTER_S):
            self._client.purge()  # such records are not acknowledged; the next burst has a client that finds the broker
            self._client = None

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            self._acknowledge(TopicPartition(message.topic(), message.partition()), message.offset() + 1)  # type: ignore

    def _acknowledge(self, partition: TopicPartition, end: int) -> None:
        self.acknowledged[partition] = max(end, self.acknowledged.get(partition, 0))

    def _in_transaction(self, rows: list[Row]) -> None:
        deadline = Deadline(PATIENCE_S)
        aborted = self._rng.random() < ABORTED
        while True:
            with contextlib.suppress(ConnectorError):
                producer = self._log.producer(f"{self._program.topology().name}-feed")
                try:
                    producer.begin()
                    for topic, partition, key, value in rows:
                        producer.send(topic, partition, [key], [value], [0])
                    ends = producer.flush()
                    if not aborted:
                        producer.commit({}, None)
                        for tp, end in ends.items():
                            self._acknowledge(tp, end)
                    return
                finally:
                    producer.close()
            deadline.check("input could not be written")

    def close(self) -> None:
        """End it; what was produced stays."""
        self._ended.set()
        self._thread.join()
        self._log.close()
