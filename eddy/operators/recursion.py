"""Recursion by waves: semi-naive evaluation of a linear `op`, consolidated.

    X = seed + op(X)      so      ΔX = Σ F(n),   F(0) = Δseed + Δop(X before),   F(n+1) = op(F(n))

F is the frontier. Between two waves equal rows are merged and their weights added, and rows of
weight 0 vanish: one step for each distinct row that a batch touches, however many ways lead to it.
`op` is linear, so retractions run the same way round and undo what their rows once did, whatever
the order in which rows arrive, in one epoch or in many, on one worker or on several.

Two forms, which differ in what they remember and emit:

    Waves      a relation; X is arranged, where op joins it, so that it can be taken back. With a bound
               on depth it is arranged with each row's depth.
    FactWaves  a KStream (KIP-857); facts are never taken back, so nothing is arranged

A row's *hop* is the number of applications of op that led to it. Frontiers go by rising hop, so rows
that come from other workers, half way round, are counted by their own way.

Invariant: while the waves run, the arrangements of X and of what op makes of it are those before
the epoch; they take the epoch's rows in together, at rest.

Sources: KIP-857; McSherry et al., "Differential Dataflow", CIDR 2013; Materialize's recursion limit.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from eddy.errors import LoopLimitError
from eddy.operators.batch import EMPTY, Batch, Row, ZSet, concat, consolidate, merge_into
from eddy.operators.exchange import Budget, Exchange, Gate, by_hop
from eddy.operators.join import Arrange, Join
from eddy.operators.operator import Operator, State
from eddy.state.arrangement import Arrangement

__all__ = ["Body", "Bound", "FactWaves", "Step", "Waves"]


_ROWS, _TIME = attrgetter("rows"), attrgetter("time")
_NO_HOPS: Set[int] = frozenset()
_NO_SLOTS = range(0)
_BUFFERED = 1_000


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
    the rows that were cut; `rows`, in nested time alone, stops and makes rows of an error of them.
    """

    max_depth: int | None = None
    limit: int = 10_000
    on_limit: Literal["error", "return", "dead-letter", "rows"] = "error"

    @property
    def leveled(self) -> bool:
        """Whether the answer depends on the depth of rows, so that it has to be remembered."""
        return self.max_depth is not None or self.on_limit != "error"

    @property
    def depth(self) -> int:
        """The depth at which expansion stops."""
        return self.limit if self.max_depth is None else self.max_depth


class Body:
    """The compiled `op`: slot 0 is X, the next ones come from outside, `result` is what op makes.

    Operators that keep rows apart by hop are told it before each wave, and may have rows waiting for one.
    """

    def __init__(self, steps: list[Step], slots: int, result: int) -> None:
        self.steps, self._result = steps, result
        self._values = [EMPTY] * slots
        self._outside = _NO_SLOTS
        x_alone = len(steps) == 1 and steps[0].inputs[0] == 0 and steps[0].inputs.count(0) == 1
        self._only = steps[0].operator if x_alone else None
        operators = [step.operator for step in steps]
        self._absent = (EMPTY,) * (len(steps[0].inputs) - 1)
        self._arranges = [op for op in operators if isinstance(op, Arrange)]
        self._keepers = [op for op in operators if isinstance(op, Exchange) or (isinstance(op, Join) and op.leveled)]
        self.keeps = bool(self._keepers)
        self._aware = [*self._keepers, *(op for op in self._arranges if op.leveled)]

    def open(self, externals: Sequence[Batch]) -> None:
        """Begin an epoch: the deltas from outside are there for the first wave alone."""
        self._values[1 : 1 + len(externals)] = externals
        self._outside = range(1, 1 + len(externals))

    def run(self, frontier: Batch, hop: int) -> Batch:
        """One wave: what op makes of the frontier, of what waited for it and, the first time, of the deltas."""
        if self._only is not None and not self._aware and not self._outside:
            return self._only.step(frontier, *self._absent)
        for aware in self._aware:
            aware.level = hop
        values = self._values
        values[0] = frontier
        for operator, inputs, output in self.steps:
            batches = [values[i] for i in inputs]
            values[output] = operator.step(*batches) if self._aware or any(map(_ROWS, batches)) else EMPTY
        for slot in self._outside:
            values[slot] = EMPTY
        self._outside = _NO_SLOTS
        return values[self._result]

    def waiting(self) -> Set[int]:
        """The hops for which an operator has rows waiting."""
        return {hop for op in self._keepers for hop in op.later} if self._keepers else _NO_HOPS

    def settle(self) -> None:
        """At rest: what op arranges inside takes the epoch's rows in."""
        for arrange in self._arranges:
            arrange.settle()

    def forget_waves(self) -> None:
        """The epoch is undone."""
        for operator in self._keepers:
            operator.later = {}
        for arrange in self._arranges:
            arrange.forget_wave()

    def states(self) -> list[State]:
        """The states of the operators inside."""
        return [state for step in self.steps for state in step.operator.states()]


