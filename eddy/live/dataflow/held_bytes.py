"""Estimates the bytes that data takes in memory: containers are counted by their length and a sample of their items.

Cost: only the sample is read, whatever the size. An item that several containers share is counted in each of them.
"""

import sys
from collections.abc import Iterable, Sized
from itertools import islice
from typing import Any

from eddy.live.dataflow.row_positions import RowPositions

__all__ = ["held_bytes"]

_SAMPLE = 8
_LISTS = (list, tuple, set, frozenset)


def held_bytes(value: Any) -> int:
    """Return the bytes of a container with its items, or of another object without the objects that it refers to.

    >>> 800 <= held_bytes({n: "x" * 100 for n in range(5)}) <= 2_000
    True
    """
    size = sys.getsizeof(value, 64)
    if isinstance(value, RowPositions):
        return size + _of_items(value, value.first(_SAMPLE)) + 8 * len(value)
    if isinstance(value, dict):
        return size + _of_items(value, (part for item in islice(value.items(), _SAMPLE) for part in item), 2)
    return size + _of_items(value, islice(value, _SAMPLE)) if isinstance(value, _LISTS) else size


def _of_items(whole: Sized, sample: Iterable[Any], parts: int = 1) -> int:
    """Estimate the bytes of all items from a sample; a mapping's item has two `parts`, the key and the value."""
    found = [held_bytes(part) for part in sample]
    return len(whole) * parts * sum(found) // len(found) if found else 0
