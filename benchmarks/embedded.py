"""The program of examples/family.py on the embedded log: topics, records in, counts out."""

import runpy
from collections.abc import Iterable, Iterator
from itertools import islice

import eddy
from benchmarks.workloads import ROOT
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from eddy.topology.topology import Topology

__all__ = ["COUNTS", "NODES", "create_topics", "family", "key_of", "produce", "read_all"]

NODES, COUNTS = "nodes", "descendants"
_TIME_MS = 1_700_000_000_000


def family() -> Topology:
    """The example's topology, under the name that its internal topics begin with."""
    topology: Topology = runpy.run_path(str(ROOT / "examples" / "family.py"))["topology"]
    return topology


def key_of(node: object) -> str:
    """A node's key in the topics."""
    return f"n{node:0>8}"


def create_topics(log: LocalLog, partitions: int) -> None:
    """The example's two topics; not compacted, so that every state needs a changelog."""
    log.create_topics([TopicSpec(NODES, partitions), TopicSpec(COUNTS, partitions)])


def produce(log: LocalLog, rows: Iterable[tuple[object, object]], partitions: int, size: int = 10_000) -> None:
    """Write (node, parent) records in their order, `size` a transaction."""
    producer, records = log.producer(None), iter(rows)
    while part := list(islice(records, size)):
        homes: dict[int, tuple[list[bytes], list[bytes]]] = {}
        for node, parent in part:
            key = key_of(node).encode()
            keys, values = homes.setdefault(partition_of(key, partitions) if partitions > 1 else 0, ([], []))
            keys.append(key)
            values.append(key_of(parent).encode())
        producer.begin()
        for home, (keys, values) in homes.items():
            producer.send(NODES, home, keys, values, [_TIME_MS] * len(keys))
        producer.commit({}, None)
    producer.close()


def read_all(log: LocalLog, start: dict[TopicPartition, int]) -> Iterator[tuple[str, int | None]]:
    """Yield the (node, count) records of the output topic from `start` on, in the order of each partition."""
    decode = eddy.Int64.decode
    for partition, end in log.end_offsets(start).items():
        position = start[partition]
        while position < end:
            records = log.read(partition, position, end, 50_000)
            position = records.next_offset
            for key, value in zip(records.keys, records.values, strict=True):
                assert key is not None
                yield str(int(key[1:])), None if value is None else decode(value)
