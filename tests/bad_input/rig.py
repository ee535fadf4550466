"""An application of a test's own on a broker: names that no other test has, records in and out, workers."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import eddy
from eddy.connectors.kafka import KafkaSettings
from eddy.connectors.log import Headers, Position, Records, TopicPartition, TopicSpec
from eddy.errors import ConnectorError
from eddy.partitioner import partition_of
from tests.connectors.steps import QUICK_SESSIONS, TidyKafkaLog
from tests.waiting import PATIENCE_S, Deadline, wait_for

KEPT = {"retention.ms": "-1"}
Row = tuple[Any, Any]


class Rig:
    """`name` is the application's, and in all names of topics. Keys are strings, and values unless said otherwise."""

    def __init__(self, name: str, pairs: Iterable[str]) -> None:
        self.name = name
        settings = KafkaSettings.of(pairs=[*QUICK_SESSIONS, *pairs])
        self.log = TidyKafkaLog(settings)
        self.admin = AdminClient({**settings.for_admin(), "log_level": 0})
        self.workers: list[eddy.Worker] = []

    def topic(self, stem: str) -> str:
        """The name of a topic of the user's."""
        return f"{stem}-of-{self.name}"

    def create(self, *stems: str, partitions: int = 1, **configs: str) -> None:
        """Make topics of the user's; configs are named with _ for a dot."""
        named = {name.replace("_", "."): value for name, value in configs.items()}
        self.log.create_topics(TopicSpec(self.topic(stem), partitions, KEPT | named) for stem in stems)

    def write(
        self, stem: str, rows: Iterable[Row], headers: Sequence[Headers] | None = None, time: int = 1_000
    ) -> None:
        """Append records in one transaction, each where its key belongs; what is not bytes or None is encoded."""
        topic = self.topic(stem)
        count = self.log.topics([topic])[topic].partitions
        by_partition: dict[int, list[tuple[bytes | None, bytes | None, Headers]]] = {}
        for row, (key, value) in enumerate(rows):
            data = _bytes(key)
            home = 0 if data is None else partition_of(data, count)
            by_partition.setdefault(home, []).append((data, _bytes(value), headers[row] if headers else ()))
        producer = self.log.producer(None)
        producer.begin()
        for partition, records in by_partition.items():
            keys, values, notes = (list(column) for column in zip(*records, strict=True))
            producer.send(topic, partition, keys, values, [time] * len(keys), notes if headers else None)
        producer.commit({}, None)
        producer.close()

    def records(self, topic: str) -> list[Records]:
        """All committed records of a topic, by partition."""
        found = []
        for partition in range(self.log.topics([topic])[topic].partitions):
            where = TopicPartition(topic, partition)
            found.append(self._committed_records(where))
        return found

    def _committed_records(self, where: TopicPartition) -> Records:
        """A commit is answered before the end of its transaction is in every partition."""
        begin, end = self.log.begin_offsets([where])[where], self.log.end_offsets([where])[where]
        deadline = Deadline(PATIENCE_S)
        while (records := self.log.read(where, begin, end, 1_000_000)).next_offset < end:
            deadline.check(f"{where}: a transaction is open at {records.next_offset}, before {end}")
        return records

    def rows(self, stem: str, serde: Any = eddy.String) -> list[Row]:
        """The rows of a topic of the user's, partition by partition."""
        return [
            (None if key is None else key.decode(), None if value is None else serde.decode(value))
            for records in self.records(self.topic(stem))
            for key, value in zip(records.keys, records.values, strict=True)
        ]

    def table(self, stem: str, serde: Any = eddy.String) -> dict[str, Any]:
        """The rows of a topic of the user's as a table."""
        return {key: value for key, value in dict(self.rows(stem, serde)).items() if value is not None}

    def letters(self) -> list[tuple[bytes | None, bytes | None, dict[str, str]]]:
        """What is in the dead-letter topic: key, value, headers."""
        (records,) = self.records(f"{self.name}-dead-letter")
        headers = records.headers or []
        told = [{name: data.decode(errors="replace") for name, data in one} for one in headers]
        return list(zip(records.keys, records.values, told, strict=True))

    def committed(self, stem: str) -> dict[int, Position]:
        """The application's positions in a topic of the user's."""
        topic = self.topic(stem)
        partitions = [TopicPartition(topic, p) for p in range(self.log.topics([topic])[topic].partitions)]
        return {tp.partition: at for tp, at in self.log.committed(self.name, partitions).items()}

    def worker(self, topology: eddy.Topology, config: eddy.Config | None = None, **arguments: Any) -> eddy.Worker:
        """A worker that is closed with the test at the latest."""
        self.workers.append(eddy.Worker(topology, self.log, config, **arguments))
        return self.workers[-1]

    def settle(self, *workers: eddy.Worker, timeout_s: float = PATIENCE_S) -> None:
        """Step the workers in turn until nothing is under way anywhere."""
        deadline = Deadline(timeout_s)
        while sum(worker.step(0.01) for worker in workers) or _busy(workers):
            deadline.check([worker.trouble for worker in workers])

    def share(self, *workers: eddy.Worker) -> None:
        """Step the workers in turn until each owns partitions, and has restored their states."""
        self.wait(
            lambda: (
                sum(worker.step(0.01) for worker in workers) == 0
                and all(worker.positions.entry.positions and not worker.restoring for worker in workers)
            )
        )

    def run(self, topology: eddy.Topology, config: eddy.Config | None = None, **arguments: Any) -> eddy.Worker:
        """One worker, from its start until all is taken in, and closed."""
        worker = self.worker(topology, config, **arguments)
        self.settle(worker)
        worker.close()
        return worker

    def configure(self, topic: str, **configs: str) -> None:
        """Set configs of any topic, as an administrator does; named with _ for a dot."""
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result()
        wanted = {name.replace("_", "."): value for name, value in configs.items()}
        self.wait(lambda: wanted.items() <= {**self.log.topics([topic])[topic].configs, **_unshown(wanted)}.items())

    def wait(self, condition: Callable[[], object]) -> None:
        """Wait for a condition."""
        wait_for(condition, PATIENCE_S, pause_s=0.0)

    def close(self) -> None:
        """Close what is open."""
        for worker in self.workers:
            worker.close()
        self.log.close()


def _busy(workers: Sequence[eddy.Worker]) -> bool:
    """Whether there is something to do; there is where none has joined the group."""
    try:
        if any(worker.restoring for worker in workers) or not any(
            worker.positions.entry.positions for worker in workers
        ):
            return True
        return not all(worker.quiescent() for worker in workers)
    except ConnectorError as error:
        if not error.retriable:
            raise
        return True


def _bytes(data: Any) -> bytes | None:
    return data.encode() if isinstance(data, str) else eddy.Int64.encode(data) if isinstance(data, int) else data


def _unshown(configs: dict[str, str]) -> dict[str, str]:
    """Configs that a log does not tell."""
    return {name: value for name, value in configs.items() if name.startswith(("segment.", "min.cleanable"))}
