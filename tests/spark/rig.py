"""An application on the embedded log on disk, which Spark's workers can open as well."""

import functools
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.connectors.spark import backfill, verify
from eddy.connectors.spark.session import ONE_TASK
from eddy.partitioner import partition_of
from tests.waiting import PATIENCE_S, Deadline

__all__ = ["TREE", "Rig", "ancestors", "check_backfill", "family", "latest_of", "plant", "rows_of", "write"]

S = eddy.String
TREE = [(b"b", b"a"), (b"c", b"b"), (b"d", b"b"), (b"e", b"d"), (b"f", b"a"), (b"f", b"e"), (b"c", None)]
"""A tree whose last leaf moves, and loses one."""
Row = tuple[int, bytes | None, bytes | None]
"""Partition, key and value of a record."""


def ancestors(parents: eddy.KTable[str, str]) -> eddy.Relation[str, int]:
    """A row (ancestor, 1) for each node and each node above it."""
    rows = parents.to_relation().map(lambda node, parent: (parent, 1))
    return rows.recursively(lambda rows: rows.join(parents, lambda _, one, parent: (parent, one)), "ancestors")


def family() -> eddy.Topology:
    """How many are below each node of `TREE`; and notes that are not empty."""
    topology = eddy.Topology("family")
    ancestors(topology.table("nodes", S, S)).group_by_key().count("descendants").to("descendants")
    topology.stream("notes", S, S).filter(lambda key, note: note != "").to("loud")
    return topology


def write(
    log: Log, topic: str, rows: Iterable[tuple[bytes | None, bytes | None]], commit: bool = True, time: int = 1_000
) -> None:
    """Records in one transaction, each to the partition of its key."""
    count, rows = log.topics([topic])[topic].partitions, list(rows)
    homes = [0 if key is None else log.partitioner(key, count) for key, _ in rows]
    producer = log.producer(None)
    producer.begin()
    producer.send(topic, homes, [key for key, _ in rows], [value for _, value in rows], [time] * len(rows))
    producer.commit({}, None) if commit else producer.abort()
    producer.close()


def rows_of(log: Log, topic: str, to_the_end: bool = True) -> list[Row]:
    """All committed records of a topic: a transaction that has just ended may take a moment to show.

    `to_the_end=False`: up to a transaction that is left open.
    """
    found = []
    for partition in range(log.topics([topic])[topic].partitions):
        tp = TopicPartition(topic, partition)
        position, end = log.begin_offsets([tp])[tp], log.end_offsets([tp])[tp]
        deadline = Deadline(PATIENCE_S)
        while position < end:
            records = log.read(tp, position, end, 50_000)
            if records.next_offset == position and not to_the_end:
                break
            deadline.check(f"{tp}: a transaction is open at {position}, before {end}")
            position = records.next_offset
            found += [(partition, k, v) for k, v in zip(records.keys, records.values, strict=True)]
    return found


def latest_of(log: Log, topic: str) -> dict[bytes | None, tuple[int, bytes]]:
    """The last value of each key, with its partition."""
    last = {key: (partition, value) for partition, key, value in rows_of(log, topic)}
    return {key: (partition, value) for key, (partition, value) in last.items() if value is not None}