class _Recursion(Operator):
    """What the two forms share: the seed and the feedback go through the gate to their owners."""

    def __init__(self, name: str, body: Body, gate: Gate, bound: Bound, budget: Budget) -> None:
        self.name, self.body, self.gate, self.bound, self.budget = name, body, gate, bound, budget
        self.waves = self.rows = 0
        self.cut: list[Batch] = []
        self.overdue: list[Row] = []

    def states(self) -> Sequence[State]:
        """The recursion's own states, and those of the body."""
        return [*self.own_states(), *self.body.states()]

    def own_states(self) -> Sequence[State]:
        """The states of the recursion itself."""
        return ()

    def forget_waves(self) -> None:
        """The epoch is undone."""
        self.body.forget_waves()
        self.gate.outbox.clear()
        self.cut.clear()
        self.overdue.clear()

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
        there = batch.select([weight > 0 for weight in batch.weights])
        if self.bound.max_depth is None and there.rows:
            self.cut.append(there)


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

    def own_states(self) -> Sequence[State]:
        """X, where the body joins it."""
        return () if self.arrangement is None else (self.arrangement,)

    def step(self, *inputs: Batch) -> Batch:
        """Run waves until no row is left or the budget is spent; what is left then leaves.

        Cost: a step for each distinct row of each frontier.
        Raises: LoopLimitError where a row is still on its way after `limit` waves.
        """
        seed, received, *externals = inputs
        time = max(map(_TIME, inputs))
        waiting = self._arrived(seed, received)
        body, gate, bound = self.body, self.gate, self.bound
        shared, leveled = gate.shared, bound.leveled
        came_back = max(waiting) > 0
        total = _Total(leveled)
        body.open(externals)
        while waiting or body.waiting():
            hop = min((*waiting, *body.waiting())) if body.keeps or len(waiting) > 1 else next(iter(waiting))
            frontier = waiting.pop(hop, EMPTY)
            total.add(hop, frontier)
            made = body.run(frontier, hop).consolidated(self.name)
            if leveled and hop >= bound.depth:
                self._cut(made)
                continue
            if hop >= bound.limit and made.rows and not leveled:
                self._go_on_through_the_topic(made, came_back)
                continue
            rest = gate.own(made, hop + 1) if shared else made
            if not rest.rows:
                continue
            if self.budget.spend(len(rest.rows)):
                gate.spill(rest, hop + 1)
            elif hop + 1 in waiting:
                waiting[hop + 1] = concat((waiting[hop + 1], rest)).consolidated(self.name)
            else:
                waiting[hop + 1] = rest
        return self._at_rest(total, time)

    def _go_on_through_the_topic(self, made: Batch, came_back: bool) -> None:
        """Rows over the limit: an error that undoes the epoch, unless some of them are of earlier ones.

        What earlier epochs have committed cannot be undone. It keeps going round, through the topic, so
        that mending the data still reaches it, and is reported.
        """
        if not came_back:
            raise self._limit_error(made.rows[0])
        self.overdue.append(made.rows[0])
        self.gate.spill(made, self.bound.limit)

    def _at_rest(self, total: "_Total", time: int) -> Batch:
        """Let what is arranged take the frontiers in, and return their sum."""
        self.body.settle()
        rows = total.sum()
        self.waves += total.waves
        self.rows += total.count
        if self.arrangement is not None:
            self.arrangement.integrate(rows if total.leveled is None else total.leveled)
        return Batch.of(rows, time)

    def _arrived(self, seed: Batch, received: Batch) -> dict[int, Batch]:
        """The first frontiers, by hop: the seed, and what came through the loop's topic."""
        own = self.gate.own(seed)
        if not received.rows:
            return {0: own.consolidated(self.name)}
        arrived = by_hop(received)
        arrived[0] = concat((own, arrived.get(0, EMPTY)))
        return {hop: batch.consolidated(self.name) for hop, batch in arrived.items()}


