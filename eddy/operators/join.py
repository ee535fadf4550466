"""Joins by key. The join of relations is bilinear, so its delta is again joins, all of them small:

    Δ(L ⋈ R)  =  ΔL ⋈ R  +  L ⋈ ΔR  ±  ΔL ⋈ ΔR

The last term depends on when the two sides take their deltas in. A side whose state is *eager*
has its delta in it by the time the join runs, a *deferred* one (a recursion's own side) has not:
with two eager sides ΔL ⋈ ΔR is there twice and is taken off once, with one it is there once, with
none it is missing.

Inside a recursion that counts depth, the deferred side's values are (level, value) pairs, and what
L ⋈ ΔR finds at a level waits until the recursion gets there.

Source: Budiu et al., "DBSP: Automatic Incremental View Maintenance", VLDB 2023, on bilinear operators.
"""

from collections.abc import Callable, Sequence
from itertools import compress, starmap
from operator import itemgetter
from typing import Any, Literal

from eddy.operators.batch import EMPTY, Batch, Row, concat, keys_of
from eddy.operators.operator import Operator, State
from eddy.operators.stateless import check_rows
from eddy.operators.tables import replacement
from eddy.state.arrangement import Arrangement, pairs_of
from eddy.state.table import Table

__all__ = ["Arrange", "Join", "Materialize", "StreamTableJoin", "TableJoin"]

_KEY, _VALUE = itemgetter(0), itemgetter(1)
Lookup = Table[Any, Any] | Arrangement[Any, Any]


class Join(Operator):
    """Rows of (K, L) and of (K, R) in, the rows `merge(key, left, right)` of their matches out.

    Cost: one `merge` for each match that has a new member; |L| and |R| never appear.
    """

    def __init__(
        self,
        name: str,
        left: Lookup,
        right: Lookup,
        merge: Callable[[Any, Any, Any], Row],
        eager: int = 2,
        leveled: bool = False,
    ) -> None:
        self.name, self._left, self._right, self._merge = name, left, right, merge
        self._swapped = lambda key, right, left: merge(key, left, right)
        self._correction = {2: -1, 1: 0, 0: 1}[eager]
        self.leveled, self.level = leveled, 0
        self.later: dict[int, Batch] = {}

    def step(self, *inputs: Batch) -> Batch:
        """Return the delta of the join, not consolidated."""
        left, right = inputs
        if not right.rows and not self.leveled:
            result = matches(left, self._right, self._merge)
        else:
            result = concat(self._terms(left, right))
        check_rows(result.rows, self.name)
        return result

    def _terms(self, left: Batch, right: Batch) -> list[Batch]:
        terms = []
        if left.rows:
            terms.append(matches(left, self._right, self._merge))
            if right.rows and self._correction:
                terms.append(self._both(left, right))
        if self.leveled:
            if right.rows:
                self._postpone(right)
            terms.append(self.later.pop(self.level, EMPTY))
        elif right.rows:
            terms.append(matches(right, self._left, self._swapped))
        return terms

    def _both(self, left: Batch, right: Batch) -> Batch:
        by_key: dict[Any, list[tuple[Any, int]]] = {}
        for (key, value), weight in zip(right.rows, right.weights, strict=True):
            by_key.setdefault(key, []).append((value, weight * self._correction))
        rows, weights = [], []
        for (key, value), weight in zip(left.rows, left.weights, strict=True):
            for other, factor in by_key.get(key, ()):
                rows.append(self._merge(key, value, other))
                weights.append(weight * factor)
        return Batch(rows, weights, max(left.time, right.time))

    def _postpone(self, right: Batch) -> None:
        """L ⋈ ΔR, by the level of the row on the left."""
        levels: dict[int, tuple[list[Row], list[int]]] = {}
        bags = self._left.get_many(list(keys_of(right.rows)))
        for (key, value), weight, bag in zip(right.rows, right.weights, bags, strict=True):
            for (level, other), factor in pairs_of(bag):
                rows, weights = levels.setdefault(level, ([], []))
                rows.append(self._merge(key, other, value))
                weights.append(weight * factor)
        self.later = {level: Batch(rows, weights, right.time) for level, (rows, weights) in levels.items()}


def matches(batch: Batch, state: Lookup, merge: Callable[[Any, Any, Any], Row]) -> Batch:
    """The rows merge(key, value, other) of each row of `batch` with each value of its key in `state`."""
    if len(batch.rows) == 1 and isinstance(state, Table):  # most frontiers of a live change
        ((key, value),) = batch.rows
        other = state.get(key)
        return EMPTY if other is None else Batch([merge(key, value, other)], batch.weights, batch.time)
    keys = list(map(_KEY, batch.rows))
    if isinstance(state, Table):
        others = state.get_many(keys)
        if None in others:
            mask = [other is not None for other in others]
            if True not in mask:
                return EMPTY
            batch = batch.select(mask)
            keys, others = list(compress(keys, mask)), list(compress(others, mask))
        rows = list(map(merge, keys, map(_VALUE, batch.rows), others))
        return Batch(rows, batch.weights, batch.time)
    bags = state.get_many(keys)
    rows, weights = [], []
    for (key, value), weight, bag in compress(zip(batch.rows, batch.weights, bags, strict=True), bags):
        for other, factor in pairs_of(bag):
            rows.append(merge(key, value, other))
            weights.append(weight * factor)
    return Batch(rows, weights, batch.time)


