"""Recursion by waves: semi-naive evaluation of a linear `op`, consolidated.

    X = seed + op(X)      so      ΔX = Σ F(n),   F(0) = Δseed + Δop(X before),   F(n+1) = op(F(n))

F is the frontier. Between two waves equal rows are merged, their weights are added, and rows of weight 0 vanish. So a
batch costs one step for each distinct row that it touches, however many paths lead to the row. `op` is linear, so
retractions take the same paths and undo all effects of their rows, whatever the order in which rows arrive, in one
epoch or in many, on one worker or on several.

There are two forms, with different states and results:

    Waves      a relation, whose rows can be retracted. With a bound on depth X is arranged with each row's depth, if
               op joins X. Without a bound X is arranged, and a `Quarantine` holds the rows without a finite answer
    FactWaves  a KStream (`operators/waves/fact_waves.py`); facts are never retracted, so there is no arrangement

A row's *iteration* is the number of applications of op that led to it. Frontiers are processed by rising iteration, so
rows that other workers send in the middle of a path are counted by their own iteration.

Invariant: while the waves run, the arrangements of X and of collections derived from it inside op are as before the
epoch; they add the epoch's rows together, after the last wave.

Sources: KIP-857; McSherry et al., "Differential Dataflow", CIDR 2013; Materialize's recursion limit.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from eddy.errors import LoopLimitError
from eddy.operators.batch import EMPTY, Batch, Row, concat
from eddy.operators.bound import FIRST_LOOK, Bound, columns_of
from eddy.operators.context import Context, Wake
from eddy.operators.errors.row_sizes import GLANCE, RowSizes
from eddy.operators.exchange import Budget, Gate, by_iteration
from eddy.operators.keyed import keyed_rows
from eddy.operators.operator import Operator, State
from eddy.operators.path_text import path_text
from eddy.operators.waves.body import Body, OwnRows, trace
from eddy.operators.waves.explorer import Explorer
from eddy.operators.waves.held_message import ADVICE
from eddy.operators.waves.quarantine import Quarantine
from eddy.operators.waves.survey import Endless, survey
from eddy.operators.waves.total import Total
from eddy.state.arrangement import Arrangement

__all__ = ["TIME", "LinearRecursion", "Waves"]


TIME = attrgetter("time")
_MANY = 1_000
_SHARE = 16


class LinearRecursion(Operator):
    """The part that `Waves` and `FactWaves` share.

    The gate sends the rows of seed and feedback to the owners of their keys.
    """

    def __init__(self, name: str, body: Body, gate: Gate, bound: Bound, budget: Budget, sizes: RowSizes) -> None:
        self.name, self.body, self.gate, self.bound, self.budget = name, body, gate, bound, budget
        self.sizes = sizes
        self._own = OwnRows(body, gate)
        self.waves = self.rows = 0
        self.cut: list[Batch] = []
        self.circulating: list[Row] = []

    def states(self) -> Sequence[State]:
        """The recursion's own states, and the body's states."""
        return [*self.own_states(), *self.body.states()]

    def own_states(self) -> Sequence[State]:
        """The states of the recursion itself."""
        return ()

    def be_careful(self) -> bool:
        """Check each row of each wave from now on. Returns False if each row was checked already."""
        was, self.sizes.careful = self.sizes.careful, True
        return not was

    def end_epoch(self) -> None:
        """Drop the rows to send and the reports of the epoch."""
        super().end_epoch()
        self.gate.outbox, self.cut, self.circulating = [], [], []

    def forget_waves(self) -> None:
        """Drop the rows of the waves, because the epoch is undone."""
        self.body.forget_waves()
        self.end_epoch()

    @property
    def _part(self) -> Callable[[Row], Any]:
        """The function that returns the part of a row that errors show."""
        return columns_of if self.bound.words else itemgetter(0)

    def _search_ahead(self, frontier: Batch, iteration: int, rows: int) -> int:
        """Search ahead of a frontier for cycles and endless paths. Returns the iteration of the next search.

        Raises: LoopLimitError if a row leads back to itself, or its path has no end.
        """
        lookups = None if self.gate.owns_all else self._own
        found = survey(
            Explorer(self.body, lookups),
            frontier.rows,
            self.bound.limit,
            max(FIRST_LOOK, rows // _SHARE),
            self.sizes.refused,
        )
        if found.closing_path:
            way = path_text(map(self._part, found.closing_path))
            raise self._limit_error(found.closing_path[0], iteration, f"the path {way} came around")
        if found.endless is not None:
            raise self._endless_error(found.endless, iteration)
        return min(2 * iteration, self.bound.limit)

    def _endless_error(self, endless: Endless, iteration: int) -> LoopLimitError:
        way = path_text(map(self._part, endless.path))
        why = f"since {endless.unwritten}, and it continues: {way}" if endless.unwritten else f"it got as far as {way}"
        return self._limit_error(endless.path[0], iteration, why)

    def _check_sizes(self, made: Batch, iteration: int) -> None:
        """Raise LoopLimitError for a row that cannot be written."""
        for row in self.sizes.refused_rows(made.rows):
            raise self._limit_error(row, iteration, self.sizes.refused(row))

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
        """Report the rows that op has made beyond the limit, which are cut."""
        there = batch.select([weight > 0 for weight in batch.weights])
        if self.bound.max_depth is None and there.rows:
            self.cut.append(there)


class Waves(LinearRecursion):
    """Input: deltas of the seed. Output: the delta of X.

    `arrangement` is X, None if X is not stored. `quarantine` holds rows without a finite answer. It is None if depth is
    bounded. It is also None if the application first ran on an early version of eddy, which did not store X; then a
    cycle is an error.
    """

    def __init__(
        self,
        name: str,
        body: Body,
        gate: Gate,
        bound: Bound,
        budget: Budget,
        sizes: RowSizes,
        arrangement: Arrangement[Any, Any] | None,
        quarantine: Quarantine | None = None,
    ) -> None:
        super().__init__(name, body, gate, bound, budget, sizes)
        self.arrangement, self.quarantine = arrangement, quarantine

    def own_states(self) -> Sequence[State]:
        """The arrangement of X, if X is stored, and the states of held rows."""
        x = () if self.arrangement is None else (self.arrangement,)
        return x if self.quarantine is None else (*x, *self.quarantine.states())

    def forget_waves(self) -> None:
        """Drop the rows and searches of the waves, because the epoch is undone."""
        super().forget_waves()
        if self.quarantine is not None:
            self.quarantine.forget()

    def held(self) -> Mapping[int, str] | None:
        """Return the message about held rows; see `Operator.held`."""
        return {} if self.quarantine is None else self.quarantine.held()

    def wakes_at(self) -> Wake | None:
        """Return the moment at which the held rows have to be determined without any input; None if there is none."""
        return None if self.quarantine is None else self.quarantine.wakes_at()

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Run waves until no row is left or the budget is spent. Remaining rows are sent through the topic.

        Cost: a step for each distinct row of each frontier.
        Raises: LoopLimitError if rows have no end and cannot be held.
        """
        seed, received, *externals = inputs
        quarantine = self.quarantine
        if quarantine is None:
            arrived = self._arrived(seed, received)
            total = Total(self.bound.by_depth, max(arrived) > 0)
            self.body.open(externals)
            self._run(arrived, total)
        else:
            received = quarantine.begin(received, externals)
            arrived = self._arrived(seed, received)
            self.body.open(externals)
            total = quarantine.run(arrived, (seed, received, *externals), self._run)
        return self._at_rest(total, max(map(TIME, inputs)))

    def _run(self, waiting: dict[int, Batch], total: Total) -> None:
        """Run waves until no row of this worker waits."""
        body, gate, bound, quarantine = self.body, self.gate, self.bound, self.quarantine
        shared, by_depth = gate.shared, bound.by_depth
        watch = Looks(self, total) if quarantine is None else quarantine.watch(waiting, total)
        width = 1
        while waiting or body.waiting():
            iteration = min((*waiting, *body.waiting())) if body.keeps or len(waiting) > 1 else next(iter(waiting))
            frontier = waiting.pop(iteration, EMPTY)
            total.add(iteration, frontier)
            made = body.run(frontier, iteration).consolidated(self.name)
            if by_depth and iteration >= bound.depth:
                self._cut(made)
                continue
            if quarantine is not None:
                made = quarantine.stopping.admit(made)
            if iteration >= watch.next or total.count >= watch.next_count:
                made = watch.look(frontier, made, iteration, waiting)
                width = self.sizes.share(made) if made.rows else 1
            rest = gate.own(made, iteration + 1) if shared else made
            rows = len(rest.rows)
            if not rows:
                continue
            if self.budget.spend(rows * (width if rows < _MANY else self.sizes.share(rest))):
                gate.spill(watch.spilling(frontier, rest, iteration, waiting), iteration + 1)
            elif iteration + 1 in waiting:
                waiting[iteration + 1] = concat((waiting[iteration + 1], rest)).consolidated(self.name)
            else:
                waiting[iteration + 1] = rest

    def look_at(self, made: Batch, iteration: int, total: Total) -> tuple[Batch, float]:
        """Check whether waves can end, in a recursion that cannot hold rows.

        Returns the rows that continue, and the iteration of the next look. Raises: LoopLimitError.
        """
        self._check_sizes(made, iteration)
        if self.bound.by_depth:
            return made, iteration + 1 if self.sizes.wide else iteration + GLANCE
        if iteration < self.bound.limit:
            return made, self._search_ahead(made, iteration, total.count)
        if made.rows:
            self._handle_rows_over_limit(made, total.has_received)
        return EMPTY, iteration

    def _handle_rows_over_limit(self, made: Batch, has_received: bool) -> None:
        """Handle rows beyond the limit. If all of them are of this epoch, the error is raised, which undoes the epoch.

        Rows that derive from committed epochs cannot be undone. They are reported, and sent through the loop topic
        again and again. So when the input is corrected, the retractions still reach them.
        """
        if not has_received:
            raise self._over_limit(made.rows[0])
        self.circulating.append(made.rows[0])
        self.gate.spill(made, self.bound.limit)

    def _at_rest(self, total: Total, time: int) -> Batch:
        """Add the frontiers to the arrangements after the last wave. Returns the delta of the rows downstream."""
        self.body.settle()
        rows = total.sum()
        leaves = rows if self.quarantine is None else self.quarantine.leaving(rows)
        self.waves += total.waves
        self.rows += total.count
        if self.arrangement is not None:
            self.arrangement.integrate(keyed_rows(rows if total.by_depth is None else total.by_depth))
        return Batch.of(leaves, time)

    def _arrived(self, seed: Batch, received: Batch) -> dict[int, Batch]:
        """Return the first frontiers, by iteration: the seed, and rows from the loop's topic."""
        own = self.gate.own(seed)
        if not received.rows:
            return {0: own.consolidated(self.name)}
        arrived = by_iteration(received)
        arrived[0] = concat((own, arrived.get(0, EMPTY)))
        return {iteration: batch.consolidated(self.name) for iteration, batch in arrived.items()}


class Looks:
    """The checks during a run of waves without a quarantine; see `WaveWatch`."""

    next_count = math.inf

    def __init__(self, waves: Waves, total: Total) -> None:
        self._waves, self._total = waves, total
        first = FIRST_LOOK if not total.has_received else waves.bound.limit
        self.next: float = GLANCE if waves.bound.by_depth else min(first, waves.bound.limit)
        if waves.sizes.careful:
            self.next = 0

    def look(self, frontier: Batch, made: Batch, iteration: int, waiting: dict[int, Batch]) -> Batch:
        """Check a wave. Returns the rows that continue."""
        made, self.next = self._waves.look_at(made, iteration, self._total)
        return made

    def spilling(self, frontier: Batch, rest: Batch, iteration: int, waiting: dict[int, Batch]) -> Batch:
        """Return the rows to send to a later epoch: all rows of `rest`."""
        return rest
