"""The peer of a table server: interactive queries of Kafka Streams, in a process of its own."""

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.java_peer import java
from benchmarks.processes import cpu_seconds
from benchmarks.runs import Figures
from benchmarks.workloads import ROOT

__all__ = ["InteractiveQueries"]

_PATIENCE_S = 600.0  # for one answer
_HEAP, _NO_DELAY = "-Xmx2g", "-Dsun.net.httpserver.nodelay=true"
"""Without the second one an answer over HTTP waits 40 ms for an acknowledgement."""


class InteractiveQueries:
    """A table of a topic, and how many rows each value has; its answers come over a pipe, and rows over HTTP.

    It commits every `commit_ms`. Raises: MissingError; RuntimeError where it has ended.
    """

    def __init__(self, bootstrap: str, application: str, topic: str, state: Path, commit_ms: int = 10) -> None:
        path, classes = java()
        command = [path, _HEAP, _NO_DELAY, "-cp", classes, "Queries"]
        command += [bootstrap, application, topic, str(state), str(commit_ms)]
        self._errors = state.with_suffix(".txt")
        with self._errors.open("wb") as errors:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            self._process = subprocess.Popen(command, cwd=ROOT, text=True, **pipes)
        told = self._answer()
        self.ready_s, self.port = float(told["ready"]), int(told["port"])

    @property
    def cpu_s(self) -> float:
        """Processor time up to now."""
        return cpu_seconds([self._process.pid])

    def ask(self, command: str) -> dict[str, Any]:
        """Send a command, and wait for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._answer()

    def reads(self, number: int, rows: int) -> Figures:
        """Read so many keys, of a table of so many rows, after a tenth of them to warm up."""
        self.ask(f"reads {number // 10} {rows}")
        return self.ask(f"reads {number} {rows}")

    def readable_s(self, value: str, count: int, since: float) -> float:
        """Wait until so many rows have a value. Returns the seconds since a moment of `time.perf_counter`."""
        self.ask(f"await {value} {count}")
        return time.perf_counter() - since

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        deadline = threading.Timer(_PATIENCE_S, self._process.kill)
        deadline.start()
        try:
            line = self._process.stdout.readline()
        finally:
            deadline.cancel()
        if not line:
            words = self._errors.read_text(errors="replace").strip()[-600:]
            raise RuntimeError(f"exit status {self._process.wait()}: {words}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
