"""Decoded rows in Spark's Python workers, the stateless steps on them, and calls of the author's functions.

A step is computed row by row, from its definition:

    filter            the row, if the function is true of it; filter-not: if the function is false
    map               the pair that the function returns; flat-map: each of the pairs
    map-values        the key, and the value that the function returns; in a table None makes no row
    flat-map-values   the key, with each value that the function returns
    select-key        the key that the function returns, and the value
    negate            the row, with the opposite weight
    with-keys         the row, if it has a key

No line of a worker's operators is used here, because `verify` would not notice an error in such a line.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from eddy.errors import DataError, EddyError
from eddy.source_lines import describe_exception

__all__ = ["DecodedRows", "Row", "RowStep", "Stamp", "Step", "calling", "pair"]

Row = tuple[Any, Any]
"""(key, value)."""
Stamp = tuple[int | None, bytes, bytes | None]
"""The time of a fact, its place in the order of its partition, and its headers."""
_INDEX_BYTES = 4


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Rows with their weights; rows of a stream also have stamps: time, place in the order, and headers."""

    rows: list[Row]
    weights: list[int]
    stamps: list[Stamp] | None = None


Step = Callable[[DecodedRows], DecodedRows]
"""A step without a state."""


@contextmanager
def calling(step: str) -> Iterator[None]:
    """Turn an exception of the author's functions in the block into a DataError that names the step."""
    try:
        yield
    except EddyError:
        raise
    except Exception as error:
        raise DataError(f"step '{step}': the function raised {describe_exception(error)}") from error


def pair(made: Any, step: str) -> Row:
    """Check a row that a function returned, and return it. Raises: DataError naming the step if it is not a pair."""
    if not isinstance(made, tuple | list) or len(made) != 2:
        raise DataError(
            f"{step}: the function returned {made!r}; a pair (key, value) is needed. "
            "Write e.g. .map(lambda key, value: (value, key))"
        )
    key, value = made
    return key, value


@dataclass(frozen=True)
class RowStep:
    """One stateless step; `verb` names the plan's transformation, or is `with-keys`."""

    name: str
    verb: str
    function: Callable[..., Any] | None = None
    table: bool = False
    where: str = ""
    """The step in the author's terms, for messages; if empty, messages have the step's name."""

    def __call__(self, given: DecodedRows) -> DecodedRows:
        """Apply the step to each row. Raises: DataError naming the step."""
        rows: list[Row] = []
        weights: list[int] = []
        stamps: list[Stamp] = []
        sign = -1 if self.verb == "negate" else 1
        several = self.verb in {"flat-map", "flat-map-values"}
        with calling(self.name):
            for index, (key, value) in enumerate(given.rows):
                made = self._made(key, value)
                rows += made
                weights += [sign * given.weights[index]] * len(made)
                if given.stamps is not None:
                    stamps += (
                        _numbered(given.stamps[index], len(made))
                        if several
                        else given.stamps[index : index + 1] * len(made)
                    )
        return DecodedRows(rows, weights, None if given.stamps is None else stamps)

    def _made(self, key: Any, value: Any) -> Sequence[Row]:
        function: Any = self.function
        match self.verb:
            case "filter":
                return [(key, value)] if function(key, value) else []
            case "filter-not":
                return [] if function(key, value) else [(key, value)]
            case "map":
                return [pair(function(key, value), self.where or self.name)]
            case "map-values":
                new = function(value)
                return [] if self.table and new is None else [(key, new)]
            case "flat-map":
                return [pair(row, self.where or self.name) for row in function(key, value)]
            case "flat-map-values":
                return [(key, new) for new in function(value)]
            case "select-key":
                return [(function(key, value), value)]
            case "negate":
                return [(key, value)]
            case "with-keys":
                return [] if key is None else [(key, value)]
            case _:
                raise AssertionError(self.verb)


@dataclass(frozen=True)
class KeptStep:
    """Replaces each value by `of(value)`, or keeps it if `of` is None, and drops rows whose new value is None.

    With `required`, a value for which `of` returns None is an error.
    """

    name: str
    of: Callable[[Any], Any] | None
    required: bool

    def __call__(self, given: DecodedRows) -> DecodedRows:
        """Return the rows whose new value is not None. Raises: DataError naming the step."""
        with calling(self.name):
            found = [value if value is None or self.of is None else self.of(value) for _, value in given.rows]
        there = [at for at, value in enumerate(found) if value is not None]
        for at, (key, value) in enumerate(given.rows):
            if self.required and value is not None and found[at] is None:
                raise DataError(f"'{self.name}': nothing is made of {value!r} of the key {key!r}; a value is needed")
        return DecodedRows(
            [(given.rows[at][0], found[at]) for at in there],
            [given.weights[at] for at in there],
            None if given.stamps is None else [given.stamps[at] for at in there],
        )


def _numbered(stamp: Stamp, count: int) -> list[Stamp]:
    """Return a stamp for each of the `count` rows that a step makes of one record, in the order of the rows."""
    time, place, headers = stamp
    return [(time, place + index.to_bytes(_INDEX_BYTES, "big"), headers) for index in range(count)]
