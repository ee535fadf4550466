"""Recursion by nested time: the least fixpoint of any `op`, exact under retractions and with cycles.

    bindings     X(0) = ∅       X(n+1) = op(X(n))            until nothing changes
    recursion    X(0) = seed    X(n+1) = seed + op(X(n))

The states hold differences by iteration of the loop. An epoch's deltas enter at iteration 0; then the least iteration
with waiting rows is run, until no rows wait:

    the results of the definitions in iteration n  →  the inputs of the bindings in iteration n + 1

A fact of iteration n depends only on facts of earlier iterations, so no fact supports itself: facts supported only by
a cycle disappear when the cycle is cut off. Several bindings iterate together. A definition sees the bindings as of the
previous iteration, and collections computed inside the loop as of this iteration.

Bounds: with `max_depth`, and with an `on_limit` that returns rows at the limit, X(iterations) is the answer. Rows that
a further iteration would change are cut. If `on_limit` is `rows`, the cut rows are also rows of errors. Otherwise a
loop that reaches its limit raises EndlessError, and the outermost loop decides what to do
(`operators/nested/outermost.py`).

Sources: McSherry et al., "Differential Dataflow", CIDR 2013; Materialize's WITH MUTUALLY RECURSIVE.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from eddy.operators.batch import EMPTY, Batch, Row, ZSet, merge_into
from eddy.operators.bound import FIRST_LOOK, Bound, columns_of
from eddy.operators.context import Context
from eddy.operators.errors.guarded import Guarded, unguarded
from eddy.operators.errors.row_sizes import GLANCE, RowSizes
from eddy.operators.errors.set_aside import Aside
from eddy.operators.exchange import Budget
from eddy.operators.nested.limit_errors import InnerLimit
from eddy.operators.nested.operators import NestedLookupJoin, NestedOperator, Time
from eddy.operators.nested.repetition import EndlessError, Repetition
from eddy.operators.nested.run_ahead import RunAhead
from eddy.operators.operator import Operator, State, Step
from eddy.state.iteration_trace import Trace

__all__ = ["Fixpoint", "NestedBody", "Results", "Take"]

_TIME = attrgetter("time")
_LIMIT, _SIZE, _WORK = "limit=", "max_row_bytes", "max_nested_rows, max_nested_s"
_LARGEST_WEIGHT = 1 << 4_096
"""The largest weight. Weights that are squared in each iteration soon exceed it, weights of finite answers do not."""


class NestedBody:
    """The compiled definitions of a loop. The first slots are the bindings, the next slots the inputs from outside."""

    def __init__(self, steps: Sequence[Step], slots: int, bindings: int, results: Sequence[int]) -> None:
        self.steps = steps
        bare = [unguarded(step.operator) for step in steps]
        self._order = [
            (operator, inputs, out, one if isinstance(one, NestedOperator) else None)
            for (operator, inputs, out), one in zip(steps, bare, strict=True)
        ]
        self._nested = [one for one in bare if isinstance(one, NestedOperator)]
        self._asides = [aside for op, *_ in steps if isinstance(op, Guarded) for aside in op.asides]
        self._values = [EMPTY] * slots
        self._bindings, self._results = bindings, results
        self._outside = range(0)

    def open(self, externals: Sequence[Batch]) -> None:
        """Begin an epoch. The deltas from outside are inputs of iteration 0 only."""
        first = self._bindings
        for nested in self._nested:
            nested.begin()
        self._outside = range(first, first + len(externals))
        self._values[first : first + len(externals)] = externals

    def run(self, time: Time, bindings: Sequence[Batch]) -> list[Batch]:
        """Run one iteration. Returns the changes of the definitions in it."""
        values = self._values
        values[: self._bindings] = bindings
        context = Context(time)
        for operator, inputs, output, nested in self._order:
            for slot in inputs:
                if values[slot].rows:
                    break
            else:
                if nested is None or not nested.due(time):
                    values[output] = EMPTY
                    continue
            values[output] = operator.step(context, *[values[slot] for slot in inputs])
        made = [values[result] for result in self._results]
        for slot in self._outside:
            values[slot] = EMPTY
        self._outside = range(0)
        return made

    def waiting(self) -> list[Time]:
        """Return the times for which rows of some step wait."""
        return [time for nested in self._nested for time in nested.waiting()]

    def ahead(self) -> RunAhead | None:
        """Return an object that runs the recursion ahead; None if that is not possible.

        It is possible if the recursion has a single binding, and each of its steps makes its rows from single rows.
        """
        ahead = RunAhead(self.steps, self._results[0])
        return ahead if ahead.possible and self._bindings == 1 else None

    def lookups(self, external: int) -> list[NestedLookupJoin] | None:
        """Return the joins that look up rows of the input `external` from outside.

        Returns None if other steps read this input, too, or if it is the seed.
        """
        slot = self._bindings + external
        readers = [step for step in self.steps if slot in step.inputs]
        joins = [op for op in (unguarded(step.operator) for step in readers) if isinstance(op, NestedLookupJoin)]
        looked_up = len(joins) == len(readers) and all(step.inputs == (step.inputs[0], slot) for step in readers)
        return joins if joins and looked_up and slot not in self._results else None

    def forget_waves(self) -> None:
        """Undo the epoch."""
        for nested in self._nested:
            nested.forget_wave()

    def undo(self) -> None:
        """Undo the epoch: also the changes of the states, and the rows that were set aside."""
        self.forget_waves()
        for state in self.states():
            state.rollback()
        for aside in self.asides():
            aside.rollback()

    def asides(self) -> list[Aside]:
        """The memories of the rows that steps inside have set aside."""
        return [*self._asides, *(aside for loop in self.loops() for aside in loop.body.asides())]

    def states(self) -> list[State]:
        """The states of the operators inside."""
        return [state for step in self.steps for state in step.operator.states()]

    def loops(self) -> list["Fixpoint"]:
        """The loops inside."""
        return [nested for nested in self._nested if isinstance(nested, Fixpoint)]


class Results(Batch):
    """The output of a loop: a batch for each binding. The operator `Take` picks the batch of one binding."""

    __slots__ = ("batches",)

    def __init__(self, batches: list[Batch], time: int) -> None:
        super().__init__([(i, None) for i, batch in enumerate(batches) if batch.rows], [], time)
        self.batches = batches


class Take(Operator):
    """Picks the batch of one binding from the results of its loop."""

    def __init__(self, name: str, index: int) -> None:
        self.name, self._index = name, index

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Return the batch of the binding. The batch of errors is empty if the bound makes no rows of errors."""
        (results,) = inputs
        assert isinstance(results, Results)
        return results.batches[self._index] if self._index < len(results.batches) else EMPTY


