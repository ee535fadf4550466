"""Nests: the buckets of a view, at any depth and also in cycles.

    active(root)
    active(b') ← active(b), row ∈ window(b), b' = the bucket of the row's values in a nest

A bucket counts its *routes*: for each active bucket, how many of its rows lead to it. One of these buckets is its
*anchor*; the anchors form a tree with the root at its top, so that a bucket with an anchor is reached. A bucket that
loses its anchor takes another one that does not lead back to it, which a walk up the tree finds out. If there is none,
the buckets below it are suspects, and suspects without a route from outside are dropped: so a cycle that was cut off is
not kept.

Within a batch routes are added before others are removed. So a subtree that moves is kept: its top always has a route,
and no bucket below is touched. Cost: O(depth) for a move, O(rows removed) for a removal.

Rows of a plucked nest have their position in the column `$at`: rows of several buckets become one list, and the shown
columns determine neither their order nor their identity.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from eddy.errors import QueryError
from eddy.live.dataflow.action import Action, ActionName
from eddy.live.dataflow.dataflow import QueryOperator, Schedule
from eddy.live.dataflow.moves import moves
from eddy.live.dataflow.ordered import Ordered
from eddy.live.dataflow.patch import Drop, Insert, Move, Op, Remove, Set
from eddy.live.dataflow.values import EMPTY, Flat, Row, join_key, key_of, plain, same_row, values_of
from eddy.live.dataflow.window import Bounds, Window, WindowDelta

__all__ = ["AT", "Bucket", "Level", "Nesting", "TooManyRowsError", "ViewOperator"]


AT = "$at"
"""The column with the position of a row of a plucked nest, as text in the order of the rows."""


class TooManyRowsError(QueryError):
    """A view has more rows than its `max_rows`."""


Levels = tuple[tuple[str, int], ...]
"""The level of a bucket in each bounded recursion, by the recursion's label."""


