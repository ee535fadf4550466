"""What lies around an application on Kafka: a broker, topics, records in, counts out; the same for all.

It speaks to the broker by confluent-kafka alone, so that no code of eddy's measures eddy.
"""

import contextlib
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any

from eddy.connectors.broker import Broker
from eddy.errors import ConnectorError

__all__ = [
    *("PARTITIONS", "Cluster", "Feed", "MissingError", "Reader", "Topics"),
    *("batches_of", "cluster", "write_numbered"),
]

PARTITIONS = 4
_COUNT = Struct(">q")
_BROKER_MIB = 1024
_REQUEST_S = 30.0
_MAX_TRANSACTION_MS = 900_000
_PATIENCE_S = 600.0
_SILENT = {"log_level": 0}  # what fails is raised; else the client also says so when the broker goes


class MissingError(Exception):
    """Something that Kafka's part needs is not here: what, and how to get it."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one application; `application` is in the names of all others that it makes."""

    application: str
    nodes: str
    loop: str
    counts: str


class Cluster:
    """A broker that is up."""

    def __init__(self, bootstrap: str, pid: int | None) -> None:
        from confluent_kafka.admin import AdminClient

        self.bootstrap, self.pid = bootstrap, pid
        self._admin = AdminClient({**_SILENT, "bootstrap.servers": bootstrap})

    @contextlib.contextmanager
    def topics(self) -> Iterator[Topics]:
        """New topics of four partitions for one application, which go with all that it made."""
        from confluent_kafka.admin import NewTopic

        name = f"family-{uuid.uuid4().hex[:8]}"
        made = Topics(name, f"{name}-nodes", f"{name}-hand-wired-loop", f"{name}-counts")
        new = [NewTopic(topic, PARTITIONS, 1) for topic in (made.nodes, made.loop, made.counts)]
        for future in self._admin.create_topics(new, operation_timeout=_REQUEST_S).values():
            future.result()
        try:
            yield made
        finally:
            known = self._admin.list_topics(timeout=_REQUEST_S).topics
            old = [topic for topic in known if topic.startswith(name)]
            for future in self._admin.delete_topics(old, operation_timeout=_REQUEST_S).values():
                future.exception()

    def sizes(self, topics: Topics) -> dict[str, int]:
        """How far each topic of an application has got, its partitions added up; control records are among them."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        known = self._admin.list_topics(timeout=_REQUEST_S).topics
        own = {name: topic for name, topic in known.items() if name.startswith(topics.application)}
        wanted = {TopicPartition(name, number): OffsetSpec.latest() for name in own for number in own[name].partitions}
        found = dict.fromkeys(sorted(own), 0)
        for partition, future in (self._admin.list_offsets(wanted) if wanted else {}).items():
            found[partition.topic] += future.result().offset
        return {name.removeprefix(f"{topics.application}-"): offset for name, offset in found.items()}


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """A broker of our own, on data of its own. Raises: MissingError."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        raise MissingError("confluent-kafka is not installed: pip install 'eddy-streams[kafka]'") from error
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder), heap_mib=_BROKER_MIB)
        try:
            broker.start()
        except ConnectorError as error:
            raise MissingError(str(error)) from error
        try:
            yield Cluster(broker.bootstrap, broker.pid)
        finally:
            broker.stop()


def write_numbered(bootstrap: str, topic: str, records: int) -> None:
    """Write so many records, whose keys are their numbers.

    The producer is idempotent: on a busy machine a batch may be sent again, and there would be more records.
    """
    from confluent_kafka import Producer

    producer = Producer({**_SILENT, "bootstrap.servers": bootstrap, "linger.ms": 50, "enable.idempotence": True})
    for record in range(records):
        while True:
            try:
                producer.produce(topic, b"value %d" % record, b"%d" % record)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def batches_of(bootstrap: str, topic: str, records: int) -> Iterator[list[Any]]:
    """Consume a topic from its beginning, all partitions at once. Yields the messages in batches, until all are read.

    It ends with fewer messages after ten minutes.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-client"})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    found, until = 0, time.monotonic() + _PATIENCE_S
    while found < records and time.monotonic() < until:
        batch = consumer.consume(10_000, 1.0)
        found += len(batch)
        yield batch
    consumer.close()


class Feed:
    """Writes (node, parent) records, both as decimal text, by Kafka's own partitioner.

    `held_back`: in one transaction, so that all records become visible together, at `release`.
    """

    def __init__(self, bootstrap: str, topic: str, *, held_back: bool = False, linger_ms: int = 5) -> None:
        from confluent_kafka import Producer

        settings: dict[str, Any] = {
            **_SILENT,
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "linger.ms": linger_ms,
            "queue.buffering.max.messages": 2_000_000,
        }
        if held_back:
            settings |= {"transactional.id": f"{topic}-feed", "transaction.timeout.ms": _MAX_TRANSACTION_MS}
        self._producer, self._topic, self._held_back = Producer(settings), topic, held_back
        if held_back:
            self._producer.init_transactions(_REQUEST_S)
            self._producer.begin_transaction()

    def send(self, rows: Iterable[tuple[int, int]], first_ms: int = 0) -> None:
        """Send the rows; with `first_ms`, each a millisecond later than the one before, else at the time it is."""
        produce, topic = self._producer.produce, self._topic
        for at, (node, parent) in enumerate(rows, first_ms):
            produce(topic, str(parent).encode(), str(node).encode(), timestamp=at if first_ms else 0)
            if not node % 10_000:
                self._producer.poll(0)
        if self._held_back:
            self.flush()

    def flush(self) -> None:
        """Wait until all is in the broker."""
        if self._producer.flush(_MAX_TRANSACTION_MS / 1000):
            raise RuntimeError("the broker does not take the records")

    def release(self) -> None:
        """Let all be seen."""
        self._producer.commit_transaction(_REQUEST_S)

    def close(self) -> None:
        """Let the broker go; all has to be there."""
        self.flush()
        self._producer.close()


class Reader:
    """Reads the counts, committed ones only: the latest of each node, their sum, and when the last one came."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._consumer = Consumer(
            {
                **_SILENT,
                "bootstrap.servers": bootstrap,
                "group.id": f"{topic}-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
                "fetch.queue.backoff.ms": 5,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self.latest: dict[bytes, int] = {}
        self.total = self.records = 0
        self.last_s = time.perf_counter()

    def take(self, timeout_s: float) -> None:
        """Take in what is there, waiting up to `timeout_s` for a record."""
        first = self._consumer.poll(timeout_s)
        if first is None:
            return
        messages = [first, *self._consumer.consume(10_000, 0)]
        self.last_s = time.perf_counter()
        for message in messages:
            if message.error():
                raise RuntimeError(f"the reader of the counts: {message.error()}")
            key, value = message.key() or b"", message.value()
            count = 0 if value is None else _COUNT.unpack(value)[0]
            self.total += count - self.latest.get(key, 0)
            self.latest[key] = count
        self.records += len(messages)

    def until(self, total: int, alive: Callable[[], None], idle_s: float) -> bool:
        """Read until the counts' sum is `total`: True; or until no record has come for `idle_s`: False."""
        self.last_s = time.perf_counter()
        while self.total != total:
            self.take(0.05)
            alive()
            if time.perf_counter() - self.last_s > idle_s:
                return False
        return True

    def counts(self) -> dict[str, str]:
        """The counts that are not 0, as text by text."""
        return {bytes(key).decode(): str(count) for key, count in self.latest.items() if count}

    def close(self) -> None:
        """Let the broker go."""
        self._consumer.close()
