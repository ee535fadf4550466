"""The applications on Kafka that are measured, each in processes of its own: eddy's worker, Kafka Streams.

Each prints a line of JSON whenever it owns partitions anew and has their states:
{"ready": seconds since it began, "partitions": how many of the input, "restored": changelog records}.
"""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cluster import PARTITIONS, Cluster, MissingError, Topics
from benchmarks.java_peer import java
from benchmarks.processes import cpu_seconds, peak_bytes, tree
from benchmarks.runs import Figures
from benchmarks.workloads import ROOT

__all__ = [
    "EDDY",
    "KAFKA_STREAMS",
    "KAFKA_STREAMS_TUNED",
    "TWO_WORKERS",
    "Application",
    "System",
    "available",
    "in_time",
    "started",
]

_HEAP = "-Xmx2g"
_WORKER = (sys.executable, "-m", "benchmarks.systems.kafka_worker")
_TUNED = ("commit.interval.ms=10", "producer.linger.ms=0", "poll.ms=5")
_READY_S, _SETTLED_S, _STOP_S = 120.0, 1.0, 60.0

Commands = Callable[[Cluster, Topics, Path], list[list[str]]]


@dataclass(frozen=True, slots=True)
class System:
    """What is measured: its name, and the commands of its processes, given a folder for states."""

    name: str
    commands: Commands


def _workers(processes: int) -> Commands:
    def commands(cluster: Cluster, topics: Topics, folder: Path) -> list[list[str]]:
        program = [*_WORKER, "family", cluster.bootstrap, topics.application]
        return [
            [*program, str(folder / f"state-{member}"), str(member), topics.nodes, topics.counts]
            for member in range(processes)
        ]

    return commands


def _streams(*settings: str) -> Commands:
    def commands(cluster: Cluster, topics: Topics, folder: Path) -> list[list[str]]:
        path, classes = java()
        program = [path, _HEAP, "-cp", classes, "Peer", cluster.bootstrap, topics.application]
        return [[*program, topics.nodes, topics.loop, topics.counts, str(folder / "state-0"), *settings]]

    return commands


def _workers_in_time(program: str, processes: int) -> Commands:
    def commands(cluster: Cluster, topics: Topics, folder: Path) -> list[list[str]]:
        command = [*_WORKER, program, cluster.bootstrap, topics.application]
        return [
            [*command, str(folder / f"state-{member}"), str(member), topics.nodes, topics.loop, topics.counts]
            for member in range(processes)
        ]

    return commands


def _streams_in_time(program: str) -> Commands:
    def commands(cluster: Cluster, topics: Topics, folder: Path) -> list[list[str]]:
        path, classes = java()
        command = [path, _HEAP, "-cp", classes, "InTime", program, cluster.bootstrap, topics.application]
        return [[*command, topics.nodes, topics.loop, topics.counts, str(folder / "state-0")]]

    return commands


def in_time(program: str) -> tuple[System, ...]:
    """eddy and Kafka Streams on a program of `systems/in_time.py`; a join's other stream is the topic `loop`."""
    return (
        System(EDDY.name, _workers_in_time(program, 1)),
        System(TWO_WORKERS.name, _workers_in_time(program, 2)),
        System(KAFKA_STREAMS.name, _streams_in_time(program)),
    )


EDDY = System("eddy", _workers(1))
TWO_WORKERS = System("eddy, two processes", _workers(2))
KAFKA_STREAMS = System("Kafka Streams", _streams())
KAFKA_STREAMS_TUNED = System("Kafka Streams, tuned", _streams(*_TUNED))


def available(*systems: System) -> tuple[list[System], list[str]]:
    """Those of `systems` that can run here, and notes that say why the others cannot."""
    try:
        java()
    except MissingError as error:
        return [system for system in systems if not system.name.startswith("Kafka")], [f"not run: {error}"]
    return list(systems), []


class Application:
    """The processes of a system that runs."""

    def __init__(self, commands: list[list[str]], folder: Path) -> None:
        self._errors = [folder / f"errors-{number}" for number in range(len(commands))]
        self._said: list[list[dict[str, Any]]] = [[] for _ in commands]
        self._heard = time.perf_counter()
        self._processes = []
        for command, errors, said in zip(commands, self._errors, self._said, strict=True):
            with errors.open("wb") as stream:
                process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=stream, text=True)
            self._processes.append(process)
            threading.Thread(target=self._listen, args=(process, said), daemon=True).start()

    def _listen(self, process: "subprocess.Popen[str]", said: list[dict[str, Any]]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._heard = time.perf_counter()
            said.append(json.loads(line))

    def alive(self) -> None:
        """Raises: RuntimeError with a process's last words, where one has ended."""
        for process, errors in zip(self._processes, self._errors, strict=True):
            if process.poll() is not None:
                words = errors.read_text(errors="replace").strip()[-600:]
                raise RuntimeError(f"exit status {process.returncode}: {words}")

    def wait_ready(self) -> dict[str, float]:
        """Wait until each process owns its share of the partitions, and it stays so; return its last figures.

        Raises: RuntimeError where that does not come about.
        """
        deadline, share = time.perf_counter() + _READY_S, PARTITIONS // len(self._processes)
        while not self._settled(share):
            self.alive()
            if time.perf_counter() > deadline:
                raise RuntimeError(f"not ready after {_READY_S:.0f} s; it said {self._said}")
            time.sleep(0.01)
        return self._said[0][-1]

    def _settled(self, share: int) -> bool:
        owned = [said[-1].get("partitions", share) if said else 0 for said in self._said]
        return all(count == share for count in owned) and time.perf_counter() - self._heard > _SETTLED_S

    def figures(self) -> Figures:
        """Processor time and peak memory, up to now."""
        pids = [pid for process in self._processes for pid in tree(process.pid)]
        return {"cpu_seconds": cpu_seconds(pids), "peak_bytes": peak_bytes(pids)}

    def stop(self) -> None:
        """Let the processes leave the group and end."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def started(system: System, cluster: Cluster, topics: Topics, folder: Path) -> Iterator[Application]:
    """Run a system for a while. Raises: MissingError."""
    application = Application(system.commands(cluster, topics, folder), folder)
    try:
        yield application
    finally:
        application.stop()
