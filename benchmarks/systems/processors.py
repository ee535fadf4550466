"""A worker that counts records by key, by its own step or by a processor with one store.

    processors WHAT RECORDS KEYS

The log is the embedded one in memory. WHAT is `count`, eddy's own step; `processor`, which forwards each count; or
`quiet`, a processor that forwards nothing.
"""

import sys
from collections.abc import Callable
from typing import Any

import eddy
from benchmarks.systems.process import report, settle
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec


class Counting:
    """Counts the records of each key, and forwards the count."""

    def init(self, context: eddy.ProcessorContext) -> None:
        """Take the store."""
        self.context, self.counts = context, context.store("counts")

    def process(self, record: eddy.Record[str, str]) -> None:
        """Count."""
        count = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, count)
        self.context.forward(record.replace(value=count))


class Quiet(Counting):
    """Counts the records of each key."""

    def process(self, record: eddy.Record[str, str]) -> None:
        """Count."""
        self.counts.put(record.key, (self.counts.get(record.key) or 0) + 1)


def counted(topology: eddy.Topology, words: Any) -> Any:
    """By eddy's own step."""
    return words.group_by_key().count("counts")


def processed(processor: type[Counting]) -> Callable[[eddy.Topology, Any], Any]:
    """By a processor."""

    def build(topology: eddy.Topology, words: Any) -> Any:
        topology.store("counts", eddy.String, eddy.Int64)
        return words.process_values(processor, ["counts"], "counting", eddy.Int64)

    return build


PROGRAMS = {"count": counted, "processor": processed(Counting), "quiet": processed(Quiet)}


def main(what: str, records: int, keys: int) -> None:
    """Write the records, then time the worker until it is idle; check the counts."""
    log = LocalLog(None)
    log.create_topics([TopicSpec("words", 1), TopicSpec("counted", 1)])
    producer = log.producer(None)
    producer.begin()
    producer.send("words", 0, [b"k%d" % (at % keys) for at in range(records)], [b"x"] * records, [0] * records)
    producer.commit({}, None)
    topology = eddy.Topology("counting")
    PROGRAMS[what](topology, topology.stream("words", eddy.String, eddy.String)).to("counted", value=eddy.Int64)
    worker = eddy.Worker(topology, log)
    while not worker.positions.entry.positions:
        worker.step(0.1)
    start = settle()
    worker.run_until_idle()
    report(start, epochs=worker.statistics.epochs)
    counts = worker.store("counts")
    right = len(counts) == keys and counts.get("k0") == len(range(0, records, keys))
    worker.close()
    log.close()
    if not right:
        raise SystemExit("the counts differ")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
