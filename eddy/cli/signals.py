"""SIGINT and SIGTERM, for a worker and for a supervisor of workers.

    the first             requests a stop: an epoch is finished, all other work is abandoned
    the second            ends the process at once, with status 128 + its number
    a stop that lasts     longer than its deadline ends the process, with status 75

A thread receives signals through the file descriptor to which the interpreter's own handler writes them, so that they
also arrive while the main thread is in a C function.

    interrupts    the main thread runs code of the user's: it raises `Stopped` wherever it is. The thread sends it
                  SIGURG five times a second, which interrupts waiting calls.
    abandons      the main thread works with clients and stores, and looks at the request between its calls

If the main thread has not left such a block within a second, the process is ended with status 0, because such work may
be killed. Nothing is raised in `abandons`, because a client in C calls back into Python, for its errors, log lines and
objects. An exception there is lost, or the client's call returns a result and an exception (`SystemError`).
"""

import contextlib
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["StopRequest", "Stopped", "signal_status", "stop_on_signals"]

_log = logging.getLogger("eddy.cli")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_REMINDER = signal.SIGURG  # the system ignores this signal by default
_REMIND_S = 0.2
_DEAF_S = 1.0
_SAY_S = 0.5
_SHOW_CURSOR = b"\x1b[?25h"


class Stopped(BaseException):
    """A stop was requested, and the main thread may end with its work unfinished."""


def signal_status(number: int) -> int:
    """Return the exit status of a process ended by a signal, as in shells."""
    return 128 + number


class StopRequest:
    """A request to stop; true once a stop was requested.

    `at_once` is called before a second signal, or the deadline, ends the process; the deadline is `patience_s` after
    the request.
    """

    def __init__(self, at_once: Callable[[], None] = lambda: None, patience_s: float = float("inf")) -> None:
        self._by = ""
        self._signalled = False
        self._at_once, self._patience_s = at_once, patience_s
        self._asked = self._deaf_since = float("inf")
        self._may_leave: Callable[[], bool] = lambda: False
        self._may_raise = False
        self._wake: int | None = None

    def __bool__(self) -> bool:
        return bool(self._by)

    def __str__(self) -> str:
        return self._by or "nothing"

    def ask(self, by: str) -> None:
        """Request a stop; a second call does nothing. It may be called by any thread."""
        if not self._by:
            self._asked, self._by = time.monotonic(), by
            if self._wake is not None:
                os.write(self._wake, b"\0")

    @contextlib.contextmanager
    def interrupts(self) -> Iterator[None]:
        """Within the block, a request to stop raises `Stopped` in the main thread. The block may not call clients."""
        with self.abandons():
            self._may_raise = True
            try:
                yield
            finally:
                self._may_raise = False

    @contextlib.contextmanager
    def abandons(self, when: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Within the block, a request to stop ends the process after a second in which `when()` is true."""
        before, self._may_leave = self._may_leave, when
        try:
            yield
        finally:
            self._may_leave = before

    def check(self) -> None:
        """Raise `Stopped` if a stop was requested."""
        if self._by:
            raise Stopped

    def interrupt(self, signum: int, frame: FrameType | None) -> None:
        """Handle a signal in the main thread: raise `Stopped` if a stop was requested inside `interrupts`."""
        if signum in _SIGNALS:
            self.ask(signal.Signals(signum).name)
        if self._may_raise:
            self.check()

    def listen(self, descriptor: int) -> None:
        """Receive signal numbers from `descriptor` until its other end is closed."""
        reminded = 0.0
        while True:
            ready, _, _ = select.select([descriptor], [], [], _REMIND_S if self else None)
            if ready:
                heard = os.read(descriptor, 64)
                if not heard:
                    os.close(descriptor)
                    return
                for number in heard:
                    if number in _SIGNALS:
                        self._hear(signal.Signals(number))
            if self and time.monotonic() - reminded >= _REMIND_S:
                reminded = time.monotonic()
                self._remind()

    def _hear(self, number: signal.Signals) -> None:
        """Record a signal. At the second signal the process ends as in a crash, which costs at most a restore."""
        if self._signalled:
            self._end(signal_status(number))
        self._signalled = True
        self.ask(number.name)
        _tell(b"\nfinishing the epoch; once more to stop at once\n")

    def _remind(self) -> None:
        now = time.monotonic()
        if now - self._asked >= self._patience_s:
            _log_in_thread("not stopped within %g s after %s; killed", self._patience_s, self)
            self._end(os.EX_TEMPFAIL)
        if not self._may_leave():
            self._deaf_since = float("inf")
            return
        self._deaf_since = min(self._deaf_since, now)
        if now - self._deaf_since >= _DEAF_S:
            _log_in_thread("stopped by %s, inside a call that cannot be interrupted", self)
            self._end(os.EX_OK)
        if self._may_raise:
            signal.pthread_kill(threading.main_thread().ident or 0, _REMINDER)

    def _end(self, status: int) -> None:
        _tell(_SHOW_CURSOR)
        self._at_once()
        os._exit(status)

    def wakes(self, descriptor: int | None) -> None:
        """Set the descriptor to which `ask` writes a byte, so that `listen` wakes up; None for none."""
        self._wake = descriptor


def _tell(text: bytes) -> None:
    """Write to the terminal, if there is one."""
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), text)


def _log_in_thread(text: str, *values: object) -> None:
    """Log a text in a separate thread, since the main thread may hold the lock of a logger."""
    saying = threading.Thread(target=_log.warning, args=(text, *values), daemon=True)
    saying.start()
    saying.join(_SAY_S)


@contextlib.contextmanager
def stop_on_signals(
    at_once: Callable[[], None] = lambda: None, patience_s: float = float("inf")
) -> Iterator[StopRequest]:
    """Inside the block, signals are recorded in the yielded request, even those that the parent process ignored."""
    request = StopRequest(at_once, patience_s)
    read, write = os.pipe()
    os.set_blocking(write, False)
    request.wakes(write)
    # Before the handlers are set: a signal that arrives without it would be lost.
    woken = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    before = {number: signal.signal(number, request.interrupt) for number in (*_SIGNALS, _REMINDER)}
    threading.Thread(target=request.listen, args=(read,), name="eddy-signals", daemon=True).start()
    try:
        yield request
    finally:
        signal.set_wakeup_fd(woken)
        for number, handler in before.items():
            signal.signal(number, handler)
        request.wakes(None)
        os.close(write)
