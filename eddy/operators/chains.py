"""The chains of a key's values: values whose places follow one another at distances below `gap`."""

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Chains"]


class Chains(NamedTuple):
    """Divides values into chains. `place` returns the place of a value, a whole number; None if it is in no chain."""

    place: Callable[[Any], int | None]
    gap: int
