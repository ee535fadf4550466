"""Keys that are written to a topic of two partitions, and numbers by key that are read from one."""

from collections.abc import Sequence

import eddy
from eddy.connectors.log import Log, TopicPartition

__all__ = ["last_counts", "send_keys"]


def send_keys(log: Log, topic: str, keys: Sequence[bytes], at_ms: int = 0) -> None:
    """Write records with these keys, each in its partition, in one transaction."""
    producer = log.producer(None)
    producer.begin()
    producer.send(topic, [log.partitioner(key, 2) for key in keys], keys, [b"v"] * len(keys), [at_ms] * len(keys))
    producer.commit({}, None)
    producer.close()


def last_counts(log: Log, topic: str) -> dict[bytes, int]:
    """The last number of each key; tombstones are left out."""
    found: dict[bytes, int] = {}
    for partition in range(2):
        at = TopicPartition(topic, partition)
        read = log.read(at, 0, log.end_offsets([at])[at], 10_000)
        found.update({k: eddy.Int64.decode(v) for k, v in zip(read.keys, read.values, strict=True) if k and v})
    return found
