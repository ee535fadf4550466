"""The tables that live queries read: loaded into the engine whole, from a snapshot; the feed keeps their changes.

A table may be loaded several times: once as it is, and once for each function that admits some of its rows.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from eddy.errors import NotReadyError, QueryError
from eddy.operators.views.values import Flat, Row
from eddy.serve.live.feed import Feed
from eddy.serve.live.naming import Naming
from eddy.serve.views.catalog import Catalog, ServedTable
from eddy.serve.views.rows import Rows, Snapshot
from eddy.serve.views.version import Version
from eddy.topology.queries.engine import LiveQueries
from eddy.topology.queries.syntax import Table

__all__ = ["Deltas", "LoadedTables"]

Allowed = Callable[[Any, Any], object]
Deltas = dict[str, dict[Flat, Row | None]]


@dataclass(slots=True)
class _Filter:
    """Rows of a table that a function of key and value admits, and how many callers hold them."""

    table: str
    allowed: Allowed
    holders: int = 0


class LoadedTables:
    """The tables of an engine. `lock` is that of the live server; the caller holds it, but for `load` and filters.

    `loading` is held while a table is loaded, by one that needs several tables until it has opened its query.
    """

    def __init__(self, catalog: Catalog, rows: Rows, lock: threading.RLock) -> None:
        self._catalog, self._lock = catalog, lock
        self.loading = threading.Lock()
        self.engine = LiveQueries()
        self.feed = Feed(rows)
        self._namings: dict[str, Naming] = {}
        self._filters: dict[str, _Filter] = {}
        self._unused: set[str] = set()
        self._filter_number = 0

    def __contains__(self, name: str) -> bool:
        return name in self._namings

    def is_stale(self) -> bool:
        """Whether a table is read anew."""
        return bool(self.feed.stale & self._namings.keys())

    def served(self, name: str) -> ServedTable:
        """The served table by a name of queries. Raises: TableNotServedError."""
        return self._catalog.table(self._filters[name].table if name in self._filters else name)

    def filtered(self, table: str, allowed: Allowed) -> str:
        """The name of a table's rows that `allowed` of key and value admits. `unfiltered` lets go of it.

        Equal functions have one name; its rows are kept while a query reads them. Raises: TableNotServedError.
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
        """A caller of `filtered` opens no query over it any more."""
        with self._lock:
            self._filters[name].holders -= 1
            self._unused.add(name)

    def leave(self, names: Iterable[str]) -> None:
        """A query that read these has closed."""
        self._unused.update(self._filters.keys() & set(names))

    def tidy(self) -> None:
        """Forget filtered tables that no query reads, and no caller holds."""
        if not self._unused or not self.loading.acquire(blocking=False):
            return
        try:
            for name in self._unused & self._filters.keys():
                loaded = self.engine.tables.get(name)
                if self._filters[name].holders or (loaded is not None and loaded.dependents):
                    continue
                if name in self._namings:
                    self.unload(name)
                del self._filters[name]
            self._unused.clear()
        finally:
            self.loading.release()

    def load(self, table: Table) -> None:
        """Read a table whole, if it is not there. Raises: QueryError where queries name its key otherwise."""
        name = table.name
        with self._lock:
            known = self._namings.get(name)
            if known is not None and known.table == table:
                return
            if known is not None:
                self._unload_other(name, table)
        naming = Naming(self.served(name), table, self._filters[name].allowed if name in self._filters else None)
        try:
            rows = naming.rows(self._watch(name))
        except BaseException:
            self.feed.unwatch(name)
            raise
        with self._lock:
            self._namings[name] = naming
            self.engine.load(name, rows)

    def _watch(self, name: str) -> Snapshot:
        return self.feed.watch(name, self.served(name).name)

    def _unload_other(self, name: str, table: Table) -> None:
        try:
            self.unload(name)
        except QueryError as error:
            known = self._namings[name].table
            raise QueryError(
                f"table '{name}': an open query names its columns key={known.key!r}, value={known.value!r}, this one "
                f"key={table.key!r}, value={table.value!r}; the same names are needed, or close that query first"
            ) from error

    def unload(self, name: str) -> None:
        """Forget a table. Raises: QueryError while a query reads it."""
        self.engine.unload(name)
        del self._namings[name]
        self.feed.unwatch(name)

    def unload_all(self) -> None:
        """Begin with a new engine."""
        self.engine = LiveQueries()
        for name in self._namings:
            self.feed.unwatch(name)
        self._namings.clear()

    def take(self) -> tuple[Deltas, dict[str, QueryError], Version]:
        """The changes since the last time, of all tables at once, and those whose rows cannot be read."""
        deltas, failed = self._reload()
        changes, version = self.feed.take(self._namings.keys() - failed.keys())
        for name, rows in changes.items():
            try:
                deltas[name] = deltas.get(name, {}) | dict(self._namings[name].delta(rows.items()))
            except QueryError as error:
                deltas.pop(name, None)
                failed[name] = error
        return deltas, failed, version

    def _reload(self) -> tuple[Deltas, dict[str, QueryError]]:
        """Tables that were read anew, once they are whole: as the difference to the rows that were shown."""
        found: Deltas = {}
        failed: dict[str, QueryError] = {}
        for name in sorted(self.feed.stale & self._namings.keys()):
            try:
                rows = self._namings[name].rows(self._watch(name))
            except NotReadyError:
                self.feed.miss(name)
                break  # it is not whole yet, or is read anew once more
            except QueryError as error:
                failed[name] = error
                continue
            gone: dict[Flat, Row | None] = {key: None for key in self.engine.tables[name].rows if key not in rows}
            found[name] = {**gone, **rows}
        return found, failed

    def close(self) -> None:
        """Keep no changes any more."""
        self.feed.close()
