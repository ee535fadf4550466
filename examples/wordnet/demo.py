"""The main job, end to end: 82,115 concepts in shuffled order, counted, then moved and removed live.

    python examples/wordnet/demo.py

It runs on the embedded log in a temporary folder, with RocksDB for state, and checks every count
against one made from scratch by plain Python. `demo_kafka.py` does the same on Kafka.
"""

import tempfile
import time
from pathlib import Path

from concepts import Records, load, shuffled
from story import check, console, move, remove, show_top
from topology import Concept, Size, topology

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec

CONCEPT, SIZE = eddy.Struct(Concept), eddy.Struct(Size)


class EmbeddedJob:
    """The topology on an embedded log, stepped by this process, and what its output says by now."""

    def __init__(self, folder: Path) -> None:
        self.log = LocalLog(folder / "log")
        self.log.create_topics([TopicSpec("concepts", 1, {"cleanup.policy": "compact"}), TopicSpec("sizes", 1)])
        self.worker = eddy.Worker(topology, self.log, eddy.Config(state_dir=folder / "state"))
        self.sizes: dict[str, Size] = {}
        self._read = 0

    def write(self, records: Records) -> None:
        """Produce records to the topic of concepts, in one transaction."""
        producer = self.log.producer(None)
        producer.begin()
        values = [None if concept is None else CONCEPT.encode(concept) for _, concept in records]
        now = [time.time_ns() // 1_000_000] * len(records)
        producer.send("concepts", 0, [node.encode() for node, _ in records], values, now)
        producer.commit({}, None)
        producer.close()

    def run(self) -> float:
        """Run to quiescence and read what came out; return the seconds that the run took."""
        start = time.perf_counter()
        self.worker.run_until_idle()
        seconds = time.perf_counter() - start
        sizes = TopicPartition("sizes", 0)
        end = self.log.end_offsets([sizes])[sizes]
        while self._read < end:
            records = self.log.read(sizes, self._read, end, 50_000)
            for key, value in zip(records.keys, records.values, strict=True):
                if value is None:
                    self.sizes.pop(key.decode(), None)
                else:
                    self.sizes[key.decode()] = SIZE.decode(value)
            self._read = records.next_offset
        return seconds

    def close(self) -> None:
        """Stop."""
        self.worker.close()
        self.log.close()


def main() -> None:
    """Load, move, remove; check each time."""
    concepts = load()
    with tempfile.TemporaryDirectory(prefix="eddy-demo-") as folder:
        job = EmbeddedJob(Path(folder))
        records = shuffled(concepts)
        job.write(records)
        console.print(f"{len(records):,} concepts in shuffled order, children before parents …")
        seconds = job.run()
        rate = len(records) / seconds
        console.print(
            f"counted in {seconds:.2f} s: {rate:,.0f} records/s, exactly once, state and changelogs on disk\n"
        )
        show_top(job.sizes.values())
        check(job, concepts)
        move(job, concepts)
        remove(job, concepts)
        job.close()


if __name__ == "__main__":
    main()
