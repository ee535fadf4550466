"""The compiled `op` of a recursion by waves, and its bound."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, Literal, NamedTuple

from eddy.operators.batch import EMPTY, Batch, Row
from eddy.operators.context import OUTSIDE, Context
from eddy.operators.exchange import Exchange, Gate, Received
from eddy.operators.guarded import Guarded, unguarded
from eddy.operators.join import Arrange, Join
from eddy.operators.operator import Operator, State

__all__ = ["Body", "Bound", "Step", "Words", "columns_of", "trace"]

_ROWS = attrgetter("rows")
_NO_ITERATIONS: Set[int] = frozenset()
_NO_SLOTS = range(0)
_NOWHERE = -1  # a depth for which no row waits


class Step(NamedTuple):
    """An operator in a body: it reads the slots `inputs` and writes the slot `output`."""

    operator: Operator
    inputs: tuple[int, ...]
    output: int


class Words(NamedTuple):
    """Texts for errors of a recursion that is not written as `recursively(…)`: its place, and the advice."""

    where: str
    advice: str


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound of a recursion. `depth` counts the applications of op that led to a row.

    With `max_depth` expansion stops at that depth, as part of the answer. Otherwise `limit` is an accident
    guard: `error` undoes the epoch; `return` and `dead-letter` stop as `max_depth` does and report
    the rows that were cut; `rows`, in nested time alone, stops and reports them as rows of errors.
    With `stops` the worker ends if rows are held and no unread input could mend them.
    """

    max_depth: int | None = None
    limit: int = 10_000
    on_limit: Literal["error", "return", "dead-letter", "rows"] = "error"
    words: Words | None = None
    stops: bool = False

    @classmethod
    def asked(cls, max_depth: int | None, limit: int, on_limit: str) -> "Bound":
        """The bound for the author's arguments:

        `stop` is `error` that stops the worker. The choice itself is not checked.
        """
        said: Any = "error" if on_limit == "stop" else on_limit
        return cls(max_depth, limit, said, stops=on_limit == "stop")

    def where(self, name: str) -> str:
        """The name of the recursion `name` in errors."""
        return self.words.where if self.words else f"recursively '{name}'"

    def subject(self, name: str, row: Row) -> str:
        """The name of a row of the recursion `name` in errors."""
        return f"{self.where(name)}: {f'row {columns_of(row)}' if self.words else f'key {row[0]!r}'}"

    def advice(self, otherwise: str) -> str:
        """The advice in errors; `otherwise` if the recursion is written as `recursively(…)`."""
        return self.words.advice if self.words else otherwise

    @property
    def by_depth(self) -> bool:
        """Whether the answer depends on the depth of rows, so that depth has to be stored."""
        return self.max_depth is not None or self.on_limit != "error"

    @property
    def depth(self) -> int:
        """The depth at which expansion stops."""
        return self.limit if self.max_depth is None else self.max_depth


