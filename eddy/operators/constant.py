"""Rows that are there from the first epoch on."""

from collections.abc import Sequence
from typing import Any

from eddy.operators.batch import EMPTY, Batch, Row, consolidate, merge_into
from eddy.operators.exchange import Gate
from eddy.operators.operator import Operator, State
from eddy.state.arrangement import Arrangement

__all__ = ["Constant"]


class Constant(Operator):
    """Fixed rows. What of them has gone out is remembered, so that a restart sends none of them twice.

    They are sent by the one owner of partition 0; `gate` is of the topic that says who that is.
    """

    def __init__(self, name: str, rows: Sequence[Row], gate: Gate, sent: Arrangement[Any, Any]) -> None:
        self.name, self.gate, self.sent = name, gate, sent
        self.rows = consolidate(rows, [1] * len(rows), f"constant '{name}'")
        self._done = self.sent_now = False

    @property
    def due(self) -> bool:
        """Whether rows have yet to go out here."""
        return not self._done and not self.gate.shared

    def states(self) -> Sequence[State]:
        """The rows that went out."""
        return (self.sent,)

    def step(self, *inputs: Batch) -> Batch:
        """Return what is missing, and take back what is there no longer."""
        if not self.due:
            return EMPTY
        difference = dict(self.rows)
        sent = dict(self.sent.items())
        merge_into(difference, sent, [-weight for weight in sent.values()])
        self.sent.integrate(difference)
        self._done = self.sent_now = True
        return Batch.of(difference, 0)

    def forget(self) -> None:
        """The epoch is undone, or ownership has changed."""
        self._done = self.sent_now = False
