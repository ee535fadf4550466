"""Open tables: the tables of an application, read by a user's program, whole and at one version.

    with eddy.open_tables(topology, log) as tables:
        tables["descendants"].get("ada")
        with tables.snapshot(exact=True) as at:
            at.version, at["nodes"].get("ada"), at["descendants"].get("ada")

A separate thread reads the topics; any thread may read the tables, from memory or from the local store.
"""

import asyncio
import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eddy.connectors.log import Log, check_log
from eddy.errors import ConnectorError, EddyError, QueryError
from eddy.live.dataflow.action import Action
from eddy.live.query.explain import QueryPlan
from eddy.live.query.named import Queries
from eddy.live.query.planning import MAX_ROWS
from eddy.live.query.query import Query, R, checked_query
from eddy.live.server.live_server import LiveServer
from eddy.live.server.live_view import Checks, LiveView
from eddy.live.server.loading import TABLE_ROWS
from eddy.program.own_workers import own_workers, place_of
from eddy.state.memory import MemoryStore
from eddy.state.rocksdb import RocksDBStore
from eddy.state.spaces import Spaces
from eddy.tables.catalog import Catalog, catalog_of
from eddy.tables.open_table import OpenTable
from eddy.tables.read_arguments import check_wait
from eddy.tables.served_rows import RowsSnapshot, ServedRows
from eddy.tables.table_reader import TableReader
from eddy.tables.version import Version, Wanted, wanted_of
from eddy.topology.arguments import check_function, check_kind, check_number, check_whole, folder_of
from eddy.topology.topology import Topology, check_topology

__all__ = ["Tables", "TablesSnapshot", "open_tables"]

_log = logging.getLogger("eddy.tables")
_POLL_S, _PAUSE_S, _STOP_S = 0.2, 0.2, 10.0
_LOOK_S, _LOOK_AT_LEAST_S = 0.002, 0.1
"""The shortest and the longest pause between two checks of the version by a waiting coroutine, in seconds. The pauses
grow, so that hundreds of coroutines do not occupy a core.
"""


