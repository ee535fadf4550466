"""op, one row at a time: which rows it makes of a row, and which rows outside it meets.

A path of stale steps meets the same rows outside again and again. `Round` follows it with these alone, so that each
step costs the same, however many other rows outside have the same keys.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from eddy.operators.batch import Row
from eddy.operators.join import Bags
from eddy.operators.waves.body import Asked, Body, Explored, Lookups
from eddy.state.arrangement import Bag, pairs_of

__all__ = ["Explorer", "Round"]

_MOST_TRIED = 10_000
"""The rows outside that are tried, to find the one by which a path went on."""


class Explorer:
    """`lookups` finds rows outside of other owners; `keeps` selects of the rows that are made those that count."""

    def __init__(
        self, body: Body, lookups: Lookups | None = None, keeps: Callable[[list[Row]], list[Row]] | None = None
    ) -> None:
        self._body, self._lookups, self._keeps = body, lookups, keeps

    def __call__(self, row: Row) -> Explored:
        """op of one row."""
        explored = self._body.explore(row, self._lookups)
        return explored if self._keeps is None else explored._replace(rows=self._keeps(explored.rows))

    def all_of(self, rows: list[Row]) -> list[Row]:
        """The rows that op makes of some rows, each once."""
        made = self._body.explore_all(rows, self._lookups)
        return made if self._keeps is None else self._keeps(made)

    def along(self, row: Row, chosen: Mapping[Asked, Any]) -> list[Row]:
        """The rows that op makes of a row if a key has one value outside, the chosen one, or else none.

        Empty if the row meets nothing outside.
        """
        rows, _, met = self._body.explore(row, _Chosen(chosen))
        return [] if not met else rows if self._keeps is None else self._keeps(rows)

    def values(self, asked: Asked) -> list[Any]:
        """The values outside of a key."""
        join, key = asked
        if self._lookups is None:
            bag = self._body.bags(join, [key])[key]
        else:
            (bag,) = self._lookups.over(join, [key]).get_many([key])
        return [value for value, _ in pairs_of(bag)]


class _Chosen:
    def __init__(self, values: Mapping[Asked, Any]) -> None:
        self._values = values

    def over(self, join: int, keys: Sequence[Any]) -> Bags:
        """The one value of each key."""
        return _OneEach({key: self._values[join, key] for key in keys if (join, key) in self._values})


class _OneEach:
    def __init__(self, values: dict[Any, Any]) -> None:
        self._values = values

    def get_many(self, keys: list[Any]) -> list[Bag | None]:
        """The bag of each key."""
        return [(self._values[key], 1) if key in self._values else None for key in keys]


class Round:
    """The rows outside by which a path made its last steps, to follow it further."""

    def __init__(self, explorer: Explorer, path: Sequence[Row]) -> None:
        self._explorer = explorer
        self._chosen = dict(self._choices(path))

    def _choices(self, path: Sequence[Row]) -> Iterator[tuple[Asked, Any]]:
        """For each key that the path has met, the value outside by which it continued; the latest counts."""
        for row, child in pairwise(path):
            met = self._explorer(row).met
            if len(met) == 1:
                for value in self._explorer.values(met[0])[:_MOST_TRIED]:
                    if child in self._explorer.along(row, {met[0]: value}):
                        yield met[0], value
                        break

    def follow(self, row: Row, steps: int, ends: Callable[[Row], bool]) -> Iterable[Row]:
        """The rows that follow, at most so many, up to one at which it `ends`, or has no single next row."""
        for _ in range(steps):
            rows = self._explorer.along(row, self._chosen)
            if len(rows) != 1 or ends(row := rows[0]):
                return
            yield row
