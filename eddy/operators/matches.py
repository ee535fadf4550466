"""Finds the matches of one side's delta with the rows of a state that have the same key: one term of a join's delta.

A table has at most one value for a key, an arrangement has any number of values with weights. The result is not
consolidated.
"""

from collections.abc import Callable, Sequence
from itertools import compress, repeat
from operator import itemgetter, mul
from typing import Any, Protocol

from eddy.operators.batch import EMPTY, Batch, Row
from eddy.operators.stateless import check_rows
from eddy.state.arrangement import Arrangement, Bag
from eddy.state.table_state import Table

__all__ = ["Bags", "Lookup", "Merge", "matches", "merged_matches"]

_KEY: Callable[[Any], Any] = itemgetter(0)
_VALUE: Callable[[Any], Any] = itemgetter(1)
Lookup = Table[Any, Any] | Arrangement[Any, Any]


class Bags(Protocol):
    """Rows by key, with the method by which joins look up rows of an arrangement."""

    def get_many(self, keys: list[Any]) -> Sequence[Bag | None]:
        """The bag of each key."""


Merge = Callable[[Any, Any, Any], Row]


_BLOCK = 1_024
"""The number of rows that are looked up in a table at a time, so that they remain in the processor's cache."""
_MANY = 16
"""The number of rows from which `matches` checks whether every row has at most one match."""


def matches(batch: Batch, state: Lookup | Bags, merge: Merge, from_right: bool = False) -> Batch:
    """Return the rows merge(key, value, other), for each row of `batch` and each value `other` of its key in `state`.

    `from_right`: `batch` is the right side of the join, so the rows are merge(key, other, value).
    """
    if len(batch.rows) == 1 and isinstance(state, Table):  # the usual frontier after a single change
        ((key, value),) = batch.rows
        other = state.get(key)
        if other is None:
            return EMPTY
        return Batch([merge(key, other, value) if from_right else merge(key, value, other)], batch.weights, batch.time)
    if isinstance(state, Table):
        return _table_matches(batch, state, merge, from_right)
    bags = state.get_many(list(map(_KEY, batch.rows)))
    if len(bags) >= _MANY and dict not in set(map(type, bags)):
        return _single_matches(batch, bags, merge, from_right)
    rows: list[Row] = []
    weights: list[int] = []
    for (key, value), weight, bag in zip(batch.rows, batch.weights, bags, strict=True):
        if not bag:
            continue
        if isinstance(bag, tuple):
            rows.append(merge(key, bag[0], value) if from_right else merge(key, value, bag[0]))
            weights.append(weight * bag[1])
            continue
        key_again, ours, others = repeat(key), repeat(value), list(bag)
        rows += map(merge, key_again, others, ours) if from_right else map(merge, key_again, ours, others)
        weights += bag.values() if weight == 1 else map(mul, repeat(weight), bag.values())
    return Batch(rows, weights, batch.time)


def _single_matches(batch: Batch, bags: Sequence[Bag | None], merge: Merge, from_right: bool) -> Batch:
    """Return what `matches` returns, if every key has at most one value in `bags`."""
    ours, factors = batch.rows, batch.weights
    if not all(bags):
        ours, factors, bags = list(compress(ours, bags)), list(compress(factors, bags)), list(filter(None, bags))
    keys, values, others = map(_KEY, ours), map(_VALUE, ours), map(_KEY, bags)
    rows = list(map(merge, keys, others, values) if from_right else map(merge, keys, values, others))
    return Batch(rows, list(map(mul, factors, map(_VALUE, bags))), batch.time)


def _table_matches(batch: Batch, table: Table[Any, Any], merge: Merge, from_right: bool) -> Batch:
    """Return what `matches` returns for a table, whose values are looked up for one block of rows after the other."""
    rows: list[Row] = []
    weights: list[int] = []
    for start in range(0, len(batch.rows), _BLOCK):
        lefts, factors = batch.rows[start : start + _BLOCK], batch.weights[start : start + _BLOCK]
        keys = list(map(_KEY, lefts))
        others = table.get_many(keys)
        if None in others:
            mask = [other is not None for other in others]
            lefts, factors = list(compress(lefts, mask)), list(compress(factors, mask))
            keys, others = list(compress(keys, mask)), list(compress(others, mask))
        values = map(_VALUE, lefts)
        rows += map(merge, keys, others, values) if from_right else map(merge, keys, values, others)
        weights += factors
    return Batch(rows, weights, batch.time)


def merged_matches(
    batch: Batch,
    state: Lookup | Bags,
    merge: Merge,
    where: str,
    is_set_aside: Callable[[Row], bool] | None = None,
) -> Batch:
    """Return `matches` without the pairs (key, (left, right)) that are set aside, or on which `merge` raises."""

    def merged(key: Any, left: Any, right: Any) -> Row | None:
        if is_set_aside is not None and is_set_aside((key, (left, right))):
            return None
        try:
            row = merge(key, left, right)
            check_rows([row], where)
        except Exception:
            return None
        return row

    if is_set_aside is None:
        try:
            found = matches(batch, state, merge)
            check_rows(found.rows, where)
            return found
        except Exception:  # one of the pairs fails, so each one is tried below
            pass
    found = matches(batch, state, merged)  # type: ignore[arg-type]
    return found.select([row is not None for row in found.rows]) if None in found.rows else found