class TablesSnapshot:
    """All tables at one version, until the snapshot is closed. Old values of changed rows are kept in memory for it."""

    def __init__(self, catalog: Catalog, rows: RowsSnapshot) -> None:
        self._catalog, self._rows = catalog, rows

    @property
    def version(self) -> Version:
        """The version of all tables of the snapshot."""
        return self._rows.version

    def __getitem__(self, table: str) -> OpenTable:
        return OpenTable(self._catalog.table(table), self._rows)

    def close(self) -> None:
        """Free the old values that were kept for the snapshot."""
        self._rows.close()

    def __enter__(self) -> "TablesSnapshot":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Tables:
    """The tables of one application, made by `eddy.open_tables`. Any thread may use them.

    Args:
        topology: the application.
        log: the log with its topics; a separate client of it is opened.
        state_dir: a directory for the tables' rows, from which a restart continues, and for the rows that live queries
            have of large tables, which are removed at the end; None keeps the tables in memory.
        max_wait_s: seconds for which committed records wait for a cut; after that they are shown without a cut.
        cache_bytes: memory for blocks of the store on disk.
        queries: the named queries that clients may ask for.
        table_rows: the most rows of a table that live queries keep in memory; a larger table's rows are on disk.
        recent_bytes: the memory for the old rows of the last versions, which traces of changes since a version need.

    Raises: ConfigurationError if a user's topics do not exist; StateError; TopologyError.
    """

    def __init__(
        self,
        topology: Topology,
        log: Log,
        *,
        state_dir: str | Path | None = None,
        max_wait_s: float = 2.0,
        cache_bytes: int = 64 << 20,
        queries: Queries | None = None,
        table_rows: int = TABLE_ROWS,
        recent_bytes: int = 0,
    ) -> None:
        check_topology("open_tables", topology)
        check_log("open_tables", log)
        folder = folder_of("open_tables", state_dir=state_dir)
        check_number("open_tables", 0, optional=False, max_wait_s=max_wait_s)
        check_whole("open_tables", 1, optional=False, cache_bytes=cache_bytes)
        check_whole("open_tables", 0, optional=False, table_rows=table_rows)
        check_whole("open_tables", 0, optional=False, recent_bytes=recent_bytes)
        if queries is not None:
            check_kind("open_tables: queries", Queries, [queries], "Write queries = eddy.Queries()")
        self._table_rows = table_rows
        self.queries = queries or Queries()
        self._given, self._log = log, log.reopened()
        try:
            self.catalog = catalog_of(topology, self._log)
            store = (
                MemoryStore()
                if folder is None
                else RocksDBStore(folder / topology.name / "~views", topology.name, cache_bytes)
            )
            live_dir = None if folder is None else folder / topology.name / "~queries"
            try:
                self._spaces = Spaces(live_dir, topology.name, cache_bytes)
            except BaseException:
                store.close()
                raise
        except BaseException:
            self._close_log()
            raise
        self.rows = ServedRows(store, list(self.catalog.tables), recent_bytes)
        self.reader = TableReader(self.catalog, self._log, self.rows, max_wait_s=max_wait_s)
        self.last_error = ""
        self._application = topology.name
        self._unwatch: Callable[[], None] = lambda: None
        self._live: LiveServer | None = None
        self._live_lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"eddy-tables-{topology.name}", daemon=True)
        self._thread.start()
        if self._log.session_s == 0:  # all workers of the log are in one process, which may be this one
            self._unwatch = own_workers.watch(place_of(topology.name, log), self._worker_ended)

    def _worker_ended(self, error: BaseException | None) -> None:
        """Let reads and waits raise the error that ended this program's last worker; None if a worker runs again."""
        told = None
        if error is not None:
            told = QueryError(
                f"tables: the worker of '{self._application}' in this program has ended: {error}; one that "
                "runs is needed. Its stop(), or the end of its block, raises the error; then start another: eddy.run"
            )
            told.__cause__ = error
        self.rows.halt(told)
        with self._live_lock:
            if self._live is not None:
                self._live.wake()

    @contextmanager
    def log_client(self) -> Iterator[Log]:
        """Open another client of the log, for one thread, until the block ends."""
        log = self._given.reopened()
        try:
            yield log
        finally:
            if log is not self._given:
                log.close()

    def _close_log(self) -> None:
        if self._log is not self._given:
            self._log.close()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._step()
        except Exception as error:
            _log.error("reading tables has ended: %s", error)
            self.rows.fail(error if isinstance(error, EddyError) else QueryError(f"tables: {error!r}"))
        finally:
            self.reader.close()

    def _step(self) -> None:
        try:
            self.reader.step(_POLL_S)
        except ConnectorError as error:
            if str(error) != self.last_error:
                _log.warning("beginning again: %s", error)
            self.last_error = str(error)
            self._stop.wait(_PAUSE_S)
            return
        if self.reader.following:
            self.last_error = ""
        else:
            self._stop.wait(_PAUSE_S / 4)

    @property
    def version(self) -> Version:
        """The latest version."""
        return self.rows.version

    @property
    def names(self) -> list[str]:
        """The names of the tables that can be read."""
        return sorted(self.catalog.tables)

    @property
    def tables(self) -> list[str]:
        """Deprecated: use `names`."""
        warnings.warn("Tables.tables is called names", DeprecationWarning, stacklevel=2)
        return self.names

    def wanted(self, at_least: Any) -> Wanted:
        """Return the offsets that `at_least` asks for. Raises: QueryError."""
        topics = {table.topic: table.partitions for table in self.catalog.tables.values()}
        return wanted_of(at_least, self.catalog.inputs, topics)

    def wait(self, at_least: Any = None, *, exact: bool = False, timeout_s: float = 30.0) -> Version:
        """Wait until the tables are whole, at a version as late as `at_least` and, if `exact`, an exact one.

        `at_least` is a token or a version that was read. Or it gives, for topics, the offsets by partition up to which
        records have to be applied: for a record that was written, its offset plus one.
        Raises: NotReadyError after `timeout_s` seconds.
        """
        check_wait("wait", exact, timeout_s)
        what = f"{'an exact ' if exact else 'a '}version{' as late as asked for' if at_least is not None else ''}"
        return self.rows.wait(self._fits(at_least, exact), timeout_s, what)

    def _fits(self, at_least: Any, exact: bool) -> Callable[[Version], bool]:
        """Return a function that says whether a version is as late as `at_least` and, if `exact`, exact."""
        wanted = None if at_least is None else self.wanted(at_least)
        return lambda version: (version.exact or not exact) and (wanted is None or version.covers(wanted))

    async def wait_async(self, at_least: Any = None, *, exact: bool = False, timeout_s: float = 30.0) -> Version:
        """Wait as `wait` does, as a coroutine: other coroutines run meanwhile."""
        check_wait("wait_async", exact, timeout_s)
        fits, began = self._fits(at_least, exact), time.monotonic()
        while True:
            version = self.version
            ended = self.rows.failure or self.rows.halted
            if ended is None and not self.rows.hindrance and fits(version):
                return version
            waited = time.monotonic() - began
            if ended is not None or waited >= timeout_s:
                return self.wait(at_least, exact=exact, timeout_s=0)
            await asyncio.sleep(min(max(_LOOK_S, waited / 10), _LOOK_AT_LEAST_S))

    def __getitem__(self, table: str) -> OpenTable:
        """Return a table, each of whose reads is at the latest version. Raises: TableNotServedError."""
        return OpenTable(self.catalog.table(table), self.rows)

    def snapshot(self, at_least: Any = None, *, exact: bool = False, timeout_s: float = 30.0) -> TablesSnapshot:
        """Return all tables at one version, after a `wait` for it. Close the snapshot, or use it in a `with` block.

        Raises: NotReadyError after `timeout_s` seconds.
        """
        check_wait("snapshot", exact, timeout_s)
        fits, end = self._fits(at_least, exact), time.monotonic() + timeout_s
        while True:
            self.wait(at_least, exact=exact, timeout_s=max(0.0, end - time.monotonic()))
            made = TablesSnapshot(self.catalog, self.rows.snapshot())
            if fits(made.version):
                return made
            made.close()  # the version was replaced before the snapshot was made

    def versions(self, *, exact: bool = False, timeout_s: float = 30.0) -> Iterator[Version]:
        """Yield the present version, then each later version. A version that is replaced before it is read is skipped.

        Raises: NotReadyError if no version follows for `timeout_s` seconds.
        """
        check_wait("versions", exact, timeout_s)
        return self._versions(exact, timeout_s)

    def _versions(self, exact: bool, timeout_s: float) -> Iterator[Version]:
        number = -1

        def new(version: Version) -> bool:
            return version.number > number and (version.exact or not exact)

        while True:
            version = self.rows.wait(new, timeout_s, "a new version")
            number = version.number
            yield version

    def live(
        self,
        query: Query[R],
        *,
        max_rows: int = MAX_ROWS,
        actions: Callable[[list[Action], Version], object] | None = None,
        check_every: int | None = None,
    ) -> LiveView[R]:
        """Make a view of a query that is kept up to date; open it by `with` or `async with`: see `LiveView`.

        Args:
            query: the query.
            max_rows: the most rows of the view, with the rows of its nests; a larger view ends with an error.
            actions: a function that is called for each batch of changes, with the list of actions on the view (see
                `Action`) and the version.
            check_every: for tests: after every so many versions, the view's rows are compared with the answer from
                scratch. If they differ, the view ends with an error that names the first difference. None compares no
                rows.
        """
        checked = checked_query(query)
        if actions is not None:
            check_function("live", actions, "actions", "version", what="actions")
        return LiveView(self.live_server(), checked, max_rows, Checks(actions, check_every))

    def read(self, query: Query[R], *, max_rows: int = MAX_ROWS) -> R:
        """Return the result of a query, once. Raises: QueryError."""
        with self.live(query, max_rows=max_rows) as view:
            return view.rows

    def explain(self, query: Query, *, max_rows: int = MAX_ROWS) -> QueryPlan:
        """Return the plan by which a query is answered and kept up to date.

        This opens the query for a moment. Raises: QueryError, NotReadyError.
        """
        with self.live(query, max_rows=max_rows) as view:
            return view.explain()

    def live_server(self) -> LiveServer:
        """Return the server of live queries over these tables; the first call starts the server."""
        with self._live_lock:
            if self._live is None:
                self._live = LiveServer(self.catalog, self.rows, self.wanted, self._table_rows, self._spaces)
            return self._live

    @property
    def failure(self) -> Exception | None:
        """The error that has ended reading, or all live queries; None if no error has."""
        return self.rows.failure or (None if self._live is None else self._live.failure)

    def close(self) -> None:
        """Stop reading, and release the store. A second call does nothing."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._unwatch()
        if self._live is not None:
            self._live.stop()
        self._thread.join(_STOP_S)
        self.rows.close()
        self._close_log()

    def __enter__(self) -> "Tables":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> "Tables":
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.close)


def open_tables(
    topology: Topology,
    log: Log,
    *,
    state_dir: str | Path | None = None,
    max_wait_s: float = 2.0,
    cache_bytes: int = 64 << 20,
    queries: Queries | None = None,
    table_rows: int = TABLE_ROWS,
) -> Tables:
    """Open the tables of an application for reading. `Tables` explains the arguments.

    >>> import eddy
    >>> topology = eddy.Topology("names")
    >>> table = topology.table("names", key=eddy.String, value=eddy.String)
    >>> log = eddy.open_log()
    >>> eddy.create_topics(topology, log)
    ['names']
    >>> with eddy.run(topology, log), eddy.open_tables(topology, log) as tables:
    ...     tables.wait().exact, tables["names"].get("ada")
    (True, None)
    """
    return Tables(
        topology,
        log,
        state_dir=state_dir,
        max_wait_s=max_wait_s,
        cache_bytes=cache_bytes,
        queries=queries,
        table_rows=table_rows,
    )
