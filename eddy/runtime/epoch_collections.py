"""Python's collector of cycles runs between epochs, not inside of one.

    inside of an epoch     only once the process has MOST_ALLOCATED new objects, so that cycles do not fill the memory
    between epochs         at the thresholds that the process has set

The collector counts new objects, less those that are freed, and visits all objects of a generation while no other code
runs. States have many small objects and no cycles. The functions of authors may make cycles.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

__all__ = ["MOST_ALLOCATED", "without_collections"]

MOST_ALLOCATED = 2_000_000
"""With this many new objects a collection begins even inside an epoch."""


class _Epochs:
    """The epochs that are open in this process, on any of its threads, and the thresholds outside of them."""

    def __init__(self) -> None:
        self._lock, self._open = Lock(), 0
        self._outside: tuple[int, int, int] | None = None
        self._inside: tuple[int, int, int] | None = None

    def begin(self) -> None:
        with self._lock:
            self._open += 1
            first, *others = gc.get_threshold()
            if self._open == 1 and 0 < first < MOST_ALLOCATED:
                self._outside = gc.get_threshold()
                gc.set_threshold(MOST_ALLOCATED, *others)
                self._inside = gc.get_threshold()

    def end(self) -> None:
        with self._lock:
            self._open -= 1
            if not self._open and self._outside is not None:
                if gc.get_threshold() == self._inside:  # nobody else has set other thresholds meanwhile
                    gc.set_threshold(*self._outside)
                self._outside = None


_EPOCHS = _Epochs()


@contextmanager
def without_collections() -> Iterator[None]:
    """Delay collections, on all threads, until the block ends, unless there are many new objects."""
    _EPOCHS.begin()
    try:
        yield
    finally:
        _EPOCHS.end()
