"""Loads the tables of live queries into the engine: each as a whole, from a snapshot.

Later changes of the tables are in `TableChanges`.

The rows of a large table are loaded onto the disk, into the queries' own spaces. The queries cannot read the table
server's store, because it is at a later version than the queries, and has no former rows.

A table may be loaded several times: once with all rows, and once for each function that allows some of them. A table
that has grown too large for memory is loaded onto the disk as well. Its queries are opened anew over the rows on disk,
and are kept up to date over the rows in memory until then.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from eddy.errors import NotReadyError, QueryError
from eddy.live.dataflow.stored_map import StoredMap
from eddy.live.dataflow.values import Flat, Row
from eddy.live.query.columns_read import columns_read
from eddy.live.query.engine import LiveQueries
from eddy.live.query.long_opening import Scan
from eddy.live.query.planning import PlannedView, bounds_of, is_window, selects_of, tables_of
from eddy.live.query.renaming import renamed
from eddy.live.query.syntax import QueriedTable, Select
from eddy.live.server.changes import TableChanges
from eddy.live.server.naming import Naming, check_columns
from eddy.live.server.rows_apart import RowsApart
from eddy.state.spaces import Spaces
from eddy.tables.catalog import Catalog, ServedTable
from eddy.tables.served_rows import RowsSnapshot, ServedRows
from eddy.tables.version import Version

__all__ = ["LARGE_ROWS", "MANY_WINDOWS", "TABLE_ROWS", "Deltas", "LoadedTables", "StoredTableLostError"]

Allowed = Callable[[Any, Any], object]
Deltas = dict[str, dict[Flat, Row | None]]


class StoredTableLostError(Exception):
    """A table that queries have on disk is read anew, and the changes of its rows are not known."""


TABLE_ROWS = 1_000_000
"""The most rows of a table in memory; the rows of a larger table are on disk."""
LARGE_ROWS, MANY_WINDOWS = 100_000, 8
"""A table with at least this many rows is not loaded for a window, unless this number of different windows of the
table are open already.
"""
_PASSING, _STORED = "~", "^"
"""The suffixes of the names of tables whose rows are not in memory, and of tables that outgrew memory."""


def _base(name: str) -> str:
    """Return the name of a table without the suffix that says how the table is loaded."""
    return name.removesuffix(_PASSING).removesuffix(_STORED)


def _unread() -> Iterator[tuple[Flat, Row]]:
    """Raise NotReadyError: only the scans of a `LongOpening` read the rows of a passing table."""
    raise NotReadyError("live query: its rows have to be read from the table. Try again")


class _TableScan:
    """The rows of a table at a snapshot."""

    def __init__(self, naming: Naming, snapshot: RowsSnapshot) -> None:
        self._naming, self._snapshot = naming, snapshot

    def rows(self) -> Iterator[tuple[Flat, Row]]:
        """Return the rows by key, read page by page. Raises: NotReadyError, QueryError."""
        return self._naming.rows(self._snapshot)

    def close(self) -> None:
        """Free the snapshot."""
        self._snapshot.close()


@dataclass(slots=True)
class _Filter:
    """A function of key and value that allows some rows of a table, and the number of callers that use it."""

    table: str
    allowed: Allowed
    holders: int = 0


class LoadedTables:
    """The tables of an engine. `lock` is the live server's lock; the caller holds it, except for `load` and filters.

    `loading` is held while tables are loaded, until the query that needs them is open.
    """

    def __init__(
        self, catalog: Catalog, rows: ServedRows, lock: threading.RLock, most_rows: int, spaces: Spaces
    ) -> None:
        self._catalog, self._rows, self._lock = catalog, rows, lock
        self.most_rows, self._spaces = most_rows, spaces
        self.renewed: list[PlannedView] = []
        """Views that have to be opened anew, since the last time that the list was emptied."""
        self.loading = threading.Lock()
        self.engine = LiveQueries()
        self.feed = TableChanges(rows)
        self._namings: dict[str, Naming] = {}
        self._filters: dict[str, _Filter] = {}
        self._unused: set[str] = set()
        self._outgrown: set[str] = set()  # tables in memory that have too many rows
        self._filter_number = 0

    def check(self, select: Select) -> None:
        """Raise QueryError for columns that a table cannot have, and TableNotServedError for an unknown table."""
        check_columns(select, {each.name: self.served(each.name) for each in _tables_named(select)})

    def still_chosen(self, chosen: Select, select: Select, *, may_pass: bool) -> Select:
        """Return the query `chosen`, whose tables were loaded meanwhile, with the present window of `select`.

        Raises: NotReadyError if a table is not loaded any more, or the window needs other tables; QueryError.
        """
        found = chosen
        if (select.skip, select.limit) != (chosen.skip, chosen.limit):
            found = self.chosen(select, may_pass=may_pass)
            if tables_of(found) != tables_of(chosen):
                raise NotReadyError("live query: its window was moved meanwhile. Try again")
        if missing := tables_of(found) - self._namings.keys():
            raise NotReadyError(f"live query: table '{min(missing)}' has to be read anew. Try again")
        return found

    def load_all(self, select: Select) -> None:
        """Load the tables of a query. Raises: QueryError, NotReadyError."""
        for table in _tables_named(select):
            self.load(table)

    def is_stale(self) -> bool:
        """Whether some table is being read anew."""
        return bool(self.feed.stale & self._namings.keys())

    def served(self, name: str) -> ServedTable:
        """Return the served table that a name in a query stands for. Raises: TableNotServedError."""
        return self._catalog.table(self.served_name(name))

    def served_name(self, name: str) -> str:
        """Return the name of the served table that a name in a query stands for. `filtered` may have made the name."""
        name = _base(name)
        return self._filters[name].table if name in self._filters else name

    def hides_rows(self, name: str) -> bool:
        """Return whether the table under this name has only some rows of the served table."""
        found = self._filters.get(_base(name))
        return found is not None and not (isinstance(found.allowed, RowsApart) and found.allowed.allowed is None)

    def filtered(self, table: str, allowed: Allowed) -> str:
        """Return a name for the rows of a table for which `allowed(key, value)` is true.

        `unfiltered` releases the name. Equal functions get the same name. Its rows are kept while a query reads them.
        Raises: TableNotServedError.
        """
        self._catalog.table(table)
        with self._lock:
            for name, known in self._filters.items():
                if known.table == table and known.allowed == allowed:
                    known.holders += 1
                    return name
            self._filter_number += 1
            name = f"{table}@{self._filter_number}"
            self._filters[name] = _Filter(table, allowed, 1)
            return name

    def unfiltered(self, name: str) -> None:
        """Release a name that `filtered` has returned, once for each call. The caller opens no more queries over it."""
        with self._lock:
            self._filters[name].holders -= 1
            self._unused.add(name)

    def leave(self, names: Iterable[str]) -> None:
        """Note that a query over these tables was closed, or could not be opened."""
        self._unused.update(
            name
            for name in names
            if name.endswith(_PASSING)
            or name in self._outgrown
            or _base(name) in self._filters
            or (name.endswith(_STORED) and self._row_count(name) <= self.most_rows)  # it is on disk for a window
        )

    def tidy(self) -> None:
        """Unload tables that were loaded for few queries, once no query reads them and no caller holds them."""
        if not self._unused or not self.loading.acquire(blocking=False):
            return
        try:
            tables = self.engine.tables
            # Tables over which a query is being opened.
            begins = {name for name in self._unused if name in tables and tables[name].journals}
            # Names in descending order: a table of passing rows before its filter.
            for name in sorted(self._unused - begins, reverse=True):
                self._tidy_one(name)
            self._unused = begins
        finally:
            self.loading.release()

    def _tidy_one(self, name: str) -> None:
        loaded, known = self.engine.tables.get(name), self._filters.get(name)
        if loaded is not None and loaded.dependents:
            return
        is_filter = known is not None and (known.holders or {name + _PASSING, name + _STORED} & self._namings.keys())
        if is_filter and name not in self._outgrown:
            return  # the filter is still in use; it is checked again when its tables are unloaded
        if name in self._namings:
            self.unload(name)
        if not is_filter:
            self._filters.pop(name, None)
        if _base(name) != name and _base(name) in self._filters:
            self._tidy_one(_base(name))

    def load(self, table: QueriedTable) -> None:
        """Read a table whole, if it is not loaded. Raises: QueryError if open queries have other names for its key."""
        name = table.name
        with self._lock:
            if self._is_loaded(table):
                return
            if name.endswith(_PASSING):
                self._load_passing(table)
                return
            engine = self.engine
        naming = self._naming(table)
        try:
            # The iterator of rows closes the snapshot only once it was started.
            with closing(self._watch(name)) as snapshot:
                found = naming.rows(snapshot)
                is_large = name.endswith(_STORED) or self._row_count(name) > self.most_rows
                stored = self._stored(found) if is_large else None
                rows = {} if stored is not None else dict(found)
        except BaseException:
            self.feed.unwatch(name)
            raise
        with self._lock:
            if stored is not None and engine is not self.engine:  # its space was removed with the former engine
                self.feed.unwatch(name)
                raise NotReadyError(f"live query: table '{name}' has to be read anew. Try again")
            self._namings[name] = naming
            if stored is None:
                self.engine.load(name, rows)
            else:
                self.engine.load_stored(name, stored, self._spaces, _base(name), self.most_rows)

    def _stored(self, rows: Iterable[tuple[Flat, Row]]) -> StoredMap[Row]:
        """Return rows on disk. Raises: StateError."""
        made: StoredMap[Row] = StoredMap(self._spaces.make())
        try:
            made.fill(rows)
        except BaseException:
            made.close()
            raise
        return made

    def _row_count(self, name: str) -> int:
        """Return the number of rows of the table server's table. The table under this name may have fewer."""
        return self._rows.counts[self.served(name).name]

    def is_stored(self, name: str) -> bool:
        """Whether a table is loaded, and on disk."""
        return name in self._namings and self.engine.tables[name].spaces is not None

    def _naming(self, table: QueriedTable) -> Naming:
        known = self._filters.get(_base(table.name))
        return Naming(self.served(table.name), table, None if known is None else known.allowed)

    def chosen(self, select: Select, *, may_pass: bool) -> Select:
        """Return the query, with the names of its tables replaced by the names under which they are loaded.

        With `may_pass` a small window reads a large table as a passing table, whose rows are not loaded. A table that
        has grown too large for memory is read on disk.

        Raises: QueryError for a window that skips more than `most_rows` rows of a table that is on disk.
        """
        with self._lock:
            name = select.table.name
            outgrown = {each for each in tables_of(select) if each in self._outgrown or each + _STORED in self._namings}
            names = {each: each + _STORED for each in outgrown}
            may_pass = may_pass and (name not in self._namings or self.is_stored(name) or name in self._outgrown)
            if may_pass and self._is_small_window(select):
                passing = renamed(select, {**names, name: name + _PASSING})
                kept = renamed(select, {**names, name: self._stored_name(name)})
                if self._needs_order(passing, kept):
                    return kept
                if self._prefers_passing(name, passing):
                    return passing
            for each in selects_of(select):
                self._check_skip(each)
            return renamed(select, names) if names else select

    def _check_skip(self, select: Select) -> None:
        """Raise QueryError if a window skips too many rows of a table on disk: their positions would be in memory."""
        name = select.table.name
        is_loaded = name in self._namings and name not in self._outgrown
        is_on_disk = self.is_stored(name) or (not is_loaded and self._row_count(name) > self.most_rows)
        if is_on_disk and select.skip > self.most_rows:
            raise QueryError(
                f"table '{name}': its {self._row_count(name):,} rows are on disk, and a skip of {select.skip:,} "
                f"has to keep their places in memory; at most {self.most_rows:,} (table_rows) are kept. Write a "
                "start instead of the skip, or raise table_rows"
            )

    def _stored_name(self, name: str) -> str:
        """Return the name under which a table is on disk, or would be if it were loaded there."""
        return name if self.is_stored(name) else name + _STORED

    def _needs_order(self, passing: Select, kept: Select) -> bool:
        """Whether a window is to be opened over a `KeptOrder` instead of first rows.

        It is if no first rows suffice for the window, and the kept order exists or other windows have first rows in
        this order: otherwise such windows would read the table again and again.
        """
        known = self.engine.first_rows(passing)
        if any(each.is_shared and each.covers(bounds_of(passing, each.position)) for each in known):
            return False
        is_begun = kept.table.name in self._namings and self.engine.has_begun(kept, with_spent=True)
        return is_begun or any(not each.is_lost for each in known)

    def _is_small_window(self, select: Select) -> bool:
        """Return whether a query is a window that needs at most `most_rows` rows, with the rows that it skips."""
        return is_window(select) and select.skip + (select.bound or 0) <= self.most_rows

    def _prefers_passing(self, name: str, passing: Select) -> bool:
        count = self._row_count(name)
        if count > self.most_rows or count < LARGE_ROWS:
            return count > self.most_rows
        known = self.engine.tables.get(name + _PASSING)
        return known is None or len(known.dependents) < MANY_WINDOWS or self.engine.has_begun(passing)

    def _load_passing(self, table: QueriedTable) -> None:
        """Add a passing table. The caller holds the lock. Raises: QueryError, NotReadyError."""
        name, naming = table.name, self._naming(table)
        self._watch(name).close()
        self._namings[name] = naming
        self.engine.load_passing(name, _unread, _base(name))

    def scans(self, select: Select) -> dict[str, Scan]:
        """Return, by name, a scan of the present rows of each passing table. Raises: NotReadyError."""
        return {
            name: _TableScan(self._namings[name], self._rows.snapshot())
            for name in tables_of(select)
            if name.endswith(_PASSING)
        }

    def _watch(self, name: str) -> RowsSnapshot:
        return self.feed.watch(name, self.served(name).name)

    def _is_loaded(self, table: QueriedTable) -> bool:
        """Whether a table is loaded.

        A table that was loaded with other names of its columns is unloaded. Raises: QueryError if open queries use it.
        """
        name = table.name
        if name not in self._namings:
            return False
        known = self._namings[name].table
        if known == table:
            return True
        try:
            self.unload(name)
        except QueryError as error:
            raise QueryError(
                f"table '{name}': an open query names its columns key={known.key!r}, value={known.value!r}, this one "
                f"key={table.key!r}, value={table.value!r}; the same names are needed, or close that query first"
            ) from error
        return False

    def unload(self, name: str) -> None:
        """Unload a table. Raises: QueryError while a query reads it."""
        self.engine.unload(name)
        self._outgrown.discard(name)
        del self._namings[name]
        self.feed.unwatch(name)

    def unload_all(self) -> None:
        """Replace the engine by an empty one."""
        self.engine = LiveQueries()
        self._spaces.clear()
        self.renewed = []
        self._outgrown.clear()
        for name in self._namings:
            self.feed.unwatch(name)
        self._namings.clear()

    def take(self) -> tuple[Deltas, dict[str, QueryError], Version]:
        """Return the changes of all tables since the last call, the errors of tables, and the version.

        A table has an error, by its name, if its rows cannot be read.

        Raises: StoredTableLostError.
        """
        for name in sorted(self.feed.stale & self._namings.keys()):
            if self.is_stored(name):
                raise StoredTableLostError(f"table '{name}', which is on disk for them, is read anew")
        self._outgrow()
        self._watch_again()
        deltas, failed = self._reload()
        changes, version = self.feed.take(self._namings.keys() - failed.keys())
        for name, rows in changes.items():
            try:
                deltas[name] = deltas.get(name, {}) | dict(self._namings[name].delta(rows.items()))
            except QueryError as error:
                deltas.pop(name, None)
                failed[name] = error
        return deltas, failed, version

    def _outgrow(self) -> None:
        """Find the tables that have too many rows for memory, and add the views that read them to `renewed`."""
        for name, table in self.engine.tables.items():
            if table.spaces is None and len(table.rows) > self.most_rows and name not in self._outgrown:
                self._outgrown.add(name)
                self._unused.add(name)
        if self._outgrown:
            self.renewed += self.engine.reading(self._outgrown)

    def _watch_again(self) -> None:
        """Follow again the passing tables that were read anew and are complete. Adds their views to `renewed`."""
        for name in sorted(self.feed.stale & self._namings.keys()):
            if name.endswith(_PASSING):
                try:
                    self._watch(name).close()
                except NotReadyError:
                    self.feed.miss(name)
                    return
                self.renewed += self.engine.exhaust(name)

    def _reload(self) -> tuple[Deltas, dict[str, QueryError]]:
        """Return the deltas of the tables that were read anew and are complete, and the errors of tables, by table."""
        found: Deltas = {}
        failed: dict[str, QueryError] = {}
        for name in sorted(self.feed.stale & self._namings.keys()):
            if name.endswith(_PASSING):
                continue
            try:
                rows = dict(self._namings[name].rows(self._watch(name)))
            except NotReadyError:
                self.feed.miss(name)
                break  # the table is not whole yet, or is read anew once more
            except QueryError as error:
                failed[name] = error
                continue
            gone: dict[Flat, Row | None] = {key: None for key in self.engine.tables[name].rows if key not in rows}
            found[name] = {**gone, **rows}
        return found, failed

    def close(self) -> None:
        """Stop keeping changes, and remove all rows on disk."""
        self.feed.close()
        self._spaces.clear()


def _tables_named(select: Select) -> list[QueriedTable]:
    """Return the tables of a query, each once. Raises: QueryError for a table that the query describes in two ways."""
    found = sorted(columns_read(select), key=lambda table: table.name)
    for one, two in pairwise(found):
        if one.name == two.name:
            raise QueryError(f"table '{one.name}': it is named by key={one.key!r} and key={two.key!r}; one is needed")
    return found
