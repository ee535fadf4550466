"""The topology on Kafka, run by processes: what goes in, what comes out, and how to wait for it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from concepts import Records
from processes import WorkerProcess
from topology import Concept, Size, topology

import eddy
from eddy.cli.application import find
from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.runtime.quiescence import lags, quiescent

if TYPE_CHECKING:
    from eddy.connectors.kafka import KafkaLog

__all__ = ["PARTITIONS", "PROGRAM", "KafkaJob", "make_topics", "wait", "wait_until_ready"]

PROGRAM = Path(__file__).parent / "topology.py"
PARTITIONS = 4
PATIENCE_S = 120.0
POLL_S = 0.01
CONCEPT, SIZE = eddy.Struct(Concept), eddy.Struct(Size)


def make_topics(log: Log) -> None:
    """Make the topics that the topology reads and writes; its workers make the others."""
    topics = {"concepts": {"cleanup.policy": "compact"}, "sizes": {}}
    log.create_topics(TopicSpec(name, PARTITIONS, configs) for name, configs in topics.items())


class KafkaJob:
    """The topology on Kafka, run by workers that are processes, and what its output says by now."""

    def __init__(self, log: "KafkaLog", workers: list[WorkerProcess]) -> None:
        self.log, self.workers = log, workers
        self.sizes: dict[str, Size] = {}
        self._application = find(topology, log)
        self._read = {TopicPartition("sizes", partition): 0 for partition in range(PARTITIONS)}
        self._began = 0.0

    def write(self, records: Records) -> None:
        """Produce records to the topic of concepts, in one transaction, each to its key's partition."""
        self._began = time.perf_counter()
        self.log.write("concepts", records, value=CONCEPT)

    def run(self) -> float:
        """Wait for quiescence and read what came out; return the seconds since the last `write` began."""
        job = self._application
        wait(lambda: quiescent(self.log, job.name, job.inputs, job.exchanges), "quiescence", self.workers)
        seconds = time.perf_counter() - self._began
        for partition, end in self.log.end_offsets(self._read).items():
            while self._read[partition] < end:
                self._take(partition, end)
        return seconds

    def _take(self, partition: TopicPartition, end: int) -> None:
        records = self.log.read(partition, self._read[partition], end, 50_000)
        for key, value in zip(records.keys, records.values, strict=True):
            assert key is not None
            if value is None:
                self.sizes.pop(key.decode(), None)
            else:
                self.sizes[key.decode()] = SIZE.decode(value)
        self._read[partition] = records.next_offset

    def lag(self) -> int:
        """Offsets that nobody has taken in yet, of the input and of the internal topics."""
        job = self._application
        return sum(lags(self.log, job.name, [*job.inputs, *job.exchanges]).values())


def wait(condition: Callable[[], bool], what: str, workers: list[WorkerProcess]) -> None:
    """Wait until the condition holds; give up where a worker has ended, or after two minutes."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        for worker in workers:
            worker.check()
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {PATIENCE_S:.0f} s in vain for {what}")
        time.sleep(POLL_S)


def wait_until_ready(workers: list[WorkerProcess]) -> None:
    """Wait until each of them does its work."""
    wait(lambda: all(worker.figures().get("eddy_ready") == 1 for worker in workers), "the workers", workers)
