"""Stateless operators. Each is linear: op(A + B) = op(A) + op(B), so it is applied to deltas directly.

The author's function is called once for each row of a batch, by `map` in C, never in a Python loop. Its result may
depend on the row only, because the function is called again to compute a retraction.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import starmap
from operator import itemgetter
from typing import Any

from eddy.errors import DataError
from eddy.operators.batch import Batch, Row, concat
from eddy.operators.context import Context
from eddy.operators.operator import Operator, RowWise
from eddy.source_lines import line_of

__all__ = [
    "Filter",
    "FlatMap",
    "FlatMapValues",
    "Latest",
    "Map",
    "MapValues",
    "Negate",
    "Peek",
    "SelectKey",
    "Union",
    "check_rows",
    "latest_of",
    "no_rows",
    "no_values",
]

_KEY, _VALUE = itemgetter(0), itemgetter(1)


class Filter(RowWise):
    """Input: rows of (K, V). Output: the rows for which `predicate(key, value)` is true or, if not `keep`, false."""

    def __init__(self, name: str, predicate: Callable[[Any, Any], Any], keep: bool = True) -> None:
        self.name, self._predicate, self._keep = name, predicate, keep

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Select."""
        (batch,) = inputs
        mask = list(starmap(self._predicate, batch.rows))
        return batch.select(mask if self._keep else [not passed for passed in mask])


class Map(RowWise):
    """Input: rows of (K, V). Output: the row `function(key, value)` for each input row."""

    def __init__(self, name: str, function: Callable[[Any, Any], Row], where: str = "") -> None:
        self.name, self._function, self._where = name, function, where or name

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Call `function` on each row."""
        (batch,) = inputs
        rows = list(starmap(self._function, batch.rows))
        check_rows(rows, self._where, self._function)
        return batch.with_rows(rows)


class MapValues(RowWise):
    """Input: rows of (K, V). Output: (key, function(value)) for each row; in a table a value of None makes no row."""

    def __init__(self, name: str, function: Callable[[Any], Any], table: bool = False) -> None:
        self.name, self._function, self._table = name, function, table

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Call `function` on each value."""
        (batch,) = inputs
        values = list(map(self._function, map(_VALUE, batch.rows)))
        out = batch.with_rows(list(zip(map(_KEY, batch.rows), values, strict=True)))
        return out.select([value is not None for value in values]) if self._table and None in values else out


class SelectKey(RowWise):
    """Input: rows of (K, V). Output: for each row, the row (function(key, value), value)."""

    def __init__(self, name: str, function: Callable[[Any, Any], Any]) -> None:
        self.name, self._function = name, function

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Call `function` on each row."""
        (batch,) = inputs
        keys = starmap(self._function, batch.rows)
        return batch.with_rows(list(zip(keys, map(_VALUE, batch.rows), strict=True)))


class FlatMap(RowWise):
    """Input: rows of (K, V). Output: for each row, all rows of the iterable `function(key, value)`."""

    def __init__(self, name: str, function: Callable[[Any, Any], Iterable[Row]], where: str = "") -> None:
        self.name, self._function, self._where = name, function, where or name

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Call `function` on each row."""
        (batch,) = inputs
        returned = list(starmap(self._function, batch.rows))
        try:
            out = batch.spread(list(map(list, returned)))
        except TypeError:
            for made in returned:
                if not isinstance(made, Iterable):
                    raise no_rows(self._where, self._function, made) from None
            raise
        if not _are_pairs(out.rows):
            for made in returned:
                if isinstance(made, Sequence | Mapping | Set) and not all(map(_is_pair, made)):
                    raise no_rows(self._where, self._function, made)
            check_rows(out.rows, self._where, self._function)
        return out


class FlatMapValues(RowWise):
    """Input: rows of (K, V). Output: for each row, a row (key, w) for each w in the iterable `function(value)`."""

    def __init__(self, name: str, function: Callable[[Any], Iterable[Any]], where: str = "") -> None:
        self.name, self._function, self._where = name, function, where or name

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Call `function` on each value."""
        (batch,) = inputs
        returned = list(map(self._function, map(_VALUE, batch.rows)))
        keys = map(_KEY, batch.rows)
        try:
            return batch.spread([[(key, value) for value in made] for key, made in zip(keys, returned, strict=True)])
        except TypeError:
            for made in returned:
                if not isinstance(made, Iterable):
                    raise no_values(self._where, self._function, made) from None
            raise


class Peek(RowWise):
    """Passes rows on unchanged, and calls `function(key, value)` on each row for its side effect."""

    def __init__(self, name: str, function: Callable[[Any, Any], object]) -> None:
        self.name, self._function = name, function

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Call `function` on each row."""
        (batch,) = inputs
        for key, value in batch.rows:
            self._function(key, value)
        return batch

    def explore(self, *inputs: Batch) -> Batch:
        """Return the rows without a call of the function."""
        return inputs[0]


