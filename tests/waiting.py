"""Waits of tests: each has a bound, and says by a failure of its own kind that the bound was met.

A second run of the tests excuses this kind of failure and no other: see `second_run.py`.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Deadline", "WaitTimeoutError", "in_time", "wait_for"]


class WaitTimeoutError(AssertionError):
    """A condition did not hold in time. It may be the machine that was too busy."""


class Deadline:
    """A moment `patience_s` seconds from now.

    >>> Deadline(60.0).passed
    False
    """

    def __init__(self, patience_s: float) -> None:
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
    condition: Callable[[], object], patience_s: float, missing: object = "a condition", pause_s: float = 0.01
) -> None:
    """Wait until `condition()` holds. Raises: WaitTimeoutError.

    >>> wait_for(lambda: True, 60.0)
    """
    deadline = Deadline(patience_s)
    while not condition():
        deadline.check(missing)
        time.sleep(pause_s)
