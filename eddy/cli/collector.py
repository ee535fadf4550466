"""Runs Python's garbage collector seldom, in processes that keep many small objects without reference cycles.

With Python's defaults the collector visits all objects repeatedly while they are made, and no other code runs
meanwhile.
"""

import gc
from time import thread_time

from eddy.runtime.epoch_collections import MOST_ALLOCATED

__all__ = ["OwnCollector", "collect_seldom"]

_THRESHOLDS = (100_000, 50, 100)
_NEVER = 1 << 30
_EVERY_S = 0.1
"""The processor time of the worker between two collections."""
_KEPT_AT_REST, _KEPT = 1_000_000, 20_000_000
"""A full collection begins when this many objects were kept since the last one: at rest, and under load."""


def collect_seldom() -> None:
    """Make Python collect cycles among new objects seldom, and among all objects very seldom."""
    gc.set_threshold(*_THRESHOLDS)


class OwnCollector:
    """Collects garbage between epochs in a process that only runs a worker, and visits each kept object once.

    A collection visits the new objects, some milliseconds for 100 ms of work. Objects that are still in use are then
    *frozen*: later collections do not visit them. Only a full collection finds cycles among frozen objects. It runs
    when a million objects were kept since the last full one and the worker is at rest, or under load twenty million.
    """

    def __init__(self) -> None:
        gc.set_threshold(MOST_ALLOCATED, _NEVER, _NEVER)
        self._kept, self._last = 0, thread_time()

    def collect_all(self) -> None:
        """Collect all cycles, and freeze the remaining objects. Cost: in proportion to all objects."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._kept, self._last = 0, thread_time()

    def after_epoch(self, at_rest: bool) -> None:
        """Collect garbage, if a collection is due. `at_rest` tells that the worker's last step had no epoch."""
        if thread_time() - self._last < _EVERY_S:
            return
        self._kept += gc.get_count()[0]
        if self._kept >= (_KEPT_AT_REST if at_rest else _KEPT):
            self.collect_all()
            return
        self._kept = max(self._kept - gc.collect(0), 0)
        gc.freeze()
        self._last = thread_time()
