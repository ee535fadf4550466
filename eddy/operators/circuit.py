"""The circuit: a compiled plan. One object an operator, in topological order, stepped once an epoch.

`step` takes a batch for each source and leaves batches in the sinks and in the outboxes of the
exchanges. Then `changes` tells what the states have to write; and after the transaction `commit`
takes it all as done, or `rollback` undoes it: sinks and outboxes emptied, states as they were.

Invariant: between epochs the slots, sinks and outboxes are empty.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from eddy.errors import DataError, EddyError
from eddy.operators.batch import EMPTY, Batch
from eddy.operators.constant import Constant
from eddy.operators.exchange import Budget, Exchange, Gate, Ownership
from eddy.operators.fixpoint import Fixpoint, Scope
from eddy.operators.operator import Operator, State
from eddy.operators.recursion import Body, FactWaves, Step, Waves
from eddy.state.spec import Changes

__all__ = ["Circuit", "LoopStatistics", "Output", "Recursive"]

_ROWS = attrgetter("rows")
Recursive = Waves | FactWaves | Fixpoint


class Output(Operator):
    """The end of a branch: keeps the epoch's batches for the worker to send."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches: list[Batch] = []

    def step(self, *inputs: Batch) -> Batch:
        """Keep the batch."""
        (batch,) = inputs
        self.batches.append(batch)
        return EMPTY


@dataclass(frozen=True, slots=True)
class LoopStatistics:
    """What went round since the circuit was made: waves, and rows in them."""

    waves: int
    rows: int


class Circuit:
    """Operators in topological order over numbered slots; `inputs` names those that sources fill.

    `max_cells` bounds what all states hold in memory between epochs.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        slots: int,
        inputs: Mapping[str, int],
        ownership: Ownership,
        budgets: Sequence[Budget],
        max_cells: int | None = None,
    ) -> None:
        self._steps = [(step, last) for step, last in zip(steps, _last_uses(steps), strict=True)]
        self._empty = [EMPTY] * slots
        self._inputs = dict(inputs)
        self.ownership, self.max_cells = ownership, max_cells
        self._budgets = budgets
        self._running = ""
        self.operators = operators = list(_with_bodies(step.operator for step in steps))
        self.outputs = {op.name: op for op in operators if isinstance(op, Output)}
        self.recursions: dict[str, Recursive] = {op.name: op for op in operators if isinstance(op, Recursive)}
        self.gates: list[Gate] = [
            op.gate for op in operators if isinstance(op, Exchange | Waves | FactWaves | Constant)
        ]
        self.loop_topics = frozenset(op.gate.topic for op in operators if isinstance(op, Waves | FactWaves))
        self.constants = [op for op in operators if isinstance(op, Constant)]
        self.states: dict[str, State] = {state.spec.name: state for step in steps for state in step.operator.states()}

    def step(self, inputs: Mapping[str, Batch]) -> None:
        """Run one epoch.

        Raises: DataError naming the step whose function raised; the caller rolls back.
        """
        for budget in self._budgets:
            budget.begin()
        values = self._empty.copy()
        for name, batch in inputs.items():
            values[self._inputs[name]] = batch
        try:
            for (operator, sources, output), last in self._steps:
                batches = [values[i] for i in sources]
                if any(map(_ROWS, batches)) or (not sources and self.due):
                    self._running = operator.name
                    values[output] = operator.step(*batches)
                    for slot in last:
                        values[slot] = EMPTY
        except EddyError:
            raise
        except Exception as error:
            raise DataError(f"step '{self._running}': the function raised {error!r}") from error

    @property
    def due(self) -> bool:
        """Whether there is something to do without any input: rows that are there from the first epoch on."""
        return any(constant.due for constant in self.constants)

    @property
    def constants_sent(self) -> list[str]:
        """The topics of the constants whose rows the epoch has sent."""
        return [constant.gate.topic for constant in self.constants if constant.sent_now]

    def changes(self) -> dict[str, Changes]:
        """What the epoch changed in each state.

        Raises: DataError where a key or value does not fit the serde of its state.
        """
        changed = {}
        for name, state in self.states.items():
            try:
                rows = state.changes()
            except EddyError:
                raise
            except Exception as error:
                raise DataError(
                    f"state '{name}': a row does not fit its serdes (key {state.spec.key.name}, value "
                    f"{state.spec.value.name}), or has no key: {error}. Name the serde where the rows are made "
                    "(key=, value=), or filter rows without a key out before"
                ) from error
            if rows:
                changed[name] = rows
        return changed

    def commit(self) -> None:
        """The epoch is in the log and in the store."""
        for constant in self.constants:
            constant.sent_now = False
        for state in self.states.values():
            state.commit()
        self._clear()
        self._fit()

    def _fit(self) -> None:
        """Let the largest states age until all cells are within the bound, or none can."""
        if self.max_cells is None:
            return
        states = list(self.states.values())
        while states and sum(state.cells for state in states) > self.max_cells:
            if not max(states, key=lambda state: state.cells).age():
                return

    def rollback(self) -> None:
        """Forget the epoch."""
        for state in self.states.values():
            state.rollback()
        for recursion in self.recursions.values():
            recursion.forget_waves()
        for constant in self.constants:
            constant.forget()
        self._clear()

    def forget(self) -> None:
        """Empty the memory of every state: ownership has changed, and so has the store."""
        for state in self.states.values():
            state.forget()
        for constant in self.constants:
            constant.forget()

    def statistics(self) -> dict[str, LoopStatistics]:
        """By loop."""
        return {name: LoopStatistics(op.waves, op.rows) for name, op in self.recursions.items()}

    def _clear(self) -> None:
        for output in self.outputs.values():
            output.batches = []
        for gate in self.gates:
            gate.outbox = []
        for recursion in self.recursions.values():
            recursion.cut, recursion.overdue = [], []


def _with_bodies(operators: Iterable[Operator]) -> Iterable[Operator]:
    for operator in operators:
        yield operator
        body = getattr(operator, "body", None)
        if isinstance(body, Body | Scope):
            yield from _with_bodies(step.operator for step in body.steps)


def _last_uses(steps: Sequence[Step]) -> list[tuple[int, ...]]:
    """For each step the slots that no later step reads, so that their batches can be let go."""
    later: set[int] = set()
    found = []
    for step in reversed(steps):
        found.append(tuple(slot for slot in set(step.inputs) if slot not in later))
        later |= set(step.inputs)
    return found[::-1]
