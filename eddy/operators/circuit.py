"""The circuit: a compiled plan, with one object for each operator, in topological order, stepped once an epoch.

`step` takes a batch for each source and puts batches into the sinks and the outboxes of the exchanges. Then `changes`
returns the changed rows of the states. After the transaction `commit` ends the epoch. If the transaction fails,
`rollback` undoes the epoch: it empties sinks and outboxes, and restores the states.

Invariant: between epochs the slots, sinks and outboxes are empty.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from eddy.errors import DataError, EddyError, UnwritableRowError
from eddy.operators.async_map import AsyncMap
from eddy.operators.batch import EMPTY, Batch
from eddy.operators.constant import Constant
from eddy.operators.context import OUTSIDE, Context, Tick, TickOrWatermark, Wake
from eddy.operators.errors.guarded import Guarded, unguarded
from eddy.operators.errors.set_aside import Aside, Care, KeptRow, Located
from eddy.operators.exchange import Budget, Exchange, Gate, Ownership
from eddy.operators.keyed import Keyed
from eddy.operators.nested.fixpoint import Fixpoint, NestedBody
from eddy.operators.nested.outermost import Outermost
from eddy.operators.operator import ClocksRead, Operator, State, Step
from eddy.operators.processors.processing import Process
from eddy.operators.waves.body import Body
from eddy.operators.waves.fact_waves import FactWaves
from eddy.operators.waves.recursion import Waves
from eddy.operators.windows.as_of_join import AsOfJoin
from eddy.operators.windows.assignment import AssignWindows
from eddy.operators.windows.deduplicate import Deduplicate
from eddy.operators.windows.frontier import Marks
from eddy.operators.windows.stream_join import StreamStreamJoin
from eddy.operators.windows.windowed_fold import OpenWindow, WindowedFold
from eddy.operators.with_records import WithRecords
from eddy.serde import reason_of
from eddy.source_lines import describe_exception
from eddy.state.spec import Changes
from eddy.state.table_state import Table

__all__ = ["Circuit", "Failure", "LoopStatistics", "Output", "Recursive", "StepCost"]

_OPEN = (WindowedFold, StreamStreamJoin, AsOfJoin, Deduplicate)
"""The operators that can name a window that is still open, as the reason why they wait."""
Recursive = Waves | FactWaves | Fixpoint


class Output(Operator):
    """A sink: collects the epoch's batches until the worker sends them.

    `aside` stores the values that the sink cannot write. It is None if a value that cannot be written leads to the
    rejection of its source record.
    """

    def __init__(self, name: str, aside: Aside | None = None) -> None:
        self.name, self.aside = name, aside
        self.asides = [] if aside is None else [aside]
        self.batches: list[Batch] = []

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Collect the batch."""
        (batch,) = inputs
        self.batches.append(batch)
        return EMPTY

    def end_epoch(self) -> None:
        """Drop the batches."""
        self.batches = []


@dataclass(frozen=True, slots=True)
class LoopStatistics:
    """Counters of a loop since the circuit was created: waves, and rows in them."""

    waves: int
    rows: int


class StepCost(NamedTuple):
    """The number of input rows of a step, and the seconds of its work, since the circuit was created.

    Epochs that were undone count, too. The steps inside a recursion count as parts of the recursion.
    """

    rows: int
    seconds: float


class Failure(NamedTuple):
    """The operator whose step has raised an exception, and the inputs of this step."""

    operator: Operator
    inputs: Sequence[Batch]

    def rows(self) -> dict[int, DataError]:
        """Return the errors of the rows on which the operator fails, by their index in the operator's first input."""
        try:
            found = self.operator.failures(*self.inputs)
        except Exception:  # a key cannot be hashed or encoded, so no author's function was called
            return {}
        return {row: named(self.operator, error) for row, error in found.items()}


def named(operator: Operator, error: Exception) -> DataError:
    """Wrap the exception of an author's function in an error that names the step."""
    if isinstance(error, DataError):
        return error
    told = DataError(f"step '{operator.name}': the function raised {describe_exception(error)}")
    told.__cause__ = error
    return told