@dataclass(slots=True)
class Nesting:
    """A nest of a level: rows lead to buckets of `below` by the values of `columns`.

    `begins` has the label and depth of a recursion that begins here, `again` of a recursion that the nest continues one
    level deeper. `kept` is set if the nest leads back to a level further out: it has the bounded recursions around
    `below`. The numbers of inner recursions are dropped, so that each level has one number for each bounded recursion
    around it.
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
        """The level numbers of a bucket below; None if a recursion has reached its depth."""
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
    """The plan of one Select within a view: the arrangement of its rows, the window, the columns shown, the nests.

    `is_plucked`: its rows are shown in place of the rows that lead to them.
    """

    name: str
    ordered: Ordered
    bounds: Bounds
    columns: tuple[str, ...] | None = None
    nests: list[Nesting] = field(default_factory=list)
    is_plucked: bool = False

    def shown(self, row: Row) -> Row:
        """The shown columns of a row, with its position if the level is plucked."""
        shown = row if self.columns is None else {column: row[column] for column in self.columns if column in row}
        return {**shown, AT: self.ordered.position(row).hex()} if self.is_plucked else shown


class Bucket:
    """The rows of a level for some values: a window, the number of routes to the bucket, and its anchor."""

    __slots__ = ("anchor", "id", "level", "levels", "routes", "values", "view", "window")

    def __init__(self, view: "ViewOperator", level: Level, values: Flat, levels: Levels) -> None:
        self.view, self.level, self.values, self.levels = view, level, values, levels
        self.id = _id(level, values, levels)
        self.routes: dict[Bucket, int] = {}
        self.anchor: Bucket | None = None
        self.window: Window = level.ordered.open(values, level.bounds, self)

    def told(self, delta: WindowDelta, schedule: Schedule) -> None:
        """The rows of the window have changed."""
        self.view.pending.append((self, delta))
        schedule(self.view)

    def warned(self, *, is_short: bool, schedule: Schedule) -> None:
        """Note that the view has to be opened anew."""
        self.view.is_low = True
        self.view.is_short |= is_short
        schedule(self.view)

    @property
    def most_rows(self) -> int:
        """The rows that its view may have."""
        return self.view.max_rows

    def positions(self) -> Sequence[Flat]:
        """The positions of its rows."""
        return self.window.rows()


class ViewOperator(QueryOperator):
    """One query: its active buckets, and the patch of the batch in `ops`.

    `max_rows` bounds the rows that it holds in all buckets, with the skipped rows that are in memory for its windows
    alone. A view with more rows has an error as `failure`, and does not change until it is opened anew.
    """

    is_output = True

    def __init__(self, root: Level, values: Flat, max_rows: int) -> None:
        super().__init__()
        self.max_rows = max_rows
        self.pending: list[tuple[Bucket, WindowDelta]] = []
        self.ops: list[Op] = []
        self.actions: list[Action] | None = None
        """The actions of the batch, where they are asked for."""
        self.failure: QueryError | None = None
        self.is_low = self.is_short = False
        """Whether it has to be opened anew, and whether it changes no more until then."""
        self.rows = self._held = 0
        self._buckets: dict[tuple[int, Flat, Levels], Bucket] = {}
        self._suspects: dict[Bucket, None] = {}
        self._news: list[tuple[Bucket, Sequence[Flat]]] = []
        self.root = self._activate(root, values, ())
        is_whole = self._route_news(max_rows)
        self.ops = []
        if not is_whole or self.rows + self._held > max_rows:
            self.close()
            raise self._too_many()

    def __len__(self) -> int:
        return len(self._buckets)

    def buckets(self) -> Iterable[Bucket]:
        """All buckets that the root leads to."""
        return self._buckets.values()

    def snapshot(self) -> list[Op]:
        """A patch that builds the view from an empty one."""
        return [
            op for bucket in self._buckets.values() for op in self._inserts(bucket, bucket.positions(), self._below)
        ]

    def move_window(self, bounds: Bounds, schedule: Schedule) -> None:
        """Replace the window at the root by one with other bounds."""
        root = self.root
        root.level.ordered.widen(root.window, bounds)
        delta = root.window.moved(bounds)
        if delta:
            self.pending.append((root, delta))
            schedule(self)

    def step(self, schedule: Schedule) -> None:
        """Make the patch from the windows' changes, and update the routes."""
        pending, self.pending = self.pending, []
        if self.failure is not None or self.is_short:
            return
        gone: list[tuple[Bucket, Row]] = []
        bound = self.rows + self._held + self.max_rows  # removed rows are still counted when new rows are added
        for bucket, delta in pending:
            if self.actions is not None:
                self._note(bucket, delta)
            self._show(bucket, delta, gone)
        is_whole = not self._news or self._route_news(bound)
        for bucket, row in gone:
            self._unroute(bucket, row)
        if self._suspects:
            self._settle()
        if not is_whole or self.rows + self._held > self.max_rows:
            self.fail(self._too_many())

    def _too_many(self) -> QueryError:
        return TooManyRowsError(f"query: its view has more than {self.max_rows:,} rows; a limit or a depth is needed")

    def fail(self, error: QueryError) -> None:
        """Keep the error, and close the view."""
        self.failure = error
        self.close()

    def close(self) -> None:
        """Remove all buckets; the view takes no more changes."""
        for bucket in self._buckets.values():
            bucket.level.ordered.close(bucket.values, bucket.window)
        self._buckets.clear()
        self.rows, self._held, self.pending, self.ops = 0, 0, [], []

    def end(self) -> None:
        """The batch is over."""
        self.ops = []
        if self.actions:
            self.actions = []

    def _show(self, bucket: Bucket, delta: WindowDelta, gone: list[tuple[Bucket, Row]]) -> None:
        """Add one window's changes to the patch.

        New routes are added; rows that lose theirs are put into `gone`, for `_unroute`.
        """
        ops, level = self.ops, bucket.level
        for index, position in delta.left:
            self.rows -= 1
            ops.append(Remove(bucket.id, index))
            if level.nests:
                gone.append((bucket, level.ordered.was(position)))
        if len(delta.entered) > 1:
            level.ordered.fetch([position for _, position in delta.entered])
        for index, position in delta.entered:
            self.rows += 1
            row = level.ordered.row(position)
            ops.append(Insert(bucket.id, index, level.shown(row), self._routed(bucket, row) if level.nests else {}))
        if delta.stayed:
            for before, index, _ in moves(delta):
                ops.append(Move(bucket.id, before, index))
            for _, index, position in delta.stayed:
                self._set(bucket, index, position, gone)
        for index, position in delta.changed:
            self._set(bucket, index, position, gone)

    def _note(self, bucket: Bucket, delta: WindowDelta) -> None:
        """Keep the actions of one window."""
        ordered, actions = bucket.level.ordered, self.actions
        assert actions is not None
        table, changed = ordered.table.name, ordered.table.olds

        def note(action: ActionName, key: Flat) -> None:
            actions.append(Action(action, table, values_of(key), bucket.id, key in changed))

        for _, position in delta.left:
            note("remove", key_of(position))
        for _, position in delta.entered:
            note("insert", key_of(position))
        for before, now, position in delta.stayed:
            note("update" if before == now else "move", key_of(position))
        for _, position in delta.changed:
            note("update", key_of(position))

    def _set(self, bucket: Bucket, index: int, position: Flat, gone: list[tuple[Bucket, Row]]) -> None:
        level = bucket.level
        new = level.ordered.row(position)
        if level.columns is None and not level.nests:
            self.ops.append(Set(bucket.id, index, level.shown(new)))
            return
        old = level.ordered.was(position)
        below = self._routed(bucket, new) if level.nests else {}
        if level.nests:
            gone.append((bucket, old))
        shown = level.shown(new)
        if level.columns is not None and same_row(level.shown(old), shown) and below == self._below(bucket, old):
            return
        self.ops.append(Set(bucket.id, index, shown, below))

    def _inserts(
        self, bucket: Bucket, positions: Sequence[Flat], below: Callable[[Bucket, Row], dict[str, str | None]]
    ) -> list[Op]:
        """The inserts of all rows of a bucket.

        `below` is `_routed` if their routes are to be made, otherwise `_below`.
        """
        level = bucket.level
        level.ordered.fetch(positions)
        rows = map(level.ordered.row, positions)
        return [Insert(bucket.id, i, level.shown(row), below(bucket, row)) for i, row in enumerate(rows)]

    def _targets(self, bucket: Bucket, row: Row) -> Iterable[tuple[Nesting, Flat | None, Levels]]:
        for nest in bucket.level.nests:
            levels = nest.levels(bucket.levels)
            if levels is not None:
                yield nest, nest.key(row), levels

    def _below(self, bucket: Bucket, row: Row) -> dict[str, str | None]:
        """The ids of the buckets below a row."""
        return {
            nest.name: None if values is None else _id(nest.below, values, levels)
            for nest, values, levels in self._targets(bucket, row)
        }

    def _routed(self, bucket: Bucket, row: Row) -> dict[str, str | None]:
        """Add a route from a row to each bucket below it. Returns the ids of these buckets."""
        below: dict[str, str | None] = {}
        if not bucket.level.nests:
            return below
        for nest, values, levels in self._targets(bucket, row):
            if values is None:
                below[nest.name] = None
                continue
            found = self._buckets.get((id(nest.below), values, levels))
            if found is None:
                found = self._activate(nest.below, values, levels)
            below[nest.name] = found.id
            found.routes[bucket] = found.routes.get(bucket, 0) + 1
            if found.anchor is None and found is not self.root:
                found.anchor = bucket
        return below

    def _activate(self, level: Level, values: Flat, levels: Levels) -> Bucket:
        made = self._buckets[id(level), values, levels] = Bucket(self, level, values, levels)
        self.rows += made.window.size
        self._held += level.ordered.held_before(level.bounds)
        if made.window.size:
            self._news.append((made, made.positions()))
        return made

    def _route_news(self, bound: int) -> bool:
        """Show the rows of new buckets, and of the buckets below them.

        Returns False if they have more than `bound` rows.
        """
        while self._news:
            bucket, positions = self._news.pop()
            if self.rows + self._held > bound:
                self._news.clear()
                return False
            self.ops += self._inserts(bucket, positions, self._routed)
        return True

    def _unroute(self, bucket: Bucket, row: Row) -> None:
        """Remove the row's routes from this bucket."""
        for nest, values, levels in self._targets(bucket, row):
            found = None if values is None else self._buckets.get((id(nest.below), values, levels))
            if found is None or bucket not in found.routes:
                continue
            found.routes[bucket] -= 1
            if not found.routes[bucket]:
                del found.routes[bucket]
                if found.anchor is bucket:
                    found.anchor = None
                    self._suspects[found] = None

    def _settle(self) -> None:
        """Find new anchors for the suspects, and drop the buckets that are not reached."""
        while self._suspects:
            stuck = [bucket for bucket in self._suspects if not self._anchored(bucket)]
            self._suspects = dict.fromkeys(stuck)
            if len(stuck) and not any(self._anchored(bucket) for bucket in stuck):
                self._drop_unreached(stuck)
                return
            self._suspects = {bucket: None for bucket in stuck if bucket.anchor is None}

    def _anchored(self, bucket: Bucket) -> bool:
        """Whether a bucket has an anchor that is reached without it; finds one if it has none."""
        if bucket.anchor is not None or bucket is self.root:
            return True
        for route in bucket.routes:
            if self._leads_up(route, bucket):
                bucket.anchor = route
                return True
        return False

    def _leads_up(self, at: "Bucket | None", avoided: Bucket) -> bool:
        """Whether the anchors lead from a bucket to the root without passing `avoided`."""
        while at is not None and at is not avoided:
            if at is self.root:
                return True
            at = at.anchor
        return False

    def _drop_unreached(self, stuck: Iterable[Bucket]) -> None:
        """Drop the stuck buckets and the buckets below them, except those that a route from outside reaches."""
        suspects: dict[Bucket, None] = {}
        todo = list(stuck)
        while todo:
            bucket = todo.pop()
            if bucket not in suspects:
                suspects[bucket] = None
                bucket.anchor = None
                todo += [below for below in self._routes_of(bucket) if below.anchor is bucket]
        reached = [bucket for bucket in suspects if self._rooted(bucket, suspects)]
        for bucket in reached:
            del suspects[bucket]
        while reached:
            bucket = reached.pop()
            for below in self._routes_of(bucket):
                if below in suspects:
                    del suspects[below]
                    below.anchor = bucket
                    reached.append(below)
        self._suspects = {}
        dropped = {bucket.id for bucket in suspects}
        self.ops = [op for op in self.ops if op.bucket not in dropped]
        for bucket in suspects:
            self._drop(bucket, suspects)

    def _rooted(self, bucket: Bucket, suspects: dict[Bucket, None]) -> bool:
        for route in bucket.routes:
            if route not in suspects:
                bucket.anchor = route
                return True
        return bucket is self.root

    def _routes_of(self, bucket: Bucket) -> Iterable[Bucket]:
        """The buckets to which the present rows of a bucket lead."""
        row = bucket.level.ordered.row
        for position in bucket.positions() if bucket.level.nests else ():
            for nest, values, levels in self._targets(bucket, row(position)):
                found = None if values is None else self._buckets.get((id(nest.below), values, levels))
                if found is not None and found is not self.root:
                    yield found

    def _drop(self, bucket: Bucket, dropped: dict[Bucket, None]) -> None:
        """Remove a bucket that is not reached, with its rows, and its routes to buckets that are kept."""
        for below in self._routes_of(bucket):
            if below not in dropped:
                below.routes.pop(bucket, None)
        self.rows -= bucket.window.size
        self._held -= bucket.level.ordered.held_before(bucket.level.bounds)
        bucket.level.ordered.close(bucket.values, bucket.window)
        del self._buckets[id(bucket.level), bucket.values, bucket.levels]
        self.ops.append(Drop(bucket.id))


def _id(level: Level, values: Flat, levels: Levels) -> str:
    """The id of a bucket. It is the same on each replica, and for equal values, such as 1 and 1.0."""
    if values == EMPTY:
        return level.name
    shown = [plain(value) for value in values_of(values)]
    at = "".join(f"@{number}" for _, number in levels)
    return f"{level.name}{at}{msgspec.json.encode(shown).decode()}"
