"""Recursion by waves: semi-naive evaluation of a linear `op`, consolidated.

    X = seed + op(X)      so      ΔX = Σ F(n),   F(0) = Δseed + Δop(X before),   F(n+1) = op(F(n))

F is the frontier. Between two waves equal rows are merged and their weights added, and rows of
weight 0 vanish: one step for each distinct row that a batch touches, however many paths lead to it.
`op` is linear, so retractions take the same paths and undo all effects of their rows, whatever
the order in which rows arrive, in one epoch or in many, on one worker or on several.

Three forms, which differ in what they remember and emit:

    Waves      a relation with a bound on depth; X is arranged with each row's depth, where op joins it,
               so that it can be taken back
    HeldWaves  a relation without one (`operators/held_waves.py`); cycles are held
    FactWaves  a KStream (`operators/fact_waves.py`); facts are never taken back, so nothing is arranged

A row's *iteration* is the number of applications of op that led to it. Frontiers go by rising iteration, so rows
that come from other workers in the middle of a path are counted by their own iteration.

Invariant: while the waves run, the arrangements of X and of what op makes of it are those before
the epoch; they take the epoch's rows in together, at rest.

Sources: KIP-857; McSherry et al., "Differential Dataflow", CIDR 2013; Materialize's recursion limit.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from eddy.errors import LoopLimitError
from eddy.operators.batch import EMPTY, Batch, Row, ZSet, concat, merge_into
from eddy.operators.body import Body, Bound, columns_of, trace
from eddy.operators.context import Context
from eddy.operators.endless import FIRST_LOOK, find_cycle, outgrown, path_text
from eddy.operators.exchange import Budget, Gate, by_iteration
from eddy.operators.keyed import keyed_rows
from eddy.operators.operator import Operator, State
from eddy.state.arrangement import Arrangement

__all__ = ["ADVICE", "TIME", "LinearRecursion", "Total", "Waves"]


TIME = attrgetter("time")
_BUFFERED = 1_000
ADVICE = (
    "Mend the data, or bound the recursion: recursively(..., max_depth=16), or raise limit= if the data is that deep"
)


class LinearRecursion(Operator):
    """The common parts of `Waves` and `FactWaves`: the seed and the feedback go through the gate to their owners."""

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

    @property
    def _part(self) -> Callable[[Row], Any]:
        """What errors show of a row."""
        return columns_of if self.bound.words else itemgetter(0)

    def _look(self, frontier: Batch, iteration: int, rows: int) -> int:
        """Whether these waves can end, as far as can be told; returns the iteration at which to look again.

        Raises: LoopLimitError where a row leads back to itself, or has outgrown what can be written.
        """
        cycle = find_cycle(self.body.look, frontier.rows, rows)
        if cycle is not None:
            raise self._limit_error(cycle[0], iteration, f"the path {path_text(map(self._part, cycle))} came around")
        self._check_growth(frontier, iteration)
        return min(2 * iteration, self.bound.limit)

    def _check_growth(self, frontier: Batch, iteration: int) -> None:
        """Raises: LoopLimitError where a row has outgrown what can be written."""
        if not frontier.rows:
            return
        for row, why in outgrown(frontier, self.gate.encode if self.own_states() else None):
            path = path_text(trace(self.body, row, self._part)[0])
            raise self._limit_error(row, iteration, f"{why}, and it goes on: {path}")

    def _over_limit(self, row: Row) -> LoopLimitError:
        path, came_around = trace(self.body, row, self._part)
        what = f"the path {path_text(path)} came around" if came_around else f"it got as far as {path_text(path)}"
        return self._limit_error(row, self.bound.limit, what)

    def _limit_error(self, row: Row, iteration: int, what: str) -> LoopLimitError:
        return LoopLimitError(
            f"{self.bound.subject(self.name, row)} was not at rest after {iteration} "
            f"{'iterations' if self.bound.words else 'waves'}: {what}; a cycle in the data has no finite answer. "
            + self.bound.advice(ADVICE)
        )

    def _cut(self, batch: Batch) -> None:
        """Report rows that op would still have made beyond the limit."""
        there = batch.select([weight > 0 for weight in batch.weights])
        if self.bound.max_depth is None and there.rows:
            self.cut.append(there)


class Waves(LinearRecursion):
    """Deltas of the seed in, the delta of X out, where the answer depends on depth, so that it has an end.

    `arrangement` is X, None where the body does not join it. `HeldWaves` are for answers without a bound.
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

    def own_states(self) -> Sequence[State]:
        """X, where it is kept."""
        return () if self.arrangement is None else (self.arrangement,)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Run waves until no row is left or the budget is spent; what is left then leaves.

        Cost: a step for each distinct row of each frontier.
        Raises: LoopLimitError where a row is still on its way after `limit` waves.
        """
        seed, received, *externals = inputs
        arrived = self._arrived(seed, received)
        total = Total(self.bound.by_depth, max(arrived) > 0)
        self.body.open(externals)
        self._run(arrived, total)
        return self._at_rest(total, max(map(TIME, inputs)))

    def _run(self, waiting: dict[int, Batch], total: "Total") -> None:
        """Waves until nothing waits here."""
        body, gate, bound = self.body, self.gate, self.bound
        shared, by_depth = gate.shared, bound.by_depth
        watched = self._first_look(waiting, total)
        while waiting or body.waiting():
            iteration = min((*waiting, *body.waiting())) if body.keeps or len(waiting) > 1 else next(iter(waiting))
            frontier = waiting.pop(iteration, EMPTY)
            total.add(iteration, frontier)
            made = self._going_on(body.run(frontier, iteration).consolidated(self.name))
            if by_depth and iteration >= bound.depth:
                self._cut(made)
                continue
            if iteration >= watched and (made.rows or (shared and frontier.rows)) and not by_depth:
                made, watched = self._watch(frontier if shared else made, made, iteration, waiting, total)
            rest = gate.own(made, iteration + 1) if shared else made
            if not rest.rows:
                continue
            if self.budget.spend(len(rest.rows)):
                gate.spill(self._spilling(rest, iteration, waiting, total), iteration + 1)
            elif iteration + 1 in waiting:
                waiting[iteration + 1] = concat((waiting[iteration + 1], rest)).consolidated(self.name)
            else:
                waiting[iteration + 1] = rest

    def _first_look(self, waiting: Mapping[int, Batch], total: "Total") -> int:
        """The iteration at which to look for the first time whether the waves can end."""
        return self.bound.limit if total.came_back else min(FIRST_LOOK, self.bound.limit)

    def _going_on(self, made: Batch) -> Batch:
        """The rows of which op makes more."""
        return made

    def _watch(
        self, starts: Batch, made: Batch, iteration: int, waiting: dict[int, Batch], total: "Total"
    ) -> tuple[Batch, int]:
        """Look whether these waves can end; rows of this worker in `starts` have led to `made`.

        Returns what goes into the next wave, and the iteration at which to look again.
        Raises: LoopLimitError.
        """
        if iteration >= self.bound.limit:
            self._go_on_through_the_topic(made, total.came_back)
            return EMPTY, iteration
        return made, self._look(made, iteration, total.count)

    def _spilling(self, rest: Batch, iteration: int, waiting: dict[int, Batch], total: "Total") -> Batch:
        """Of rows that go on in a later epoch those that may."""
        return rest

    def _go_on_through_the_topic(self, made: Batch, came_back: bool) -> None:
        """Rows over the limit: an error that undoes the epoch, unless some of them are of earlier ones.

        What earlier epochs have committed cannot be undone. It keeps coming back, through the topic, so
        that mending the data still reaches it, and is reported.
        """
        if not came_back:
            raise self._over_limit(made.rows[0])
        self.overdue.append(made.rows[0])
        self.gate.spill(made, self.bound.limit)

    def _at_rest(self, total: "Total", time: int) -> Batch:
        """Let what is arranged take the frontiers in, and return their sum."""
        self.body.settle()
        rows = total.sum()
        leaves = self._leaving(rows)
        self.waves += total.waves
        self.rows += total.count
        if self.arrangement is not None:
            self.arrangement.integrate(keyed_rows(rows if total.by_depth is None else total.by_depth))
        return Batch.of(leaves, time)

    def _leaving(self, rows: ZSet) -> ZSet:
        """What of X's delta leaves; X does not have it yet."""
        return rows

    def _arrived(self, seed: Batch, received: Batch) -> dict[int, Batch]:
        """The first frontiers, by iteration: the seed, and what came through the loop's topic."""
        own = self.gate.own(seed)
        if not received.rows:
            return {0: own.consolidated(self.name)}
        arrived = by_iteration(received)
        arrived[0] = concat((own, arrived.get(0, EMPTY)))
        return {iteration: batch.consolidated(self.name) for iteration, batch in arrived.items()}


class Total:
    """The sum of the frontiers, and the same with each row's iteration where that is to be remembered.

    `came_back`: some rows had come through the loop before the epoch.

    Frontiers are merged many at a time: most of them are small.
    """

    def __init__(self, by_depth: bool = False, came_back: bool = False) -> None:
        self.came_back = came_back
        self.by_depth: ZSet | None = {} if by_depth else None
        self.waves = self.count = 0
        self._sum: ZSet = {}
        self._rows: list[Row] = []
        self._weights: list[int] = []

    def add(self, iteration: int, frontier: Batch) -> None:
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
        if self.by_depth is not None:
            by_depth = [(key, (iteration, value)) for key, value in frontier.rows]
            merge_into(self.by_depth, by_depth, frontier.weights)

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