class Circuit:
    """Operators in topological order over numbered slots. `inputs` has the slot of each source's rows, by topic.

    `max_cells` bounds the number of cells that all states have in memory between epochs. `failed` is the operator that
    raised in the last `step`, with its inputs; None if no operator raised. `holding` has the operators that may hold
    rows: name -> number of partitions. `clock` returns seconds, for `costs`.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        slots: int,
        inputs: Mapping[str, int],
        ownership: Ownership,
        budgets: Sequence[Budget],
        max_cells: int | None = None,
        care: Care | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._clock = clock
        self._steps = [(step, last) for step, last in zip(steps, _last_uses(steps), strict=True)]
        self._rows, self._seconds = [0] * len(steps), [0.0] * len(steps)
        self._empty = [EMPTY] * slots
        self._inputs = dict(inputs)
        self.ownership, self.max_cells = ownership, max_cells
        self._budgets = budgets
        self.failed: Failure | None = None
        placed = list(_with_bodies(step.operator for step in steps))
        self.operators = operators = list(map(unguarded, placed))
        self._ending = [op for op in operators if type(op).end_epoch is not Operator.end_epoch]
        self.outputs = {op.name: op for op in operators if isinstance(op, Output)}
        self.recursions: dict[str, Recursive] = {op.name: op for op in operators if isinstance(op, Recursive)}
        self.gates: list[Gate] = [
            op.gate for op in operators if isinstance(op, Exchange | Waves | FactWaves | Constant | Marks)
        ]
        self.care = care or Care()
        self.asides = [aside for op in placed if isinstance(op, Guarded | Output) for aside in op.asides]
        self.loop_topics = frozenset(op.gate.topic for op in operators if isinstance(op, Waves | FactWaves))
        self.constants = [op for op in operators if isinstance(op, Constant)]
        self._told_once = [op for op in operators if isinstance(op, Constant | Marks)]
        self._wakers = dict.fromkeys(
            step.operator for step in steps if type(unguarded(step.operator)).wakes_at is not Operator.wakes_at
        )
        reads = [op.reads for op in map(unguarded, self._wakers)]
        self.reads = ClocksRead(frozenset().union(*(clocks.sources for clocks in reads)), any(c.wall for c in reads))
        self._loops = [op for op in map(unguarded, self._wakers) if isinstance(op, Outermost)]
        self._keyed = [op for op in operators if isinstance(op, Keyed)]
        self.processors = [op for op in operators if isinstance(op, Process)]
        self._windows = [op for op in operators if isinstance(op, AssignWindows)]
        self._holding = [
            op for op in (unguarded(step.operator) for step in steps) if type(op).held is not Operator.held
        ]
        self.holding = {op.name: _partitions(op) for op in self._holding}
        self.states: dict[str, State] = {state.spec.name: state for step in steps for state in step.operator.states()}
        self.global_tables: dict[str, Table[Any, Any]] = {}

    @property
    def unsettled(self) -> bool:
        """Whether an operator has work in an epoch without input, once no row is in flight between workers."""
        return any(unguarded(operator).wakes_at() is Wake.AT_REST for operator in self._wakers)

    def step(self, inputs: Mapping[str, Batch], context: Context = OUTSIDE, settling: bool = False) -> None:
        """Run one epoch. `settling`: there is no input, and no row is in flight between workers.

        Raises: DataError naming the step whose function raised; the caller rolls back.
        """
        for budget in self._budgets:
            budget.begin()
        self.failed = None
        values = self._empty.copy()
        for name, batch in inputs.items():
            values[self._inputs[name]] = batch
        began = self._clock()
        try:
            for number, ((operator, sources, output), last) in enumerate(self._steps):
                for slot in sources:
                    if values[slot].rows:
                        break
                else:  # most steps of a small epoch have no input
                    if operator not in self._wakers or not self._wakes(operator, context, settling):
                        continue
                batches = [values[slot] for slot in sources]
                values[output] = operator.step(context, *batches)
                for slot in last:
                    values[slot] = EMPTY
                self._rows[number] += sum(map(len, batches))
                ended = self._clock()
                self._seconds[number] += ended - began
                began = ended
        except Exception as error:
            self.failed = Failure(operator, [values[slot] for slot in sources])
            if isinstance(error, EddyError):
                raise
            raise named(operator, error) from error

    def compute(
        self, inputs: Mapping[str, Batch], context: Context = OUTSIDE, settling: bool = False
    ) -> dict[str, Changes]:
        """Run one epoch, and return the changed rows by state. Raises: as `step` and `changes`.

        If a state of a recursion cannot write a row, the epoch is undone and run again with a check of each row.
        """
        while True:
            self.step(inputs, context, settling)
            try:
                return self.changes()
            except UnwritableRowError as error:
                if not self.be_careful(error.place):
                    raise
            self.rollback()

    def be_careful(self, place: str) -> bool:
        """Make a recursion check the size of each of its rows from now on.

        `place` is a state or a topic of the recursion. Returns False if no recursion has this state or topic, or if the
        recursion checks each row already.
        """
        for loop in self.recursions.values():
            places = {state.spec.name for state in loop.states()}
            if not isinstance(loop, Fixpoint):
                places |= {gate.topic for gate in (loop.gate, *loop.body.gates)}
            if place in places:
                return loop.be_careful()
        return False

    def _wakes(self, operator: Operator, context: Context, settling: bool = False) -> bool:
        """Return whether this epoch has to step the operator even if the operator has no input."""
        wake = unguarded(operator).wakes_at()
        return wake is not None and (wake.reached(context) or (settling and wake is Wake.AT_REST))

    @property
    def may_set_aside(self) -> bool:
        """Whether an error of the last step or commit may come from an operator that can set rows aside."""
        return bool(self.asides) and (self.failed is None or isinstance(self.failed.operator, Guarded | Recursive))

    def due(self, context: Context = OUTSIDE) -> bool:
        """Return whether an epoch with this context has work even without input.

        Such work is constants to send, a recursion in nested time to try again, or a deadline that has passed.
        """
        return any(self._wakes(operator, context) for operator in self._wakers)

    @property
    def next_tick(self) -> int | None:
        """The first wall-clock time, in milliseconds, that an operator waits for; None if there is none."""
        wakes = (unguarded(operator).wakes_at() for operator in self._wakers)
        return min((wake.at_ms for wake in wakes if isinstance(wake, Tick | TickOrWatermark)), default=None)

    @property
    def left_due(self) -> set[tuple[int, int]]:
        """The partitions in which the epoch has not finished the work that is due.

        The items are pairs (number of partitions of a topic, partition).
        """
        return {(_partitions(op), p) for op in map(unguarded, self._wakers) for p in op.left_due}

    @property
    def constants_sent(self) -> list[str]:
        """The topics of the constants whose rows the epoch has sent."""
        return [constant.gate.topic for constant in self.constants if constant.sent_now]

    @property
    def owed_moves(self) -> dict[str, int]:
        """By how much the running epoch has raised the number of tries that each loop owes, by the loop's name.

        See `nested/outermost.py`.
        """
        return {loop.name: loop.queue.owed_change for loop in self._loops if loop.queue.owed_change}

    def changes(self) -> dict[str, Changes]:
        """Return the changed rows of the epoch, by state.

        Raises: DataError if a key or value does not fit the serde of its state.
        """
        changed = {}
        for name, state in self.states.items():
            try:
                rows = state.changes()
            except EddyError:
                raise
            except Exception as error:
                raise UnwritableRowError(
                    f"state '{name}': a row does not fit its serdes (key {state.spec.key.name}, value "
                    f"{state.spec.value.name}), or has no key: {reason_of(error)}. Name the serde where the rows "
                    "are made (key=, value=), or filter rows without a key out before",
                    name,
                ) from error
            if rows.keys:
                changed[name] = rows
        return changed

    def commit(self) -> None:
        """End the epoch, which is in the log and in the store."""
        for constant in self.constants:
            constant.sent_now = False
        for state in self.states.values():
            state.commit()
        for aside in self.asides:
            aside.commit()
        self._clear()
        self._fit()

    def _fit(self) -> None:
        """Drop cells from memory until all states together have at most `max_cells`.

        The largest state drops cells first. The method ends early if that state can drop none.
        """
        if self.max_cells is None:
            return
        states: list[State] = [*self.states.values(), *self.global_tables.values()]
        while states and sum(state.cells for state in states) > self.max_cells:
            if not max(states, key=lambda state: state.cells).age():
                return

    def rollback(self) -> None:
        """Undo the epoch."""
        for state in self.states.values():
            state.rollback()
        for aside in self.asides:
            aside.rollback()
        for recursion in self.recursions.values():
            recursion.forget_waves()
        for operator in self._told_once:
            operator.forget()
        self.close()
        self._clear()

    def forget(self) -> None:
        """Empty the memory of every state, after a change of ownership has changed the store."""
        for state in self.states.values():
            state.forget()
        for operator in self._told_once:
            operator.forget()
        for loop in self._loops:
            loop.forget_waves()
        self.close()

    def close(self) -> None:
        """Close the processors; the next epoch makes them anew."""
        for processor in self.processors:
            processor.forget()

    def recall(self, memories: Mapping[Located, KeptRow]) -> None:
        """Load the rows set aside and the withheld keys of the owned partitions into the operators' memory."""
        owns = self.ownership.owns
        for aside in self.asides:
            mine = [m for m in memories.items() if m[0].step == aside.step and owns(m[0].partition, m[0].partitions)]
            aside.recall(mine)

    @property
    def kept_aside(self) -> int:
        """The number of rows that are set aside, plus the number of keys that are withheld."""
        return sum(len(aside.kept) for aside in self.asides)

    def dropped(self) -> dict[str, int]:
        """Return how many rows each step has dropped in the current epoch because they had no key or no value."""
        return {op.name: op.dropped for op in self._keyed if op.dropped}

    def late(self) -> dict[str, int]:
        """Return for each step how many windows, of the current epoch's records, had already ended."""
        late: Counter[str] = Counter()
        for op in self._keyed:
            late[op.name] += op.late
        return +late

    def duplicates(self) -> int:
        """Return how many records of the current epoch `Deduplicate` has dropped as duplicates."""
        return sum(op.duplicates for op in self.operators if isinstance(op, Deduplicate))

    def open_windows(self, context: Context) -> list[OpenWindow]:
        """Return the first open window of each step, between epochs. `context` has the event times."""
        found = (op.first_open(context) for op in self.operators if isinstance(op, _OPEN))
        return [window for window in found if window is not None]

    @property
    def reads_places(self) -> bool:
        """Whether an operator needs the places of its rows' records."""
        found = any(isinstance(op, WithRecords | AsyncMap) for op in self.operators)
        return bool(self.processors or self._windows or found)

    @property
    def layout(self) -> tuple[list[Step], Mapping[str, int]]:
        """The steps in their order, and the slot of each source's rows, by topic."""
        return [step for step, _ in self._steps], self._inputs

    def held(self) -> dict[tuple[str, int], str]:
        """Return the messages of `Operator.held`, by operator name and partition, for this worker's partitions."""
        owns, counts = self.ownership.owns, self.holding
        found = ((op.name, p, why) for op in self._holding for p, why in (op.held() or {}).items())
        return {(name, p): why for name, p, why in found if owns(p, counts[name])}

    def undecided(self) -> set[str]:
        """Return the names of the operators for which the workers have not agreed yet on the held rows."""
        return {op.name for op in self._holding if op.held() is None}

    def costs(self) -> dict[str, StepCost]:
        """Return the cost of each step outside of loops, and of each loop, by name."""
        found: dict[str, StepCost] = {}
        for (step, _), rows, seconds in zip(self._steps, self._rows, self._seconds, strict=True):
            before = found.get(step.operator.name, StepCost(0, 0.0))
            found[step.operator.name] = StepCost(before.rows + rows, before.seconds + seconds)
        return found

    def statistics(self) -> dict[str, LoopStatistics]:
        """The counters of each loop."""
        return {name: LoopStatistics(op.waves, op.rows) for name, op in self.recursions.items()}

    def _clear(self) -> None:
        for operator in self._ending:
            operator.end_epoch()


def _with_bodies(operators: Iterable[Operator]) -> Iterable[Operator]:
    for operator in operators:
        yield operator
        body = getattr(unguarded(operator), "body", None)
        if isinstance(body, Body | NestedBody):
            yield from _with_bodies(step.operator for step in body.steps)


def _partitions(operator: Operator) -> int:
    """The number of partitions of an operator's keys."""
    gate = getattr(operator, "gate", None)
    return gate.partitions if isinstance(gate, Gate) else next((s.spec.partitions for s in operator.states()), 1)


def _last_uses(steps: Sequence[Step]) -> list[tuple[int, ...]]:
    """Return, for each step, the slots that no later step reads, so that their batches can be freed."""
    later: set[int] = set()
    found = []
    for step in reversed(steps):
        found.append(tuple(slot for slot in set(step.inputs) if slot not in later))
        later |= set(step.inputs)
    return found[::-1]