class Union(Operator):
    """Concatenates its inputs: all rows of the first, then of the second, and so on."""

    follows_rows = True

    def __init__(self, name: str) -> None:
        self.name = name

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Concatenate."""
        return concat(inputs)


class Negate(Operator):
    """Every weight times -1."""

    def __init__(self, name: str) -> None:
        self.name = name

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Negate."""
        (batch,) = inputs
        return Batch(batch.rows, [-weight for weight in batch.weights], batch.time)


class Latest(Operator):
    """Input: the delta of a table. Output: a stream of the new values of changed keys; None for a deleted key."""

    def __init__(self, name: str) -> None:
        self.name = name

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Turn replacements into facts."""
        (batch,) = inputs
        return latest_of(batch)


def latest_of(batch: Batch) -> Batch:
    """Return the new value of each key in a table's delta: one row a key, with None for a deleted key.

    A key whose new value equals its old one makes no row.
    """
    if -1 not in batch.weights:
        return batch
    goes = batch.weights.count(-1)
    in_order = batch.weights == [-1] * goes + [1] * (len(batch) - goes)
    if in_order and batch.times is None and batch.headers is None:
        gone, came = dict(batch.rows[:goes]), dict(batch.rows[goes:])
        old = gone.get
        rows = [(key, None) for key in gone if key not in came]
        rows += [row for row in batch.rows[goes:] if old(row[0], _NOTHING) != row[1]]
        return Batch(rows, [1] * len(rows), batch.time)
    return _latest_of_mixed(batch)


_NOTHING = object()


def _latest_of_mixed(batch: Batch) -> Batch:
    """Return the new values as `latest_of` does, for rows in any order, with times or headers of their own."""
    signed = list(zip(batch.rows, batch.weights, strict=True))
    gone: dict[Any, Any] = dict(row for row, weight in signed if weight < 0)
    come = {row[0] for row, weight in signed if weight > 0}
    mask = [
        (row[0] not in gone or gone[row[0]] != row[1]) if weight > 0 else row[0] not in come for row, weight in signed
    ]
    out = batch.select(mask)
    rows = [row if w > 0 else (row[0], None) for row, w in zip(out.rows, out.weights, strict=True)]
    return Batch(rows, [1] * len(rows), out.time, out.times, out.headers)


def check_rows(rows: list[Row], where: str, function: Callable[..., Any] | None = None) -> None:
    """Raise DataError for a row that is not a pair (key, value). The error names the step, its function and the row."""
    if _are_pairs(rows):
        return
    for row in rows:
        if not _is_pair(row):
            raise DataError(
                f"{where}: {_named(function)} returned {row!r}; a pair (key, value) is needed. Write e.g. "
                f"{_call(where, function)}"
            )


def no_rows(where: str, function: Callable[..., Any], made: Any) -> DataError:
    """The error for a function of `flat_map` whose result is not an iterable of pairs."""
    return _no_iterable(where, function, made, "pairs (key, value)", "[(key, value), …]")


def no_values(where: str, function: Callable[..., Any], made: Any) -> DataError:
    """The error for a function of `flat_map_values` whose result is not an iterable."""
    return _no_iterable(where, function, made, "values", "[value, …]")


def _no_iterable(where: str, function: Callable[..., Any], made: Any, parts: str, form: str) -> DataError:
    one = _is_pair(made) and "pairs" in parts
    fix = "[(key, value)] for one pair" if one else f"return {form}, and [] for no row"
    return DataError(f"{where}: {_named(function)} returned {made!r}; an iterable of {parts} is needed. Write {fix}")


def _are_pairs(rows: list[Row]) -> bool:
    """Return whether all rows are certainly tuples of two. If not, the rows have to be checked one by one."""
    return set(map(type, rows)) <= _TUPLE and set(map(len, rows)) <= _TWO


_TUPLE, _TWO = frozenset({tuple}), frozenset({2})


def _is_pair(row: object) -> bool:
    return isinstance(row, tuple | list) and len(row) == 2


def _named(function: Callable[..., Any] | None) -> str:
    """Return `the function`, with the line of the author's file in which the function is."""
    line = line_of(function) if function is not None else ""
    return f"the function of {line}" if line else "the function"


def _call(where: str, function: Callable[..., Any] | None) -> str:
    first = where.partition(" ")[0]
    method = first if function is not None and first in {"flat_map", "group_by"} else "map"
    return f".{method}(lambda key, value: {'[(value, key)]' if method == 'flat_map' else '(value, key)'})"
