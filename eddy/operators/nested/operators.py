"""Operators of nested time: joins and reductions of differences by iteration.

A *time* is the number of an iteration, from 0; in nested loops it is a tuple of them, outermost first. A collection
at time t is the sum of its differences at all s ≤ t, in every component. So

    join     a difference at s meets a difference at t in iteration lub(s, t), their least upper bound
    reduce   a key's results can change in any iteration that is a least upper bound of some of the key's times

Both store their inputs as traces, and reductions also their results. So a change to the input of an earlier epoch is
applied at exactly the iterations that it affects. Rows of a later iteration wait in `later`.

Sources: McSherry et al., "Differential Dataflow", CIDR 2013; Budiu et al., "DBSP", VLDB 2023.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from eddy.errors import DataError
from eddy.operators.batch import Batch, Row, concat, keys_of, unhashable
from eddy.operators.context import Context
from eddy.operators.errors.failed_pairs import merge_or_fail, without_failed_pairs
from eddy.operators.errors.set_aside import Aside
from eddy.operators.exchange import Budget
from eddy.operators.keyed import Keyed, keyed
from eddy.operators.matches import Lookup, Merge, matches, merged_matches
from eddy.operators.nested.repetition import EndlessError
from eddy.operators.operator import Operator, State
from eddy.operators.reduce import Function
from eddy.operators.stateless import check_rows
from eddy.operators.weight_functions import one_if_positive
from eddy.state.iteration_trace import History, Trace

__all__ = [
    "NestedJoin",
    "NestedLookupJoin",
    "NestedOperator",
    "NestedReduce",
    "NestedWeights",
    "Time",
    "lub",
]

Time = Any
"""An int in an outermost loop, a tuple of ints in a loop inside a loop."""


def lub(one: Time, other: Time) -> Time:
    """The least upper bound of two times."""
    if type(one) is int:
        return max(one, other)
    return tuple(map(max, one, other))


_SLICE = 1_000  # after so many rows of one side, or matches, a join checks the epoch's budget
_FEW = 32  # the number of rows up to which merging equal rows costs more than it saves
# The most reads of a key's values: each one `_MOST_READS` times, plus 1/`_READ_SHARE` of the epoch's rows for the key.
_MOST_READS, _READ_SHARE = 500, 10


class NestedOperator(Operator):
    """An operator inside a loop by nested time.

    The iteration of its context is a time, and rows may wait for later times.
    """

    def __init__(self) -> None:
        self.later: dict[Time, Any] = {}

    def due(self, time: Time) -> bool:
        """Whether the operator has rows waiting for this time."""
        return time in self.later

    def waiting(self) -> Iterable[Time]:
        """The times for which the operator has rows waiting."""
        return self.later

    def forget_wave(self) -> None:
        """Undo the epoch."""
        self.later = {}

    def begin(self) -> None:
        """Prepare for the iterations of an epoch."""


_NO_GUARD = Budget(2**62)


class _Pairs:
    """Collects matches by the times at which they occur."""

    def __init__(self) -> None:
        self.by_time: dict[Time, tuple[list[Row], list[int]]] = {}

    def add(self, time: Time, row: Row, weight: int) -> None:
        """Add one match."""
        columns = self.by_time.get(time)
        if columns is None:
            columns = self.by_time[time] = ([], [])
        columns[0].append(row)
        columns[1].append(weight)


class _Join(NestedOperator):
    """The part that the two joins share.

    Matches of the current iteration are returned, matches of later iterations wait.
    """

    later: dict[Time, list[Batch]]
    name: str

    def __init__(self, guard: Budget) -> None:
        super().__init__()
        self._guard = guard

    def _check(self, time: Time, matched: int, of: Batch) -> None:
        """Raise EndlessError if `matched` matches of the rows of the batch `of` exceed the epoch's budget."""
        if self._guard.exceeded(matched):
            raise EndlessError(
                f"join '{self.name}': {matched:,} matches in iteration {time}, and the epoch's rows or seconds "
                "were spent; a recursion that grows without end has no answer. Mend the data, bound it (max_depth=, or "
                "limit= with on_limit='return'), or raise max_nested_rows, max_nested_s",
                of.rows,
                of_work=True,
            )

    def _emit_or_postpone(
        self, time: Time, pairs: _Pairs, now: list[Batch], event_time: int, aside: Aside | None
    ) -> Batch:
        if aside is not None:
            now = [self._set_aside(aside, time, batch) for batch in now]
        for at, (rows, weights) in pairs.by_time.items():
            batch = Batch(rows, weights, event_time)
            if aside is not None:
                batch = self._set_aside(aside, at, batch)
            if at == time:
                now.append(batch)
            else:
                self.later.setdefault(at, []).append(batch)
        result = concat([*self.later.pop(time, ()), *now])
        check_rows(result.rows, self.name)
        return result.consolidated(self.name) if len(result.rows) > _FEW else result

    def _set_aside(self, aside: Aside, time: Time, batch: Batch) -> Batch:
        """Set aside the failed pairs of an iteration."""
        aside.iteration = time
        return without_failed_pairs(aside, batch)


