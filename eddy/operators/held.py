"""A loop whose limit is an error: nothing of it leaves while there is one.

The error is what the loop would have gone on with after its last round, as rows: a function of the
present data, so that mending the data takes it away. Until then the bindings' deltas are held back,
summed up, and those behind the loop keep the last answer that was right.
"""

from collections.abc import Sequence
from typing import Any

from eddy.operators.batch import EMPTY, Batch, ZSet, merge_into
from eddy.operators.operator import State
from eddy.state.arrangement import Arrangement

__all__ = ["Held"]


class Held:
    """Two arrangements, of rows with the number of their binding in both key and value."""

    def __init__(self, bindings: Sequence[str], errors: Arrangement[Any, Any], deltas: Arrangement[Any, Any]) -> None:
        self._bindings, self._errors, self._deltas = bindings, errors, deltas

    def states(self) -> Sequence[State]:
        """Errors, and what is held back."""
        return (self._errors, self._deltas)

    def step(self, batches: list[Batch], over: Sequence[tuple[int, Batch]], time: int) -> list[Batch]:
        """Return what leaves, binding by binding, and how the errors differ: rows (binding, (key, value))."""
        errors = self._mended(self._numbered(over), time)
        deltas = self._numbered(enumerate(batches))
        if next(self._errors.items(), None) is not None:
            if deltas:
                self._deltas.integrate(deltas)
            return [*([EMPTY] * len(batches)), errors]
        if held := dict(self._deltas.items()):
            self._deltas.integrate({row: -weight for row, weight in held.items()})
            merge_into(deltas, held, held.values())
        return [*self._by_binding(deltas, time), errors]

    def _mended(self, changed: ZSet, time: int) -> Batch:
        """Take in what is beyond the last round; each row that it changes is an error, once."""
        if not changed:
            return EMPTY
        olds = self._errors.weights(list(changed))
        self._errors.integrate(changed)
        rows = [(self._bindings[index], (key, value)) for (index, key), (_, value) in changed]
        weights = [(old + move != 0) - (old != 0) for old, move in zip(olds, changed.values(), strict=True)]
        return Batch(rows, weights, time).select(weights)

    def _numbered(self, batches: Any) -> ZSet:
        zset: ZSet = {}
        for index, batch in batches:
            merge_into(zset, [((index, key), (index, value)) for key, value in batch.rows], batch.weights)
        return zset

    def _by_binding(self, deltas: ZSet, time: int) -> list[Batch]:
        zsets: list[ZSet] = [{} for _ in self._bindings]
        for ((index, key), (_, value)), weight in deltas.items():
            zsets[index][key, value] = weight
        return [Batch.of(zset, time) if zset else EMPTY for zset in zsets]
