"""A pipe between a supervisor and its workers: when nobody holds its one end any more, they stop.

It ends when the supervisor closes it, and when the supervisor dies of whatever; so no worker outlives
it. Other than a signal it can be told twice without harm: a service manager signals workers as well.
"""

import os
import threading
import time
from collections.abc import Callable

__all__ = ["Lifeline", "watch_lifeline"]

_VARIABLE = "EDDY_SUPERVISED_FD"
_PATIENCE_S = 60.0


class Lifeline:
    """The supervisor's end."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self.held = True

    @property
    def descriptor(self) -> int:
        """The end that workers inherit."""
        return self._read

    def environment(self) -> dict[str, str]:
        """What tells a worker of its end."""
        return {_VARIABLE: str(self._read)}

    def let_go(self) -> None:
        """Ask all workers to stop; the second time, do nothing."""
        if self.held:
            self.held = False
            os.close(self._write)
            os.close(self._read)


def watch_lifeline(stop: Callable[[str], None], patience_s: float = _PATIENCE_S) -> None:
    """In a worker: call `stop` when the supervisor lets go, and end the process if it is there `patience_s` later.

    Without a supervisor it does nothing.
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
