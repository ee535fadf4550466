"""Settings of Python's collector of cycles, for commands that keep many small objects without reference cycles.

By default the collector visits all objects repeatedly while they are made, and no other code runs meanwhile.
"""

import gc

__all__ = ["collect_seldom", "freeze"]

_THRESHOLDS = (100_000, 50, 100)


def collect_seldom() -> None:
    """Collect cycles among new objects seldom, and among all objects very seldom."""
    gc.set_threshold(*_THRESHOLDS)


def freeze() -> None:
    """Exclude all present objects from later collections."""
    gc.collect()
    gc.freeze()
