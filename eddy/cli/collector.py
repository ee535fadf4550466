"""Python's collector of cycles, for commands that keep many small objects and make no cycles of them.

By its defaults it visits all objects again and again while they are made; meanwhile nothing else runs.
"""

import gc

__all__ = ["collect_seldom", "freeze"]

_THRESHOLDS = (100_000, 50, 100)


def collect_seldom() -> None:
    """Look for cycles among new objects seldom, among all of them very seldom."""
    gc.set_threshold(*_THRESHOLDS)


def freeze() -> None:
    """Never look at the objects again that there are now."""
    gc.collect()
    gc.freeze()
