"""The shape of a view as data, from which a client that has only the buckets makes nested rows.

A shape is a list of levels; the first is the root. A level has the indexes of its nests' levels, so that a recursion is
a level that refers to itself. The conditions and the tables of a query are not part of the shape.
"""

from typing import Any

import msgspec

from eddy.live.dataflow.values import Row
from eddy.live.query.planning import Shape
from eddy.live.query.syntax import Aggregate, QueriedTable, Select

__all__ = ["LevelShape", "levels_of", "shape_of"]


class LevelShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """One level. `nests` has the index of the level below, by name.

    Args:
        one: whether the first row, or None, is shown instead of a list.
        empty: for aggregates without groups, the row over no rows; None for all other queries.
        value: the column whose value is shown in place of the row.
        columns: the shown columns of a row of aggregates.
        pluck: the nest whose rows are shown instead, each once.
        key: the columns of the key of its table.
        is_plucked: whether its rows have the hidden column `$at`, a text that sorts as the rows do.
            The rows of a plucked nest are the rows of all its buckets in this order, each `$at` once.
    """

    nests: dict[str, int] = {}
    one: bool = False
    empty: Row | None = None
    value: str | None = None
    columns: tuple[str, ...] | None = None
    pluck: str | None = None
    key: tuple[str, ...] = ()
    is_plucked: bool = False


def levels_of(shape: Shape) -> list[LevelShape]:
    """Return the levels of a view, each once."""
    found: dict[Shape, int] = {shape: 0}
    todo = [shape]
    for each in todo:  # the list grows in the loop
        for below in each.nests.values():
            if below not in found:
                found[below] = len(found)
                todo.append(below)
    return [_level(each, found) for each in todo]


def _level(shape: Shape, found: dict[Shape, int]) -> LevelShape:
    select = shape.select
    return LevelShape(
        {name: found[below] for name, below in shape.nests.items()},
        select.one,
        shape.empty,
        select.aggregates[0].name if select.scalar else None,
        select.columns,
        select.pluck,
        select.table.key,
        shape.is_plucked,
    )


def shape_of(levels: list[LevelShape]) -> Shape:
    """Return the shape that has these levels, for `nested`. Its tables have no names."""
    shapes = [Shape(_select(level), empty=level.empty, is_plucked=level.is_plucked) for level in levels]
    for level, shape in zip(levels, shapes, strict=True):
        shape.nests.update((name, shapes[index]) for name, index in level.nests.items())
    return shapes[0]


def _select(level: LevelShape) -> Select:
    value: Any = level.value
    return Select(
        QueriedTable("", level.key),
        one=level.one,
        columns=level.columns,
        pluck=level.pluck,
        aggregates=() if value is None else (Aggregate(value, "count"),),
        scalar=value is not None,
    )
