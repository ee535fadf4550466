"""The errors of a loop whose limit is an error, as rows (binding, (key, value)).

The errors are the rows with which the loop would have continued after its last iteration: a function of the present
data, so that mending the data removes them. While there is one, the loop withholds all its rows
(`operators/outermost.py`).

Blocks inside the loop whose limit is an error withhold nothing: their errors count here, after the loop's own.
"""

from collections.abc import Sequence
from typing import Any

from eddy.operators.batch import Batch, ZSet
from eddy.operators.inner_limits import InnerErrors, numbered
from eddy.operators.operator import State
from eddy.state.arrangement import Arrangement

__all__ = ["LimitBarrier"]


class LimitBarrier:
    """Two arrangements of rows, with the number of the binding in both key and value.

    `bindings` are the loop's, then those of the blocks inside whose errors count, each with the number of its first.
    `deltas` holds what an earlier release held back since the error came; nothing is added to it.
    """

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
        """The errors that there are."""
        return {(self._bindings[index], (key, value)): 1 for ((index, key), (_, value)), _ in self._errors.items()}

    def least(self) -> str:
        """The binding of one of the errors, and its row: always the same one of the same errors."""
        return min(
            f"binding '{name}' still changed in its last iteration, e.g. by row {row!r}" for name, row in self.rows()
        )

    def taken_back(self, count: int) -> list[ZSet]:
        """What an earlier release held back of so many bindings; it is held back no longer."""
        zsets: list[ZSet] = [{} for _ in range(count)]
        held = dict(self._deltas.items())
        for ((index, key), (_, value)), weight in held.items():
            zsets[index][key, value] = weight
        if held:
            self._deltas.integrate({row: -weight for row, weight in held.items()})
        return zsets

    def take(self, over: Sequence[tuple[int, Batch]]) -> ZSet:
        """Take in the changes beyond the last iteration: each changed row is an error. Returns the errors' delta."""
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
