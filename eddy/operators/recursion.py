"""Recursion by waves: semi-naive evaluation of a linear `op`, consolidated.

    X = seed + op(X)      so      ΔX = Σ F(n),   F(0) = Δseed + Δop(X before),   F(n+1) = op(F(n))

F is the frontier. Between two waves equal rows are merged and their weights added, and rows of
weight 0 vanish: one step for each distinct row that a batch touches, however many ways lead to it.
`op` is linear, so retractions run the same way round and undo what their rows once did, whatever
the order in which rows arrive, in one epoch or in many, on one worker or on several.

Three forms, which differ in what they remember and emit:

    Waves         a relation; X is arranged, rows of all depths together
    LeveledWaves  a relation with a bound on depth; X is arranged with each row's depth
    FactWaves     a KStream (KIP-857); facts are never taken back, so nothing is arranged

Invariant: while the waves run, the arrangements of X and of what op makes of it are those before
the epoch; they take the epoch's rows in together, at rest.

Sources: KIP-857; McSherry et al., "Differential Dataflow", CIDR 2013; Materialize's recursion limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from eddy.errors import LoopLimitError
from eddy.operators.batch import EMPTY, Batch, Row, ZSet, concat, consolidate, merge_into
from eddy.operators.exchange import Budget, Gate, by_hop
from eddy.operators.join import Arrange, Join
from eddy.operators.operator import Operator, State
from eddy.state.arrangement import Arrangement

__all__ = ["Body", "Bound", "FactWaves", "LeveledWaves", "Step", "Waves"]


class Step(NamedTuple):
    """One operator in its place: it reads the slots `inputs` and writes the slot `output`."""

    operator: Operator
    inputs: tuple[int, ...]
    output: int


@dataclass(frozen=True, slots=True)
class Bound:
    """How far a recursion may go. `depth` counts the applications of op that led to a row.

    With `max_depth` expansion stops there, as part of the answer. Otherwise `limit` is an accident
    guard: `error` undoes the epoch; `return` and `dead-letter` stop as `max_depth` does and report
    the rows that were cut.
    """

    max_depth: int | None = None
    limit: int = 10_000
    on_limit: Literal["error", "return", "dead-letter"] = "error"

    @property
    def leveled(self) -> bool:
        """Whether the answer depends on the depth of rows, so that it has to be remembered."""
        return self.max_depth is not None or self.on_limit != "error"

    @property
    def depth(self) -> int:
        """The depth at which expansion stops."""
        return self.limit if self.max_depth is None else self.max_depth


@dataclass(slots=True)
class Body:
    """The compiled `op`: slot 0 is X, the next ones come from outside, `result` is what op makes."""

    steps: list[Step]
    slots: int
    result: int
    _values: list[Batch] = field(init=False)
    _arranges: list[Arrange] = field(init=False)
    _joins: list[Join] = field(init=False)

    def __post_init__(self) -> None:
        self._values = [EMPTY] * self.slots
        self._arranges = [s.operator for s in self.steps if isinstance(s.operator, Arrange)]
        self._joins = [s.operator for s in self.steps if isinstance(s.operator, Join)]

    def open(self, externals: Sequence[Batch]) -> None:
        """Begin an epoch: the deltas from outside are there for the first wave alone."""
        self._values = [EMPTY, *externals] + [EMPTY] * (self.slots - 1 - len(externals))

    def run(self, frontier: Batch) -> Batch:
        """One wave: what op makes of the frontier and, the first time, of the deltas from outside."""
        values = self._values
        values[0] = frontier
        for operator, inputs, output in self.steps:
            batches = [values[i] for i in inputs]
            values[output] = operator.step(*batches) if any(batches) else EMPTY
        result = values[self.result]
        self._values = [EMPTY] * self.slots
        return result

    def run_level(self, frontier: Batch, level: int) -> Batch:
        """One wave of rows at one depth, with what joins have kept back for it."""
        for join in self._joins:
            join.level = level
        for arrange in self._arranges:
            arrange.level = level
        values = self._values
        values[0] = frontier
        for operator, inputs, output in self.steps:
            values[output] = operator.step(*[values[i] for i in inputs])
        result = values[self.result]
        self._values = [EMPTY] * self.slots
        return result

    def levels_waiting(self) -> set[int]:
        """The depths for which a join has rows in waiting."""
        return {level for join in self._joins for level in join.later}

    def settle(self) -> None:
        """At rest: what op arranges inside takes the epoch's rows in."""
        for arrange in self._arranges:
            arrange.settle()
        for join in self._joins:
            join.later.clear()

    def forget_waves(self) -> None:
        """The epoch is undone."""
        for arrange in self._arranges:
            arrange.forget_wave()
        for join in self._joins:
            join.later.clear()

    def states(self) -> list[State]:
        """The states of the operators inside."""
        return [state for step in self.steps for state in step.operator.states()]


