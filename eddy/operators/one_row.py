"""From a relation to a table: the row of each key that has exactly one.

    table      key -> value, for a key with one row of weight 1
    several    the rows of all other keys

A row is in one of the two states, so no row is stored twice. A value of None is no value of a table.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from eddy.operators.batch import Batch, ZSet, retracted
from eddy.operators.context import Context
from eddy.operators.errors.set_aside import Aside, only_written
from eddy.operators.keyed import Keyed
from eddy.operators.operator import State
from eddy.operators.upsert import by_key, replacement
from eddy.state.arrangement import Arrangement, pairs_of, weight_in
from eddy.state.table_state import Table

__all__ = ["OneRow", "one_row"]


def one_row(key: Any, values: Mapping[Any, int]) -> dict[Any, int]:
    """The only value of a key with its weight, 1; empty for several values, a weight above 1, or the value None.

    >>> one_row("k", {"v": 1}), one_row("k", {"v": 2}), one_row("k", {"v": 1, "w": 1})
    ({'v': 1}, {}, {})
    """
    if len(values) > 1:
        return {}
    return {value: 1 for value, weight in values.items() if weight == 1 and value is not None}


class OneRow(Keyed):
    """Rows of (K, V) in, the delta of the table K -> V of the keys with exactly one row out.

    Invariant: a key's rows are in `table` if it has exactly one, and in `several` otherwise.
    Cost: constant for each changed row, however many rows its key has.
    """

    def __init__(self, name: str, table: Table[Any, Any], several: Arrangement[Any, Any]) -> None:
        self.name, self.table, self.several = name, table, several

    def states(self) -> Sequence[State]:
        """The table, and the rows of keys with several."""
        return (self.table, self.several)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Move the keys that now have one row into the table, and the other keys of the batch out of it."""
        return self._step(self.with_keys(inputs[0]))

    def step_apart(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the rows that cannot be written: the two states have the same serdes."""
        return self._step(only_written(aside, self.with_keys(inputs[0]), self.several.spec))

    def _step(self, batch: Batch) -> Batch:
        delta = batch.zset(self.name)
        keys = list(dict.fromkeys(key for key, _ in delta))
        olds = self.table.get_many(keys)
        # Until the end of the step all rows of these keys are in `several`.
        moves: ZSet = dict(delta)
        for row in zip(keys, olds, strict=True):
            if row[1] is not None:
                moves[row] = moves.get(row, 0) + 1
        self.several.integrate({row: weight for row, weight in moves.items() if weight})
        self._check(delta)
        news = {}
        for key, bag in zip(keys, self.several.get_many(keys), strict=True):
            pairs = pairs_of(bag)
            news[key] = next(iter(one_row(key, dict(pairs))), None) if len(pairs) == 1 else None
        self.several.integrate({row: -1 for row in news.items() if row[1] is not None})
        self.table.put_many(news, olds)
        return replacement(news, olds, batch.time, headers_of=by_key(batch, batch.headers))

    def _check(self, delta: ZSet) -> None:
        for row, bag in zip(delta, self.several.get_many([key for key, _ in delta]), strict=True):
            if (weight := weight_in(bag, row[1])) < 0:
                raise retracted(row, weight, f"to_table '{self.name}'")
