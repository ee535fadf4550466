"""Builds nested rows from the buckets of a view.

A row gets its nests under their names: a nest is a list; with `one` it is a row or None, with a single aggregate its
value. A row that leads back to a bucket around it is part of a cycle: it has `"$cycle": True` instead of the nest. Deep
nests need no deep call stack.
"""

from collections.abc import Mapping
from typing import Any

from eddy.errors import QueryError
from eddy.live.dataflow.nest_levels import AT
from eddy.live.dataflow.patch import Entry
from eddy.live.dataflow.values import Row
from eddy.live.query.planning import MAX_ROWS, Shape

__all__ = ["nested"]

Buckets = Mapping[str, list[Entry]]
Found = tuple[Row, dict[str, str | None], Shape]
"""A row, the id of the bucket below the row for each nest, and the row's level."""


def nested(buckets: Buckets, shape: Shape, root: str, max_rows: int = MAX_ROWS) -> Any:
    """Return the result of a view, from its buckets and the id of the root bucket.

    Raises: QueryError for more than `max_rows` rows; a row with several parents counts below each parent.
    """
    return _Assembly(buckets, max_rows).result(shape, root)


class _Assembly:
    """Builds the rows from the root down.

    `_todo` is a stack of rows whose nests are not built yet. Below the rows of a bucket the stack has the bucket
    itself, which is removed from `_path` when these rows are done.
    """

    def __init__(self, buckets: Buckets, max_rows: int) -> None:
        self._buckets, self._left = buckets, max_rows
        self._todo: list[tuple[Row, dict[str, str | None], Shape] | str] = []
        self._path: set[str] = set()

    def result(self, shape: Shape, root: str) -> Any:
        made = self._value(shape, root)
        todo, path = self._todo, self._path
        while todo:
            task = todo.pop()
            if isinstance(task, str):
                path.discard(task)
                continue
            row, below, level = task
            self._fill(row, below, level)
        return made

    def _fill(self, row: Row, below: dict[str, str | None], level: Shape) -> None:
        for name, bucket in below.items() if len(below) == 1 else reversed(below.items()):
            step = None if bucket is None else _place(bucket)
            if step in self._path:
                row["$cycle"] = True
            elif len(below) == 1 or step is None:
                self._enter(row, name, level.nests[name], bucket, step)
            else:
                # One task for each nest, so that their paths are separate.
                self._todo.append((row, {name: bucket}, level))

    def _enter(self, row: Row, name: str, shape: Shape, bucket: str | None, step: str | None) -> None:
        if step is not None:
            self._path.add(step)
            self._todo.append(step)
        row[name] = self._value(shape, bucket)

    def _value(self, shape: Shape, bucket: str | None) -> Any:
        """Return the rows of a bucket, whose nests are not built yet."""
        select = shape.select
        found = self._found(shape, bucket)
        if shape.empty is not None:
            row = found[0][0] if found else shape.empty
            if select.scalar:
                return row[select.aggregates[0].name]
            columns = select.columns or row
            return [{column: row[column] for column in columns}]
        self._left -= len(found)
        if self._left < 0:
            raise QueryError("query: the nested form of its view has too many rows; a limit or a depth is needed")
        rows = []
        for row, below, level in found:
            made = dict(row)
            if level.is_plucked:
                del made[AT]
            if below:
                self._todo.append((made, below, level))
            rows.append(made)
        return (rows[0] if rows else None) if select.one else rows

    def _found(self, shape: Shape, bucket: str | None) -> list[Found]:
        """Return the rows of a bucket.

        If its query plucks a nest, return the nest's rows instead, each once, in their order.
        """
        entries = self._buckets.get(bucket, ()) if bucket is not None else ()
        name = shape.select.pluck
        if name is None:
            return [(row, below, shape) for row, below in entries]
        by_position: dict[str, Found] = {}
        for _, below in entries:
            for found in self._found(shape.nests[name], below.get(name)):
                by_position[found[0][AT]] = found
        rows = [by_position[position] for position in sorted(by_position)]
        return rows[:1] if shape.select.one else rows


def _place(bucket: str) -> str:
    """Return a bucket's id without the numbers of its levels."""
    name, bracket, values = bucket.partition("[")
    return name.partition("@")[0] + bracket + values
