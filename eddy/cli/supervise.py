"""`eddy run --processes N`: N workers in processes of their own, kept running.

    ends with 0 or 3               done if it ran until idle; otherwise it is started again
    ends with 75, 130, a signal    started again, after a back-off since its last start
    ends otherwise                 the others stop too, and this is the status of all
    has not stopped in time        killed; the status of all is 75 then

Workers are new processes, never forked: clients of Kafka have threads. Each has its own process group, so that Ctrl-C
reaches only the supervisor, which closes the lifeline; a second signal kills them.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO

from eddy.cli.exits import HELD, is_temporary
from eddy.cli.lifeline import Lifeline
from eddy.cli.signals import StopRequest

__all__ = ["Supervisor"]

_log = logging.getLogger("eddy.cli")
_TICK_S = 0.05
_STEADY_S = 60.0
_LAST_WORDS_S = 2.0


class _Child:
    """A worker of the supervisor: its current process, if it runs, and the time of its next start."""

    def __init__(self, number: int, command: Sequence[str], backoff_s: float) -> None:
        self.number, self.command, self.backoff_s = number, command, backoff_s
        self.process: subprocess.Popen[str] | None = None
        self.started = self.due = float("-inf")
        self.done = False


class Supervisor:
    """Runs one process for each command.

    Args:
        commands: the command of each worker.
        prefixed: whether each output line of a worker begins with its number.
        until_idle: whether a worker that ends with 0 or 3 has done its work.
        patience_s: seconds after a request to stop after which workers are killed.
        backoff_s: the shortest and the longest time between two starts of a worker; after a minute of work it is the
        shortest again.
    """

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        *,
        prefixed: bool = True,
        until_idle: bool = False,
        patience_s: float = 30.0,
        backoff_s: tuple[float, float] = (1.0, 30.0),
    ) -> None:
        self._first_s, self._last_s = backoff_s
        self._children = [_Child(number, command, self._first_s) for number, command in enumerate(commands)]
        self._prefixed, self._until_idle, self._patience_s = prefixed, until_idle, patience_s
        self._deadline = float("inf")
        self._lifeline = Lifeline()
        self._speaking = threading.Lock()
        self._relays: list[threading.Thread] = []
        self._status = 0

    def run(self, stop: StopRequest) -> int:
        """Keep the workers running until all are done, one fails for good, or a stop is requested.

        Returns the exit status of the command. No worker runs any more when it returns.
        """
        try:
            while not all(child.done for child in self._children):
                if stop:
                    self._stop_all()
                for child in self._children:
                    self._look_after(child)
                time.sleep(_TICK_S)
        finally:
            self._lifeline.let_go()
            for relay in self._relays:
                relay.join(_LAST_WORDS_S)
        return self._status

    def kill(self) -> None:
        """End all workers at once."""
        for child in self._children:
            if child.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    child.process.send_signal(signal.SIGKILL)

    def _stop_all(self) -> None:
        """Ask all workers to stop; their deadline begins with the first request."""
        if self._lifeline.held:
            self._deadline = time.monotonic() + self._patience_s
            self._lifeline.let_go()

    def _look_after(self, child: _Child) -> None:
        if child.done:
            return
        if child.process is None:
            if not self._lifeline.held:
                child.done = True
            elif time.monotonic() >= child.due:
                self._start(child)
        elif (status := child.process.poll()) is not None:
            child.process = None
            self._ended(child, status)
        elif time.monotonic() >= self._deadline:
            _log.error("worker %d has not stopped within %g s: killed", child.number, self._patience_s)
            child.process.kill()
            child.process.wait()

    def _start(self, child: _Child) -> None:
        child.started = time.monotonic()
        child.process = process = subprocess.Popen(
            child.command,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[self._lifeline.descriptor],
            env=os.environ | self._lifeline.environment(),
            process_group=0,
            text=True,
            errors="replace",
        )
        _log.info("worker %d started, process %d", child.number, process.pid)
        assert process.stderr is not None
        prefix = f"[{child.number}] " if self._prefixed else ""
        relay = threading.Thread(target=self._relay, args=(process.stderr, prefix), daemon=True)
        relay.start()
        self._relays = [other for other in self._relays if other.is_alive()] + [relay]

    def _relay(self, lines: IO[str], prefix: str) -> None:
        """Print the output of a worker, whole lines at a time."""
        for line in lines:
            with self._speaking:
                sys.stderr.write(prefix + line.rstrip("\n") + "\n")
                sys.stderr.flush()
        lines.close()

    def _ended(self, child: _Child, status: int) -> None:
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        if not self._lifeline.held or (status in (0, HELD) and self._until_idle):
            child.done = True
            self._status = self._status or (os.EX_TEMPFAIL if status < 0 else status)
        elif status == 0 or is_temporary(status):
            now = time.monotonic()
            if now - child.started >= _STEADY_S:
                child.backoff_s = self._first_s
            child.due = child.started + child.backoff_s
            child.backoff_s = min(2 * child.backoff_s, self._last_s)
            _log.warning("worker %d ended %s; again in %.0f s", child.number, how, max(0.0, child.due - now))
        else:
            _log.error("worker %d ended %s; the others stop too", child.number, how)
            child.done = True
            self._status = status
            self._stop_all()
