"""Processes that tests start, wait for and kill.

In the test, a `Child` writes to files: no pipe fills up, each wait has a bound, and a failure shows the last lines.
In the process, `end_with_parent` ends it with the test, and a `Doom` does a deed to it at a named moment. `fork_eddy`
makes many processes in little time. A worker inside the test is killed by `KilledError` and `bury`.
"""

import ctypes
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self

import msgspec

import eddy
from eddy.cli import main
from eddy.connectors.local import LocalLog
from tests.waiting import PATIENCE_S, WaitTimeoutError, wait_for

__all__ = [
    "ROOT",
    "Child",
    "Doom",
    "KilledError",
    "Said",
    "bury",
    "end_with_parent",
    "fork_eddy",
    "ordered",
    "signal_self",
    "without_settings",
]

ROOT = Path(__file__).parents[1]
ORPHANED = 75
LAST_LINES = 60
_PR_SET_PDEATHSIG = 1
_NUMBERS = itertools.count(1)


class Said(NamedTuple):
    """All that a process has written to stdout and to stderr."""

    out: str
    errors: str


class Child:
    """A process that runs `command`, with its stdout and stderr in files of `folder` and a pipe to its stdin.

    `options` are options of `subprocess.Popen`. As a context, it is killed at the end.
    """

    def __init__(self, folder: Path, command: Iterable[str | Path], **options: Any) -> None:
        number = next(_NUMBERS)
        self._out, self._errors = (folder / f"child-{number}.{stream}" for stream in ("out", "err"))
        with self._out.open("wb") as out, self._errors.open("wb") as errors:
            streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": out, "stderr": errors}
            self.process: subprocess.Popen[bytes] = subprocess.Popen([*command], **(streams | options))
        self._lines: list[str] = []
        self._read_bytes = self._lines_taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def said(self) -> Said:
        """All that it has written by now."""
        return Said(*(file.read_text(encoding="utf-8", errors="replace") for file in (self._out, self._errors)))

    def last_words(self) -> str:
        """The end of what it has written by now."""
        return "\n".join(line for text in self.said() for line in text.splitlines()[-LAST_LINES:])

    def lines(self) -> list[str]:
        """The whole lines that it has written to stdout by now."""
        with self._out.open("rb") as file:
            file.seek(self._read_bytes)
            *lines, _ = file.read().split(b"\n")
        self._read_bytes += sum(len(line) + 1 for line in lines)
        self._lines += [line.decode() for line in lines]
        return self._lines

    def next_line(self) -> str:
        """Wait for the next line of stdout."""
        self.wait_for(lambda: len(self.lines()) > self._lines_taken, "a line of stdout", pause_s=0.001)
        self._lines_taken += 1
        return self._lines[self._lines_taken - 1]

    def write(self, text: str) -> None:
        """Write to its stdin."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def give(self, text: str) -> None:
        """Write to its stdin, which ends there."""
        assert self.process.stdin is not None
        self.write(text)
        self.process.stdin.close()

    def wait_for(
        self, condition: Callable[[], object], missing: object, patience_s: float = PATIENCE_S, pause_s: float = 0.01
    ) -> None:
        """Wait until a condition holds. Raises: AssertionError with its last words, in time or where it ends before."""

        def holds() -> bool:
            running = self.running  # before the look: one that has ended may have fulfilled it just before
            if condition():
                return True
            assert running, f"ended with {self.process.returncode} before {missing}\n{self.last_words()}"
            return False

        try:
            wait_for(holds, patience_s, missing, pause_s)
        except WaitTimeoutError as late:
            raise WaitTimeoutError(f"{late}\n{self.last_words()}") from None

    def wait_to_say(self, pattern: str) -> re.Match[str]:
        """Wait until the whole lines that it has written have a match of a regular expression, in which `.` is any."""
        found: list[re.Match[str]] = []

        def says() -> bool:
            whole = "".join(text[: text.rfind("\n") + 1] for text in self.said())
            found.extend(re.finditer(pattern, whole, re.DOTALL))
            return bool(found)

        self.wait_for(says, repr(pattern))
        return found[0]

    def signal(self, number: int) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def insist(self, number: int) -> None:
        """Send a signal until it has ended, since two at a time may be told as one."""

        def over() -> bool:
            self.signal(number)
            return not self.running

        wait_for(over, missing="the end of a process")

    def ended(self, patience_s: float = PATIENCE_S) -> int:
        """Wait for its end. Returns its exit status; a signal is negative. Raises: WaitTimeoutError."""
        try:
            status = self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise WaitTimeoutError(f"not in {patience_s:g} s: the end of a process\n{self.last_words()}") from None
        if self.process.stdin is not None:
            self.process.stdin.close()
        return status

    def ends(self, status: int = 0, patience_s: float = PATIENCE_S) -> Said:
        """Wait for its end. Raises: AssertionError where its exit status is another."""
        found = self.ended(patience_s)
        assert found == status, f"exit status {found}\n{self.last_words()}"
        return self.said()

    def kill(self) -> bool:
        """End it by SIGKILL, and wait for that. Returns whether it had not ended by itself."""
        self.process.kill()
        return self.ended() == -signal.SIGKILL


def ordered(folder: Path, order: msgspec.Struct) -> Child:
    """A process that carries out an order, given as JSON to the module that defines its class."""
    return Child(folder, [sys.executable, "-m", type(order).__module__, msgspec.json.encode(order).decode()], cwd=ROOT)


def without_settings(**more: str) -> dict[str, str]:
    """The environment without the settings of eddy, and `more`."""
    return {name: value for name, value in os.environ.items() if not name.startswith("EDDY_")} | more


def end_with_parent() -> None:
    """End this process when nobody holds the other end of its stdin any more; on Linux even while it is stopped."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:
        os.read(0, 1)
        os._exit(ORPHANED)

    threading.Thread(target=watch, daemon=True).start()


def signal_self(number: int) -> Callable[[], None]:
    """A deed: this process gets a signal."""
    return lambda: os.kill(os.getpid(), number)


class Doom:
    """Does a deed at the `time`th moment of a name: a step of an epoch, or a moment that a test adds."""

    def __init__(self, moment: str, time: int, deed: Callable[[], object]) -> None:
        self._moment, self._left, self._deed = moment, time, deed

    def __call__(self, moment: str) -> None:
        """Observe a moment."""
        if moment == self._moment:
            self._left -= 1
            if self._left == 0:
                self._deed()


def fork_eddy(arguments: list[str], errors: int, prepare: Callable[[], object] = lambda: None) -> int:
    """Fork a process that prepares itself and runs `eddy …` with stderr in `errors`. Returns its id.

    A fork costs milliseconds where a Python process costs half a second, and is killed as dead as any other.
    """
    return os.fork() or _be_eddy(arguments, errors, prepare)


def _be_eddy(arguments: list[str], errors: int, prepare: Callable[[], object]) -> NoReturn:
    status = 70
    try:
        os.dup2(errors, 2)
        prepare()
        main(arguments, prog_name="eddy")
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


class KilledError(BaseException):
    """In place of a SIGKILL, for a worker in the process of the test."""


def bury(worker: eddy.Worker, group: str, log: LocalLog) -> None:
    """Take from the log what goes with a process: a worker's lock as a writer, and its membership."""
    worker._producer.abort()  # private: a process that is killed cannot end its transaction
    log.evict(group, worker.member)
