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
            os._exit(_INTERRUPTED)
        self._signal = signal.Signals(signum)
        if sys.stderr.isatty():
            # A handler may have interrupted a print: only a plain write is safe here.
            os.write(sys.stderr.fileno(), b"\nfinishing the epoch; once more to stop at once\n")


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
