"""Recursion by nested time: the least fixpoint of any `op`, kept exact under retractions and through cycles.

    bindings     X(0) = ∅       X(n+1) = op(X(n))            until nothing changes
    recursion    X(0) = seed    X(n+1) = seed + op(X(n))

Kept are differences by round. An epoch's deltas enter at round 0; then the least round for which
anything waits is run, until nothing waits:

    what the definitions make at round n  →  what the bindings bring at round n + 1

A fact of round n rests on facts of earlier rounds alone, so that no fact supports itself: what was held
up by a cycle only disappears when the cycle is cut off. Several bindings go round together; one that is
defined by a collection of this round, not by a binding, sees the new value.

Bounds: X(rounds) is the answer, and what would make another of it is cut; under `rows` what was cut makes
rows of an error, too, and nothing leaves before they are gone. With `error` the limit guards against
recursions that never end, and undoes the epoch.

Sources: McSherry et al., "Differential Dataflow", CIDR 2013; Materialize's WITH MUTUALLY RECURSIVE.
"""

from collections.abc import Sequence
from operator import attrgetter

from eddy.errors import LoopLimitError
from eddy.operators.batch import EMPTY, Batch, Row, ZSet, merge_into
from eddy.operators.exchange import Budget
from eddy.operators.held import Held
from eddy.operators.operator import Operator, State
from eddy.operators.recursion import Bound, Step
from eddy.operators.timed import Time, Timed

__all__ = ["Fixpoint", "Results", "Scope", "Take"]

_ROWS, _TIME = attrgetter("rows"), attrgetter("time")


class Scope:
    """The compiled definitions: the first slots are the bindings, the next ones come from outside."""

    def __init__(self, steps: Sequence[Step], slots: int, bindings: int, results: Sequence[int]) -> None:
        self.steps = steps
        self._order = [(op, inputs, out, op if isinstance(op, Timed) else None) for op, inputs, out in steps]
        self._timed = [step.operator for step in steps if isinstance(step.operator, Timed)]
        self._values = [EMPTY] * slots
        self._bindings, self._results = bindings, results
        self._outside = range(0)

    def open(self, externals: Sequence[Batch]) -> None:
        """What comes from outside is there at round 0 alone."""
        first = self._bindings
        self._outside = range(first, first + len(externals))
        self._values[first : first + len(externals)] = externals

    def run(self, time: Time, bindings: Sequence[Batch]) -> list[Batch]:
        """One round: how the definitions differ in it."""
        values = self._values
        values[: self._bindings] = bindings
        for operator, inputs, output, timed in self._order:
            batches = [values[i] for i in inputs]
            goes = any(map(_ROWS, batches))
            if timed is not None:
                timed.time = time
                goes = goes or timed.due(time)
            values[output] = operator.step(*batches) if goes else EMPTY
        made = [values[result] for result in self._results]
        for slot in self._outside:
            values[slot] = EMPTY
        self._outside = range(0)
        return made

    def waiting(self) -> list[Time]:
        """The times at which a step is due."""
        return [time for timed in self._timed for time in timed.waiting()]

    def forget_waves(self) -> None:
        """The epoch is undone."""
        for timed in self._timed:
            timed.forget_wave()

    def states(self) -> list[State]:
        """The states of the operators inside."""
        return [state for step in self.steps for state in step.operator.states()]


class Results(Batch):
    """What leaves a loop of several bindings: a batch for each, to be taken by `Take`."""

    __slots__ = ("batches",)

    def __init__(self, batches: list[Batch], time: int) -> None:
        super().__init__([(i, None) for i, batch in enumerate(batches) if batch.rows], [], time)
        self.batches = batches


class Take(Operator):
    """One binding's batch out of the results of its loop."""

    def __init__(self, name: str, index: int) -> None:
        self.name, self._index = name, index

    def step(self, *inputs: Batch) -> Batch:
        """Pick it; there are no errors where the bound makes none."""
        (results,) = inputs
        assert isinstance(results, Results)
        return results.batches[self._index] if self._index < len(results.batches) else EMPTY


