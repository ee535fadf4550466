"""The circumstances of a step, and the moments at which an operator asks for one without input."""

from enum import Enum
from typing import Any, NamedTuple

__all__ = ["DIVISIBLE", "OUTSIDE", "Context", "Wake"]


class Context(NamedTuple):
    """The circumstances of one step.

    `iteration`: the loop's iteration, 0 outside of loops; in nested time a tuple of them in a loop within a loop.
    `divisible`: the caller can try again with a part of the input where the whole is too much work.
    """

    iteration: Any = 0
    divisible: bool = False


OUTSIDE = Context()
"""That of steps outside of loops, of an epoch that cannot be divided."""

DIVISIBLE = Context(divisible=True)
"""The same, of one that can."""


class Wake(Enum):
    """The moment at which an operator wants a step without input.

    `AT_ONCE`: in the next epoch, also without any input. `AT_REST`: when no row is in flight anywhere.
    """

    AT_ONCE = "at once"
    AT_REST = "at rest"
