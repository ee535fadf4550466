"""Applies op to one row at a time. Finds the rows that op makes, and the keys by which it finds rows outside.

A path of stale steps meets the same rows outside again and again. `Round` follows such a path as if there were only
these rows outside. So the cost of a step does not depend on the number of other rows with the same keys.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from eddy.operators.batch import Row
from eddy.operators.matches import Bags
from eddy.operators.waves.body import Asked, Body, Explored, Lookups
from eddy.state.arrangement import Bag, pairs_of

__all__ = ["Explorer", "Round"]

_MOST_TRIED = 10_000
"""The most rows outside that are tried to find the one by which a path continued."""


class Explorer:
    """Applies op to rows. `lookups` finds rows outside, if other workers own some of them.

    `keeps` selects the rows to follow, among the rows that op makes.
    """

    def __init__(
        self, body: Body, lookups: Lookups | None = None, keeps: Callable[[list[Row]], list[Row]] | None = None
    ) -> None:
        self._body, self._lookups, self._keeps = body, lookups, keeps

    def __call__(self, row: Row) -> Explored:
        """Apply op to one row."""
        explored = self._body.explore(row, self._lookups)
        return explored if self._keeps is None else explored._replace(rows=self._keeps(explored.rows))

    def all_of(self, rows: list[Row]) -> list[Row]:
        """Apply op to some rows. Returns the rows that it makes, each once."""
        made = self._body.explore_all(rows, self._lookups)
        return made if self._keeps is None else self._keeps(made)

    def along(self, row: Row, chosen: Mapping[Asked, Any]) -> list[Row]:
        """Apply op to a row, as if each key had only its value in `chosen` outside.

        Returns the rows that op makes; an empty list if the row meets no row outside.
        """
        rows, _, met = self._body.explore(row, _Chosen(chosen))
        return [] if not met else rows if self._keeps is None else self._keeps(rows)

    def values(self, asked: Asked) -> list[Any]:
        """Return the values of the rows outside that a join finds for a key."""
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
    """Follows a path further, as if outside there were only the rows that its last steps have met."""

    def __init__(self, explorer: Explorer, path: Sequence[Row]) -> None:
        self._explorer = explorer
        self._chosen = dict(self._choices(path))

    def _choices(self, path: Sequence[Row]) -> Iterator[tuple[Asked, Any]]:
        """Yield each key that the path has met outside, with the value by which the path continued."""
        for row, child in pairwise(path):
            met = self._explorer(row).met
            if len(met) == 1:
                for value in self._explorer.values(met[0])[:_MOST_TRIED]:
                    if child in self._explorer.along(row, {met[0]: value}):
                        yield met[0], value
                        break

    def follow(self, row: Row, steps: int, ends: Callable[[Row], bool]) -> Iterable[Row]:
        """Yield at most `steps` next rows of the path.

        The path ends if op does not make exactly one row, or makes a row for which `ends` is true.
        """
        for _ in range(steps):
            rows = self._explorer.along(row, self._chosen)
            if len(rows) != 1 or ends(row := rows[0]):
                return
            yield row
