"""Joins by key. The join of relations is bilinear, so its delta is a sum of joins with deltas:

    Δ(L ⋈ R)  =  ΔL ⋈ R  +  L ⋈ ΔR  ±  ΔL ⋈ ΔR

The sign of the last term depends on when the two states apply their deltas. An *eager* state already contains its delta
when the join runs. A *deferred* state (the state of a recursion's own rows) does not contain it yet. With two eager
states the first two terms count ΔL ⋈ ΔR twice, so it is subtracted. With one eager state they count it once, so the
last term is left out. With two deferred states they do not count it, so it is added.

A row without a key matches nothing: no table and no arrangement has such rows, and ΔL ⋈ ΔR leaves them out.

Inside a recursion that counts depth, the deferred side's values are (iteration, value) pairs, and rows of L ⋈ ΔR of
an iteration wait until the recursion reaches it.

Outside of recursions a merged row has the headers of the row that came in a delta. If both of its rows came in deltas,
it has the headers of the left one.

Source: Budiu et al., "DBSP: Automatic Incremental View Maintenance", VLDB 2023, on bilinear operators.
"""

from collections.abc import Callable, Sequence
from itertools import compress, starmap
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from eddy.operators.batch import EMPTY, Batch, Row, concat, keys_of
from eddy.operators.context import Context
from eddy.operators.errors.failed_pairs import merge_or_fail, without_failed_pairs
from eddy.operators.errors.set_aside import Aside, only_written
from eddy.operators.keyed import Keyed, keyed
from eddy.operators.matches import Bags, Lookup, Merge, matches, merged_matches
from eddy.operators.operator import Operator, RowWise, State
from eddy.operators.stateless import check_rows
from eddy.operators.upsert import by_key, replacement
from eddy.state.arrangement import Arrangement, pairs_of
from eddy.state.table_state import Table

__all__ = ["Arrange", "Join", "Materialize", "StreamTableJoin", "TableJoin"]

_KEY, _VALUE = itemgetter(0), itemgetter(1)
_MANY = 256
"""If both sides have at least this many rows, equal rows are merged before the join."""


class Join(Operator):
    """Input: rows of (K, L) and of (K, R). Output: the rows `merge(key, left, right)` of their matches."""

    def __init__(
        self,
        name: str,
        left: Lookup,
        right: Lookup,
        merge: Merge,
        eager: int = 2,
        by_depth: bool = False,
        headed: bool = False,
    ) -> None:
        self.name, self._left, self._right, self._merge = name, left, right, merge
        self._headed = headed
        self._correction = {2: -1, 1: 0, 0: 1}[eager]
        self.by_depth = by_depth
        self.later: dict[int, Batch] = {}

    def forget_later(self) -> None:
        """Drop the waiting rows, because the epoch is undone."""
        self.later = {}

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Return the delta of the join, not consolidated."""
        left, right = inputs
        result = self._matched(left, right, self._merge, context.iteration)
        check_rows(result.rows, self.name)
        return result

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the pairs (key, (left, right)) on which `merge` fails."""
        left, right = inputs
        merge = merge_or_fail(aside, self._merge, self.name)
        return without_failed_pairs(aside, self._matched(left, right, merge, context.iteration))

    @property
    def outside(self) -> Lookup:
        """The state on the right."""
        return self._right

    def explore(self, left: Batch, right: Bags | None = None, aside: Aside | None = None) -> Batch:  # type: ignore[override]
        """Return the matches of the rows `left` with `right`, or if `right` is None with the state on the right.

        Pairs that are set aside, and pairs on which `merge` raises, make no row.
        """

        outside, kept = self._right if right is None else right, aside is not None and bool(aside.kept)

        def is_set_aside(pair: Row) -> bool:
            return aside is not None and bool(aside.reason_of(pair))

        return merged_matches(left, outside, self._merge, self.name, is_set_aside if kept else None)

    def _matched(self, left: Batch, right: Batch, merge: Merge, iteration: int) -> Batch:
        if self._headed and (left.headers or right.headers):
            found = self._terms(_headed(left), _headed(right), _headed_merge(merge), iteration)
            return concat([_split(batch) for batch in found])
        if not right.rows and not self.by_depth:
            return matches(left, self._right, merge)
        return concat(self._terms(left, right, merge, iteration))

    def _terms(self, left: Batch, right: Batch, merge: Merge, iteration: int) -> list[Batch]:
        terms = []
        if left.rows:
            terms.append(matches(left, self._right, merge))
            if right.rows and self._correction:
                terms.append(self._both(left, right, merge))
        if self.by_depth:
            if right.rows:
                self._postpone(right, merge)
            terms.append(self.later.pop(iteration, EMPTY))
        elif right.rows:
            terms.append(matches(right, self._left, merge, from_right=True))
        return terms

    def _both(self, left: Batch, right: Batch, merge: Merge) -> Batch:
        if len(left.rows) > _MANY and len(right.rows) > _MANY:  # equal rows multiply the pairs
            left, right = left.consolidated(self.name), right.consolidated(self.name)
        matching: dict[Any, list[tuple[Any, int]]] = {}
        for (key, value), weight in zip(right.rows, right.weights, strict=True):
            matching.setdefault(key, []).append((value, weight * self._correction))
        matching.pop(None, None)
        rows, weights = [], []
        for (key, value), weight in zip(left.rows, left.weights, strict=True):
            for other, factor in matching.get(key, ()):
                rows.append(merge(key, value, other))
                weights.append(weight * factor)
        return Batch(rows, weights, max(left.time, right.time))

    def _postpone(self, right: Batch, merge: Merge) -> None:
        """Put the matches of left rows in the state with `right` into `later`, by the left row's iteration."""
        found: dict[int, tuple[list[Row], list[int]]] = {}
        bags = self._left.get_many(list(keys_of(right.rows)))
        for (key, value), weight, bag in zip(right.rows, right.weights, bags, strict=True):
            for (iteration, other), factor in pairs_of(bag):
                rows, weights = found.setdefault(iteration, ([], []))
                rows.append(merge(key, other, value))
                weights.append(weight * factor)
        self.later = {iteration: Batch(rows, weights, right.time) for iteration, (rows, weights) in found.items()}


