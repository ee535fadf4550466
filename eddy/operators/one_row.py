"""Turns a relation into a table, which has the keys with exactly one row.

    table      key -> value, for a key with one row of weight 1
    several    the rows of all other keys

A row is in one of the two states, so no row is stored twice. A row with the value None is in `several`. If keys with
several rows are refused, they are withheld.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eddy.operators.batch import Batch, ZSet, keys_of, retracted
from eddy.operators.context import Context
from eddy.operators.errors.set_aside import Aside, only_written
from eddy.operators.keyed import Keyed
from eddy.operators.operator import State
from eddy.operators.upsert import by_key, replacement
from eddy.state.arrangement import Arrangement, pairs_of, weight_in
from eddy.state.table_state import Table

__all__ = ["OneRow", "Refusal", "one_row", "refusing"]

Refusal = Callable[[Any, Mapping[Any, int]], Exception]
"""A function of a key and its values with weights. It returns the error for a key with several rows."""


def one_row(key: Any, values: Mapping[Any, int]) -> dict[Any, int]:
    """Return {value: 1} if the key has exactly one row; {} for several rows, or the value None.

    >>> one_row("k", {"v": 1}), one_row("k", {"v": 2}), one_row("k", {"v": 1, "w": 1})
    ({'v': 1}, {}, {})
    """
    if len(values) > 1:
        return {}
    return {value: 1 for value, weight in values.items() if weight == 1 and value is not None}


def refusing(refusal: Refusal) -> Callable[[Any, Mapping[Any, int]], dict[Any, int]]:
    """Return a function like `one_row` that raises the error of `refusal` if a key has several rows."""

    def only(key: Any, values: Mapping[Any, int]) -> dict[Any, int]:
        if error := _refused(refusal, key, values):
            raise error
        return one_row(key, values)

    return only


def _refused(refusal: Refusal | None, key: Any, values: Mapping[Any, int]) -> Exception | None:
    """Return the error for a key with several rows, if such keys are refused; None for any other key."""
    return refusal(key, values) if refusal is not None and sum(values.values()) > 1 else None


class OneRow(Keyed):
    """Input: rows of (K, V). Output: the delta of the table K -> V of the keys with exactly one row.

    With `refusal`, a key with several rows raises its error.
    Invariant: a key's rows are in `table` if the key has exactly one row, and in `several` otherwise.
    Cost: constant for each changed row, however many rows its key has.
    """

    def __init__(
        self, name: str, table: Table[Any, Any], several: Arrangement[Any, Any], refusal: Refusal | None = None
    ) -> None:
        self.name, self.table, self.several, self._refusal = name, table, several, refusal

    def states(self) -> Sequence[State]:
        """The table, and the rows of all keys that are not in it."""
        return (self.table, self.several)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Move keys with one row into the table, and all other keys of the batch out of it."""

        def refuse(key: Any, rows: Mapping[Any, int]) -> None:
            if error := _refused(self._refusal, key, rows):
                raise error

        return self._step(self.with_keys(inputs[0]), refuse)

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the rows that the states cannot write. Withhold keys with several rows, if these are refused.

        The two states have the same serdes, so a row is checked for one of them only.
        """

        def withhold(key: Any, rows: Mapping[Any, int]) -> None:
            if error := _refused(self._refusal, key, rows):
                aside.withhold(key, rows, error)
            else:
                aside.release(key)

        return self._step(only_written(aside, self.with_keys(inputs[0]), self.several.spec), withhold)

    def _step(self, batch: Batch, found: Callable[[Any, Mapping[Any, int]], None]) -> Batch:
        delta = batch.zset(self.name)
        if batch.headers is None and (moved := self._apply_moves(delta, batch.time)) is not None:
            return moved
        keys = list(dict.fromkeys(key for key, _ in delta))
        olds = self.table.get_many(keys)
        news = dict(zip(keys, olds, strict=True))
        mixed = self._replaced(delta, news)
        if mixed:
            rows = {row: weight for row, weight in delta.items() if row[0] in mixed}
            news |= self._apply_to_several(
                rows, {key: old for key, old in zip(keys, olds, strict=True) if key in mixed}, found
            )
        self.table.put_many(news, olds)
        return replacement(news, olds, batch.time, headers_of=by_key(batch, batch.headers))

    def _apply_moves(self, delta: ZSet, time: int) -> Batch | None:
        """Apply a delta in the cheap case, in which no key has several rows. Returns the delta of the output.

        In this case each change removes a row from the table, or adds a row to a key that had none. In any other case
        nothing is changed, and None is returned.
        """
        goes = [row for row, weight in delta.items() if weight == -1]
        comes = [row for row, weight in delta.items() if weight == 1]
        news, came = dict.fromkeys(keys_of(goes)), dict(comes)
        values: list[Any] = [value for _, value in goes]
        if len(news) + len(came) < len(delta) or None in values or None in came.values():
            return None
        news |= came
        keys = list(news)
        absent = keys[len(goes) :]
        olds = self.table.get_many(keys)
        if olds != values + [None] * len(absent) or any(self.several.get_many(absent)):
            return None
        self.table.put_many(news, olds)
        went = list(zip(keys, olds[: len(goes)], strict=False))  # as they were inserted: 1 for 1.0
        return Batch(went + comes, [-1] * len(goes) + [1] * len(comes), time)

    def _replaced(self, delta: ZSet, news: dict[Any, Any]) -> set[Any]:
        """Apply the delta to the keys' values in `news`.

        Returns the keys whose new values depend on rows in `several`.
        """
        absent = [key for key, old in news.items() if old is None]
        mixed = {key for key, bag in zip(absent, self.several.get_many(absent), strict=True) if bag is not None}
        for (key, value), weight in delta.items():
            if weight < 0:
                if weight == -1 and news[key] == value:
                    news[key] = None
                else:
                    mixed.add(key)
        for (key, value), weight in delta.items():
            if weight > 0:
                if weight == 1 and news[key] is None and value is not None:
                    news[key] = value
                else:
                    mixed.add(key)
        return mixed

    def _apply_to_several(
        self, delta: ZSet, olds: Mapping[Any, Any], found: Callable[[Any, Mapping[Any, int]], None]
    ) -> dict[Any, Any]:
        """Apply a delta to keys that have or had several rows. Returns the values that the table gets for these keys.

        At first `several` gets all rows of these keys; then the rows of keys with exactly one row are removed from it.
        """
        moves: ZSet = dict(delta)
        for row in olds.items():
            if row[1] is not None:
                moves[row] = moves.get(row, 0) + 1
        self.several.integrate({row: weight for row, weight in moves.items() if weight})
        self._check(delta)
        news = {}
        for key, bag in zip(olds, self.several.get_many(list(olds)), strict=True):
            rows = dict(pairs_of(bag))
            found(key, rows)
            news[key] = next(iter(one_row(key, rows)), None)
        self.several.integrate({row: -1 for row in news.items() if row[1] is not None})
        return news

    def _check(self, delta: ZSet) -> None:
        for row, bag in zip(delta, self.several.get_many([key for key, _ in delta]), strict=True):
            if (weight := weight_in(bag, row[1])) < 0:
                raise retracted(row, weight, f"to_table '{self.name}'")
