"""The durable floor: the same log, the same records in, out and into two changelogs, in the same transactions.

No eddy above the log: counts by the dict walk of `plain`, no state on disk, no recovery, no errors handled.
"""

import sys
from pathlib import Path
from zlib import crc32

import eddy
from benchmarks.embedded import COUNTS, NODES
from benchmarks.systems.process import report, settle
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Position, Producer, Records, TopicPartition, TopicSpec

_EPOCH_RECORDS = 50_000
_NODES_LOG, _COUNTS_LOG = "plain-nodes-changelog", "plain-counts-changelog"


class Counts:
    """Parents and counts by key; `changed` are the keys whose count the running epoch has changed."""

    def __init__(self) -> None:
        self.parents: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        self.changed: set[str] = set()

    def grow(self, rows: list[tuple[str, str]]) -> None:
        """Take new nodes in, in any order."""
        parents, counts, changed = self.parents, self.counts, self.changed
        for node, parent in rows:
            parents[node] = parent
            weight = counts.get(node, 0) + 1
            above: str | None = parent
            while above is not None:
                counts[above] = counts.get(above, 0) + weight
                changed.add(above)
                above = parents.get(above)


def scatter(producer: Producer, topic: str, keys: list[bytes], values: list[bytes], partitions: int) -> None:
    """Send each record to the partition of its key."""
    homes: dict[int, tuple[list[bytes], list[bytes]]] = {0: (keys, values)}
    if partitions > 1:
        homes = {}
        for key, value in zip(keys, values, strict=True):
            own = homes.setdefault(crc32(key) % partitions, ([], []))
            own[0].append(key)
            own[1].append(value)
    for home, (own_keys, own_values) in homes.items():
        producer.send(topic, home, own_keys, own_values, [0] * len(own_keys))


def epoch(state: Counts, records: list[Records], producer: Producer, partitions: int) -> None:
    """Count one poll's records, and send what changed."""
    keys: list[bytes] = [key for part in records for key in part.keys if key is not None]
    values: list[bytes] = [value for part in records for value in part.values if value is not None]
    state.grow(list(zip(map(bytes.decode, keys), map(bytes.decode, values), strict=True)))
    changed = sorted(state.changed)
    state.changed.clear()
    nodes = list(map(str.encode, changed))
    counts = [eddy.Int64.encode(state.counts[node]) for node in changed]
    scatter(producer, COUNTS, nodes, counts, partitions)
    scatter(producer, _COUNTS_LOG, nodes, counts, partitions)
    scatter(producer, _NODES_LOG, keys, values, partitions)


def main(folder: str) -> None:
    """From the first poll until nothing is left."""
    log, state = LocalLog(Path(folder)), Counts()
    partitions = log.topics([NODES])[NODES].partitions
    log.create_topics(TopicSpec(name, partitions, {"cleanup.policy": "compact"}) for name in (_NODES_LOG, _COUNTS_LOG))
    consumer, producer = log.consumer("plain", [NODES], "0"), log.producer("plain-0")
    start, taken, epochs = settle(), 0, 0
    while True:
        polled = consumer.poll(_EPOCH_RECORDS, 0.0)
        if not any(map(len, polled.records)):
            if polled.assigned:
                continue
            break
        producer.begin()
        epoch(state, polled.records, producer, partitions)
        positions = {TopicPartition(r.topic, r.partition): Position(r.next_offset) for r in polled.records}
        producer.flush()
        producer.commit(positions, consumer.group_metadata())
        taken, epochs = taken + sum(map(len, polled.records)), epochs + 1
    report(start, records=taken, epochs=epochs)
    producer.close()
    consumer.close()
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
