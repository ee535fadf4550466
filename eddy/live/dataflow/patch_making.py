"""Makes the patch of a live query: turns the changes of the query's windows into changes of its buckets.

    active(root)
    active(b') ← active(b), row ∈ window(b), b' = the bucket of the row's values in a nest

Nests may have any depth and lead back to an outer level. `anchors.py` decides which buckets are still reached.

Within a batch all new routes are added before old routes are removed. So a subtree that moves is kept: its top always
has a route, and no bucket below the top is touched. Cost: O(depth) for a move, O(rows removed) for a removal.
"""

from collections.abc import Callable, Iterable, Sequence

from eddy.errors import QueryError
from eddy.live.dataflow.action import Action, ActionName
from eddy.live.dataflow.anchors import Anchors, Routed
from eddy.live.dataflow.dataflow import QueryOperator, Schedule
from eddy.live.dataflow.moves import moves
from eddy.live.dataflow.nest_levels import Level, Levels, Nesting, bucket_id
from eddy.live.dataflow.patch import Drop, Insert, Move, Op, Remove, Set
from eddy.live.dataflow.values import Flat, Row, key_of, same_row, values_of
from eddy.live.dataflow.window import Bounds, Window, WindowDelta

__all__ = ["Bucket", "TooManyRowsError", "ViewOperator"]


class TooManyRowsError(QueryError):
    """A view has more rows than its `max_rows`."""


class Bucket(Routed):
    """The rows of a level that have these `values` in the columns of a nest.

    A bucket has a window over these rows, the routes to the bucket, and an anchor.
    """

    __slots__ = ("id", "level", "levels", "values", "view", "window")

    def __init__(self, view: "ViewOperator", level: Level, values: Flat, levels: Levels) -> None:
        self.view, self.level, self.values, self.levels = view, level, values, levels
        super().__init__()
        self.id = bucket_id(level, values, levels)
        self.window: Window = level.ordered.open(values, level.bounds, self)

    def rows_changed(self, delta: WindowDelta, schedule: Schedule) -> None:
        """Note that the rows of the window have changed, by `delta`."""
        self.view.pending.append((self, delta))
        schedule(self.view)

    def warned(self, *, is_short: bool, schedule: Schedule) -> None:
        """Note that the view has to be opened anew; if it `is_short`, it does not change any more until then."""
        self.view.is_low = True
        self.view.is_short |= is_short
        schedule(self.view)

    @property
    def most_rows(self) -> int:
        """The greatest number of rows that its view may have."""
        return self.view.max_rows

    def positions(self) -> Sequence[Flat]:
        """Return the positions of the bucket's rows."""
        return self.window.rows()