class NestedLookupJoin(_Join):
    """Joins rows inside the loop, L, with a collection outside, R, which is read from the state of R.

    R already contains its delta when the loop begins. So ΔL is joined with the new R, and L as of before the epoch is
    joined with ΔR: `ΔL ⋈ R + L ⋈ ΔR`.
    """

    follows_rows = True

    def __init__(
        self,
        name: str,
        left: Trace[Any, Any],
        right: Lookup,
        merge: Merge,
        guard: Budget = _NO_GUARD,
    ) -> None:
        super().__init__(guard)
        self.name, self._left, self._right, self._merge = name, left, right, merge

    def states(self) -> Sequence[State]:
        """The rows inside, by iteration."""
        return (self._left,)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Return the matches of this iteration."""
        return self._step(context.iteration, self._merge, *inputs)

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the pairs (key, (left, right)) on which `merge` fails, in the iteration of their row."""
        return self._step(context.iteration, merge_or_fail(aside, self._merge, self.name), *inputs, aside=aside)

    def _step(self, time: Time, merge: Merge, *inputs: Batch, aside: Aside | None = None) -> Batch:
        left, right = map(keyed, inputs)
        pairs, now = _Pairs(), []
        if right.rows:
            self._look_back(right, merge, pairs)
        if left.rows:
            now += self._matches(time, left, merge)
            self._left.integrate(left.rows, left.weights, time)
        return self._emit_or_postpone(time, pairs, now, max(left.time, right.time), aside)

    def explore(self, *inputs: Batch) -> Batch:
        """Return the matches of rows inside the loop. A pair on which the author's function raises makes no row."""
        return merged_matches(inputs[0], self._right, self._merge, self.name)

    @property
    def outside(self) -> Lookup:
        """The state on the right."""
        return self._right

    def met(self, keys: Iterable[Any]) -> bool:
        """Return whether a row inside the loop has one of these keys, in any iteration."""
        return any(self._left.get_many(list(keys)))

    def changed_keys(self) -> set[Any]:
        """The keys of the rows inside the loop that the current epoch has changed."""
        return self._left.changed_keys()

    def _matches(self, time: Time, left: Batch, merge: Merge) -> list[Batch]:
        """Return ΔL ⋈ R. A large ΔL is joined in slices, and the epoch's budget is checked after each slice."""
        if len(left.rows) <= _SLICE:
            return [matches(left, self._right, merge)]
        found, count = [], 0
        for start in range(0, len(left.rows), _SLICE):
            part = slice(start, start + _SLICE)
            found.append(matches(Batch(left.rows[part], left.weights[part], left.time), self._right, merge))
            count += len(found[-1].rows)
            self._check(time, count, left)
        return found

    def _look_back(self, right: Batch, merge: Merge, pairs: _Pairs) -> None:
        add = pairs.add
        cells = self._left.get_many(list(keys_of(right.rows)))
        for (key, other), weight, cell in zip(right.rows, right.weights, cells, strict=True):
            if cell:
                for value, history in cell.items():
                    row = merge(key, value, other)
                    for at, factor in history:
                        add(at, row, weight * factor)