class Arrange(Operator):
    """The identity on a relation, which keeps an arrangement of it for joins to look into.

    Deferred, it takes in what came at the end of a recursion, in `settle`; with levels, as
    (level, value) pairs.
    """

    def __init__(
        self, name: str, arrangement: Arrangement[Any, Any], deferred: bool = False, leveled: bool = False
    ) -> None:
        self.name, self.arrangement = name, arrangement
        self._deferred = deferred
        self.leveled, self.level = leveled, 0
        self._waiting: list[Batch] = []

    def states(self) -> Sequence[State]:
        """The arrangement."""
        return (self.arrangement,)

    def step(self, *inputs: Batch) -> Batch:
        """Take the delta in, now or later."""
        (batch,) = inputs
        if not self._deferred:
            self.arrangement.integrate(batch.zset(self.name))
        elif self.leveled:
            level = self.level
            self._waiting.append(batch.with_rows([(key, (level, value)) for key, value in batch.rows]))
        else:
            self._waiting.append(batch)
        return batch

    def settle(self) -> None:
        """The recursion is at rest: take in what it brought."""
        if self._waiting:
            self.arrangement.integrate(concat(self._waiting).zset(self.name))
            self._waiting = []

    def forget_wave(self) -> None:
        """The epoch is undone."""
        self._waiting = []


class Materialize(Operator):
    """The identity on a table's delta, which keeps the table for joins to look into."""

    def __init__(self, name: str, table: Table[Any, Any]) -> None:
        self.name, self.table = name, table

    def states(self) -> Sequence[State]:
        """The table."""
        return (self.table,)

    def step(self, *inputs: Batch) -> Batch:
        """Replace the values of the keys that changed."""
        (batch,) = inputs
        news: dict[Any, Any] = dict.fromkeys(keys_of(batch.rows))
        for (key, value), weight in zip(batch.rows, batch.weights, strict=True):
            if weight > 0:
                news[key] = value
        self.table.put_many(news, self.table.get_many(list(news)))
        return batch


class StreamTableJoin(Operator):
    """Records (K, V) in, (key, joiner(value, the table's value)) out; the table as of the epoch.

    Left, a key that the table does not hold is joined with None; inner, it is dropped.
    """

    def __init__(self, name: str, table: Table[Any, Any], joiner: Callable[[Any, Any], Any], left: bool) -> None:
        self.name, self._table, self._joiner, self._left = name, table, joiner, left

    def step(self, *inputs: Batch) -> Batch:
        """Look each record's key up. The second input, the table's delta, makes no record."""
        batch = inputs[0]
        others = self._others(list(keys_of(batch.rows)))
        if not self._left and None in others:
            mask = [other is not None for other in others]
            batch, others = batch.select(mask), list(compress(others, mask))
        joined = map(self._joiner, map(_VALUE, batch.rows), others)
        return batch.with_rows(list(zip(keys_of(batch.rows), joined, strict=True)))

    def _others(self, keys: list[Any]) -> list[Any]:
        """The table's values; a record without a key finds none."""
        if None not in keys:
            return self._table.get_many(keys)
        found = iter(self._table.get_many([key for key in keys if key is not None]))
        return [None if key is None else next(found) for key in keys]


class TableJoin(Operator):
    """Deltas of two tables (K, L) and (K, R) in, the delta of K -> joiner(left, right) out.

    A missing side is None to the joiner of an outer join, and of a left join on the right. The new
    values are in the two tables, the old ones come back from the deltas, so the join keeps nothing.
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

    def step(self, *inputs: Batch) -> Batch:
        """Recompute the keys that a delta names, before and after."""
        left, right = inputs
        keys = list(dict.fromkeys([*keys_of(left.rows), *keys_of(right.rows)]))
        lefts, rights = self._left.get_many(keys), self._right.get_many(keys)
        news = self._joined(lefts, rights)
        olds = self._joined(before(keys, lefts, left), before(keys, rights, right))
        return replacement(dict(zip(keys, news, strict=True)), olds, max(left.time, right.time))

    def _joined(self, lefts: Sequence[Any], rights: Sequence[Any]) -> list[Any]:
        return list(starmap(self._join, zip(lefts, rights, strict=True)))

    def _join(self, left: Any, right: Any) -> Any:
        if left is None and (right is None or self._kind != "outer"):
            return None
        if right is None and self._kind == "inner":
            return None
        return self._joiner(left, right)


def before(keys: Sequence[Any], news: Sequence[Any], delta: Batch) -> list[Any]:
    """The values that `keys` had before `delta` made them `news`."""
    olds: dict[Any, Any] = dict.fromkeys(keys_of(delta.rows))
    for (key, value), weight in zip(delta.rows, delta.weights, strict=True):
        if weight < 0:
            olds[key] = value
    return [olds.get(key, new) for key, new in zip(keys, news, strict=True)]
