"""Opens a query while other queries are updated: its operators are made over copies of tables.

    opening = LongOpening(engine, select) with the lock: copies the tables' rows, and begins a journal of their changes
    opening.open(max_rows)               without the lock: makes filters, sorted tables, buckets
    opening.join(skip, limit)            with the lock: applies the journal as one batch, moves the window, hands over

While the query is opened, other queries do not share its operators. The engine does not change before `join`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from eddy.errors import NotReadyError
from eddy.live.dataflow.dataflow import QueryOperator, TableRows
from eddy.live.dataflow.first_rows import PassingRows
from eddy.live.dataflow.patch import Op
from eddy.live.dataflow.values import Flat, Row
from eddy.live.query.engine import LiveQueries
from eddy.live.query.planning import PlannedView, tables_of
from eddy.live.query.syntax import Select

__all__ = ["LONG_ROWS", "LongOpening", "is_long"]

LONG_ROWS = 20_000
"""A query over at least this many rows in its tables is opened by a `LongOpening`."""


def is_long(engine: LiveQueries, select: Select) -> bool:
    """Return whether operators have to be made over many rows to open a query."""
    tables = [engine.tables[name] for name in tables_of(select)]
    is_passing = any(isinstance(table, PassingRows) for table in tables)
    return (is_passing or sum(len(table.rows) for table in tables) >= LONG_ROWS) and not engine.has_begun(select)


class Scan(Protocol):
    """Reads the rows of a table that is not in memory, once."""

    def rows(self) -> Iterator[tuple[Flat, Row]]:
        """Return the rows by key."""

    def close(self) -> None:
        """Read no more."""


class LongOpening:
    """The opening of one query. The caller closes it in the end, with the lock held."""

    def __init__(self, engine: LiveQueries, select: Select, scans: "Mapping[str, Scan] | None" = None) -> None:
        """`scans` read the rows of passing tables, at any version from now until `join`."""
        self._main, self._select = engine, select
        self._tables = {name: engine.tables[name] for name in sorted(tables_of(select))}
        self._journals: dict[str, dict[Flat, Row | None]] = {name: {} for name in self._tables}
        self._scans = scans or {}
        self._losses = {name: _losses(table) for name, table in self._tables.items()}
        self._own = LiveQueries()
        self._view: PlannedView | None = None
        for name, table in self._tables.items():
            if isinstance(table, PassingRows):
                self._own.load_passing(name, self._scans[name].rows, table.name)
            elif table.spaces is not None:
                self._own.load_stored(name, table.stored.snapshot(), table.spaces, table.name, table.most_positions)
            else:
                self._own.load(name, dict(table.rows))
        for name, table in self._tables.items():
            table.journals.append(self._journals[name])

    @property
    def tables(self) -> Iterable[str]:
        """The names of the tables that it reads."""
        return self._tables

    @property
    def engine(self) -> LiveQueries:
        """The engine that the view is for."""
        return self._main

    def open(self, max_rows: int) -> PlannedView:
        """Make the operators. Raises: QueryError."""
        self._view = self.view = self._own.open(self._select, max_rows=max_rows)
        return self.view

    def join(self, skip: int, limit: int | None) -> list[list[Op]]:
        """Hand the view to the engine, which keeps it up to date from now on.

        Returns two patches, to be applied in this order: the changes of the tables since the opening began, and the
        move of the window.

        `skip` and `limit` are the query's window as it is now: its reader may have moved it since the opening began.

        Raises: NotReadyError if a table was read anew, or too few rows are kept for its window; QueryError if the view
        has too many rows.
        """
        for name, table in self._tables.items():
            if self._main.tables.get(name) is not table or _losses(table) != self._losses[name]:
                raise NotReadyError(f"live query: table '{name}' has to be read anew. Try again")
        changed = dict(self._own.apply({name: journal for name, journal in self._journals.items() if journal}))
        if self.view.operator.is_short:
            raise NotReadyError("live query: too many of its rows were removed meanwhile. Try again")
        patches = [changed.get(self.view, []), self._moved(skip, limit)]
        if self.view.operator.failure is not None:
            raise self.view.operator.failure
        found: dict[QueryOperator, QueryOperator] = {
            self._own.tables[name]: table for name, table in self._tables.items()
        }
        self._main.adopt(self._own, self.view, found)
        self._view = None
        return patches

    def _moved(self, skip: int, limit: int | None) -> list[Op]:
        """Return the patch that moves the window from its position at the opening to its present one.

        Raises: NotReadyError.
        """
        view, begun = self.view, self._select
        if (begun.skip, begun.limit) == (skip, limit) or view.operator.failure is not None:
            return []
        ops = self._own.move_window(self._own.unshared(view), skip, limit)
        if ops is None:
            raise NotReadyError("live query: its window was moved meanwhile to rows that are not kept. Try again")
        return ops

    def close(self) -> None:
        """End the journals and scans, and remove the copies."""
        for name, table in self._tables.items():
            table.journals = [journal for journal in table.journals if journal is not self._journals[name]]
        for scan in self._scans.values():
            scan.close()
        if self._view is not None:  # the view was not handed to the engine
            self._own.close(self._view)
        for table in self._own.tables.values():
            table.discard()


def _losses(table: TableRows) -> int:
    """Return how often the journal of a table has missed changes."""
    return table.losses if isinstance(table, PassingRows) else 0
