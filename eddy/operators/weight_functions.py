"""Distinct and minus: functions of a row's weight alone.

    distinct(A)   w -> 1 if w > 0 else 0
    A minus B     w -> max(0, w)  of  A - B        (EXCEPT ALL)

Each of these functions f depends on a row's weight w only, so the delta of the output is f(w + Δw) - f(w), row by row.
The functions are not linear: f of a sum is not the sum of f. So an arrangement of the rows with their weights is
needed.
"""

from collections.abc import Callable, Sequence
from itertools import compress
from operator import add
from typing import Any

from eddy.operators.batch import Batch
from eddy.operators.context import Context
from eddy.operators.errors.set_aside import Aside, only_written
from eddy.operators.keyed import Keyed
from eddy.operators.operator import State
from eddy.state.arrangement import Arrangement

__all__ = ["WeightFunction", "one_if_positive", "positive_part"]


def one_if_positive(weight: int) -> int:
    """Return the weight of a row after `distinct`."""
    return 1 if weight > 0 else 0


def positive_part(weight: int) -> int:
    """Return the weight of a row in A minus B.

    `weight` is its weight in A minus its weight in B, and may be below 0.
    """
    return weight if weight > 0 else 0


class WeightFunction(Keyed):
    """Input: a relation with any weights. Output: each row with the function's result for its total weight."""

    def __init__(self, name: str, arrangement: Arrangement[Any, Any], f: Callable[[int], int]) -> None:
        self.name, self.arrangement, self._f = name, arrangement, f

    def states(self) -> Sequence[State]:
        """The rows with their total weights."""
        return (self.arrangement,)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Return for each row of the delta its new output weight minus its old one."""
        batch = self.with_keys(inputs[0])
        delta = batch.zset(self.name)
        olds = self.arrangement.shift(delta)
        news = list(map(add, olds, delta.values()))
        f = {weight: self._f(weight) for weight in {*olds, *news}}
        moves = [f[new] - f[old] for new, old in zip(news, olds, strict=True)]
        return Batch(list(compress(delta, moves)), list(filter(None, moves)), batch.time)

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the rows that the arrangement cannot write."""
        return self.step(context, only_written(aside, self.with_keys(inputs[0]), self.arrangement.spec))
