"""The compiled `op` of a recursion by waves."""

from collections.abc import Callable, Sequence, Set
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, Protocol

from eddy.operators.batch import EMPTY, Batch, Row, keys_of
from eddy.operators.context import OUTSIDE, Context
from eddy.operators.errors.guarded import Guarded, unguarded
from eddy.operators.exchange import Exchange, Gate
from eddy.operators.join import Arrange, Join, StreamTableJoin
from eddy.operators.matches import Bags, Lookup
from eddy.operators.operator import State, Step
from eddy.state.arrangement import Bag
from eddy.state.table_state import Table

__all__ = ["Asked", "Body", "Explored", "Lookups", "OwnRows", "trace"]

_ROWS = attrgetter("rows")
_NO_ITERATIONS: Set[int] = frozenset()
_NO_SLOTS = range(0)
_ONE = [1]
_NOTHING: list[Any] = []


Asked = tuple[int, Any]
"""The number of a join, and a key that was looked up in the rows outside."""


class Explored(NamedTuple):
    """The result of op for a row.

    `rows` are the rows that op makes, each once. `asked` are the keys that it has looked up outside, and `met` those
    among them that have matches.
    """

    rows: list[Row]
    asked: list[Asked]
    met: list[Asked]


class Lookups(Protocol):
    """Finds rows outside that other workers own."""

    def over(self, join: int, keys: Sequence[Any]) -> Bags:
        """The bags of these keys outside, for the join of this number."""


