"""A pipe between a supervisor and its workers: the workers stop when its write end is closed.

The supervisor closes its end, or the system does when the supervisor dies for any reason. So no worker outlives the
supervisor. Unlike a signal, the end of the pipe counts once, even if a service manager sends signals to workers as
well.
"""

import os
import threading
import time
from collections.abc import Callable

__all__ = ["PATIENCE_S", "Lifeline", "watch_lifeline"]

_VARIABLE = "EDDY_SUPERVISED_FD"
PATIENCE_S = 35.0
"""Seconds that a worker has to stop once its supervisor has asked for it."""


class Lifeline:
    """The supervisor's end of the pipe."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self.held = True

    @property
    def descriptor(self) -> int:
        """The read end, which workers inherit."""
        return self._read

    def environment(self) -> dict[str, str]:
        """Return the environment variable that names the read end for a worker."""
        return {_VARIABLE: str(self._read)}

    def let_go(self) -> None:
        """Ask all workers to stop; the second call does nothing."""
        if self.held:
            self.held = False
            os.close(self._write)
            os.close(self._read)


def watch_lifeline(stop: Callable[[str], None], patience_s: float = PATIENCE_S) -> None:
    """In a worker, call `stop` when the supervisor closes the pipe, and end the process `patience_s` seconds later.

    It does nothing in a process without a supervisor.
    """
    number = os.environ.pop(_VARIABLE, None)
    if number is not None:
        os.set_inheritable(int(number), False)
        arguments = (int(number), stop, patience_s)
        threading.Thread(target=_watch, args=arguments, name="eddy-lifeline", daemon=True).start()


def _watch(descriptor: int, stop: Callable[[str], None], patience_s: float) -> None:
    os.read(descriptor, 1)
    stop("the supervisor")
    time.sleep(patience_s)
    os._exit(os.EX_TEMPFAIL)
