"""A block inside a loop whose limit is an error.

Each iteration of the enclosing loop runs the block again. Its errors in that iteration are the rows that its own last
iteration has changed, as for an outermost block; they are a collection by iteration, like any other inside. Nothing is
withheld there: the iteration continues with the block's current rows. Instead the outermost block withholds all its
results:

    errors of the outermost block = its own, and each row that is an error in any iteration of the enclosing loops

since results computed from an interrupted inner block are not correct. A row is an error in some iteration if and only
if its differences by iteration are not all 0: the earliest one is its weight. So the outermost block only counts a
row's non-zero differences.
"""

from collections.abc import Iterable, Sequence

from eddy.operators.batch import Batch, Row, ZSet, merge_into
from eddy.operators.context import Context
from eddy.operators.nested_operators import NestedWeights
from eddy.operators.operator import State
from eddy.state.trace import Trace

__all__ = ["InnerErrors", "InnerLimit", "numbered"]


class InnerLimit:
    """Replaces `LimitBarrier` inside a loop: it sends all rows, then the numbered changes beyond the last iteration."""

    def states(self) -> Sequence[State]:
        """None: `InnerErrors` keeps the rows."""
        return ()

    def step(self, batches: list[Batch], over: Sequence[tuple[int, Batch]], time: int) -> list[Batch]:
        """Return the batches, and the rows that the last iteration changed."""
        return [*batches, Batch.of(numbered(over), time)]


class InnerErrors(NestedWeights):
    """Changes of rows in a block's last iterations in, each changed row once out."""

    _made: Trace[Row, Row]

    def __init__(self, name: str, over: Trace[Row, Row], errors: Trace[Row, Row]) -> None:
        super().__init__(name, over, errors, _once)
        self._moves: ZSet = {}

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Return the delta of the errors in this iteration."""
        made = super().step(context, *inputs)
        for (key, value), weight in zip(made.rows, made.weights, strict=True):
            now = self._made.weight(key, value, context.iteration)
            moved = (now != 0) - (now != weight)
            self._moves[key, value] = self._moves.get((key, value), 0) + moved
        return made

    def forget_wave(self) -> None:
        """Undo the epoch."""
        super().forget_wave()
        self._moves = {}

    def taken_moves(self) -> ZSet:
        """By row, the increase of the number of non-zero differences since the last call."""
        moves, self._moves = self._moves, {}
        return {row: move for row, move in moves.items() if move}


def _once(weight: int) -> int:
    return int(weight != 0)


def numbered(batches: Iterable[tuple[int, Batch]]) -> ZSet:
    """The rows of several bindings in one batch, with the number of the binding in both key and value."""
    zset: ZSet = {}
    for index, batch in batches:
        merge_into(zset, [((index, key), (index, value)) for key, value in batch.rows], batch.weights)
    return zset
