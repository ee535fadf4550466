"""Aggregates by key, kept up to date by what is added and what is taken away.

    count      a + Σ weight
    aggregate  fold `adder` over rows that come, `subtractor` over rows that go

Invariant: a group is in the table while it has rows, and only then; so an aggregate whose rows can
go away counts them in a second table. Taking away comes before adding, as in Kafka Streams.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from eddy.errors import DataError
from eddy.operators.batch import Batch, Row, keys_of, unhashable
from eddy.operators.operator import Operator, State
from eddy.operators.tables import replacement
from eddy.state.table import Table

__all__ = ["Aggregate", "Count"]


def weight_by_key(batch: Batch, where: str) -> dict[Any, int]:
    """The sum of the weights of each key's rows. Raises: DataError where a key cannot be hashed."""
    try:
        if batch.weights.count(1) == len(batch.weights):
            return Counter(keys_of(batch.rows))
        sums: dict[Any, int] = {}
        get = sums.get
        for (key, _), weight in zip(batch.rows, batch.weights, strict=True):
            sums[key] = get(key, 0) + weight
        return sums
    except TypeError as error:
        raise unhashable(batch.rows, where) from error


def add_counts(table: Table[Any, int], deltas: dict[Any, int]) -> tuple[Mapping[Any, int | None], list[int | None]]:
    """Add `deltas` to the counts in `table`; return the counts after, and before; None for 0."""
    olds = table.get_many(list(deltas))
    if olds.count(None) == len(olds) and 0 not in deltas.values():
        table.put_many(deltas, olds)
        return deltas, olds
    news = {
        key: (delta if old is None else old + delta) or None
        for (key, delta), old in zip(deltas.items(), olds, strict=True)
    }
    table.put_many(news, olds)
    return news, olds


class Count(Operator):
    """Rows of (K, V) in, the delta of the table K -> number of rows out.

    Cost: three dict operations for each key of a batch.
    """

    def __init__(self, name: str, table: Table[Any, int]) -> None:
        self.name, self.table = name, table

    def states(self) -> Sequence[State]:
        """The table of counts."""
        return (self.table,)

    def step(self, *inputs: Batch) -> Batch:
        """Add each key's weights to its count."""
        (batch,) = inputs
        deltas = weight_by_key(batch, f"count '{self.name}'")
        news, olds = add_counts(self.table, deltas)
        return replacement(news, olds, batch.time)


_MUTABLE = (list, dict, set, bytearray)


class Aggregate(Operator):
    """Rows of (K, V) in, the delta of the table K -> aggregate out.

    `initial()` begins a group; `adder(key, value, aggregate)` and `subtractor` return the next one.
    `counts` goes with a subtractor: without both, the input has to be facts, which never go away.
    """

    def __init__(
        self,
        name: str,
        table: Table[Any, Any],
        initial: Callable[[], Any],
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any] | None = None,
        counts: Table[Any, int] | None = None,
    ) -> None:
        self.name, self.table, self.counts = name, table, counts
        self._initial, self._adder, self._subtractor = initial, adder, subtractor

    def states(self) -> Sequence[State]:
        """The table of aggregates, and that of their rows' numbers."""
        return (self.table,) if self.counts is None else (self.table, self.counts)

    def step(self, *inputs: Batch) -> Batch:
        """Fold the batch in, group by group, in the order of its rows."""
        (batch,) = inputs
        deltas = weight_by_key(batch, f"aggregate '{self.name}'")
        keys = list(deltas)
        olds = self.table.get_many(keys)
        groups = dict(zip(keys, olds, strict=True))
        signed: Iterable[tuple[Row, int]] = zip(batch.rows, batch.weights, strict=True)
        if self.counts is None:
            self._fold(signed, groups)
        else:
            # A group that is empty can have nothing taken away yet: a delta may hold +row and -row, in any order.
            self._fold(sorted(signed, key=lambda item: (item[1] > 0) is not (groups[item[0][0]] is None)), groups)
            counts, _ = add_counts(self.counts, deltas)
            groups |= dict.fromkeys(key for key, count in counts.items() if count is None)
        self.table.put_many(groups, olds)
        return replacement(groups, olds, batch.time)

    def _fold(self, signed: Iterable[tuple[Row, int]], groups: dict[Any, Any]) -> None:
        for (key, value), weight in signed:
            function = self._adder if weight > 0 else self._subtractor
            assert function is not None
            aggregate = groups[key]
            for _ in range(abs(weight)):
                old = self._initial() if aggregate is None else aggregate
                aggregate = function(key, value, old)
                self._check(aggregate, old, key)
            groups[key] = aggregate

    def _check(self, new: Any, old: Any, key: Any) -> None:
        if new is None:
            raise DataError(
                f"aggregate '{self.name}': the function returned None for key {key!r}; None means no value. "
                "Return the next aggregate; to drop groups, filter the table"
            )
        if new is old and isinstance(new, _MUTABLE):
            raise DataError(
                f"aggregate '{self.name}': the function changed its argument in place at key {key!r}; "
                "the old value is still needed to undo an epoch. Return a new value: aggregate + [value]"
            )
