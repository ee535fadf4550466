"""Wraps operators, so that the rows on which the author's function fails are set aside; see `set_aside.py`."""

from collections.abc import Mapping, Sequence
from typing import Any

from eddy.operators.batch import Batch
from eddy.operators.context import Context
from eddy.operators.errors.set_aside import Aside
from eddy.operators.operator import Operator

__all__ = ["Guarded", "unguarded"]


class Guarded(Operator):
    """Wraps an operator, so that the rows on which its function fails are set aside while the epoch's `Care` is on.

    `asides` store the rows set aside, for the operator or for each of its inputs. `nested`: the operator is in a loop
    by nested time, so rows are set aside by iteration.
    """

    def __init__(self, operator: Operator, aside: Aside, nested: bool = False) -> None:
        self.name, self.operator, self.aside = operator.name, operator, aside
        self.asides = (aside, *aside.others)
        self._care, self._nested = aside.care, nested

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Step the operator. Uses `step_setting_aside` if this epoch sets rows aside, or if rows are set aside
        already.
        """
        if self._care.on or self.aside.kept or (self.aside.others and any(one.kept for one in self.aside.others)):
            if self._nested:
                self.aside.iteration = context.iteration
            return self.operator.step_setting_aside(context, self.aside, *inputs)
        return self.operator.step(context, *inputs)

    def explore(self, *inputs: Batch) -> Batch:
        """Return the rows that the operator's `explore` makes from the input rows that are not set aside."""
        batch, *others = inputs
        if self.aside.kept:
            batch = batch.select([not self.aside.reason_of(row) for row in batch.rows])
        return self.operator.explore(batch, *others)

    def states(self) -> Sequence[Any]:
        """The operator's states."""
        return self.operator.states()

    @property
    def tells_failures(self) -> bool:
        """Whether the operator's `failures` can find the failing rows."""
        return self.operator.tells_failures

    def failures(self, *inputs: Batch) -> Mapping[int, Exception]:
        """Return the operator's `failures`."""
        return self.operator.failures(*inputs)


def unguarded(operator: Operator) -> Operator:
    """Return the operator inside a `Guarded`; any other operator is returned as it is."""
    return operator.operator if isinstance(operator, Guarded) else operator
