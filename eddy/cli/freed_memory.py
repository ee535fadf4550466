"""Gives memory that epochs have freed back to the operating system.

The C library keeps freed memory for later use, in pieces between those that are used. The rows of an epoch and the
records in a client's queues are freed at other times than they are made, many by other threads, so that the pieces that
nobody uses grow from epoch to epoch, up to a multiple of the memory in use.
"""

import ctypes
import sys
from collections.abc import Callable
from time import thread_time
from typing import Any

__all__ = ["FreedMemory"]

_EVERY_S, _AT_REST_S = 0.5, 0.1
"""The processor time of the worker between two calls, which take some milliseconds: under load, and at rest."""


def _trim() -> Callable[[int], Any] | None:
    """Return glibc's function that frees unused memory; None with another C library."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


class FreedMemory:
    """The freed memory of a process that does nothing but run a worker."""

    def __init__(self) -> None:
        self._trim, self._last = _trim(), thread_time()

    def after_epoch(self, at_rest: bool) -> None:
        """Give it back if a call is due; `at_rest`: there was no epoch. Other threads run meanwhile."""
        if self._trim is not None and thread_time() - self._last >= (_AT_REST_S if at_rest else _EVERY_S):
            self._trim(0)
            self._last = thread_time()
