"""One of two workers on Kafka is killed by SIGKILL and started again at once: how long until all outputs are right.

The workers are whole processes, `python -m eddy run`, with their states in RocksDB, under the names that they had.
"""

import contextlib
import datetime
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.cluster import Cluster, Feed, MissingError, Reader, Topics, cluster
from benchmarks.kafka_runs import Growing, differing
from benchmarks.report import Section, Target, number
from benchmarks.runs import Figures, busy_cores, median
from benchmarks.systems.process import read_rows
from benchmarks.workloads import ROOT, Workload, tree

__all__ = ["run"]

_PATIENCE_S = 60.0
_BURST = 500
_PROGRAM = """
from benchmarks.systems.family import family
topology = family({0!r}, {1!r}, {2!r})
"""
_KILLED = {"at rest": 1, "at work": _BURST}
"""How many leaves come: one after the kill, or many, and the kill after the first of their counts."""


def run(quick: bool) -> Section:
    """From SIGKILL to the last right count at a reader of committed records, round by round."""
    workload = tree("random", 2_000 if quick else 20_000)
    rounds = 3 if quick else 15
    section = Section(
        f"kafka-restart: SIGKILL of one of two workers, a tree of {workload.nodes:,}, 4 partitions, states there",
        ["killed", "kills", "median s", "min s", "most s", "of it until it runs", "result"],
    )
    try:
        with cluster() as broker:
            others = busy_cores([broker.pid] if broker.pid else [])
            runs = _run(broker, workload, rounds)
            section.others_cores = others()
    except MissingError as error:
        section.notes = [f"not run: {error}"]
        return section
    section.notes = [
        "seconds: from SIGKILL, and the start of its successor right after it, to the last right count.",
        "at rest: a leaf is sent with the kill. at work: 500 are, and the kill comes with the first of their counts.",
        "until it runs: imports, the topology, checks of topics, the predecessor's transaction, the store.",
    ]
    section.runs[workload.name] = runs
    section.rows = [_row(name, own) for name, own in runs.items()]
    section.wrong = [f"eddy: {figures['wrong']}" for own in runs.values() for figures in own if figures["wrong"]]
    measured = {name: math.nan if section.wrong else median(own, "seconds") for name, own in runs.items()}
    section.targets = [Target("kafka-restart, median", 2, "s", measured)]
    return section


def _run(broker: Cluster, workload: Workload, rounds: int) -> dict[str, list[Figures]]:
    runs: dict[str, list[Figures]] = {name: [] for name in _KILLED}
    with broker.topics() as topics, tempfile.TemporaryDirectory() as name, _workers(broker, topics, Path(name)) as pair:
        reader, oracle = Reader(broker.bootstrap, topics.counts), Growing(workload)
        feed, choice = Feed(broker.bootstrap, topics.nodes, linger_ms=0), random.Random(7)
        try:
            feed.send(read_rows(str(workload.records)))
            feed.flush()
            _until_right(reader, oracle)
            for number_ in range(rounds * len(_KILLED)):
                killed = list(_KILLED)[number_ % len(_KILLED)]
                leaves = [oracle.leaf(choice.randrange(oracle.nodes)) for _ in range(_KILLED[killed])]
                runs[killed].append(_kill(pair[number_ % 2], feed, leaves, reader, oracle))
                if runs[killed][-1]["wrong"]:
                    break
        finally:
            feed.close()
            reader.close()
    return runs


def _kill(worker: "_Worker", feed: Feed, leaves: list[tuple[int, int]], reader: Reader, oracle: Growing) -> Figures:
    before = reader.records
    feed.send(leaves)
    feed.flush()
    deadline = time.perf_counter() + _PATIENCE_S
    while len(leaves) > 1 and reader.records == before and time.perf_counter() < deadline:
        reader.take(0.001)
    begun, at = time.perf_counter(), time.time()
    worker.kill()
    worker.start()
    wrong = _until_right(reader, oracle)
    return {"seconds": reader.last_s - begun, "runs": worker.ran_at() - at, "wrong": wrong}


def _until_right(reader: Reader, oracle: Growing) -> str:
    """Read until all counts are right; what is wrong after a minute."""
    deadline = time.perf_counter() + _PATIENCE_S
    while reader.total != oracle.total and time.perf_counter() < deadline:
        reader.take(0.01)
    return differing(reader.counts(), oracle.counts())


class _Worker:
    """A worker as a user starts it, which can be killed and started again."""

    def __init__(self, command: list[str], errors: Path) -> None:
        self._command, self._errors = command, errors
        # As with what was installed, the bytecode of modules is there; where it is, this process may not use it.
        kept = {"PYTHONPYCACHEPREFIX": str(errors.parent / "bytecode")}
        self._environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | kept
        self.start()

    def start(self) -> None:
        """Start it; what it says goes to a file of its own."""
        with self._errors.open("wb") as stream:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=stream, env=self._environ
            )

    def ran_at(self) -> float:
        """When it said that it runs, in seconds since 1970. Raises: RuntimeError with its words where it never did."""
        for line in self._errors.read_text().splitlines():
            said = json.loads(line)
            if " runs on " in said["message"]:
                return datetime.datetime.fromisoformat(said["time"]).timestamp()
        raise RuntimeError(f"a worker does not run: {self._errors.read_text()[-600:]}")

    def kill(self) -> None:
        """As a crash does."""
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def _workers(broker: Cluster, topics: Topics, folder: Path) -> Iterator[list[_Worker]]:
    program = folder / "program.py"
    program.write_text(_PROGRAM.format(topics.application, topics.nodes, topics.counts))
    command = [sys.executable, "-m", "eddy", "run", str(program), "--bootstrap", broker.bootstrap]
    command += ["--state", str(folder / "state"), "--log-format", "json"]
    workers = [_Worker([*command, "--member", member], folder / f"errors-{member}") for member in "01"]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()


def _row(name: str, own: list[Figures]) -> list[str]:
    seconds = [figures["seconds"] for figures in own]
    return [
        name,
        number(len(own)),
        number(median(own, "seconds")),
        number(min(seconds, default=math.nan)),
        number(max(seconds, default=math.nan)),
        number(median(own, "runs")),
        "; ".join(dict.fromkeys(figures["wrong"] for figures in own if figures["wrong"])) or "ok",
    ]