class _Headed(NamedTuple):
    """A value, or a merged row, together with the headers of the row that came in a delta."""

    body: Any
    headers: Any


def _headed(batch: Batch) -> Batch:
    headers = batch.headers_of_rows()
    rows = [(key, _Headed(value, own)) for (key, value), own in zip(batch.rows, headers, strict=True)]
    return Batch(rows, batch.weights, batch.time)


def _headed_merge(merge: Merge) -> Callable[[Any, Any, Any], Any]:
    """Wrap `merge` for rows with headers on one or both sides. If both have headers, the result has the left ones."""

    def merged(key: Any, left: Any, right: Any) -> _Headed:
        one, other = type(left) is _Headed, type(right) is _Headed
        row = merge(key, left.body if one else left, right.body if other else right)
        return _Headed(row, left.headers if one else right.headers)

    return merged


def _split(batch: Batch) -> Batch:
    """Split merged rows with headers into a column of rows and a column of headers."""
    items: list[Any] = batch.rows
    return Batch([item.body for item in items], batch.weights, batch.time, None, [item.headers for item in items])


class Arrange(Operator):
    """Passes a relation on unchanged, and maintains an arrangement of its rows with a key, for joins to read.

    If `deferred`, the arrangement gets an epoch's rows at the end of a recursion, in `settle`. If `by_depth`, its
    values are (iteration, value) pairs.
    """

    def __init__(
        self, name: str, arrangement: Arrangement[Any, Any], deferred: bool = False, by_depth: bool = False
    ) -> None:
        self.name, self.arrangement = name, arrangement
        self._deferred = deferred
        self.by_depth = by_depth
        self.waiting: list[Batch] = []

    def states(self) -> Sequence[State]:
        """The arrangement."""
        return (self.arrangement,)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Apply the delta, now or later."""
        (batch,) = inputs
        kept = keyed(batch)
        if not self._deferred:
            self.arrangement.integrate(kept.zset(self.name))
        elif self.by_depth:
            iteration = context.iteration
            self.waiting.append(kept.with_rows([(key, (iteration, value)) for key, value in kept.rows]))
        else:
            self.waiting.append(kept)
        return batch

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the rows that the arrangement cannot write."""
        return self.step(context, only_written(aside, inputs[0], self.arrangement.spec))

    def explore(self, *inputs: Batch) -> Batch:
        """The rows as they are."""
        return inputs[0]

    def settle(self) -> None:
        """Add the recursion's rows to the arrangement, when the waves have ended."""
        if self.waiting:
            self.arrangement.integrate(concat(self.waiting).zset(self.name))
            self.waiting = []

    def forget_wave(self) -> None:
        """Undo the epoch."""
        self.waiting = []


class Materialize(Operator):
    """Passes a table's delta on unchanged, and maintains the table for joins to read."""

    def __init__(self, name: str, table: Table[Any, Any]) -> None:
        self.name, self.table = name, table

    def states(self) -> Sequence[State]:
        """The table."""
        return (self.table,)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Replace the values of the keys that changed."""
        (batch,) = inputs
        news: dict[Any, Any] = dict.fromkeys(keys_of(batch.rows))
        for (key, value), weight in zip(batch.rows, batch.weights, strict=True):
            if weight > 0:
                news[key] = value
        self.table.put_many(news, self.table.get_many(list(news)))
        return batch

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the rows that the table cannot write."""
        return self.step(context, only_written(aside, inputs[0], self.table.spec))


