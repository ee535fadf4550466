"""Gives memory that epochs have freed back to the operating system.

The C library keeps freed memory for later use, in pieces between those that are used. The rows of an epoch and the
records in a client's queues are freed later than other memory, many by other threads. So the unused pieces grow from
epoch to epoch, up to a multiple of the memory in use.
"""

import ctypes
import sys
from collections.abc import Callable
from time import thread_time
from typing import Any

__all__ = ["FreedMemory"]

_EVERY_S, _AT_REST_S = 0.5, 0.1
"""The least processor time of the worker between two calls: under load, and at rest."""
_SHARE = 50
"""The processor time between two calls is at least this multiple of the first call's time. A call visits all free
pieces, even returned ones, which takes a tenth of a second for a million pieces.
"""


def _trim() -> Callable[[int], Any] | None:
    """Return glibc's function that frees unused memory; None with another C library."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


class FreedMemory:
    """Returns freed memory to the operating system, in a process that only runs a worker."""

    def __init__(self) -> None:
        self._trim, self._last, self._took = _trim(), thread_time(), 0.0

    def after_epoch(self, at_rest: bool) -> None:
        """Return freed memory if this is due; `at_rest` tells that there was no epoch. Other threads run meanwhile."""
        waits_s = max(_AT_REST_S if at_rest else _EVERY_S, _SHARE * self._took)
        if self._trim is not None and (began := thread_time()) - self._last >= waits_s:
            self._trim(0)
            self._last = thread_time()
            self._took = self._last - began
