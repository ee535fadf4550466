"""The chains of a key's values: values at places on a line, each less than `gap` after the one before it."""

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Chains"]


class Chains(NamedTuple):
    """The chains of values: `place` returns a whole number, or None for a value that is in no chain."""

    place: Callable[[Any], int | None]
    gap: int