class Fixpoint(NestedOperator):
    """Input: deltas from outside. Output: the deltas of all bindings, and last the delta of the rows of errors.

    If `seeded`, the loop is a recursion of one binding, and its first input is the seed. `depth` is the number of loops
    around the body, this one included: for an outermost loop it is 1, and times are numbers. `limit` makes the rows of
    errors, for a loop inside another loop. `sizes` has the check of each binding's rows; None for a binding whose rows
    are not written.
    """

    def __init__(
        self,
        name: str,
        bindings: Sequence[str],
        body: NestedBody,
        depth: int,
        iterations: int,
        bound: Bound,
        budget: Budget,
        limit: InnerLimit | None = None,
        seeded: bool = False,
        sizes: Sequence[RowSizes | None] = (),
    ) -> None:
        super().__init__()
        self._seeded = seeded
        self.sizes = sizes or [None] * len(bindings)
        self.name, self.bindings, self.body, self._depth = name, bindings, body, depth
        self._iterations, self.bound, self._budget, self._limit = iterations, bound, budget, limit
        self.waves = self.rows = 0
        self.cut: list[Batch] = []
        self.circulating: list[Row] = []
        # The last iteration with a difference in some state; None before it was looked up.
        self._deepest: int | None = None
        self._repetition: Repetition | None = None
        self._ahead: RunAhead | None = None

    def states(self) -> Sequence[State]:
        """The states inside, and the loop's own states."""
        return [*self.body.states(), *self.own_states()]

    def own_states(self) -> Sequence[State]:
        """The states of the loop itself."""
        return ()

    def due(self, time: Time) -> bool:
        """Whether rows inside this loop wait for this time of the enclosing loop."""
        return any(at[:-1] == self._prefix(time) for at in self.body.waiting())

    def waiting(self) -> list[Time]:
        """Return the times of the enclosing loop for which rows inside this loop wait."""
        return [at[0] if self._depth == 2 else at[:-1] for at in self.body.waiting()]

    def _prefix(self, time: Time) -> tuple[int, ...]:
        return (time,) if self._depth == 2 else time

    def end_epoch(self) -> None:
        """Drop the epoch's reports about rows that were cut."""
        super().end_epoch()
        self.cut, self.circulating = [], []

    def forget_waves(self) -> None:
        """Undo the epoch."""
        self.body.forget_waves()
        self.cut.clear()
        self._deepest = None

    forget_wave = forget_waves

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Run iterations until nothing waits. Raises: EndlessError, see `run_iterations`."""
        totals, over = self.run_iterations(inputs, self._prefix(context.iteration) if self._depth > 1 else ())
        time = max(map(_TIME, inputs), default=0)
        batches = [Batch.of(total, time) if total else EMPTY for total in totals]
        if self._limit is not None:
            batches = self._limit.step(batches, over, time)
        else:
            self._note_cut(over)
        return Results(batches, time)

    def run_iterations(
        self, inputs: Sequence[Batch], prefix: tuple[int, ...] = ()
    ) -> tuple[list[ZSet], list[tuple[int, Batch]]]:
        """Run iterations until no row waits. `prefix` has the iterations of the enclosing loops.

        Returns two values: the delta of each binding, and the changes that the iteration after the last one would make.

        Raises: EndlessError if the loop needs more iterations than the limit, or more rows or seconds than the epoch
        has.
        """
        nested = self._depth > 1
        body, none = self.body, [EMPTY] * len(self.bindings)
        self._repetition = None
        body.open(inputs)
        totals: list[ZSet] = [{} for _ in self.bindings]
        over: list[tuple[int, Batch]] = []
        start = [inputs[0].consolidated(self.name)] if self._seeded else none
        for total, batch in zip(totals, start, strict=True):
            merge_into(total, batch.rows, batch.weights)
        pending: dict[Time, list[Batch]] = {(*prefix, 0) if nested else 0: start}
        iteration = 0
        while True:
            times = [at for at in body.waiting() if at[:-1] == prefix] if nested else body.waiting()
            if not (pending or times):
                break
            time = min((*pending, *times))
            iteration = time[-1] if nested else time
            made = body.run(time, pending.pop(time, none))
            after = self._feed(iteration, made, totals, over)
            if after:
                pending[(*prefix, iteration + 1) if nested else iteration + 1] = after
        if self._deepest is not None and iteration > self._deepest:
            self._deepest = iteration
        return totals, over

    def _feed(
        self, iteration: int, made: list[Batch], totals: list[ZSet], over: list[tuple[int, Batch]]
    ) -> list[Batch] | None:
        """Add the results of an iteration, `made`, to the bindings' deltas, `totals`.

        Returns the inputs of the next iteration; None if there is none.
        """
        after = None
        # Iteration 0 of a seeded loop is its seed, and does not count as an iteration.
        last = self._iterations if self._seeded else self._iterations - 1
        for index, batch in enumerate(made):
            if not batch.rows:
                continue
            made[index] = batch = batch.consolidated(self.name)
            if not batch.rows:
                continue
            self.rows += len(batch.rows)
            if self._budget.spend(len(batch.rows)):
                raise self._error(index, made, "the epoch's rows or seconds were spent", of_work=True, raised=_WORK)
            self._check_writable(index, made, iteration)
            if iteration < self._iterations:
                merge_into(totals[index], batch.rows, batch.weights)
            if iteration < last:
                after = after or [EMPTY] * len(made)
                after[index] = batch
            elif self.bound.by_depth:
                over.append((index, batch))
            else:
                raise self._error(index, made, f"after {self._iterations} iterations it still changed", raised=_LIMIT)
        if after and iteration >= FIRST_LOOK and not self.bound.by_depth:
            self._look_for_repetition(iteration, after)
            if self._ahead is not None and iteration & (iteration - 1) == 0:
                self._look_ahead(self._ahead, iteration, after, totals[0])
        self.waves += 1
        return after

    def _look_for_repetition(self, iteration: int, made: list[Batch]) -> None:
        """Raise EndlessError if the bindings have the same rows as in an earlier iteration."""
        if self._repetition is None:
            if self._deepest is None:
                self._deepest = max((self._iteration_of(time) for time in self._times()), default=0)
            self._repetition = Repetition(len(made), self._deepest)
        if self._repetition.met(iteration, made):
            index = next(index for index, batch in enumerate(made) if batch.rows)
            raise self._error(index, made, f"after {iteration} iterations it has the same rows as before")

    def _look_ahead(self, ahead: RunAhead, iteration: int, made: list[Batch], total: ZSet) -> None:
        """Raise EndlessError if a run ahead shows that the recursion will meet its limit.

        Nothing is looked at while rows are retracted or wait for later iterations.
        """
        if min(made[0].weights) < 0 or iteration <= (self._deepest or 0) or any(self.body.waiting()):
            return
        rows, why = ahead.look(made[0].rows, self._iterations - iteration, self._membership_test(total), self.sizes[0])
        if rows:
            raised = _SIZE if why else _LIMIT
            why = why or f"after {self._iterations} iterations it still changed"
            raise self._error(0, [Batch(rows, [1] * len(rows))], why, raised=raised)

    def _membership_test(self, total: ZSet) -> Callable[[Sequence[Row]], Sequence[bool]]:
        """Return a function that returns, for each of some rows, whether the first binding has the row now.

        `total` is the binding's delta in the epoch so far.
        """
        raise NotImplementedError(type(self).__name__)

    def _times(self) -> Iterator[Time]:
        """Yield the times of all differences in the traces of the body."""
        for state in self.body.states():
            if isinstance(state, Trace):
                yield from {time for (_, time, _), _ in state.items()}

    def _iteration_of(self, time: Time) -> int:
        return time if type(time) is int else time[self._depth - 1]

    def _check_writable(self, index: int, made: list[Batch], iteration: int) -> None:
        """Raise EndlessError, which names the rows, if rows have become too large to be written."""
        batch, sizes = made[index], self.sizes[index]
        if max(batch.weights) > _LARGEST_WEIGHT or min(batch.weights) < -_LARGEST_WEIGHT:
            heavy = [row for row, w in zip(batch.rows, batch.weights, strict=True) if abs(w) > _LARGEST_WEIGHT]
            reasons = dict.fromkeys(heavy, "its weight is too large")
        elif sizes is None or not (sizes.wide or (iteration and iteration % GLANCE == 0)):
            return
        else:
            reasons = {row: sizes.refused(row) for row in sizes.refused_rows(batch.rows)}
        errors = [
            self._error(index, made, f"after {iteration} iterations {why}", [row], raised=_SIZE if _SIZE in why else "")
            for row, why in reasons.items()
        ]
        if errors:
            errors[0].others = errors[1:]
            raise errors[0]

    def be_careful(self) -> bool:
        """Check each row of each iteration from now on. Returns False if each row was checked already."""
        sizes = [one for one in self.sizes if one is not None]
        was = all(one.careful for one in sizes)
        for one in sizes:
            one.careful = True
        return not was

    def advice(self, raised: str) -> str:
        """Return the advice of an error message.

        `raised` names the settings to raise if the loop would end later; it is empty if there are none.
        """
        bound = "max_depth=16" if self._seeded else "limit=16, on_limit='return'"
        more = f", or raise {raised} if it ends later" if raised else ""
        return self.bound.advice(f"Mend the data, or bound the recursion: {bound}{more}")

    def _error(
        self,
        index: int,
        made: list[Batch],
        why: str,
        rows: Sequence[Row] = (),
        of_work: bool = False,
        raised: str = "",
    ) -> EndlessError:
        batch = made[index]
        there = [row for row, weight in zip(batch.rows, batch.weights, strict=True) if weight > 0]
        row = rows[0] if rows else min(there or batch.rows, key=repr)
        sql, subject = self.bound.words is not None, self.bound.where(self.name)
        if not (sql and self._seeded):
            subject += f": binding '{self.bindings[index]}'"
        return EndlessError(
            f"{subject} does not end: {why}, e.g. by row {columns_of(row) if sql else row!r}; a recursion "
            f"that grows without end or goes back and forth has no answer. {self.advice(raised)}",
            rows or [row for batch in made for row in batch.rows],
            of_work,
        )

    def _note_cut(self, over: Sequence[tuple[int, Batch]]) -> None:
        """Note the rows that are missing in the answer because the loop stops at its limit."""
        if self.bound.max_depth is None and self.bound.on_limit != "rows":
            positive = [batch.select([weight > 0 for weight in batch.weights]) for _, batch in over]
            self.cut += [batch for batch in positive if batch.rows]
