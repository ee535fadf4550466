"""Makes the rows of errors of a block that exceeds its limit, for outermost blocks and for blocks inside a loop.

`LimitBarrier` is for outermost blocks. The errors are the rows with which the loop would have continued after its last
iteration. They are a function of the present data, so mending the data removes them. While there are errors, the loop
withholds all its rows (`operators/nested/outermost.py`).

`InnerLimit` is for blocks inside a loop. Each iteration of the enclosing loop runs the block again. The block's errors
in that iteration are the rows that the block's own last iteration has changed. Like all collections inside a loop,
errors are stored as differences by iteration. The inner block withholds no rows: the enclosing iteration continues with
its current rows. But results computed from an interrupted inner block are not correct, so the outermost block withholds
all its results:

    errors of the outermost block = its own, and each row that is an error in any iteration of the enclosing loops

A row is an error in some iteration if and only if its differences by iteration are not all 0, because its earliest
non-zero difference is its weight then. So the outermost block only counts a row's non-zero differences.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from eddy.operators.batch import Batch, Row, ZSet, merge_into
from eddy.operators.context import Context
from eddy.operators.nested.operators import NestedWeights
from eddy.operators.operator import State
from eddy.state.arrangement import Arrangement
from eddy.state.iteration_trace import Trace

__all__ = ["InnerErrors", "InnerLimit", "LimitBarrier", "numbered"]


class InnerLimit:
    """Stands in for `LimitBarrier` in a block inside a loop.

    It returns all rows of the block, and after them, numbered by binding, the changes that exceed the limit.
    """

    def states(self) -> Sequence[State]:
        """No states, because `InnerErrors` stores the rows."""
        return ()

    def step(self, batches: list[Batch], over: Sequence[tuple[int, Batch]], time: int) -> list[Batch]:
        """Return `batches`, and one further batch: the rows that the last iteration has changed."""
        return [*batches, Batch.of(numbered(over), time)]


class InnerErrors(NestedWeights):
    """Input: changes of rows in a block's last iterations. Output: each changed row once."""

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
        """Return by how much the number of each row's non-zero differences has grown since the last call."""
        moves, self._moves = self._moves, {}
        return {row: move for row, move in moves.items() if move}


def _once(weight: int) -> int:
    return int(weight != 0)


def numbered(batches: Iterable[tuple[int, Batch]]) -> ZSet:
    """Merge the batches of several bindings into one Z-set.

    Each key and each value is in a pair with the binding's number.
    """
    zset: ZSet = {}
    for index, batch in batches:
        merge_into(zset, [((index, key), (index, value)) for key, value in batch.rows], batch.weights)
    return zset


class LimitBarrier:
    """Stores the errors of an outermost block. In a stored row, key and value each have the number of the binding."""

    def __init__(
        self,
        bindings: Sequence[str],
        errors: Arrangement[Any, Any],
        deltas: Arrangement[Any, Any],
        inside: Sequence[tuple[int, InnerErrors]] = (),
    ) -> None:
        self._bindings, self._errors, self._deltas, self._inside = bindings, errors, deltas, inside

    def states(self) -> Sequence[State]:
        """The errors, and the withheld rows."""
        return (self._errors, self._deltas)

    def __bool__(self) -> bool:
        return next(self._errors.items(), None) is not None

    def rows(self) -> ZSet:
        """Return the present rows of errors."""
        return {(self._bindings[index], (key, value)): 1 for ((index, key), (_, value)), _ in self._errors.items()}

    def least(self) -> str:
        """Return a text that names one error. It depends only on the set of errors, not on their order."""
        return min(
            f"binding '{name}' still changed in its last iteration, e.g. by row {row!r}" for name, row in self.rows()
        )

    def taken_back(self, count: int) -> list[ZSet]:
        """Release the rows that an earlier release of eddy withheld.

        Returns one Z-set of them for each of `count` bindings.
        """
        zsets: list[ZSet] = [{} for _ in range(count)]
        held = dict(self._deltas.items())
        for ((index, key), (_, value)), weight in held.items():
            zsets[index][key, value] = weight
        if held:
            self._deltas.integrate({row: -weight for row, weight in held.items()})
        return zsets

    def take(self, over: Sequence[tuple[int, Batch]]) -> ZSet:
        """Apply the changes beyond the last iteration: each changed row is an error.

        Returns the delta of the errors.
        """
        changed = {**numbered(over), **self._of_blocks_inside()}
        if not changed:
            return {}
        olds = self._errors.weights(list(changed))
        self._errors.integrate(changed)
        moves = {
            (self._bindings[index], (key, value)): (old + move != 0) - (old != 0)
            for (((index, key), (_, value)), move), old in zip(changed.items(), olds, strict=True)
        }
        return {row: move for row, move in moves.items() if move}

    def _of_blocks_inside(self) -> ZSet:
        return {
            ((first + index, key), (first + index, value)): move
            for first, errors in self._inside
            for ((index, key), (_, value)), move in errors.taken_moves().items()
        }