class StreamTableJoin(Keyed, RowWise):
    """Input: records (K, V). Output: records (key, joiner(value, the table's value)).

    The table has the epoch's changes already. If it does not have the key, or the record has none, a left join calls
    the joiner with None, and an inner join drops the record. A record without a value is dropped, because None as an
    argument of the joiner means that a side has no value.
    """

    def __init__(self, name: str, table: Table[Any, Any], joiner: Callable[[Any, Any], Any], left: bool) -> None:
        self.name, self._table, self._joiner, self._left = name, table, joiner, left

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Look up each record's key. The second input, the table's delta, makes no record."""
        batch = self.with_values(inputs[0]) if self._left else self.with_both(inputs[0])
        others = self._others(list(keys_of(batch.rows)))
        if not self._left and None in others:
            mask = [other is not None for other in others]
            batch, others = batch.select(mask), list(compress(others, mask))
        joined = map(self._joiner, map(_VALUE, batch.rows), others)
        return batch.with_rows(list(zip(keys_of(batch.rows), joined, strict=True)))

    @property
    def outside(self) -> Lookup:
        """The table."""
        return self._table

    def explore(self, left: Batch, right: Bags | None = None, aside: Aside | None = None) -> Batch:  # type: ignore[override]
        """Join records with the values of `right`, or of the table if that is None."""
        found = self._table.get_many(list(keys_of(left.rows))) if right is None else _values(right, left)
        rows = []
        for row, other in zip(left.rows, found, strict=True):
            if (other is not None or self._left) and not (aside is not None and aside.kept and aside.reason_of(row)):
                try:
                    rows.append((row[0], self._joiner(row[1], other)))
                except Exception:
                    continue
        return Batch(rows, [1] * len(rows), left.time)

    def _others(self, keys: list[Any]) -> list[Any]:
        """Return the table's value for each of `keys`; None for a key that is None or not in the table."""
        if not self._left or None not in keys:
            return self._table.get_many(keys)
        found = iter(self._table.get_many([key for key in keys if key is not None]))
        return [None if key is None else next(found) for key in keys]


def _values(bags: Bags, batch: Batch) -> list[Any]:
    """Return the value of each row's key; None for a key without a value.

    `bags` have at most one value a key.
    """
    found = bags.get_many(list(keys_of(batch.rows)))
    return [next((value for value, _ in pairs_of(bag)), None) for bag in found]


class TableJoin(Operator):
    """Input: deltas of two tables (K, L) and (K, R). Output: the delta of K -> joiner(left, right).

    An outer join calls the joiner with None for a missing side, a left join for a missing right side. The new
    values are in the two tables and the old values in the deltas, so the join has no state.
    """

    def __init__(
        self,
        name: str,
        left: Table[Any, Any],
        right: Table[Any, Any],
        joiner: Callable[[Any, Any], Any],
        kind: Literal["inner", "left", "outer"],
    ) -> None:
        self.name, self._left, self._right, self._joiner, self._kind = name, left, right, joiner, kind

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Recompute the joined values of the keys in a delta, before and after it."""
        left, right = inputs
        return self._replaced(left, right, lambda keys, lefts, rights, weight: self._joined(lefts, rights))

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the pairs (key, (left, right)) on which the joiner fails: their keys have no row."""

        def joined(keys: Sequence[Any], lefts: Sequence[Any], rights: Sequence[Any], weight: int) -> list[Any]:
            values = []
            for key, left, right in zip(keys, lefts, rights, strict=True):
                pair, value = (key, (left, right)), None
                if aside.kept and aside.reason_of(pair):
                    aside.add_weight(pair, weight)
                else:
                    try:
                        value = self._join(left, right)
                    except Exception as error:
                        aside.take(pair, weight, error)
                values.append(value)
            return values

        left, right = inputs
        return self._replaced(left, right, joined)

    def _replaced(self, left: Batch, right: Batch, joined: "_Joined") -> Batch:
        keys = list(dict.fromkeys([*keys_of(left.rows), *keys_of(right.rows)]))
        lefts, rights = self._left.get_many(keys), self._right.get_many(keys)
        news = joined(keys, lefts, rights, 1)
        olds = joined(keys, before(keys, lefts, left), before(keys, rights, right), -1)
        headed = concat((right, left)) if left.headers or right.headers else EMPTY
        headers_of = by_key(headed, headed.headers)
        time = max(left.time, right.time)
        return replacement(dict(zip(keys, news, strict=True)), olds, time, headers_of=headers_of)

    def _joined(self, lefts: Sequence[Any], rights: Sequence[Any]) -> list[Any]:
        return list(starmap(self._join, zip(lefts, rights, strict=True)))

    def _join(self, left: Any, right: Any) -> Any:
        if left is None and (right is None or self._kind != "outer"):
            return None
        if right is None and self._kind == "inner":
            return None
        return self._joiner(left, right)


_Joined = Callable[[Sequence[Any], Sequence[Any], Sequence[Any], int], list[Any]]
"""A function of keys, left values, right values and a weight (1: new values, -1: old). It returns joined values."""


def before(keys: Sequence[Any], news: Sequence[Any], delta: Batch) -> list[Any]:
    """Return the values of `keys` before the epoch. Their values after the epoch are `news`, its delta is `delta`."""
    olds: dict[Any, Any] = dict.fromkeys(keys_of(delta.rows))
    for (key, value), weight in zip(delta.rows, delta.weights, strict=True):
        if weight < 0:
            olds[key] = value
    return [olds.get(key, new) for key, new in zip(keys, news, strict=True)]
