"""The versions of global tables: the offsets up to which they were read, for ranges of each source's records.

    version     a source partition, its first position, and the offsets of the global tables
    number      counts the versions of a partition; the topic of cuts keeps the last `KEPT` of each partition

An epoch reads the tables at its beginning. So the records of a partition from a version's position on, up to the
position of the next one, were processed with the rows of the tables before the version's offsets.
"""

from collections.abc import Iterable, Mapping
from zlib import crc32

import msgspec

from eddy.connectors.log import Log, Producer, TopicPartition

__all__ = ["FIRST", "KEPT", "TableVersion", "read_versions", "summed", "write_versions"]

KEPT = 1_000
"""The versions of a partition that are kept."""
FIRST = 1
"""The number of a partition's first version."""
_KEY = b"tables "


class TableVersion(msgspec.Struct, frozen=True, array_like=True):
    """The offsets of global tables, by topic, for the records of a partition from `position` on."""

    topic: str
    partition: int
    position: int
    number: int
    tables: dict[str, list[int]]


def summed(tables: Mapping[str, list[int]]) -> tuple[dict[str, int], int]:
    """Return the sum of the offsets of each global table, by topic, and a hash of all offsets: the form in a note."""
    return {topic: sum(offsets) for topic, offsets in tables.items()}, crc32(
        msgspec.json.encode(tables, order="sorted")
    )


def write_versions(producer: Producer, topic: str, versions: Iterable[TableVersion], timestamp: int) -> None:
    """Record versions in the open transaction, in the topic of cuts."""
    for version in versions:
        key = _KEY + f"{version.topic} {version.partition} {version.number % KEPT}".encode()
        producer.send(topic, 0, [key], [msgspec.json.encode(version)], [timestamp])


def read_versions(log: Log, topic: str) -> dict[TopicPartition, list[TableVersion]]:
    """Read the kept versions of each partition, in the order of their numbers. Cost: a pass over the topic of cuts."""
    found: dict[bytes, TableVersion] = {}
    partition = TopicPartition(topic, 0)
    position, end = log.begin_offsets([partition])[partition], log.end_offsets([partition])[partition]
    while position < end:
        records = log.read(partition, position, end, 10_000)
        if records.next_offset == position:  # an open transaction: its versions belong to no cut yet
            break
        position = records.next_offset
        for key, value in zip(records.keys, records.values, strict=True):
            if key is not None and value is not None and key.startswith(_KEY):
                found[key] = msgspec.json.decode(value, type=TableVersion)
    versions: dict[TopicPartition, list[TableVersion]] = {}
    for version in sorted(found.values(), key=lambda version: version.number):
        versions.setdefault(TopicPartition(version.topic, version.partition), []).append(version)
    return versions