class Rig:
    """A topology, its topics, and a log that is opened anew for each thing that is done."""

    def __init__(
        self, folder: Path, topology: Callable[[], eddy.Topology], topics: Iterable[TopicSpec], spark: Any = None
    ) -> None:
        self.path, self.topology, self.spark = folder / "log", topology, spark
        self.state = folder / "state"
        self.one_task: int | None = None
        self.open_log = functools.partial(LocalLog, self.path)
        self.log = self.open_log()
        self.log.create_topics(topics)

    def close(self) -> None:
        self.log.close()

    def write(self, topic: str, rows: Iterable[tuple[bytes | None, bytes | None]], time: int = 1_000) -> None:
        """Records, each to the partition of its key."""
        write(self.log, topic, rows, time=time)

    def write_at(self, topic: str, rows: Iterable[tuple[bytes | None, bytes | None, int]]) -> None:
        """Records with their times, in one transaction, each to the partition of its key."""
        with closing(self.log.producer(None)) as producer:
            producer.begin()
            for key, value, time in rows:
                producer.send(topic, 0 if key is None else self.home(key, topic), [key], [value], [time])
            producer.commit({}, None)

    def home(self, key: bytes, topic: str = "nodes") -> int:
        """The partition of a key."""
        return partition_of(key, self.log.topics([topic])[topic].partitions)

    def work(self, **config: Any) -> None:
        """A worker, until nothing is left to do."""
        worker = eddy.Worker(self.topology(), self.log, eddy.Config(state_dir=self.state, **config))
        try:
            worker.run_until_idle()
            worker.step()
        finally:
            worker.close()

    def go_on(self, then: Mapping[str, Iterable[tuple[bytes | None, bytes | None]]]) -> None:
        """More records, by topic, and a worker that processes them."""
        for topic, records in then.items():
            self.write(topic, records)
        self.work()

    def verify(self, **options: Any) -> Any:
        return verify(
            self.topology(),
            self.spark,
            self.log,
            self.open_log,
            **{"wait_s": 0.0, "quick": bool(self.one_task), **options},
        )

    def backfill(self, **options: Any) -> Any:
        one_task = ONE_TASK if self.one_task is None else self.one_task
        return backfill(self.topology(), self.spark, self.log, self.open_log, **{"one_task": one_task, **options})

    def rows(self, topic: str) -> list[Row]:
        """All records of a topic."""
        return rows_of(self.log, topic)

    def latest(self, topic: str) -> dict[bytes | None, tuple[int, bytes]]:
        """The last value of each key of a topic, with its partition."""
        return latest_of(self.log, topic)

    def held(self) -> dict[str, Any]:
        """What outputs and changelogs hold: of tables the latest of each key, of streams every record."""
        topology = self.topology()
        kinds = {sink.topic: sink.kind for sink in topology.plan.sinks()}
        ours = [topic for topic in self.log.topics() if topic.startswith(f"{topology.name}-")]
        tables = [topic for topic in ours if topic.endswith("-changelog")]
        tables += [topic for topic, kind in kinds.items() if kind != "stream"]
        streams = [topic for topic, kind in kinds.items() if kind == "stream"]
        return {topic: self.latest(topic) for topic in tables} | {topic: self.rows(topic) for topic in streams}


def check_backfill(rig: Rig, scratch: Rig, then: Mapping[str, Iterable[tuple[bytes | None, bytes | None]]]) -> Any:
    """The law of a backfill: its results are those of a worker, `scratch`, that has read the same input from the
    beginning, and they remain so when both process `then`, records by topic. Returns the backfill.
    """
    done = rig.backfill()
    assert rig.held() == scratch.held()
    for one in (rig, scratch):
        one.go_on(then)
    assert rig.held() == scratch.held()
    return done


def last_offset(rig: Any, topic: str, key: bytes) -> tuple[int, int]:
    for partition in range(rig.log.topics([topic])[topic].partitions):
        tp = TopicPartition(topic, partition)
        records = rig.log.read(tp, 0, rig.log.end_offsets([tp])[tp], 1_000)
        offsets = [o for o, found in zip(records.offsets, records.keys, strict=True) if found == key]
        if offsets:
            return partition, offsets[-1]
    raise AssertionError(key)


def plant(rig: Any, sql: str, topic: str, key: bytes, *values: Any) -> None:
    """Change a record in the log's own file, as no program can."""
    partition, offset = last_offset(rig, topic, key)
    storage = rig.log._storage  # private: no program changes records
    with storage.change():
        storage.rows(
            sql + " WHERE offset = ? AND partition_id = (SELECT id FROM partitions WHERE topic = ? AND partition = ?)",
            (*values, offset, topic, partition),
        )
