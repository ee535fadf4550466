"""Steps an operator without the input rows on which it fails, if it makes its rows from many input rows at once.

    out = step(in - A)      A: the rows that fail alone, and the rows that fail together with the rows before them

Rows are set aside in two stages. First the operator's `row_errors` names rows that fail whatever the other rows are.
If the step fails nevertheless, or a state cannot write a row of its result, halves of the inserted rows are added to
the rows that succeed: k failing rows of n take at most k · (log2 n + 1) tries. Retracted rows are never set aside,
because the states have them. Before each try the operator's states return to the last commit, so the operator has to
be the only one that writes them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from eddy.errors import DataError, EddyError
from eddy.operators.batch import Batch
from eddy.operators.context import Context
from eddy.operators.errors.set_aside import Aside, netted
from eddy.operators.operator import State

__all__ = ["Divided", "check_changes", "errors_of", "is_of_data", "step_without_failing"]

_Place = tuple[int, int]
"""The number of an input, and the index of a row in it."""


class Divided(Protocol):
    """An operator whose failing input rows are found by halving the input."""

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Return the delta of the output."""

    def states(self) -> Sequence[State]:
        """The states that no other operator writes."""

    def row_errors(self, index: int, batch: Batch) -> Mapping[int, Exception]:
        """Return the errors of the rows of input `index` that fail in every batch, by the row's index."""


def step_without_failing(operator: Divided, context: Context, aside: Aside, inputs: Sequence[Batch]) -> Batch:
    """Step the operator, and set aside the rows on which it fails. `aside.others` are for the inputs after the first.

    Raises: the error of the step if it fails even without the inserted rows.
    """
    asides = [aside, *aside.others]
    batches = [netted(one, one.without_kept(batch)) for one, batch in zip(asides, inputs, strict=True)]
    if not aside.care.on:
        return operator.step(context, *batches)
    for index, one in enumerate(asides):
        found = operator.row_errors(index, batches[index])
        inserted = {row: error for row, error in found.items() if batches[index].weights[row] > 0}
        batches[index] = one.without(batches[index], inserted)
    return _Halving(operator, context, asides, batches).step()


class _Halving:
    """Finds, by halving, the rows of one step that can be processed together. Rows are tried in the order of bytes."""

    def __init__(self, operator: Divided, context: Context, asides: Sequence[Aside], batches: Sequence[Batch]) -> None:
        self._operator, self._context, self._asides, self._batches = operator, context, asides, batches
        self._stepped: tuple[set[_Place], Batch] | None = None

    def step(self) -> Batch:
        """Return the result of the step without the failing rows, which are set aside."""
        places = [(index, row) for index, batch in enumerate(self._batches) for row in range(len(batch))]
        retracted = {place for place in places if self._weight(place) < 0}
        inserted = sorted((place for place in places if place not in retracted), key=self._order)
        good = self._extended(retracted, inserted) if inserted else retracted
        if self._stepped is not None and self._stepped[0] == good:
            return self._stepped[1]
        return self._try(good)

    def _extended(self, good: set[_Place], rows: Sequence[_Place]) -> set[_Place]:
        """Return `good` with those of `rows` that can be processed together with it; set aside the rest."""
        try:
            self._try(good.union(rows))
            return good.union(rows)
        except Exception as error:
            if not is_of_data(error):
                raise
            if len(rows) == 1:
                index, row = rows[0]
                batch = self._batches[index]
                self._asides[index].take(batch.rows[row], batch.weights[row], error, batch.times_of_rows()[row])
                return good
        half = len(rows) // 2
        return self._extended(self._extended(good, rows[:half]), rows[half:])

    def _try(self, places: set[_Place]) -> Batch:
        self._stepped = None
        for state in self._operator.states():
            state.rollback()
        chosen = [
            batch.select([(index, row) in places for row in range(len(batch))])
            for index, batch in enumerate(self._batches)
        ]
        result = self._operator.step(self._context, *chosen)
        check_changes(self._operator.states())
        self._stepped = places, result
        return result

    def _weight(self, place: _Place) -> int:
        return self._batches[place[0]].weights[place[1]]

    def _order(self, place: _Place) -> tuple[int, bytes]:
        index, row = place
        return index, self._asides[index].identity(self._batches[index].rows[row])


def errors_of(batch: Batch, check: Callable[[Any, Any], object]) -> dict[int, Exception]:
    """Call `check(key, value)` for each row. Returns the errors that it raises, by the row's index."""
    found: dict[int, Exception] = {}
    for index, row in enumerate(batch.rows):
        try:
            hash(row)
            check(*row)
        except Exception as error:
            found[index] = error
    return found


def check_changes(states: Sequence[State]) -> None:
    """Raise the error of a changed row that its state, or the state's changelog, cannot write.

    Cost: all changed rows are encoded.
    """
    for state in states:
        changes, changelog = state.changes(), state.spec.changelog
        if changelog is not None:
            for error in state.spec.refusals(changelog, changes.keys, changes.values, None).values():
                raise error


def is_of_data(error: Exception) -> bool:
    """Whether rows are the cause of an error, because an author's function raised, or rows were refused."""
    return isinstance(error, DataError) or not isinstance(error, EddyError)