class Fixpoint(Timed):
    """Deltas from outside in, the deltas of all bindings out, and last those of the limit's errors.

    `seeded`, it is a recursion of one binding, whose first input is the seed. `depth` is that of its rounds: 1 at the
    top, where a time is a number. `held` is there where the bound makes rows.
    """

    def __init__(
        self,
        name: str,
        bindings: Sequence[str],
        body: Scope,
        depth: int,
        rounds: int,
        bound: Bound,
        budget: Budget,
        held: Held | None = None,
        seeded: bool = False,
    ) -> None:
        super().__init__()
        self._seeded = seeded
        self.name, self.bindings, self.body, self._depth = name, bindings, body, depth
        self._rounds, self.bound, self._budget, self._held = rounds, bound, budget, held
        self.waves = self.rows = 0
        self.cut: list[Batch] = []
        self.overdue: list[Row] = []

    def states(self) -> Sequence[State]:
        """The states inside, and what is held back."""
        return [*self.body.states(), *self.own_states()]

    def own_states(self) -> Sequence[State]:
        """What is held back, and why."""
        return self._held.states() if self._held else ()

    def due(self, time: Time) -> bool:
        """Whether something inside waits for a round of the loop around."""
        return any(at[:-1] == self._prefix(time) for at in self.body.waiting())

    def waiting(self) -> list[Time]:
        """The rounds of the loop around for which something inside waits."""
        return [at[0] if self._depth == 2 else at[:-1] for at in self.body.waiting()]

    def _prefix(self, time: Time) -> tuple[int, ...]:
        return (time,) if self._depth == 2 else time

    def forget_waves(self) -> None:
        """The epoch is undone."""
        self.body.forget_waves()
        self.cut.clear()

    forget_wave = forget_waves

    def step(self, *inputs: Batch) -> Batch:
        """Run rounds until nothing waits.

        Raises: LoopLimitError where the guard's rounds, or the epoch's rows or seconds, do not suffice.
        """
        nested = self._depth > 1
        prefix = self._prefix(self.time) if nested else ()
        body, none = self.body, [EMPTY] * len(self.bindings)
        body.open(inputs)
        totals: list[ZSet] = [{} for _ in self.bindings]
        over: list[tuple[int, Batch]] = []
        start = [inputs[0].consolidated(self.name)] if self._seeded else none
        for total, batch in zip(totals, start, strict=True):
            merge_into(total, batch.rows, batch.weights)
        pending: dict[Time, list[Batch]] = {(*prefix, 0) if nested else 0: start}
        while True:
            times = [at for at in body.waiting() if at[:-1] == prefix] if nested else body.waiting()
            if not (pending or times):
                break
            time = min((*pending, *times))
            made = body.run(time, pending.pop(time, none))
            after = self._feed(time, made, totals, over)
            if after:
                pending[(*prefix, time[-1] + 1) if nested else time + 1] = after
        return self._results(totals, over, max(map(_TIME, inputs), default=0))

    def _feed(
        self, time: Time, made: list[Batch], totals: list[ZSet], over: list[tuple[int, Batch]]
    ) -> list[Batch] | None:
        """Add what a round made to the totals; return what the bindings bring in the next one."""
        after = None
        round_ = time if type(time) is int else time[-1]
        last = self._rounds if self._seeded else self._rounds - 1  # a seed has needed no round
        for index, batch in enumerate(made):
            if not batch.rows:
                continue
            batch = batch.consolidated(self.name)
            if not batch.rows:
                continue
            self.rows += len(batch.rows)
            if self._budget.spend(len(batch.rows)):
                raise self._error(index, batch, "the epoch's rows or seconds were spent")
            if round_ < self._rounds:
                merge_into(totals[index], batch.rows, batch.weights)
            if round_ >= last:
                self._beyond(index, batch, over)
            else:
                after = after or [EMPTY] * len(made)
                after[index] = batch
        self.waves += 1
        return after

    def _beyond(self, index: int, batch: Batch, over: list[tuple[int, Batch]]) -> None:
        if not self.bound.leveled:
            raise self._error(index, batch, f"after {self._rounds} rounds it still changed")
        over.append((index, batch))

    def _error(self, index: int, batch: Batch, why: str) -> LoopLimitError:
        row = next((row for row, weight in zip(batch.rows, batch.weights, strict=True) if weight > 0), batch.rows[0])
        return LoopLimitError(
            f"recursively '{self.name}': binding '{self.bindings[index]}' does not come to rest: {why}, e.g. by row "
            f"{row!r}; a recursion that grows without end or goes back and forth has no answer. Mend the data, bound "
            "it (max_depth=, or limit= with on_limit='return'), or raise limit=, max_nested_rows, max_nested_s"
        )

    def _results(self, totals: list[ZSet], over: list[tuple[int, Batch]], time: int) -> Batch:
        batches = [Batch.of(total, time) if total else EMPTY for total in totals]
        if self._held is not None:
            batches = self._held.step(batches, over, time)
        elif self.bound.max_depth is None:
            positive = [batch.select([weight > 0 for weight in batch.weights]) for _, batch in over]
            self.cut += [batch for batch in positive if batch.rows]
        return Results(batches, time)
