"""The chains of a key's values: values whose places follow one another at distances below `gap`."""

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Chains"]


class Chains(NamedTuple):
    """Divides values into chains. `place` returns a whole number for a value, or None if it is in no chain."""

    place: Callable[[Any], int | None]
    gap: int
