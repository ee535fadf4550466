"""The levels of a view: a level is the plan of one query in the view, by which buckets are made.

A plucked nest shows its rows in place of the rows that lead to them, so rows of several buckets become one list. Each
of these rows has its position in the column `$at`, because the shown columns do not determine the row's order, and do
not identify the row.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from eddy.live.dataflow.ordered import Ordered
from eddy.live.dataflow.values import EMPTY, Flat, Row, join_key, plain, values_of
from eddy.live.dataflow.window import Bounds

__all__ = ["AT", "Level", "Levels", "Nesting", "bucket_id"]

AT = "$at"
"""The column with the position of a row of a plucked nest, as text in the order of the rows."""
Levels = tuple[tuple[str, int], ...]
"""For each bounded recursion around a bucket, its label and the number of the bucket's level in it."""


@dataclass(slots=True)
class Nesting:
    """A nest of a level. The rows of the level lead to buckets of `below`, by the values of `columns`.

    `begins` has the label and depth of a bounded recursion that begins here, `again` the label and depth of a recursion
    that the nest continues one level deeper. If the nest leads back to a level further out, `kept` has the labels of
    the bounded recursions around `below`, and the level numbers of all inner recursions are dropped.
    """

    name: str
    columns: tuple[str, ...]
    below: "Level"
    begins: tuple[str, int] | None = None
    again: tuple[str, int] | None = None
    kept: frozenset[str] | None = None
    key: Callable[[Row], Flat | None] = field(init=False)

    def __post_init__(self) -> None:
        self.key = join_key(self.columns)

    def levels(self, levels: Levels) -> Levels | None:
        """Return the level numbers of a bucket below a bucket with the level numbers `levels`.

        Returns None if a recursion has reached its depth, so that there is no bucket below.
        """
        if self.begins is not None:
            label = self.begins[0]
            return (*(pair for pair in levels if pair[0] != label), (label, 1))
        if self.again is not None:
            label, depth = self.again
            if dict(levels)[label] >= depth:
                return None
            levels = tuple((name, n + (name == label)) for name, n in levels)
        return levels if self.kept is None else tuple(pair for pair in levels if pair[0] in self.kept)


@dataclass(slots=True, eq=False)
class Level:
    """The plan of one Select within a view: how its rows are sorted, its window, the shown columns, and its nests.

    `is_plucked`: its rows are shown in place of the rows that lead to them.
    """

    name: str
    ordered: Ordered
    bounds: Bounds
    columns: tuple[str, ...] | None = None
    nests: list[Nesting] = field(default_factory=list)
    is_plucked: bool = False

    def shown(self, row: Row) -> Row:
        """Return the shown columns of a row. If the level is plucked, the row's position is added."""
        shown = row if self.columns is None else {column: row[column] for column in self.columns if column in row}
        return {**shown, AT: self.ordered.position(row).hex()} if self.is_plucked else shown


def bucket_id(level: Level, values: Flat, levels: Levels) -> str:
    """Return the id of a bucket. It is the same on each replica, and for equal values, such as 1 and 1.0."""
    if values == EMPTY:
        return level.name
    shown = [plain(value) for value in values_of(values)]
    at = "".join(f"@{number}" for _, number in levels)
    return f"{level.name}{at}{msgspec.json.encode(shown).decode()}"
