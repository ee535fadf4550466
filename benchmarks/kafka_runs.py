"""One run of one application on Kafka: start it, give it a tree, wait for the last count, check all of them.

    filled   the application is up; then all records, sent before in one transaction, become visible at once
    live     the application is up; then another process writes the records as fast as they go

Seconds are from the commit of that transaction, or from the first record sent, to the last count at a
reader of committed records.
"""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.applications import Application, System, started
from benchmarks.cluster import Cluster, Feed, Reader, Topics
from benchmarks.runs import Figures, busy_cores
from benchmarks.systems.process import read_rows
from benchmarks.workloads import ROOT, Workload, read_counts

__all__ = ["Growing", "OnKafka", "await_total", "differing", "fill"]

_IDLE_S = 60.0


@dataclass(slots=True)
class OnKafka:
    """A system on a workload. `in_order`: parents before children, else shuffled; `live`: as above."""

    system: System
    cluster: Cluster
    workload: Workload
    in_order: bool = False
    live: bool = False

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.system.name

    def run(self) -> Figures:
        """Run it once, on topics of its own."""
        others = busy_cores([self.cluster.pid] if self.cluster.pid else [])
        with self.cluster.topics() as topics, tempfile.TemporaryDirectory() as folder:
            reader = Reader(self.cluster.bootstrap, topics.counts)
            try:
                with started(self.system, self.cluster, topics, Path(folder)) as application:
                    figures = self._measure(topics, application, reader)
            except RuntimeError as error:
                return {"wrong": str(error)}
            finally:
                reader.close()
        wrong = differing(reader.counts(), read_counts(self.workload.expected))
        return figures | {"written": reader.records, "wrong": wrong, "others_cores": others()}

    def _measure(self, topics: Topics, application: Application, reader: Reader) -> Figures:
        with (self._live if self.live else self._filled)(topics, application) as begun:
            await_total(reader, _total_of(self.workload), application)
        figures = application.figures() | {"seconds": reader.last_s - begun}
        return figures | {"offsets": self.cluster.sizes(topics)}

    @contextlib.contextmanager
    def _filled(self, topics: Topics, application: Application) -> Iterator[float]:
        yield fill(self.cluster, topics, self.workload, application, in_order=self.in_order)

    @contextlib.contextmanager
    def _live(self, topics: Topics, application: Application) -> Iterator[float]:
        application.wait_ready()
        order = "in-order" if self.in_order else "as-is"
        command = [sys.executable, "-m", "benchmarks.systems.kafka_produce", self.cluster.bootstrap, topics.nodes]
        command += [str(self.workload.records), order]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as producer:
            assert producer.stdout is not None
            yield float(producer.stdout.readline())
            producer.stdout.read()


class Growing:
    """A tree that gets leaves, with its counts: the oracle, which walks the ancestors."""

    def __init__(self, workload: Workload) -> None:
        self.parents: dict[int, int] = dict(read_rows(str(workload.records)))
        self.nodes = workload.nodes
        self._counts = {int(node): int(count) for node, count in read_counts(workload.expected).items()}
        self.total = sum(self._counts.values())

    def leaf(self, parent: int) -> tuple[int, int]:
        """Hang a new leaf under `parent`; return its record."""
        leaf = self.nodes
        self.nodes += 1
        self.parents[leaf] = parent
        above: int | None = parent
        while above is not None:
            self._counts[above] = self._counts.get(above, 0) + 1
            self.total += 1
            above = self.parents.get(above)
        return leaf, parent

    def counts(self) -> dict[str, str]:
        """What an application has to have found."""
        return {str(node): str(count) for node, count in self._counts.items() if count}


def fill(cluster: Cluster, topics: Topics, workload: Workload, application: Application, *, in_order: bool) -> float:
    """Make all records of a tree visible at once to an application that is up; return when that was."""
    rows = read_rows(str(workload.records))
    feed = Feed(cluster.bootstrap, topics.nodes, held_back=True)
    feed.send(sorted(rows) if in_order else rows, int(time.time() * 1000) - len(rows))
    application.wait_ready()
    begun = time.perf_counter()
    feed.release()
    feed.close()
    return begun


def await_total(reader: Reader, total: int, application: Application) -> None:
    """Read until the counts' sum is `total`, or until nothing comes any more."""
    reader.until(total, application.alive, _IDLE_S)


def differing(got: Mapping[str, str], want: Mapping[str, str]) -> str:
    """What is to be said about a table of counts; '' where it is right."""
    wrong = sum(1 for node in want.keys() | got.keys() if want.get(node) != got.get(node))
    return f"{wrong:,} of {len(want):,} counts differ" if wrong else ""


def _total_of(workload: Workload) -> int:
    return sum(map(int, read_counts(workload.expected).values()))
