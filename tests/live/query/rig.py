"""Queries kept up to date and compared: the view that is rebuilt from its patches alone, and the naive answer."""

from collections.abc import Iterable, Mapping
from typing import Any

import eddy
from eddy.live.dataflow.patch import Buckets, Op
from eddy.live.dataflow.stored_map import StoredMap
from eddy.live.dataflow.values import flat_key
from eddy.live.query.engine import LiveQueries
from eddy.live.query.nested import nested
from eddy.live.query.planning import PlannedView
from eddy.state.spaces import Spaces

Row = dict[str, Any]


class Followed:
    """One query's view, made of patches."""

    def __init__(self, engine: LiveQueries, query: eddy.Query, *, shared: bool = True) -> None:
        self.view = engine.open(query.syntax, shared=shared)
        self.buckets = Buckets()
        self.buckets.apply(self.view.operator.snapshot())
        self.ops: list[Op] = []

    def take(self, ops: list[Op]) -> None:
        self.ops = ops
        self.buckets.apply(ops)

    @property
    def rows(self) -> Any:
        return nested(self.buckets.entries, self.view.shape, self.view.operator.root.id)


class Rig:
    """An engine with tables, and the same rows by themselves."""

    def __init__(
        self, keys: Mapping[str, Iterable[str]], tables: Mapping[str, Iterable[Row]], spaces: Spaces | None = None
    ) -> None:
        """With `spaces` the tables are not in memory."""
        self.key_of = {name: flat_key(list(columns)) for name, columns in keys.items()}
        self.plain = {name: {self.key_of[name](row): row for row in rows} for name, rows in tables.items()}
        self.engine = LiveQueries()
        for name, rows in self.plain.items():
            if spaces is None:
                self.engine.load(name, dict(rows))
            else:
                stored: StoredMap[Row] = StoredMap(spaces.make())
                stored.fill(rows.items())
                self.engine.load_stored(name, stored, spaces)
        self.followed: list[Followed] = []

    def follow(self, query: eddy.Query, *, shared: bool = True) -> Followed:
        self.followed.append(Followed(self.engine, query, shared=shared))
        return self.followed[-1]

    def apply(self, changes: Iterable[tuple[str, Row | None, Row | None]]) -> dict[PlannedView, list[Op]]:
        """One batch of changes (table, old, new). Returns the patches by view."""
        found = dict(self.engine.apply(self.take(changes)))
        for followed in self.followed:
            followed.take(found.get(followed.view, []))
        return found

    def take(self, changes: Iterable[tuple[str, Row | None, Row | None]]) -> dict[str, dict[Any, Row | None]]:
        """Make the changes in the plain rows. Returns the new rows by table and key."""
        deltas: dict[str, dict[Any, Row | None]] = {}
        for table, old, new in changes:
            for row, value in ((old, None), (new, new)):
                if row is not None:
                    deltas.setdefault(table, {})[self.key_of[table](row)] = value
        for table, delta in deltas.items():
            for key, new in delta.items():
                if new is None:
                    self.plain[table].pop(key, None)
                else:
                    self.plain[table][key] = new
        return deltas

    def rows(self) -> dict[str, list[Row]]:
        return {name: list(rows.values()) for name, rows in self.plain.items()}