class NestedJoin(_Join):
    """Joins two collections inside the loop.

    Each pair of differences is joined once: when the later one of the two arrives.
    """

    def __init__(
        self,
        name: str,
        left: Trace[Any, Any],
        right: Trace[Any, Any],
        merge: Merge,
        guard: Budget = _NO_GUARD,
    ) -> None:
        super().__init__(guard)
        self.name, self._left, self._right, self._merge = name, left, right, merge

    def states(self) -> Sequence[State]:
        """Both sides, by iteration."""
        return (self._left, self._right)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Return the matches of this iteration."""
        return self._step(context.iteration, self._merge, *inputs)

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the pairs (key, (left, right)) on which `merge` fails, in the iteration of their row."""
        return self._step(context.iteration, merge_or_fail(aside, self._merge, self.name), *inputs, aside=aside)

    def _step(self, time: Time, merge: Merge, *inputs: Batch, aside: Aside | None = None) -> Batch:
        left, right = map(keyed, inputs)
        pairs = _Pairs()
        if left.rows:
            self._left.integrate(left.rows, left.weights, time)
            self._join_delta(time, left, self._right, merge, pairs)
        if right.rows:
            self._right.integrate(right.rows, right.weights, time)
            self._join_delta(time, right, self._left, lambda key, right, left: merge(key, left, right), pairs)
        return self._emit_or_postpone(time, pairs, [], max(left.time, right.time), aside)

    def _join_delta(
        self,
        time: Time,
        batch: Batch,
        others: Trace[Any, Any],
        merge: Merge,
        pairs: _Pairs,
    ) -> None:
        add = pairs.add
        cells = others.get_many(list(keys_of(batch.rows)))
        count, looked = 0, _SLICE
        for (key, value), weight, cell in zip(batch.rows, batch.weights, cells, strict=True):
            if cell:
                count += len(cell)
                if count >= looked:
                    self._check(time, count, batch)
                    looked = count + _SLICE
                for other, history in cell.items():
                    row = merge(key, value, other)
                    for at, factor in history:
                        add(lub(time, at), row, weight * factor)


class _Traced(NestedOperator, Keyed):
    """An operator with one input, whose input and result are stored by iteration."""

    def __init__(self, name: str, taken: Trace[Any, Any], made: Trace[Any, Any]) -> None:
        super().__init__()
        self.name, self._taken, self._made = name, taken, made

    def states(self) -> Sequence[State]:
        """The input rows and the results, by iteration."""
        return (self._taken, self._made)

    def _take(self, time: Time, batch: Batch) -> Batch:
        """Add the input at this time. Returns its rows that have a key."""
        batch = self.with_keys(batch)
        try:
            self._taken.integrate(batch.rows, batch.weights, time)
        except TypeError as error:
            raise unhashable(batch.rows, self.name) from error
        return batch


class NestedReduce(_Traced):
    """Input: rows. Output: for each key the rows that `function` makes of all the key's values, such as a count.

    A weight below 0 is an error. Cost: when a key changes in an iteration, all its rows are read for this iteration and
    for each later iteration in which the key has differences.
    """

    later: dict[Time, dict[Any, None]]

    def __init__(
        self,
        name: str,
        taken: Trace[Any, Any],
        made: Trace[Any, Any],
        function: Function,
        guard: Budget = _NO_GUARD,
    ) -> None:
        super().__init__(name, taken, made)
        self._function, self._guard = function, guard
        self._read: dict[Any, int] = {}

    def begin(self) -> None:
        """Set the counts of reads to 0."""
        self._read = {}

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Return the changes of the results in this iteration."""
        return self._step(context.iteration, self._function, *inputs)

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Withhold the keys on whose values the function fails: they have no row in the iterations where it fails."""

        evaluated: list[Any] = []

        def made(key: Any, values: Mapping[Any, int]) -> dict[Any, int]:
            evaluated.append(key)
            try:
                result = self._function(key, values)
            except Exception as error:
                aside.withhold_in_iteration(key, values, error)
                return {}
            aside.release_in_iteration(key)
            return result

        def none_made(key: Any) -> dict[Any, int]:
            evaluated.append(key)
            aside.release_in_iteration(key)
            return {}

        result = self._step(context.iteration, made, *inputs, none_made=none_made)
        for key in evaluated:
            aside.keep_iterations(key, partial(self._has_own_values, key, context.iteration))
        return result

    def _has_own_values(self, key: Any, now: Time, at: Time) -> bool:
        """Whether the values of `key` in iteration `at` may differ from its values now: a later one is then due."""
        return at == now or lub(now, at) != at or key in self.later.get(at, ())

    def _step(
        self, time: Time, function: Function, *inputs: Batch, none_made: Callable[[Any], dict[Any, int]] = lambda _: {}
    ) -> Batch:
        batch = self._take(time, inputs[0])
        keys = list(dict.fromkeys((*self.later.pop(time, ()), *keys_of(batch.rows))))
        rows: list[Row] = []
        weights: list[int] = []
        as_of = _as_of_iteration if type(time) is int else _as_of
        for key, taken, made in zip(keys, self._taken.get_many(keys), self._made.get_many(keys), strict=True):
            late: list[Time] = []
            bag = as_of(taken, time, late) if taken else None
            if bag and min(bag.values()) < 0:
                raise self._negative(time, key, bag)
            if bag and len(bag) > _FEW:
                self._check_reads(time, key, len(bag))
            difference = function(key, bag) if bag else none_made(key)
            if made:
                for value, weight in as_of(made, time, late).items():
                    difference[value] = difference.get(value, 0) - weight
            for value, weight in difference.items():
                if weight:
                    rows.append((key, value))
                    weights.append(weight)
            for at in late:
                self.later.setdefault(at, {})[key] = None
        self._made.integrate(rows, weights, time)
        return Batch(rows, weights, batch.time)

    def _check_reads(self, time: Time, key: Any, values: int) -> None:
        """Raise EndlessError if the reads of the values of `key` exceed a share of the epoch's budget."""
        self._read[key] = read = self._read.get(key, 0) + values
        if read > self._guard.max_rows // _READ_SHARE + _MOST_READS * values:
            raise EndlessError(
                f"'{self.name}': in iteration {time} key {key!r} has {values:,} values, and {read:,} were read, since "
                "they change again and again; a recursion that grows without end has no answer. Mend the data, bound "
                "it (max_depth=, or limit= with on_limit='return'), or raise max_nested_rows",
                [(key, None)],
                of_work=True,
                is_sure=True,
            )

    def _negative(self, time: Time, key: Any, bag: Mapping[Any, int]) -> DataError:
        value, weight = min(bag.items(), key=lambda item: item[1])
        return DataError(
            f"'{self.name}': row {(key, value)!r} is there {weight} times in iteration {time}; a recursion may "
            "only take back what is there. Use minus() for a difference"
        )