class _Total:
    """The sum of the frontiers, and the same with each row's hop where that is to be remembered.

    Frontiers are merged many at a time: most of them are small.
    """

    def __init__(self, leveled: bool) -> None:
        self.leveled: ZSet | None = {} if leveled else None
        self.waves = self.count = 0
        self._sum: ZSet = {}
        self._rows: list[Row] = []
        self._weights: list[int] = []

    def add(self, hop: int, frontier: Batch) -> None:
        """Add a consolidated frontier."""
        self.waves += 1
        self.count += len(frontier.rows)
        if len(frontier.rows) > _BUFFERED:
            self._merge(frontier.rows, frontier.weights)
        else:
            self._rows += frontier.rows
            self._weights += frontier.weights
            if len(self._rows) > _BUFFERED:
                self.sum()
        if self.leveled is not None:
            leveled = [(key, (hop, value)) for key, value in frontier.rows]
            merge_into(self.leveled, leveled, frontier.weights)

    def sum(self) -> ZSet:
        """The sum so far."""
        self._merge(self._rows, self._weights)
        self._rows, self._weights = [], []
        return self._sum

    def _merge(self, rows: list[Row], weights: list[int]) -> None:
        if self._sum or self.waves > 1:
            merge_into(self._sum, rows, weights)
        else:
            self._sum = dict(zip(rows, weights, strict=True))


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
        while frontiers or self.body.waiting():
            hop = min((*frontiers, *self.body.waiting()))
            frontier = merged(frontiers.pop(hop, EMPTY), self.name)
            self.waves += 1
            self.rows += len(frontier)
            made = self.body.run(frontier, hop)
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
    """Merge equal facts: weights are added, the latest time and its headers are kept, in order of first coming."""
    zset = consolidate(batch.rows, batch.weights, where)
    if len(zset) == len(batch.rows):
        return batch
    stamps = list(zip(batch.times_of_rows(), batch.headers_of_rows(), strict=True))
    latest: dict[Row, tuple[int, Any]] = {}
    for row, stamp in zip(batch.rows, stamps, strict=True):
        if row not in latest or latest[row][0] <= stamp[0]:
            latest[row] = stamp
    kept = [latest[row] for row in zset]
    return Batch(
        list(zset),
        list(zset.values()),
        batch.time,
        None if batch.times is None else [time for time, _ in kept],
        None if batch.headers is None else [headers for _, headers in kept],
    )


def trace(body: Body, row: Row, longest: int = 1_000) -> tuple[list[Any], bool]:
    """Follow one row round and round: the keys on its way, and whether one of its rows came again.

    Only for errors: the epoch is undone afterwards.
    """
    seen: dict[Any, int] = {}
    path: list[Any] = []
    while row not in seen and len(path) < longest:
        seen[row] = len(path)
        path.append(row[0])
        made = body.run(Batch([row], [1]), 0)
        if not made.rows:
            return path, False
        row = made.rows[0]
    return ([*path[seen[row] :], row[0]], True) if row in seen else (path, False)
