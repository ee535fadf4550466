"""Represents the records that a processor forwards to named children, and selects the stream of one child.

    forward(record, child)    makes the row (key, (child, value))
    forward(record)           makes the row (key, (None, value)), for every child

Only a step of processors makes such rows, and only its children read them. They are in no state and no topic.
"""

from eddy.operators.batch import Batch
from eddy.operators.context import Context
from eddy.operators.operator import Operator

__all__ = ["ChildStream"]


class ChildStream(Operator):
    """Input: rows (key, (child, value)). Output: the rows (key, value) of one child, in their order."""

    def __init__(self, name: str, child: str) -> None:
        self.name, self._own = name, frozenset({child, None})

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Select the rows for this child, and remove the child from their values."""
        (batch,) = inputs
        own = batch.select([child in self._own for _, (child, _) in batch.rows])
        return own.with_rows([(key, value) for key, (_, value) in own.rows])
