"""SIGINT and SIGTERM: the first one asks for a stop, the second one ends the process at once."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

from eddy.cli.exits import INTERRUPTED

__all__ = ["StopRequest", "stop_on_signals"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h"


class StopRequest:
    """True once a stop was asked for. `at_once` is called before a second signal ends the process."""

    def __init__(self, at_once: Callable[[], None] = lambda: None) -> None:
        self._by = ""
        self._signalled = False
        self._at_once = at_once

    def __bool__(self) -> bool:
        return bool(self._by)

    def __str__(self) -> str:
        return self._by or "nothing"

    def ask(self, by: str) -> None:
        """Ask for a stop, from any thread; asking again changes nothing."""
        self._by = self._by or by

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Note the signal. What is open at the second one is as after a crash, which costs a restore at most."""
        if self._signalled:
            _tell(_SHOW_CURSOR)
            self._at_once()
            os._exit(INTERRUPTED)
        self._signalled = True
        self.ask(signal.Signals(signum).name)
        _tell(b"\nfinishing the epoch; once more to stop at once\n")


def _tell(text: bytes) -> None:
    """Write to the terminal, if there is one. A handler may have interrupted a print: only a plain write is safe."""
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), text)


@contextlib.contextmanager
def stop_on_signals(at_once: Callable[[], None] = lambda: None) -> Iterator[StopRequest]:
    """While entered, signals are noted in what is yielded."""
    request = StopRequest(at_once)
    before = {number: signal.signal(number, request.handle) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
