"""Selects values of each key in an order: the first ones for top_k, min, max and latest; all values for collect.

    position(value)    first the author's `by`, then the bytes of the value, so that no two values have equal positions

So the result is a function of the rows, in whichever order they arrived. Numbers are sorted by size, text and bytes by
their characters, tuples and structs item by item. Values of different types are sorted by type:

    None < NaN < numbers < text < bytes < dates < times < tuples, structs
"""

import datetime
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, islice, repeat
from typing import Any

import msgspec

from eddy.operators.batch import Batch, retracted
from eddy.operators.context import Context
from eddy.operators.errors.set_aside import Aside, only_written
from eddy.operators.keyed import Keyed
from eddy.operators.operator import State
from eddy.operators.upsert import replacement
from eddy.serde import Serde
from eddy.state.ordered_arrangement import OrderedArrangement
from eddy.state.table_state import Table

__all__ = ["Selection", "TopK", "order_of"]

_NONE, _NAN, _NUMBER, _TEXT, _BYTES, _DATE, _TIME, _ZONED_TIME, _TUPLE = range(9)
_NOTHING: Any = object()
_RANKS = {int: _NUMBER, bool: _NUMBER, str: _TEXT, bytes: _BYTES, datetime.date: _DATE}


def order_of(value: Any) -> tuple[int, Any]:
    """Return a pair that sorts in the same order as the value, also among values of other types.

    >>> sorted([("b", 2), "b", None, ("b", 1), 3.5, 2], key=order_of)
    [None, 2, 3.5, 'b', ('b', 1), ('b', 2)]

    Raises: TypeError for a value without an order.
    """
    kind = type(value)
    rank = _RANKS.get(kind)
    if rank is not None:
        return rank, value
    if value is None:
        return _NONE, 0
    if kind is float or kind is Decimal:
        return (_NUMBER, value) if value == value else (_NAN, 0)
    if kind is datetime.datetime:
        return (_TIME if value.tzinfo is None else _ZONED_TIME), value
    if kind is tuple:
        return _TUPLE, tuple(map(order_of, value))
    if isinstance(value, msgspec.Struct):
        return _TUPLE, tuple(map(order_of, msgspec.structs.astuple(value)))
    raise TypeError(f"{value!r} has no order; a number, text, bytes, a date, or a tuple or a struct of these is needed")


@dataclass(frozen=True)
class Selection:
    """Selects the first `n` values in the order of `by`, as a tuple; if `n` is None, only the first value, as it is.

    With `whole` the result is None if there are more than `n` values. `serde` encodes the values; the bytes decide
    between values that are equal by `by`. Called as a function, a selection takes all values of a key.
    """

    name: str
    n: int | None
    descending: bool
    by: Callable[[Any], Any] | None
    serde: Serde[Any]
    whole: bool = False

    @property
    def most(self) -> int:
        """The number of values that decide the result."""
        return 1 if self.n is None else self.n + self.whole

    def position(self, value: Any) -> Any:
        """Return the sort key of a value. Raises: any exception of `by`; TypeError if the value has no order."""
        return order_of(value if self.by is None else self.by(value)), (self.serde.identify or self.serde.encode)(value)

    def first(self, values: Iterable[tuple[Any, int]]) -> Any:
        """Return the result for values with weights, which are sorted; None if there are no values."""
        if self.n is None:
            return next((value for value, _ in values), None)
        repeated = chain.from_iterable(repeat(value, min(weight, self.most)) for value, weight in values)
        found = tuple(islice(repeated, self.most))
        return found if 0 < len(found) <= self.n else None

    def __call__(self, key: Any, values: Mapping[Any, int]) -> dict[Any, int]:
        """Return the result for all values of a key, as {result: 1}; empty if there is no result."""
        choose = heapq.nlargest if self.descending else heapq.nsmallest
        there = [value for value in values if value is not None]
        found = choose(self.most, there, key=self.position)
        made = self.first((value, values[value]) for value in found)
        return {} if made is None else {made: 1}

    def nothing(self) -> Any:
        """Return the initial aggregate of a fold with the adder `adding`."""
        return _NOTHING

    def adding(self, key: Any, value: Any, best: Any) -> Any:
        """Return the first values after a fact's value was added to `best`, the first values so far."""
        values = (value,) if best is _NOTHING else (best, value) if self.n is None else (*best, value)
        kept = sorted(values, key=self.position, reverse=self.descending)[: self.n or 1]
        return kept[0] if self.n is None else tuple(kept)


class TopK(Keyed):
    """Input: rows of (K, V). Output: the delta of the table K -> first values. Rows with the value None are ignored.

    Cost: O(log n) for each changed row of a key with n values, plus the size of the result.
    """

    def __init__(
        self, name: str, table: Table[Any, Any], rows: OrderedArrangement[Any, Any], selection: Selection
    ) -> None:
        self.name, self.table, self.rows, self._selection = name, table, rows, selection

    def states(self) -> Sequence[State]:
        """The table, and the rows."""
        return (self.table, self.rows)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Change the results of the keys in the batch."""
        return self._step(self.with_keys(inputs[0]), None)

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the rows for which `by` fails, and withhold a key whose result the table cannot write."""
        batch = only_written(aside, self.with_keys(inputs[0]), self.rows.spec)
        return self._step(aside.without(batch, self._without_order(batch)), aside)

    def _without_order(self, batch: Batch) -> dict[int, Exception]:
        found: dict[int, Exception] = {}
        for index, (_, value) in enumerate(batch.rows):
            try:
                if value is not None:
                    self._selection.position(value)
            except Exception as error:
                found[index] = error
        return found

    def _step(self, batch: Batch, aside: Aside | None) -> Batch:
        delta = batch.zset(self.name)
        keys = list(dict.fromkeys(key for key, _ in delta))
        self.rows.integrate(delta)
        for row, weight in zip(delta, self.rows.weights(list(delta)), strict=True):
            if weight < 0:
                raise retracted(row, weight, f"'{self.name}'")
        first, in_order, descending = self._selection.first, self.rows.in_order, self._selection.descending
        news = {key: first(in_order(key, descending)) for key in keys}
        if aside is not None:
            news = {key: aside.shown(self.table.spec, key, value) for key, value in news.items()}
        olds = self.table.get_many(keys)
        self.table.put_many(news, olds)
        return replacement(news, olds, batch.time)
