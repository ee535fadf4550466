"""The main job, end to end: 82,115 concepts in shuffled order, counted, then moved and removed live.

    python examples/wordnet/demo.py

It runs on the embedded log in a temporary folder, with RocksDB for state, and checks every count
against one made from scratch by plain Python. In the end Spark, where there is one, makes everything
anew from the topics and compares. `demo_kafka.py` does the same on Kafka, without Spark.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from concepts import Records, load, shuffled
from story import check, console, move, remove, show_top
from topology import Concept, Size, topology

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec

PROGRAM = Path(__file__).with_name("topology.py")
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
        self.log.write("concepts", records, value=CONCEPT)

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
                assert key is not None
                if value is None:
                    self.sizes.pop(key.decode(), None)
                else:
                    self.sizes[key.decode()] = SIZE.decode(value)
            self._read = records.next_offset
        return seconds

    def close(self) -> None:
        """Note where inputs and outputs are, for `eddy verify`, and stop."""
        self.worker.step()
        self.worker.close()
        self.log.close()


def what_spark_needs() -> str:
    """What is to be installed before `eddy verify` can run; empty where all is there."""
    if not all(map(importlib.util.find_spec, ("pyspark", "pyarrow", "pandas"))):
        return "pip install -e '.[spark]'"
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    return "" if shutil.which(java) else "Java 17 or later, on Debian: apt-get install openjdk-17-jre-headless"


def verify(log: Path) -> None:
    """Let Spark compute the output and all states anew, and compare."""
    if needed := what_spark_needs():
        console.print(f"Not verified with Spark. What it needs: {needed}", markup=False)
        return
    began = time.perf_counter()
    command = [sys.executable, "-P", "-m", "eddy", "verify", str(PROGRAM), "--data", str(log)]
    with console.status("Spark computes everything anew …"):
        ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(ended.stdout + ended.stderr)
    console.print(f"[green]✓[/] verified with Spark, in {time.perf_counter() - began:.0f} s:")
    console.print(ended.stdout.rstrip(), markup=False)


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
        verify(Path(folder) / "log")


if __name__ == "__main__":
    main()
