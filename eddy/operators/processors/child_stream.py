"""The records that a processor with named children forwards, and the records of one child.

    forward(record, child)    the row (key, (child, value))
    forward(record)           the row (key, (None, value)), which is of every child

The step of the processors alone makes such rows, and only its children read them: they are in no state and no topic.
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
        """Select this child's rows, and take their values out."""
        (batch,) = inputs
        own = batch.select([child in self._own for _, (child, _) in batch.rows])
        return own.with_rows([(key, value) for key, (_, value) in own.rows])
