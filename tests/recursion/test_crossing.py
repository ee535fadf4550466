"""Rows that cross to another worker: whatever part of an epoch's delta the other one takes in first."""

from typing import Any

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from eddy.state.memory import MemoryStore

N = eddy.Native


def key_at(home: int, number: int = 0) -> int:
    """A key of one of two partitions."""
    return [key for key in range(100) if partition_of(N.encode(key), 2) == home][number]


def test_a_delta_of_which_only_the_retractions_have_come_is_no_error() -> None:
    """One epoch makes of pairs of values 1 -> 2, 3, 4: three retractions of a row that was there once, before nine
    insertions. The other worker takes three records in at a time."""
    here, there = key_at(0), key_at(1)
    topology = eddy.Topology("pairs")
    rows = topology.table("in", N, N).to_relation().map(lambda _, v: (here, v))
    pairs = rows.join(rows, lambda _, a, b: (there, 0), "pairs")
    pairs.reduce(lambda _, values: [sum(values.values())], "how-many").group_by_key().count("made").to("out", N, N)
    log = LocalLog(None)
    log.create_topics([TopicSpec("in", 2), TopicSpec("out", 1)])
    config = eddy.Config(max_epoch_records=3)
    workers = [eddy.Worker(topology, log, config, member=member, store=MemoryStore()) for member in "01"]

    def write(*records: tuple[int, Any]) -> None:
        producer = log.producer(None)
        producer.begin()
        for key, value in records:
            producer.send("in", 0, [N.encode(key)], [N.encode(value)], [0])
        producer.commit({}, None)
        producer.close()
        for _ in range(30):
            for worker in workers:
                worker.step()

    try:
        for worker in workers:
            worker.step()
        write((key_at(0, 0), 1))
        write((key_at(0, 0), 2), (key_at(0, 1), 3), (key_at(0, 2), 4))
        (made,) = [dict(w.circuit.states["how-many"].items()) for w in workers if w.circuit.ownership.owns(1, 2)]  # type: ignore[attr-defined]
        assert made == {(there, 0): 9}
        assert log.end_offsets([TopicPartition("out", 0)])[TopicPartition("out", 0)]
    finally:
        for worker in workers:
            worker.close()
        log.close()