class _Recursion(Operator):
    """What the three forms share: the seed and the feedback go through the gate to their owners."""

    def __init__(self, name: str, body: Body, gate: Gate, bound: Bound, budget: Budget) -> None:
        self.name, self.body, self.gate, self.bound, self.budget = name, body, gate, bound, budget
        self.waves = self.rows = 0
        self.cut: list[Batch] = []

    def states(self) -> Sequence[State]:
        """The states of the body."""
        return self.body.states()

    def forget_waves(self) -> None:
        """The epoch is undone."""
        self.body.forget_waves()
        self.gate.outbox.clear()
        self.cut.clear()

    def _limit_error(self, row: Row) -> LoopLimitError:
        path, came_around = trace(self.body, row)
        shown = " → ".join(map(str, path if len(path) <= 12 else [*path[:6], "…", *path[-5:]]))
        what = f"the path {shown} came around" if came_around else f"it got as far as {shown}"
        return LoopLimitError(
            f"recursively '{self.name}': key {row[0]!r} was not at rest after {self.bound.limit} waves: {what}; "
            "a cycle in the data has no finite answer. Mend the data and start again, or bound the recursion: "
            "recursively(..., max_depth=16), or raise limit= if the data is that deep"
        )

    def _cut(self, batch: Batch) -> None:
        """Report rows that op would still have made beyond the limit."""
        if self.bound.max_depth is None and batch.rows:
            self.cut.append(batch.select([weight > 0 for weight in batch.weights]))


class Waves(_Recursion):
    """Deltas of the seed in, the delta of X out."""

    def __init__(
        self,
        name: str,
        body: Body,
        gate: Gate,
        bound: Bound,
        budget: Budget,
        arrangement: Arrangement[Any, Any] | None,
    ) -> None:
        super().__init__(name, body, gate, bound, budget)
        self.arrangement = arrangement

    def states(self) -> Sequence[State]:
        """X, where the body joins it, and the states of the body."""
        return [*([self.arrangement] if self.arrangement is not None else []), *super().states()]

    def step(self, *inputs: Batch) -> Batch:
        """Run waves until the frontier is empty or the budget is spent; what is left then leaves.

        Cost: a step for each distinct row of each frontier.
        Raises: LoopLimitError after `limit` waves.
        """
        seed, received, *externals = inputs
        time = max(batch.time for batch in inputs)
        hop = max(by_hop(received), default=0)
        frontier = concat((self.gate.own(seed), received)).zset(self.name)
        total: ZSet = {}
        self.body.open(externals)
        while True:
            self.waves += 1
            self.rows += len(frontier)
            batch = Batch.of(frontier, time)
            if total:
                merge_into(total, batch.rows, batch.weights)
            else:
                total = frontier
            made = self.body.run(batch)
            if not made.rows:
                break
            hop += 1
            rest = self.gate.own(Batch.of(made.zset(self.name), time), hop)
            if not rest.rows:
                break
            if hop > self.bound.limit:
                raise self._limit_error(rest.rows[0])
            if self.budget.spend(len(rest)):
                self.gate.spill(rest, hop)
                break
            frontier = dict(zip(rest.rows, rest.weights, strict=True))
        self.body.settle()
        if self.arrangement is not None:
            self.arrangement.integrate(total)
        return Batch.of(total, time)


