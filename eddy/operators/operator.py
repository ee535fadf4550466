"""The interface of operators: an operator takes batches, returns one batch, and has all its memory in states."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from eddy.operators.batch import EMPTY, Batch
from eddy.operators.context import OUTSIDE, Context, Moment
from eddy.state.spec import Changes, StateSpec

if TYPE_CHECKING:
    from eddy.operators.errors.set_aside import Aside

__all__ = ["ClocksRead", "Operator", "RowWise", "State", "Step"]

_PROBED_AT_ONCE = 64
_NOTHING_HELD: Mapping[int, str] = {}


class State(Protocol):
    """The operations on a state at the end of an epoch. Tables and arrangements are states."""

    spec: StateSpec

    @property
    def cells(self) -> int:
        """The number of cells in memory."""

    def age(self) -> int:
        """Drop half of the cells from memory, between epochs. Returns the number of dropped cells."""

    def changes(self) -> Changes:
        """The rows changed in the current epoch."""

    def commit(self) -> None:
        """End the current epoch."""

    def rollback(self) -> None:
        """Undo the current epoch."""

    def forget(self) -> None:
        """Drop all cells from memory, so that they are read from the store again."""


class ClocksRead(NamedTuple):
    """The clocks that an operator reads: the event times of `sources`; with `wall`, also the wall clock."""

    sources: frozenset[str] = frozenset()
    wall: bool = False


NO_CLOCKS = ClocksRead()


class Operator:
    """One step of a circuit. `name` is the step's name in errors and pictures.

    Invariants: `step` is called at most once a wave. At least one of its batches has rows, unless `wakes_at` asked for
    the step. Between epochs all the data of an operator is in its states. During an epoch it may also have reports,
    such as rows to send and counts, which `end_epoch` drops. No attribute of an operator is set from outside.
    """

    name: str
    dropped = 0
    """The number of inserted rows that the current epoch has dropped, if the operator drops rows; see `Keyed`."""
    follows_rows = False
    """Whether the operator makes each row from a single row and retracts none, so that `explore` finds all its rows."""
    inputs_apart = False
    """Whether `step_setting_aside` sets aside rows of each input, so that the inputs' rows have to be told apart."""
    left_due: Collection[int] = ()
    """The partitions with more due work than one step does, so that the next epoch continues with it."""

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Return the delta of the output for the deltas of the inputs.

        `context` has the iteration, the times and all other circumstances of the step.
        """
        raise NotImplementedError

    def end_epoch(self) -> None:
        """Drop what the step has reported in the epoch, such as rows to send, after its commit or when it is undone."""

    def step_setting_aside(self, context: Context, aside: "Aside", *inputs: Batch) -> Batch:
        """Step as `step` does, and set aside the rows on which the step fails.

        Operators that accept every row do not override this method.
        """
        return self.step(context, *inputs)

    def explore(self, *inputs: Batch) -> Batch:
        """Return the rows that the step, which is linear, would make from the input rows. No state is changed.

        A row on which the author's function raises makes no row. Weights are ignored.
        """
        return self.step(OUTSIDE, *inputs)

    def states(self) -> Sequence[Any]:
        """The states that this operator writes."""
        return ()

    def held(self) -> Mapping[int, str] | None:
        """Return a message for each partition of this operator's keys that has rows without a finite answer.

        Returns None while several workers have not agreed yet.

        The messages are a function of the operator's states, so they are the same after a `step`, committed or not, and
        after a restore. Each owned partition has at most one message. An operator with a single partition uses
        partition 0.
        Cost: constant if nothing is held.
        """
        return _NOTHING_HELD

    def wakes_at(self) -> Moment | None:
        """Return the moment at which the operator has to be stepped without input; None if it waits for no moment.

        The moment depends only on the operator's states and on the partitions that this worker owns. The circuit calls
        this method between epochs, and in an epoch when it is the operator's turn. The clocks that the step reads are
        committed with the epoch.
        """
        return None

    @property
    def reads(self) -> ClocksRead:
        """The clocks that the operator reads from its context. The worker maintains only the clocks that are read."""
        return NO_CLOCKS

    @property
    def tells_failures(self) -> bool:
        """Whether `failures` can find the failing rows."""
        return False

    def failures(self, *inputs: Batch) -> Mapping[int, Exception]:
        """Return the errors of the rows on which the author's function fails, by the row's index in the first input.

        Called after `step` has raised on the same inputs, before the rollback; changes no state. Here the times of rows
        are numbers of records: rows with the same number derive from the same record.
        """
        return {}


class RowWise(Operator):
    """An operator that makes each output row from a single row of its first input, and from states."""

    follows_rows = True

    @property
    def tells_failures(self) -> bool:
        """True, because a row that fails in one batch fails in every batch."""
        return True

    def step_setting_aside(self, context: Context, aside: "Aside", *inputs: Batch) -> Batch:
        """Set aside the rows on which the function fails."""
        batch, *others = inputs
        batch, dropped = aside.without_kept(batch), self.dropped
        try:
            return self.step(context, batch, *others)
        except Exception:
            errors = self.failures(batch, *others)
            if not errors:
                raise
        self.dropped = dropped
        return self.step(context, aside.without(batch, errors), *others)

    def explore(self, *inputs: Batch) -> Batch:
        """Return the rows as `step` does, leaving out the rows that fail. Dropped rows are not counted."""
        batch, *others = inputs
        dropped = self.dropped
        try:
            return self.step(OUTSIDE, batch, *others)
        except Exception:
            failing = self.failures(batch, *others)
            return self.step(OUTSIDE, batch.select([row not in failing for row in range(len(batch))]), *others)
        finally:
            self.dropped = dropped

    def failures(self, *inputs: Batch) -> Mapping[int, Exception]:
        """Return the errors of the failing rows: many rows are tested at once, then one by one if some fail.

        Cost: as the step itself.
        """
        batch, others = inputs[0], [EMPTY] * (len(inputs) - 1)
        found: dict[int, Exception] = {}
        for start in range(0, len(batch), _PROBED_AT_ONCE):
            stop = min(start + _PROBED_AT_ONCE, len(batch))
            if self._error(batch, start, stop, others) is not None:
                errors = {row: self._error(batch, row, row + 1, others) for row in range(start, stop)}
                found |= {row: error for row, error in errors.items() if error is not None}
        return found

    def _error(self, batch: Batch, start: int, stop: int, others: Sequence[Batch]) -> Exception | None:
        try:
            self.step(OUTSIDE, Batch(batch.rows[start:stop], batch.weights[start:stop], batch.time), *others)
        except Exception as error:
            return error
        return None


class Step(NamedTuple):
    """An operator in a circuit or a loop: it reads the slots `inputs` and writes the slot `output`."""

    operator: Operator
    inputs: tuple[int, ...]
    output: int
