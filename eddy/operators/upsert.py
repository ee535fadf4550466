"""Turns records into a table: the last record of a key decides the key's value."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eddy.errors import DataError
from eddy.operators.batch import EMPTY, Batch, Row, keys_of
from eddy.operators.context import Context
from eddy.operators.errors.set_aside import Aside, unwritten_keys
from eddy.operators.keyed import Keyed
from eddy.operators.operator import State
from eddy.state.table_state import Table

__all__ = ["Upsert", "by_key", "replacement", "settled"]

_ONE_FORM = frozenset({bool, bytes, int, str})
"""Types whose equal values have one form, unlike floats (0.0 and -0.0), decimals, and containers of numbers."""


class Upsert(Keyed):
    """Input: records (K, V or None). Output: the delta of the table of their latest values; None deletes.

    Invariant: the table has the last value of each key so far. A record whose value equals the old one has no effect.
    So when equal values such as 1 and 1.0 follow one another, the first one remains, however the input is cut into
    epochs, and a row is retracted as it was inserted. A record without a key has no effect either.
    """

    def __init__(self, name: str, table: Table[Any, Any]) -> None:
        self.name, self.table = name, table

    def states(self) -> Sequence[State]:
        """The table."""
        return (self.table,)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Apply a batch of records to the table; only the last record of each key counts."""
        (batch,) = inputs
        latest = self.latest(batch)
        if None in latest:
            batch = self.with_keys(batch)
            latest = dict(batch.rows)
        keys = list(latest)
        olds = self.table.get_many(keys)
        if len(keys) == len(batch) and olds.count(None) == len(olds) and None not in latest.values():
            self.table.put_many(latest, olds)
            return Batch(batch.rows, [1] * len(keys), batch.time, batch.times, batch.headers)
        news = settled(keys, olds, latest.items() if len(keys) == len(batch) else batch.rows)
        self.table.put_many(news, olds)
        return replacement(news, olds, batch.time, by_key(batch, batch.times), by_key(batch, batch.headers))

    def latest(self, batch: Batch) -> dict[Any, Any]:
        """The last value of each key. Raises: DataError for a key that cannot be hashed."""
        try:
            return dict(batch.rows)
        except TypeError as error:
            raise DataError(
                f"table '{self.name}': {error}; keys have to be hashable. "
                "Use a serde of scalars or of a frozen struct: eddy.Struct(Key)"
            ) from error

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Reject records whose keys the table cannot write, and withhold keys whose values it cannot write."""
        batch = self.with_keys(inputs[0])
        batch = aside.without(batch, unwritten_keys(batch, self.table.spec))
        rows, times = list(batch.rows), batch.times_of_rows()
        for key, index in {row[0]: index for index, row in enumerate(rows)}.items():
            rows[index] = (key, aside.shown(self.table.spec, key, rows[index][1], times[index]))
        return self.step(context, batch.with_rows(rows))


def by_key(batch: Batch, column: list[Any] | None) -> dict[Any, Any] | None:
    """Return the entries of a column, such as times or headers, by the row's key. The last row of a key counts."""
    return None if column is None else dict(zip(keys_of(batch.rows), column, strict=True))


def settled(keys: Iterable[Any], olds: Sequence[Any], rows: Iterable[Row]) -> dict[Any, Any]:
    """Return the values that a table's keys have after `rows`. `olds` are the values of `keys` before."""
    values = dict(zip(keys, olds, strict=True))
    for key, value in rows:
        if values[key] != value:
            values[key] = value
    return values


def _is_same(old: Any, new: Any) -> bool:
    """Return whether two values are equal, and of one form: 1 and 1.0 are not."""
    if old is new or old != new:
        return old is new
    return (type(old) in _ONE_FORM and type(old) is type(new)) or repr(old) == repr(new)


def replacement(
    news: Mapping[Any, Any],
    olds: Sequence[Any],
    time: int,
    time_of: Mapping[Any, int] | None = None,
    headers_of: Mapping[Any, Any] | None = None,
) -> Batch:
    """Return the delta of a table whose values change from `olds` to `news`; None stands for no value.

    A retraction precedes the row that replaces it. An unchanged value makes no row. A new value that equals the old one
    but has another form, such as 1.0 after 1, is a change, because the next retraction has the new form. `time_of` and
    `headers_of` have the time and the headers of each key, if rows have their own.
    """
    deletes: list[Row] = []
    inserts: list[Row] = []
    for row, old in zip(news.items(), olds, strict=True):
        if old is None:
            if row[1] is not None:
                inserts.append(row)
        elif not _is_same(old, row[1]):
            deletes.append((row[0], old))
            if row[1] is not None:
                inserts.append(row)
    if not (deletes or inserts):
        return EMPTY
    rows = deletes + inserts
    times = None if time_of is None else list(map(time_of.__getitem__, keys_of(rows)))
    headers = None if headers_of is None else list(map(headers_of.__getitem__, keys_of(rows)))
    return Batch(rows, [-1] * len(deletes) + [1] * len(inserts), time, times, headers)
