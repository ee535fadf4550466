"""Waits of tests: each waits for a condition, with one patience for all, and names the condition that did not hold.

The patience is what a right program may need on a machine that is busy with other work; only a wrong one meets it
(ADR 51). A law about time is another matter: `quickest` measures the program and not what else the machine does.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = [
    "PATIENCE_S",
    "Deadline",
    "WaitTimeoutError",
    "in_time",
    "quickest",
    "step_to_rest",
    "wait_for",
    "wait_for_async",
]

PATIENCE_S = 120.0
"""The most that any test waits for one condition; a fifth of what pytest gives a whole test."""


class WaitTimeoutError(AssertionError):
    """A condition did not hold in time."""


class Deadline:
    """A moment `patience_s` seconds from now.

    >>> Deadline().passed
    False
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._at = time.monotonic() + patience_s

    @property
    def passed(self) -> bool:
        """Whether that moment has passed."""
        return time.monotonic() >= self._at

    def check(self, missing: object = "a condition") -> None:
        """Raises: WaitTimeoutError once the moment has passed; it says what is `missing`."""
        if self.passed:
            raise WaitTimeoutError(f"not in {self._patience_s:g} s: {missing}")


@contextmanager
def in_time(missing: object) -> Iterator[None]:
    """A block that waits with a bound of the standard library's: of a socket, a future, or a coroutine.

    Raises: WaitTimeoutError in place of TimeoutError; it says what is `missing`.

    >>> with in_time("an answer"):
    ...     raise TimeoutError("timed out")
    Traceback (most recent call last):
    tests.waiting.WaitTimeoutError: an answer: timed out
    """
    try:
        yield
    except TimeoutError as error:
        raise WaitTimeoutError(f"{missing}: {error}") from error


def wait_for(
    condition: Callable[[], object],
    patience_s: float = PATIENCE_S,
    missing: object = "a condition",
    pause_s: float = 0.01,
) -> None:
    """Wait until `condition()` holds. Raises: WaitTimeoutError.

    >>> wait_for(lambda: True)
    """
    deadline = Deadline(patience_s)
    while not condition():
        deadline.check(missing)
        time.sleep(pause_s)


async def wait_for_async(condition: Callable[[], object], missing: object = "a condition") -> None:
    """The same in a coroutine, while others run. Raises: WaitTimeoutError."""
    import asyncio  # programs that are started import this module, and need none

    deadline = Deadline()
    while not condition():
        deadline.check(missing)
        await asyncio.sleep(0.01)


def step_to_rest(workers: Sequence[Any]) -> None:
    """Step workers until none of them takes a record and nothing is left to do. Raises: WaitTimeoutError."""
    deadline = Deadline()
    while sum(worker.step() for worker in workers) or not workers[0].quiescent():
        deadline.check("rest")


def quickest(attempt: Callable[[], float], within_s: float, attempts: int = 5) -> None:
    """Repeat `attempt` until one has taken less than `within_s`; it returns the seconds that it took.

    One quick attempt shows that the program can be so quick; a machine that is busy makes some attempts slow, a program
    that waits for too long makes all of them slow. Raises: WaitTimeoutError where none is quick.

    >>> quickest(iter([7.0, 0.5]).__next__, 1.0)
    """
    took_s: list[float] = []
    while not took_s or took_s[-1] >= within_s:
        if len(took_s) == attempts:
            raise WaitTimeoutError(f"never in {within_s:g} s, but in {took_s}")
        took_s.append(attempt())
