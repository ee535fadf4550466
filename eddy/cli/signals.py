"""SIGINT and SIGTERM: the first one asks a worker to stop, the second one ends the process at once."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

__all__ = ["StopRequest", "stop_on_signals"]

_INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h"


class StopRequest:
    """True once a signal has come."""

    def __init__(self) -> None:
        self._signal: signal.Signals | None = None

    def __bool__(self) -> bool:
        return self._signal is not None

    def __str__(self) -> str:
        return self._signal.name if self._signal else "no signal"

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Note the signal. What is open at the second one is as after a crash, which costs a restore at most."""
        if self._signal is not None:
            _tell(_SHOW_CURSOR)
            os._exit(_INTERRUPTED)
        self._signal = signal.Signals(signum)
        _tell(b"\nfinishing the epoch; once more to stop at once\n")


def _tell(text: bytes) -> None:
    """Write to the terminal, if there is one. A handler may have interrupted a print: only a plain write is safe."""
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), text)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """While entered, signals are noted in what is yielded."""
    request = StopRequest()
    before = {number: signal.signal(number, request.handle) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