class LeveledWaves(_Recursion):
    """Deltas of the seed in, the delta of X out, where X goes no deeper than the bound.

    A delta from outside meets every row of X at the row's own depth, so a row is never expanded
    beyond the bound, whichever way and whenever it came.
    """

    def __init__(
        self,
        name: str,
        body: Body,
        gate: Gate,
        bound: Bound,
        budget: Budget,
        arrangement: Arrangement[Any, Any] | None,
    ) -> None:
        super().__init__(name, body, gate, bound, budget)
        self.arrangement = arrangement

    def states(self) -> Sequence[State]:
        """X with depths, where the body joins it, and the states of the body."""
        return [*([self.arrangement] if self.arrangement is not None else []), *super().states()]

    def step(self, *inputs: Batch) -> Batch:
        """Run waves by rising depth until none is left or the budget is spent."""
        seed, received, *externals = inputs
        time = max(batch.time for batch in inputs)
        frontiers = by_hop(received)
        frontiers[0] = concat((self.gate.own(seed), frontiers.get(0, EMPTY)))
        total: list[tuple[int, Batch]] = []
        self.body.open(externals)
        while frontiers or self.body.levels_waiting():
            level = min({*frontiers, *self.body.levels_waiting()})
            frontier = Batch.of(frontiers.pop(level, EMPTY).zset(self.name), time)
            self.waves += 1
            self.rows += len(frontier)
            total.append((level, frontier))
            made = self.body.run_level(frontier, level)
            made = Batch.of(made.zset(self.name), time)
            if level >= self.bound.depth:
                self._cut(made)
                continue
            rest = self.gate.own(made, level + 1)
            if rest.rows and self.budget.spend(len(rest)):
                self.gate.spill(rest, level + 1)
            elif rest.rows:
                frontiers[level + 1] = concat((frontiers.get(level + 1, EMPTY), rest))
        self.body.settle()
        if self.arrangement is not None:
            self.arrangement.integrate(with_levels(total))
        return Batch.of(concat([batch for _, batch in total]).zset(self.name), time)


class FactWaves(_Recursion):
    """Records in; the records, where `include_seeds`, and all that op makes of them out."""

    def __init__(self, name: str, body: Body, gate: Gate, bound: Bound, budget: Budget, include_seeds: bool) -> None:
        super().__init__(name, body, gate, bound, budget)
        self._include_seeds = include_seeds

    def step(self, *inputs: Batch) -> Batch:
        """Run waves, merging equal records of one wave, until none is left or the budget is spent."""
        seed, received, *externals = inputs
        frontiers = by_hop(received)
        frontiers[0] = concat((self.gate.own(seed), frontiers.get(0, EMPTY)))
        emitted = [frontiers[0]] if self._include_seeds else []
        emitted += [batch for hop, batch in frontiers.items() if hop]
        self.body.open(externals)
        while frontiers:
            hop = min(frontiers)
            frontier = merged(frontiers.pop(hop), self.name)
            self.waves += 1
            self.rows += len(frontier)
            made = self.body.run(frontier)
            if not made.rows:
                continue
            if hop >= self.bound.depth:
                if not self.bound.leveled:
                    raise self._limit_error(made.rows[0])
                self._cut(made)
                continue
            rest = self.gate.own(made, hop + 1)
            if rest.rows and self.budget.spend(len(rest)):
                self.gate.spill(merged(rest, self.name), hop + 1)
            elif rest.rows:
                emitted.append(rest)
                frontiers[hop + 1] = concat((frontiers.get(hop + 1, EMPTY), rest))
        self.body.settle()
        return concat(emitted)


def merged(batch: Batch, where: str) -> Batch:
    """Merge equal facts: weights are added and the latest time is kept, in order of first coming."""
    if not batch.rows:
        return batch
    zset = consolidate(batch.rows, batch.weights, where)
    if batch.times is None or len(zset) == len(batch.rows):
        return batch if len(zset) == len(batch.rows) else Batch.of(zset, batch.time)
    latest: dict[Row, int] = {}
    for row, time in zip(batch.rows, batch.times, strict=True):
        if latest.get(row, time) <= time:
            latest[row] = time
    rows = list(zset)
    return Batch(rows, list(zset.values()), batch.time, [latest[row] for row in rows])


def with_levels(waves: Sequence[tuple[int, Batch]]) -> ZSet:
    """The rows (key, (level, value)) of all waves."""
    total: ZSet = {}
    for level, batch in waves:
        merge_into(total, [(key, (level, value)) for key, value in batch.rows], batch.weights)
    return total


def trace(body: Body, row: Row, longest: int = 1_000) -> tuple[list[Any], bool]:
    """Follow one row round and round: the keys on its way, and whether one of its rows came again.

    Only for errors: the epoch is undone afterwards.
    """
    seen: dict[Any, int] = {}
    path: list[Any] = []
    while row not in seen and len(path) < longest:
        seen[row] = len(path)
        path.append(row[0])
        made = body.run(Batch([row], [1]))
        if not made.rows:
            return path, False
        row = made.rows[0]
    return ([*path[seen[row] :], row[0]], True) if row in seen else (path, False)
