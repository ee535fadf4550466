"""What an operator is: batches in, one batch out, its memory in states that were handed in."""

from collections.abc import Sequence
from typing import Any, Protocol

from eddy.operators.batch import Batch
from eddy.state.spec import Changes, StateSpec

__all__ = ["Operator", "State"]


class State(Protocol):
    """What an epoch's end does with a state. Tables and arrangements are states."""

    spec: StateSpec

    @property
    def cells(self) -> int:
        """How many cells it has in memory."""

    def age(self) -> int:
        """Forget half of them, between epochs. Returns how many went."""

    def changes(self) -> Changes:
        """The rows that the running epoch has changed."""

    def commit(self) -> None:
        """Take them as done."""

    def rollback(self) -> None:
        """Undo them."""

    def forget(self) -> None:
        """Read anew from the store from now on."""


class Operator:
    """One step of a circuit. `name` is what errors and pictures call it.

    Invariant: `step` is called at most once a wave, with at least one batch that is not empty, and
    between two calls the operator remembers nothing but its states.
    """

    name: str

    def step(self, *inputs: Batch) -> Batch:
        """Return the delta of the output that the deltas of the inputs make."""
        raise NotImplementedError

    def states(self) -> Sequence[Any]:
        """The states that this operator writes."""
        return ()