class ViewOperator(QueryOperator):
    """One query that is kept up to date: the buckets that its root leads to. `ops` has the patch of the current batch.

    A view may have at most `max_rows` rows in all buckets together. Rows that a window skips count as well, if they are
    in memory only because of that. A view with more rows does not change until it is opened anew, and `failure` has the
    error.
    """

    is_output = True

    def __init__(self, root: Level, values: Flat, max_rows: int) -> None:
        super().__init__()
        self.max_rows = max_rows
        self.pending: list[tuple[Bucket, WindowDelta]] = []
        self.ops: list[Op] = []
        self.actions: list[Action] | None = None
        """The actions of the batch, if they are logged."""
        self.failure: QueryError | None = None
        self.is_low = self.is_short = False
        """`is_low`: the view has to be opened anew. `is_short`: it does not change any more until then."""
        self.rows = self._held = 0
        self._buckets: dict[tuple[int, Flat, Levels], Bucket] = {}
        self._news: list[tuple[Bucket, Sequence[Flat]]] = []
        self.root = self._activate(root, values, ())
        self._anchors = Anchors(self.root, self._routes_of)
        is_whole = self._route_news(max_rows)
        self.ops = []
        if not is_whole or self.rows + self._held > max_rows:
            self.close()
            raise self._too_many()

    def __len__(self) -> int:
        return len(self._buckets)

    def buckets(self) -> Iterable[Bucket]:
        """Return all buckets that the root leads to."""
        return self._buckets.values()

    def snapshot(self) -> list[Op]:
        """Return a patch that builds the whole view from an empty one."""
        return [
            op for bucket in self._buckets.values() for op in self._inserts(bucket, bucket.positions(), self._below)
        ]

    def move_window(self, bounds: Bounds, schedule: Schedule) -> None:
        """Move the window at the root to other bounds."""
        root = self.root
        root.level.ordered.widen(root.window, bounds)
        delta = root.window.move_to(bounds)
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
        if self._anchors.suspects:
            self._drop_unreached()
        if not is_whole or self.rows + self._held > self.max_rows:
            self.fail(self._too_many())

    def _too_many(self) -> QueryError:
        return TooManyRowsError(f"query: its view has more than {self.max_rows:,} rows; a limit or a depth is needed")

    def fail(self, error: QueryError) -> None:
        """Store the error, and close the view."""
        self.failure = error
        self.close()

    def close(self) -> None:
        """Remove all buckets; the view takes no more changes."""
        for bucket in self._buckets.values():
            bucket.level.ordered.close(bucket.values, bucket.window)
        self._buckets.clear()
        self.rows, self._held, self.pending, self.ops = 0, 0, [], []

    def end(self) -> None:
        """Drop the patch and the logged actions, because the batch is over."""
        self.ops = []
        if self.actions:
            self.actions = []

    def _show(self, bucket: Bucket, delta: WindowDelta, gone: list[tuple[Bucket, Row]]) -> None:
        """Add one window's changes to the patch.

        The routes of new rows are added; rows whose routes have to be removed are put into `gone`, for `_unroute`.
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
        """Log the actions of one window's changes."""
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
        """Return the operations that insert rows, at `positions`, into a bucket.

        `below` returns the ids of the buckets below a row: `_routed` also makes the routes, `_below` does not.
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
        """Return the ids of the buckets below a row."""
        return {
            nest.name: None if values is None else bucket_id(nest.below, values, levels)
            for nest, values, levels in self._targets(bucket, row)
        }

    def _routed(self, bucket: Bucket, row: Row) -> dict[str, str | None]:
        """Add routes from a row's bucket to each bucket below the row.

        Returns the ids of the buckets below, by nest.
        """
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
        """Add the rows of new buckets to the patch, and of the buckets below these.

        Returns False if the view then has more than `bound` rows.
        """
        while self._news:
            bucket, positions = self._news.pop()
            if self.rows + self._held > bound:
                self._news.clear()
                return False
            self.ops += self._inserts(bucket, positions, self._routed)
        return True

    def _unroute(self, bucket: Bucket, row: Row) -> None:
        """Remove the routes that a row of this bucket made to the buckets below the row."""
        for nest, values, levels in self._targets(bucket, row):
            found = None if values is None else self._buckets.get((id(nest.below), values, levels))
            if found is None or bucket not in found.routes:
                continue
            found.routes[bucket] -= 1
            if not found.routes[bucket]:
                del found.routes[bucket]
                self._anchors.lost(found, bucket)

    def _drop_unreached(self) -> None:
        """Drop the buckets that are not reached any more, and remove their changes from the patch."""
        dropped = self._anchors.unreached()
        if not dropped:
            return
        ids = {bucket.id for bucket in dropped}
        self.ops = [op for op in self.ops if op.bucket not in ids]
        for bucket in dropped:
            self._drop(bucket, dropped)

    def _routes_of(self, bucket: Bucket) -> Iterable[Bucket]:
        """Yield the buckets to which the present rows of a bucket lead."""
        row = bucket.level.ordered.row
        for position in bucket.positions() if bucket.level.nests else ():
            for nest, values, levels in self._targets(bucket, row(position)):
                found = None if values is None else self._buckets.get((id(nest.below), values, levels))
                if found is not None and found is not self.root:
                    yield found

    def _drop(self, bucket: Bucket, dropped: dict[Bucket, None]) -> None:
        """Drop a bucket that is not reached any more, with its rows and its routes to buckets that are not dropped."""
        for below in self._routes_of(bucket):
            if below not in dropped:
                below.routes.pop(bucket, None)
        self.rows -= bucket.window.size
        self._held -= bucket.level.ordered.held_before(bucket.level.bounds)
        bucket.level.ordered.close(bucket.values, bucket.window)
        del self._buckets[id(bucket.level), bucket.values, bucket.levels]
        self.ops.append(Drop(bucket.id))
