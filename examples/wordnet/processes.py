"""Workers in processes of their own, as `eddy run` starts them, and an end to all that was started."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from eddy.connectors.broker import free_port

__all__ = ["WorkerProcess", "everything_ends"]

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE_S = 30.0
_FIGURE = re.compile(r"^(eddy_\w+) (\S+)$", re.MULTILINE)


@contextlib.contextmanager
def everything_ends() -> Iterator[contextlib.ExitStack]:
    """A stack whose callbacks run in the end, also after Ctrl-C, and all of them, also after one more."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in _ENDS:
        signal.signal(number, end)
    with contextlib.ExitStack() as stack:
        try:
            yield stack
        finally:
            for number in _ENDS:
                signal.signal(number, signal.SIG_IGN)


class WorkerProcess:
    """`eddy run FILE --member NAME` on Kafka; its states and what it says are in `folder`."""

    def __init__(self, program: Path, member: str, bootstrap: str, folder: Path) -> None:
        self.member, self.said = member, folder / f"worker-{member}.log"
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        options = ["--bootstrap", bootstrap, "--state", str(folder / "state"), "--http", str(self._port)]
        run = [sys.executable, "-P", "-m", "eddy", "run", str(program)]
        self._command = [*run, "--member", member, *options]

    def start(self) -> None:
        """Start it. Ctrl-C on the terminal does not reach it: whoever started it ends it."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("EDDY_")}
        with self.said.open("ab") as said:
            self._process = subprocess.Popen(
                self._command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said, process_group=0
            )

    def check(self) -> None:
        """End all where it has ended by itself."""
        if self._process is not None and (status := self._process.poll()) is not None:
            last = self.said.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
            raise SystemExit("\n".join([f"worker {self.member} has ended with status {status}; it said last:", *last]))

    def figures(self) -> dict[str, float]:
        """What it counts, by the names of its metrics; nothing while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5) as answer:
                return {name: float(value) for name, value in _FIGURE.findall(answer.read().decode())}
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return {}

    def stop(self) -> int:
        """Let it finish its epoch and end. Returns its exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(_PATIENCE_S)

    def kill(self) -> None:
        """End it as a crash does, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
