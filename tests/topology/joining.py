"""Workers that join two streams in time, their records, and what they have written."""

from collections.abc import Iterable
from datetime import timedelta

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from eddy.state.memory import MemoryStore
from tests.waiting import step_to_rest

__all__ = ["SIDES", "Joined", "N", "Record", "Running", "S", "home_of", "ms", "sortable"]

S, N = eddy.String, eddy.Int64
SIDES = ("left", "right")
Record = tuple[int, str | None, int | None, int]
"""The number of its side, its key, value and timestamp."""
Joined = tuple[str | None, tuple[int | None, int | None], int]
"""A key, the values of both sides, and the timestamp."""


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def home_of(key: str | None, value: int | None, partitions: int) -> int:
    return (value or 0) % partitions if key is None else partition_of(key.encode(), partitions)


def sortable(joined: Iterable[Joined]) -> list[str]:
    return sorted(map(repr, joined))


class Running:
    """Workers on a log, each with a store in memory."""

    def __init__(self, topology: eddy.Topology, partitions: int, count: int, most: int) -> None:
        self.log, self.topology = LocalLog(None), topology
        self.log.create_topics(TopicSpec(topic, partitions) for topic in (*SIDES, "out"))
        self.partitions = partitions
        self.config = eddy.Config(max_epoch_records=most)
        self.stores = [MemoryStore() for _ in range(count)]
        self.workers = [self._worker(number) for number in range(count)]

    def _worker(self, number: int) -> eddy.Worker:
        return eddy.Worker(
            self.topology, self.log, self.config, member=str(number), store=self.stores[number], clock=lambda: 0.0
        )

    def replace(self, number: int) -> None:
        """A worker ends, and another one with nothing on its disk takes its place."""
        self.workers[number].close()
        self.stores[number] = MemoryStore()
        self.workers[number] = self._worker(number)

    def finish(self) -> None:
        step_to_rest(self.workers)

    def write(self, records: Iterable[Record]) -> None:
        producer = self.log.producer(None)
        producer.begin()
        for side, key, value, stamp in records:
            data = None if key is None else key.encode()
            producer.send(
                SIDES[side],
                home_of(key, value, self.partitions),
                [data],
                [None if value is None else N.encode(value)],
                [stamp],
            )
        producer.commit({}, None)
        producer.close()

    def written(self) -> list[Joined]:
        found: list[Joined] = []
        for partition in range(self.partitions):
            at = TopicPartition("out", partition)
            records = self.log.read(at, 0, self.log.end_offsets([at])[at], 100_000)
            for key, value, stamp in zip(records.keys, records.values, records.timestamps, strict=True):
                assert value is not None
                found.append((None if key is None else key.decode(), eddy.Native.decode(value), stamp))
        return found

    def kept(self, name: str) -> int:
        """The rows of a state in all changelogs."""
        rows: set[bytes] = set()
        for partition in range(self.partitions):
            at = TopicPartition(f"app-{name}-changelog", partition)
            records = self.log.read(at, 0, self.log.end_offsets([at])[at], 100_000)
            for key, value in zip(records.keys, records.values, strict=True):
                assert key is not None
                (rows.discard if value is None else rows.add)(key)
        return len(rows)
