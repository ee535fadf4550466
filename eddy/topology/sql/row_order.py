"""The order by which ORDER BY … LIMIT keeps the first rows.

    position(row)    by ORDER BY, then by the other columns from left to right, ascending, nulls last

The row with the greatest position is first, as in `top_k`. Rows with equal positions are equal, so the kept rows depend
only on the set of all rows. NaN is above all other numbers. Texts are ordered by their code points.
"""

import datetime
import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, repeat
from typing import Any

__all__ = ["RowLimit", "RowOrder"]

Row = tuple[Any, ...]

_NULL_LAST, _VALUE, _NULL_FIRST = range(3)
_MICROSECOND = datetime.timedelta(microseconds=1)
_TURNED = bytes((254 - byte) % 256 for byte in range(256))
"""A map from the bytes of UTF-8, which are below 255, to bytes below 255 in the opposite order."""


@dataclass(frozen=True)
class RowOrder:
    """The order of rows by `keys`: for each column its index, whether it is descending, whether nulls are first."""

    keys: tuple[tuple[int, bool, bool], ...]

    def __call__(self, row: Row) -> tuple[Any, ...]:
        """Return the row's position: a tuple of numbers, texts, bytes and times, greater for an earlier row."""
        place: list[Any] = []
        for index, descending, nulls_first in self.keys:
            value = row[index]
            if value is None:
                place.append(_NULL_FIRST if nulls_first else _NULL_LAST)
            elif value != value:
                place += (_VALUE, descending)
            else:
                place += (_VALUE, not descending, value if descending else _turned(value))
        return tuple(place)


@dataclass(frozen=True)
class RowLimit:
    """At most `limit` rows after the first `offset` rows, in `order`. A row counts as often as it is present."""

    order: RowOrder
    limit: int
    offset: int

    @property
    def most(self) -> int:
        """The number of first rows that have to be known in order to choose the kept rows."""
        return self.offset + self.limit

    def of(self, rows: Iterable[tuple[Row, int]]) -> Sequence[Row]:
        """Return the kept rows, given all rows with their weights."""
        each = chain.from_iterable(repeat(row, min(weight, self.most)) for row, weight in rows)
        return self.shown(heapq.nlargest(self.most, each, key=self.order))

    def shown(self, first: Sequence[Row]) -> Sequence[Row]:
        """Return the kept rows, given the first `most` rows."""
        return first[self.offset :]


def _turned(value: Any) -> Any:
    """Return a value whose order is reversed: it is less for a greater value."""
    match value:
        case str():
            # The last byte is greater than any other, so a text's reversed form is above those of longer texts.
            return value.encode().translate(_TURNED) + b"\xff"
        case Decimal():
            return value.copy_negate()  # the minus operator would round
        case datetime.datetime():
            return (datetime.datetime.min - value) // _MICROSECOND
        case _:
            return -value