class NestedWeights(_Traced):
    """Replaces the weight of each row by a function of this weight, for `distinct` and `minus`.

    Cost: O(1) a changed row.
    """

    later: dict[Time, dict[Row, None]]

    def __init__(
        self, name: str, taken: Trace[Any, Any], made: Trace[Any, Any], of_weight: Callable[[int], int]
    ) -> None:
        super().__init__(name, taken, made)
        self._of_weight = of_weight
        self.follows_rows = of_weight is one_if_positive

    def explore(self, *inputs: Batch) -> Batch:
        """Return the rows unchanged: `explore` ignores weights."""
        return inputs[0]

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Return the changes of the results in this iteration."""
        time, of_weight = context.iteration, self._of_weight
        batch = self._take(time, inputs[0])
        touched = list(dict.fromkeys((*self.later.pop(time, ()), *batch.rows)))
        keys = list(keys_of(touched))
        rows: list[Row] = []
        weights: list[int] = []
        for row, taken, made in zip(touched, self._taken.get_many(keys), self._made.get_many(keys), strict=True):
            late: list[Time] = []
            value = row[1]
            is_there = _weight_as_of(taken.get(value, ()), time, late) if taken else 0
            was_made = _weight_as_of(made.get(value, ()), time, late) if made else 0
            if difference := of_weight(is_there) - was_made:
                rows.append(row)
                weights.append(difference)
            for at in late:
                self.later.setdefault(at, {})[row] = None
        self._made.integrate(rows, weights, time)
        return Batch(rows, weights, batch.time)


def _weight_as_of(history: History, time: Time, late: list[Time]) -> int:
    """Return a row's weight at a time. `late` gets the later times at which the row may have another weight."""
    weight = 0
    for at, difference in history:
        if (both := lub(time, at)) == time:
            weight += difference
        else:
            late.append(both)
    return weight


def _as_of_iteration(cell: dict[Any, History], time: int, late: list[Time]) -> dict[Any, int]:
    """Return the values of a key at an iteration, with weights. `late` gets the later iterations with differences."""
    bag = {}
    for value, history in cell.items():
        weight = 0
        for at, difference in history:
            if at <= time:
                weight += difference
            else:
                late.append(at)
        if weight:
            bag[value] = weight
    return bag


def _as_of(cell: dict[Any, History], time: tuple[int, ...], late: list[Time]) -> dict[Any, int]:
    """Return what `_as_of_iteration` returns, in a loop inside a loop, whose times are only partially ordered."""
    weights = ((value, _weight_as_of(history, time, late)) for value, history in cell.items())
    return {value: weight for value, weight in weights if weight}
