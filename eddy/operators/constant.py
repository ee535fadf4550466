"""Fixed rows, present from the first epoch on."""

from collections.abc import Sequence
from typing import Any

from eddy.operators.batch import EMPTY, Batch, Row, consolidate, merge_into
from eddy.operators.context import Context, Wake
from eddy.operators.exchange import Gate
from eddy.operators.operator import Operator, State
from eddy.state.arrangement import Arrangement

__all__ = ["Constant"]


class Constant(Operator):
    """Emits fixed rows. It stores the rows that it has sent, so that a restart sends no row twice.

    The owner of partition 0 of the topic of `gate` sends them.
    """

    def __init__(self, name: str, rows: Sequence[Row], gate: Gate, sent: Arrangement[Any, Any]) -> None:
        self.name, self.gate, self.sent = name, gate, sent
        self.rows = consolidate(rows, [1] * len(rows), f"constant '{name}'")
        self._done = self.sent_now = False

    def wakes_at(self) -> Wake | None:
        """Return `AT_ONCE` if the topology's rows were not compared with the sent rows yet, else None."""
        return None if self._done or self.gate.shared else Wake.AT_ONCE

    def states(self) -> Sequence[State]:
        """The rows that were sent."""
        return (self.sent,)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Return the rows not sent yet, and the retractions of sent rows that the topology no longer has."""
        if self.wakes_at() is None:
            return EMPTY
        difference = dict(self.rows)
        sent = dict(self.sent.items())
        merge_into(difference, sent, [-weight for weight in sent.values()])
        self.sent.integrate(difference)
        self._done = self.sent_now = True
        return Batch.of(difference, 0)

    def end_epoch(self) -> None:
        """Empty the gate's outbox: its rows were sent, or the epoch was undone."""
        super().end_epoch()
        self.gate.outbox = []

    def forget(self) -> None:
        """Have the rows compared with the sent rows again, after a rollback or a change of ownership."""
        self._done = self.sent_now = False
