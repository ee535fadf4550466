"""From facts to tables: the last record of a key wins."""

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

from eddy.errors import DataError
from eddy.operators.batch import EMPTY, Batch, Row
from eddy.operators.operator import Operator, State
from eddy.state.table import Table

__all__ = ["Upsert", "replacement"]


class Upsert(Operator):
    """Records (K, V or None) in, the delta of the table of their latest values out; None deletes.

    Invariant: the table is the last value of each key so far. Equal old and new values cancel, so
    a record that changes nothing causes nothing.
    """

    def __init__(self, name: str, table: Table[Any, Any]) -> None:
        self.name, self.table = name, table

    def states(self) -> Sequence[State]:
        """The table."""
        return (self.table,)

    def step(self, *inputs: Batch) -> Batch:
        """Fold a batch of records into the table, the last of each key at once."""
        (batch,) = inputs
        try:
            latest = dict(batch.rows)
        except TypeError as error:
            raise DataError(
                f"table '{self.name}': {error}; keys have to be hashable. "
                "Use a serde of scalars or of a frozen struct: eddy.Struct(Key)"
            ) from error
        keys = list(latest)
        olds = self.table.get_many(keys)
        if len(keys) == len(batch) and olds.count(None) == len(olds) and None not in latest.values():
            self.table.put_many(latest, olds)
            return Batch(batch.rows, batch.weights, batch.time, batch.times)
        times = None
        if batch.times is not None:
            time_of = dict(zip((key for key, _ in batch.rows), batch.times, strict=True))
            times = list(map(time_of.__getitem__, keys))
        self.table.put_many(latest, olds)
        return replacement(latest, olds, batch.time, times)


def replacement(news: Mapping[Any, Any], olds: Sequence[Any], time: int, times: list[int] | None = None) -> Batch:
    """The delta of a table in which the values `olds` of the keys of `news` are replaced; None is no value.

    Retractions come before the rows that replace them; a value that stays makes no row.
    """
    rows: list[Row] = list(news.items())
    if olds.count(None) == len(olds) and None not in news.values():
        return Batch(rows, [1] * len(rows), time, times)
    moved = [old != row[1] for old, row in zip(olds, rows, strict=True)]
    gone = [m and old is not None for m, old in zip(moved, olds, strict=True)]
    come = [m and row[1] is not None for m, row in zip(moved, rows, strict=True)]
    deletes: list[Row] = list(compress(zip(news, olds, strict=True), gone))
    inserts = list(compress(rows, come))
    if not (deletes or inserts):
        return EMPTY
    stamps = None if times is None else [*compress(times, gone), *compress(times, come)]
    return Batch(deletes + inserts, [-1] * len(deletes) + [1] * len(inserts), time, stamps)
