"""Live queries over tables of rows: open one, apply deltas, get patches. In memory, for one thread.

    engine = LiveQueries()
    engine.load("nodes", rows)
    view = engine.open(query.syntax)
    view.operator.snapshot()                          a patch with all rows of the view
    for view, ops in engine.apply({"nodes": delta}):  the patch of each view that the batch changes

Equal queries share one view, and all queries share the operators that are equal in their plans.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from eddy.errors import NotReadyError, QueryError, StateError
from eddy.live.dataflow.action import Action, unseen
from eddy.live.dataflow.dataflow import Dataflow, QueryOperator, TableRows
from eddy.live.dataflow.first_rows import FirstRows, PassingRows
from eddy.live.dataflow.patch import Op
from eddy.live.dataflow.patch_making import TooManyRowsError, ViewOperator
from eddy.live.dataflow.stored_map import StoredMap
from eddy.live.dataflow.values import Flat, Row
from eddy.live.query.planning import MAX_ROWS, PlannedView, bounds_of, open_view, plan_view, sorts_of, tables_of
from eddy.live.query.syntax import Select
from eddy.state.spaces import Spaces

__all__ = ["Delta", "LiveQueries"]

Delta = Mapping[Flat, Row | None]
"""The changes of a table: by key, the new row, or None if the row is removed."""


class LiveQueries:
    """Tables, and the queries that are kept up to date over them."""

    def __init__(self) -> None:
        self.dataflow = Dataflow()
        self._shared: dict[tuple[int, str], PlannedView] = {}
        self._by_operator: dict[ViewOperator, PlannedView] = {}
        self._logged: dict[PlannedView, list[TableRows]] = {}
        self.actions: dict[PlannedView, list[Action]] = {}
        """The actions of the latest batch, by view; only for views whose actions are logged."""
        self.spent: list[PlannedView] = []
        """The views of the latest batch that have to be opened anew: too few rows are kept for their windows."""

    @property
    def tables(self) -> dict[str, TableRows]:
        """The tables that are loaded."""
        return self.dataflow.tables

    def __len__(self) -> int:
        return len(self._by_operator)

    def load(self, name: str, rows: dict[Flat, Row]) -> None:
        """Add a table with its rows by key; the keys are made by `flat_key` from the key's columns."""
        self.dataflow.tables[name] = TableRows(rows, name)

    def load_stored(
        self, name: str, rows: StoredMap[Row], spaces: Spaces, shown: str = "", most_positions: int = 0
    ) -> None:
        """Add a table with rows on disk. Its queries store their rows in `spaces`. `shown` is its name for readers.

        A window at the root has all positions of its order in memory while the table has at most `most_positions` rows.
        """
        self.dataflow.tables[name] = TableRows(rows, shown or name, spaces, most_positions)

    def load_passing(self, name: str, scan: Callable[[], Iterable[tuple[Flat, Row]]], shown: str) -> None:
        """Add a table whose rows are not in memory.

        Only windows at the root can read it. `shown` is its name for readers.
        """
        self.dataflow.tables[name] = PassingRows(scan, shown)

    def exhaust(self, name: str) -> list[PlannedView]:
        """Note that changes of a passing table were lost.

        Returns the views over this table; each has to be opened anew.
        """
        found: list[PlannedView] = []
        table = self.dataflow.tables[name]
        assert isinstance(table, PassingRows)
        table.losses += 1
        for operator in table.dependents:
            if isinstance(operator, FirstRows):
                operator.exhaust()
        for view in self._by_operator.values():
            if view.operator.is_short:
                self._part_with(view)
                found.append(view)
        return found

    def first_rows(self, select: Select) -> list[FirstRows]:
        """Return the operators that keep first rows of the query's table, with the query's filter and order."""
        table, sorts = self.tables.get(select.table.name), sorts_of(select)
        dependents = () if table is None else table.dependents
        return [each for each in dependents if isinstance(each, FirstRows) and each.sorts == sorts]

    def reading(self, names: set[str]) -> list[PlannedView]:
        """Return the views that read one of these tables."""
        return [view for view in self._by_operator.values() if tables_of(view.shape.select) & names]

    def unload(self, name: str) -> None:
        """Remove a table. Raises: QueryError while a query reads it."""
        table = self.dataflow.tables[name]
        if table.dependents:
            raise QueryError(f"table '{name}': a query reads it; close the query first")
        del self.dataflow.tables[name]
        table.discard()

    def open(self, select: Select, *, max_rows: int = MAX_ROWS, shared: bool = True) -> PlannedView:
        """Open a query, and return its view. Close the view as often as it was opened.

        `shared`: equal queries get the same view. The window of a shared view cannot be moved.

        Raises: QueryError for a table that is not loaded, a query that does not fit, or too many rows.
        """
        identity = _identity(select, max_rows)
        view = self._shared.get(identity) if shared else None
        if view is None or view.operator.failure is not None or view.operator.is_low:
            view = open_view(select, self.dataflow, max_rows)
            self._by_operator[view.operator] = view
            if shared:
                self._shared[identity] = view
        view.users += 1
        return view

    def unshared(self, view: PlannedView) -> PlannedView:
        """Return a view of the same query whose window can be moved.

        If `view` has a single user, it is returned itself, and is not shared from now on. Otherwise an equal view is
        returned, which the caller closes instead of `view`.

        Raises: QueryError; NotReadyError if too few rows are kept, or while the order of its rows is made anew.
        """
        if view.users > 1 and view.operator.is_low:
            raise NotReadyError("live query: the order of its rows is made anew. Try again")
        if view.users > 1:
            return self.open(view.shape.select, max_rows=view.operator.max_rows, shared=False)
        self._part_with(view)
        return view

    def open_at_once(self, select: Select, max_rows: int, at_once: int) -> PlannedView | None:
        """Open a query if it is open already, or if its view has at most `at_once` rows. Otherwise return None."""
        view = self._shared.get(_identity(select, max_rows))
        if (view is not None and not view.operator.is_low) or max_rows <= at_once:
            return self.open(select, max_rows=max_rows)
        try:
            view = open_view(select, self.dataflow, at_once)
        except TooManyRowsError:
            return None
        view.operator.max_rows = max_rows
        view.users = 1
        self._by_operator[view.operator] = self._shared[_identity(select, max_rows)] = view
        return view

    def has_begun(self, select: Select, *, with_spent: bool = False) -> bool:
        """Return whether all operators of a query exist, except the view itself. Spent operators count if `with_spent`.

        Raises: QueryError if the query does not fit the tables.
        """
        known = self._shared.get(_identity(select, MAX_ROWS))
        if known is not None and not known.operator.is_low:
            return True
        if not tables_of(select) <= self.tables.keys():
            return False
        empty = Dataflow()
        empty.tables = {name: _empty(table) for name, table in self.tables.items()}
        existing = self.dataflow.operators if with_spent else self.dataflow
        return all(operator.identity in existing for operator in plan_view(select, empty).operators)

    def adopt(self, other: "LiveQueries", view: PlannedView, found: Mapping[QueryOperator, QueryOperator]) -> None:
        """Take over a view of another engine. `found` maps the other engine's tables to the equal tables here."""
        self.dataflow.adopt(other.dataflow, found)
        view.dataflow = self.dataflow
        self._by_operator[view.operator] = view
        self._shared.setdefault(_identity(view.shape.select, view.operator.max_rows), view)

    def close(self, view: PlannedView) -> None:
        """Close a view, once for each `open`. After the last call it is no longer kept up to date."""
        view.users -= 1
        if not view.users:
            del self._by_operator[view.operator]
            self._part_with(view)
            self._logged.pop(view, None)
            view.close()

    def _part_with(self, view: PlannedView) -> None:
        """Let no further query share a view."""
        identity = _identity(view.shape.select, view.operator.max_rows)
        if self._shared.get(identity) is view:
            del self._shared[identity]

    def log(self, view: PlannedView) -> None:
        """Log the actions of each batch on a view from now on, until the view is closed."""
        if view not in self._logged:
            self._logged[view] = [self.tables[name] for name in sorted(tables_of(view.shape.select))]
            view.operator.actions = []

    def apply(self, deltas: Mapping[str, Delta]) -> list[tuple[PlannedView, list[Op]]]:
        """Apply deltas of tables as one batch. Returns each view that changes, with its patch.

        A view that exceeds its bound on rows has an empty patch and an `operator.failure`.
        """
        outputs = self.dataflow.step(deltas)
        if self._logged or self.actions:
            self.actions = {view: self._actions(view) for view in self._logged}
        found = []
        self.spent = []
        for operator in outputs:
            assert isinstance(operator, ViewOperator)
            view = self._by_operator.get(operator)
            if view is not None and operator.is_low:
                self._part_with(view)
                self.spent.append(view)
            if view is not None and (operator.ops or operator.failure is not None):
                found.append((view, operator.ops))
        self.dataflow.end()
        return found

    def _actions(self, view: PlannedView) -> list[Action]:
        seen = view.operator.actions or []
        return seen + unseen(seen, self._logged[view])

    def move_window(self, view: PlannedView, skip: int, limit: int | None) -> list[Op] | None:
        """Move the window of an unshared view. Returns the patch; None if the view has to be opened anew instead."""
        select = msgspec.structs.replace(view.shape.select, skip=skip, limit=limit)
        bounds = bounds_of(select, view.order)
        if not view.operator.root.level.ordered.covers(bounds):
            return None
        view.shape.select = select
        try:
            view.operator.move_window(bounds, lambda operator: None)
            view.operator.step(lambda operator: None)
        except StateError:  # moved only in part: its unfinished patch is dropped, and the view changes no more
            view.operator.is_low = view.operator.is_short = True
            view.operator.end()
            return None
        ops = view.operator.ops
        view.operator.end()
        return ops


def _empty(table: TableRows) -> TableRows:
    """Return a table of the same kind without rows."""
    return PassingRows(tuple, table.name) if isinstance(table, PassingRows) else TableRows({}, table.name)


def _identity(select: Select, max_rows: int) -> tuple[int, str]:
    """Return a value that is equal for equal queries.

    It is not JSON, which cannot represent all values of a row of `start`.
    """
    return max_rows, repr(select)