class Body:
    """The compiled `op`: slot 0 is X, the next ones come from outside, `result` is the slot of op's result.

    Operators that separate rows by depth may have rows waiting for one.
    """

    def __init__(self, steps: list[Step], slots: int, result: int) -> None:
        self.steps, self._result = steps, result
        self._values = [EMPTY] * slots
        self._outside = _NO_SLOTS
        x_alone = len(steps) == 1 and steps[0].inputs[0] == 0 and steps[0].inputs.count(0) == 1
        self._only = steps[0].operator if x_alone else None
        operators = [unguarded(step.operator) for step in steps]
        self._asides = [step.operator.aside for step in steps if isinstance(step.operator, Guarded)]
        self._absent = (EMPTY,) * (len(steps[0].inputs) - 1)
        self._arranges = [op for op in operators if isinstance(op, Arrange)]
        self._keepers = [op for op in operators if isinstance(op, Exchange) or (isinstance(op, Join) and op.by_depth)]
        self._exchanges = [op for op in operators if isinstance(op, Exchange)]
        self.received = [step.inputs[1] for step in steps if isinstance(unguarded(step.operator), Exchange)]
        self.keeps = bool(self._keepers)
        self.keyed = self._is_keyed()
        self._aware = self.keeps or any(op.by_depth for op in self._arranges)

    def open(self, externals: Sequence[Batch]) -> None:
        """Begin an epoch: the deltas from outside are inputs of the first wave only."""
        self._values[1 : 1 + len(externals)] = externals
        self._outside = range(1, 1 + len(externals))

    def run(self, frontier: Batch, iteration: int) -> Batch:
        """One wave: op of the frontier, of rows waiting for this depth and, in the first wave, of the deltas."""
        if self._only is not None and not self._aware and not self._outside:
            return self._only.step(OUTSIDE, frontier, *self._absent)
        context = Context(iteration) if self._aware else OUTSIDE
        values = self._values
        values[0] = frontier
        for operator, inputs, output in self.steps:
            batches = [values[i] for i in inputs]
            values[output] = operator.step(context, *batches) if self._aware or any(map(_ROWS, batches)) else EMPTY
        for slot in self._outside:
            values[slot] = EMPTY
        self._outside = _NO_SLOTS
        return values[self._result]

    def _is_keyed(self) -> bool:
        """Whether op of a row depends only on rows outside with the same key."""
        ours = {0, *(step.output for step in self.steps)}
        reading = [step for step in self.steps if not ours.issuperset(step.inputs)]
        return all(isinstance(unguarded(step.operator), Join) and 0 in step.inputs for step in reading)

    def look(self, row: Row) -> list[Row]:
        """Compute op of one row, without changing any state of the body."""
        if self._outside or self._exchanges:
            return self.follow(row, None)[0]
        return self._undone(Batch([row], [1]), [], [])

    def _undone(self, frontier: Batch, left: list[tuple[int, Row]], sent: list[int]) -> list[Row]:
        """Run one wave and undo it. `left` takes the rows in the exchanges' outboxes, which had `sent` batches."""
        arranged = [len(arrange.waiting) for arrange in self._arranges]
        found = [len(aside.found) for aside in self._asides]
        try:
            return self.run(frontier, _NOWHERE).rows
        finally:
            for arrange, length in zip(self._arranges, arranged, strict=True):
                del arrange.waiting[length:]
            for number, length in enumerate(sent):
                outbox = self._exchanges[number].gate.outbox
                left += [(number, row) for outgoing in outbox[length:] for row in outgoing.batch.rows]
                del outbox[length:]
            for aside, length in zip(self._asides, found, strict=True):
                del aside.found[length:]

    def follow(self, row: Row, at: int | None) -> tuple[list[Row], list[tuple[int, Row]]]:
        """As `look`, also of a row received at exchange number `at`.

        Returns the rows of op, and the rows for other owners, each with the number of the exchange that it leaves by.
        """
        slots = (*self._outside, *([] if at is None else [self.received[at]]))
        before = [self._values[slot] for slot in slots]
        outside, laters = self._outside, [exchange.later for exchange in self._exchanges]
        sent = [len(exchange.gate.outbox) for exchange in self._exchanges]
        self._outside = _NO_SLOTS
        for slot in slots:
            self._values[slot] = EMPTY
        if at is not None:
            self._values[self.received[at]] = Received(Batch([row], [1]), [_NOWHERE])
        left: list[tuple[int, Row]] = []
        try:
            return self._undone(EMPTY if at is not None else Batch([row], [1]), left, sent), left
        finally:
            for exchange, later in zip(self._exchanges, laters, strict=True):
                exchange.later = later
            for slot, batch in zip(slots, before, strict=True):
                self._values[slot] = batch
            self._outside = outside

    @property
    def gates(self) -> list[Gate]:
        """The gates of the exchanges inside."""
        return [exchange.gate for exchange in self._exchanges]

    def waiting(self) -> Set[int]:
        """The depths for which an operator has rows waiting."""
        return {iteration for op in self._keepers for iteration in op.later} if self._keepers else _NO_ITERATIONS

    def settle(self) -> None:
        """At the fixpoint: the arrangements inside op add the epoch's rows."""
        for arrange in self._arranges:
            arrange.settle()

    def forget_waves(self) -> None:
        """Undo the epoch."""
        for operator in self._keepers:
            operator.later = {}
        for arrange in self._arranges:
            arrange.forget_wave()

    def states(self) -> list[State]:
        """The states of the operators inside."""
        return [state for step in self.steps for state in step.operator.states()]


def columns_of(row: Row) -> Any:
    """A row of SQL as its author knows it: its columns, in the value, or for a set in the key."""
    return row[1] or row[0]


def trace(
    body: Body,
    row: Row,
    part: Callable[[Row], Any] = itemgetter(0),
    longest: int = 1_000,
    ends: Callable[[Row], bool] = lambda row: False,
) -> tuple[list[Any], bool]:
    """Follow one row through the loop: the keys, or other parts, on its way, and whether a row came again.

    Nothing is computed from a row of which `ends` holds.
    """
    seen: dict[Any, int] = {}
    path: list[Any] = []
    while row not in seen and len(path) < longest:
        seen[row] = len(path)
        path.append(part(row))
        made = [] if ends(row) else body.look(row)
        if not made:
            return path, False
        row = made[0]
    return ([*path[seen[row] :], part(row)], True) if row in seen else (path, False)
