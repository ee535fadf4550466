"""Joins records with a table that every worker has whole, so that records stay in their partitions."""

from collections.abc import Callable, Iterable
from itertools import compress
from operator import itemgetter
from typing import Any

from eddy.errors import DataError
from eddy.operators.batch import Batch, first_unhashable, keys_of
from eddy.operators.context import Context
from eddy.operators.keyed import Keyed
from eddy.operators.operator import RowWise
from eddy.state.table_state import Table

__all__ = ["GlobalJoin"]

_VALUE = itemgetter(1)


class GlobalJoin(Keyed, RowWise):
    """Input: records (K, V). Output: (key, joiner(value, the table's value of `select(key, value)`)).

    If the table does not have the selected key, or the key is None, a left join calls the joiner with None, and an
    inner join drops the record. A record without a value is dropped, as in other joins. Changes of the table make no
    record.
    """

    def __init__(
        self,
        name: str,
        table: Table[Any, Any],
        select: Callable[[Any, Any], Any],
        joiner: Callable[[Any, Any], Any],
        left: bool,
    ) -> None:
        self.name, self._table, self._select, self._joiner, self._left = name, table, select, joiner, left

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Look up the selected key of each record. Raises: DataError if one cannot be hashed."""
        batch = self.with_values(inputs[0])
        asked = [self._select(key, value) for key, value in batch.rows]
        try:
            known = list(dict.fromkeys(key for key in asked if key is not None))
        except TypeError as error:
            raise self._unhashable(asked) from error
        found = dict(zip(known, self._table.get_many(known), strict=True))
        others = list(map(found.get, asked))
        if not self._left and None in others:
            mask = [other is not None for other in others]
            self.dropped += asked.count(None)
            batch, others = batch.select(mask), list(compress(others, mask))
        joined = map(self._joiner, map(_VALUE, batch.rows), others)
        return batch.with_rows(list(zip(keys_of(batch.rows), joined, strict=True)))

    def _unhashable(self, asked: Iterable[Any]) -> DataError:
        """The error for the first of the selected keys that cannot be hashed."""
        if (key := first_unhashable(asked)) is None:
            return DataError(f"step '{self.name}': select returned a key that cannot be hashed")
        return DataError(
            f"step '{self.name}': select returned {key!r}, which cannot be hashed; a key of the table is "
            "needed. Return a scalar, a tuple or a frozen struct"
        )