class Body:
    """The compiled `op`. Slot 0 has X, the next slots the inputs from outside, the slot `result` the result.

    In operators that process rows by depth, rows may wait for the wave of their depth.
    """

    def __init__(self, steps: list[Step], slots: int, result: int) -> None:
        self.steps, self._result = steps, result
        self._values = [EMPTY] * slots
        self._outside = _NO_SLOTS
        x_alone = len(steps) == 1 and steps[0].inputs[0] == 0 and steps[0].inputs.count(0) == 1
        self._only = steps[0].operator if x_alone else None
        operators = [unguarded(step.operator) for step in steps]
        self._aside_of = {n: step.operator.aside for n, step in enumerate(steps) if isinstance(step.operator, Guarded)}
        self._lone = operators[0] if x_alone and isinstance(operators[0], Join) else None
        self.lookups = self._placed_lookups()
        self._absent = (EMPTY,) * (len(steps[0].inputs) - 1)
        self._arranges = [op for op in operators if isinstance(op, Arrange)]
        self._keepers = [op for op in operators if isinstance(op, Exchange) or (isinstance(op, Join) and op.by_depth)]
        self._exchanges = [op for op in operators if isinstance(op, Exchange)]
        self.received = [step.inputs[1] for step in steps if isinstance(unguarded(step.operator), Exchange)]
        self.keeps = bool(self._keepers)
        self._aware = self.keeps or any(op.by_depth for op in self._arranges)

    def open(self, externals: Sequence[Batch]) -> None:
        """Begin an epoch. The deltas from outside are inputs of its first wave only."""
        self._values[1 : 1 + len(externals)] = externals
        self._outside = range(1, 1 + len(externals))

    def run(self, frontier: Batch, iteration: int) -> Batch:
        """Apply op to the frontier and to rows that wait for this depth.

        In the first wave deltas from outside are added.
        """
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

    def _placed_lookups(self) -> dict[int, tuple[Lookup, Gate | None]]:
        gates: dict[int, Gate | None] = {0: None}
        lookups: dict[int, tuple[Lookup, Gate | None]] = {}
        for number, step in enumerate(self.steps):
            operator, ours = unguarded(step.operator), [slot for slot in step.inputs if slot in gates]
            if isinstance(operator, Join | StreamTableJoin):
                lookups[number] = operator.outside, gates[ours[0]]
            if ours:
                gate = operator.gate if isinstance(operator, Exchange) else None
                gates[step.output] = gate or next((gates[slot] for slot in ours if gates[slot] is not None), None)
        return lookups

    def explore(self, row: Row, lookups: Lookups | None = None) -> Explored:
        """Apply op to one row, without changing a state.

        `lookups` finds the rows outside; None if this worker owns all of them.
        Cost: a look-up for each join that the row reaches.
        """
        if self._lone is not None and lookups is None:
            rows = self._lone.explore(Batch([row], _ONE), None, self._aside_of.get(0)).rows
            asked = [(0, row[0])]
            return Explored(rows if len(rows) < 2 else list(dict.fromkeys(rows)), asked, asked if rows else _NOTHING)
        found = Explored([], [], [])
        made = self._apply_op(Batch([row], _ONE), lookups, found)
        return found._replace(rows=list(dict.fromkeys(made)))

    def explore_all(self, rows: list[Row], lookups: Lookups | None = None) -> list[Row]:
        """Apply op to many rows at once. Returns the rows that it makes, each once."""
        batch = Batch(rows, _ONE * len(rows))
        if self._lone is not None and lookups is None:
            made = self._lone.explore(batch, None, self._aside_of.get(0)).rows
        else:
            made = self._apply_op(batch, lookups, Explored([], [], []))
        return list(dict.fromkeys(made))

    def _apply_op(self, rows: Batch, lookups: Lookups | None, found: Explored) -> list[Row]:
        """Apply op to some rows. `found` gets the keys that were looked up."""
        values: dict[int, Batch] = {0: rows}
        for number, step in enumerate(self.steps):
            batches = [values.get(slot, EMPTY) for slot in step.inputs]
            if any(map(_ROWS, batches)):
                join = unguarded(step.operator)
                if isinstance(join, Join | StreamTableJoin):
                    values[step.output] = self._matches(number, join, batches[0], lookups, found)
                else:
                    values[step.output] = step.operator.explore(*batches)
        return values.get(self._result, EMPTY).rows

    def _matches(
        self, number: int, join: Join | StreamTableJoin, rows: Batch, lookups: Lookups | None, found: Explored
    ) -> Batch:
        keys = list(dict.fromkeys(keys_of(rows.rows)))
        outside = None if lookups is None else lookups.over(number, keys)
        made = join.explore(rows, outside, self._aside_of.get(number))
        asked = [(number, key) for key in keys]
        found.asked.extend(asked)
        if made.rows:
            found.met.extend(asked)
        return made

    def bags(self, join: int, keys: Sequence[Any]) -> dict[Any, Bag | None]:
        """Return the rows outside that a join finds for each of these keys, which this worker owns."""
        state = self.lookups[join][0]
        if isinstance(state, Table):
            values = state.get_many(list(keys))
            return {key: None if value is None else (value, 1) for key, value in zip(keys, values, strict=True)}
        return dict(zip(keys, state.get_many(list(keys)), strict=True))

    def gate_before(self, join: int, loop: Gate) -> Gate:
        """Return the gate through which a join gets its rows: the gate of an exchange before it, or else `loop`."""
        return self.lookups[join][1] or loop

    @property
    def gates(self) -> list[Gate]:
        """The gates of the exchanges inside."""
        return [exchange.gate for exchange in self._exchanges]

    def waiting(self) -> Set[int]:
        """The depths for which an operator has rows waiting."""
        return {iteration for op in self._keepers for iteration in op.later} if self._keepers else _NO_ITERATIONS

    def settle(self) -> None:
        """Add the epoch's rows to the arrangements inside op, when the waves have ended."""
        for arrange in self._arranges:
            arrange.settle()

    def forget_waves(self) -> None:
        """Undo the epoch."""
        for operator in self._keepers:
            operator.forget_later()
        for arrange in self._arranges:
            arrange.forget_wave()

    def states(self) -> list[State]:
        """The states of the operators inside."""
        return [state for step in self.steps for state in step.operator.states()]


class OwnRows:
    """Finds only the rows outside that this worker owns. `loop` is the gate of the recursion."""

    def __init__(self, body: Body, loop: Gate) -> None:
        self._body, self._loop = body, loop

    def over(self, join: int, keys: Sequence[Any]) -> Bags:
        """Return the bags of the keys that this worker owns."""
        rows = [(key, None) for key in keys]
        mine = [key for key, _ in self._body.gate_before(join, self._loop).mine(rows)]
        return _OwnBags(self._body.bags(join, mine))


class _OwnBags:
    def __init__(self, bags: dict[Any, Bag | None]) -> None:
        self._bags = bags

    def get_many(self, keys: list[Any]) -> list[Bag | None]:
        """The bag of each key."""
        return list(map(self._bags.get, keys))


def trace(
    body: Body, row: Row, part: Callable[[Row], Any] = itemgetter(0), longest: int = 1_000
) -> tuple[list[Any], bool]:
    """Follow one row through the loop. Returns the path, and whether a row recurs on it.

    The path has the part of each row that `part` returns, by default its key.
    """
    seen: dict[Any, int] = {}
    path: list[Any] = []
    while row not in seen and len(path) < longest:
        seen[row] = len(path)
        path.append(part(row))
        made = body.explore(row).rows
        if not made:
            return path, False
        row = made[0]
    return ([*path[seen[row] :], part(row)], True) if row in seen else (path, False)
