"""From facts to tables: the last record of a key wins."""

from collections.abc import Sequence
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
        keys, news = list(latest), list(latest.values())
        olds = self.table.get_many(keys)
        times = None
        if batch.times is not None:
            time_of = dict(zip((key for key, _ in batch.rows), batch.times, strict=True))
            times = list(map(time_of.__getitem__, keys))
        self.table.put_many(keys, olds, news)
        return replacement(keys, olds, news, batch.time, times)


def replacement(
    keys: Sequence[Any],
    olds: Sequence[Any],
    news: Sequence[Any],
    time: int,
    times: list[int] | None = None,
) -> Batch:
    """The delta of a table in which the values `olds` of `keys` become `news`; None is no value.

    Retractions come before the rows that replace them; a value that stays makes no row.
    """
    inserts: list[Row]
    if None not in news and olds.count(None) == len(olds):
        inserts = list(zip(keys, news, strict=True))
        return Batch(inserts, [1] * len(inserts), time, times)
    moved = [old != new for old, new in zip(olds, news, strict=True)]
    gone = [m and old is not None for m, old in zip(moved, olds, strict=True)]
    come = [m and new is not None for m, new in zip(moved, news, strict=True)]
    deletes: list[Row] = list(compress(zip(keys, olds, strict=True), gone))
    inserts = list(compress(zip(keys, news, strict=True), come))
    if not (deletes or inserts):
        return EMPTY
    stamps = None if times is None else [*compress(times, gone), *compress(times, come)]
    return Batch(deletes + inserts, [-1] * len(deletes) + [1] * len(inserts), time, stamps)
