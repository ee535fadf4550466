"""From facts to tables: the last record of a key wins."""

from collections.abc import Mapping, Sequence
from typing import Any

from eddy.errors import DataError
from eddy.operators.batch import EMPTY, Batch, Row, keys_of
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
            return Batch(batch.rows, [1] * len(keys), batch.time, batch.times)
        time_of = None
        if batch.times is not None:
            time_of = dict(zip(keys_of(batch.rows), batch.times, strict=True))
        self.table.put_many(latest, olds)
        return replacement(latest, olds, batch.time, time_of)


def replacement(
    news: Mapping[Any, Any], olds: Sequence[Any], time: int, time_of: Mapping[Any, int] | None = None
) -> Batch:
    """The delta of a table in which the values `olds` of the keys of `news` are replaced; None is no value.

    Retractions come before the rows that replace them; a value that stays makes no row. `time_of` is
    each key's own time, where it has one.
    """
    deletes: list[Row] = []
    inserts: list[Row] = []
    for row, old in zip(news.items(), olds, strict=True):
        if old is None:
            if row[1] is not None:
                inserts.append(row)
        elif old != row[1]:
            deletes.append((row[0], old))
            if row[1] is not None:
                inserts.append(row)
    if not (deletes or inserts):
        return EMPTY
    rows = deletes + inserts
    times = None if time_of is None else list(map(time_of.__getitem__, keys_of(rows)))
    return Batch(rows, [-1] * len(deletes) + [1] * len(inserts), time, times)
