"""The live queries of a view server: one thread takes changes in as the tables move from version to version.

    reader of tables ─put─▶ Feed ─take─▶ deltas ─▶ LiveQueries ─▶ patches ─▶ each LiveView

A table is read whole when the first query needs it, from a snapshot, while its changes wait in the feed; others go on
meanwhile. Locks: `lock` first, then that of the rows. All views are at one version, that of the changes taken last.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

from eddy.errors import EddyError, NotReadyError, QueryError
from eddy.operators.views.action import Action
from eddy.operators.views.patch import Op
from eddy.operators.views.values import Flat, Row
from eddy.serve.live.check import check_answer
from eddy.serve.live.feed import Feed
from eddy.serve.live.naming import Naming, check_columns
from eddy.serve.live.view import LiveView
from eddy.serve.views.catalog import Catalog, ServedTable
from eddy.serve.views.rows import Rows, Snapshot
from eddy.serve.views.version import Version, Wanted
from eddy.topology.queries.aside import Aside, is_long
from eddy.topology.queries.columns_read import columns_read
from eddy.topology.queries.engine import LiveQueries
from eddy.topology.queries.explain import QueryPlan, explain
from eddy.topology.queries.planning import View, tables_of
from eddy.topology.queries.syntax import Select, Table

__all__ = ["LiveServer"]

Allowed = Callable[[Any, Any], object]
Deltas = dict[str, dict[Flat, Row | None]]
_log = logging.getLogger("eddy.live")


class Follower(Protocol):
    """Is told of versions, with the lock of the live server held."""

    def moved(self, version: Version, state: Any) -> None:
        """All views are of this version; "unknown" while tables are read anew."""

    def stopped(self) -> None:
        """No version will come any more."""


_LOOK_S = 0.5
_PATIENCE_S, _AGAIN_S = 30.0, 0.05


@dataclass(slots=True)
class _Filter:
    """Rows of a table that a function of key and value admits, and how many callers hold them."""

    table: str
    allowed: Allowed
    holders: int = 0


class LiveServer:
    """Live queries over the rows of a catalog's tables. Tables that a query has read stay loaded until it is closed."""

    def __init__(self, catalog: Catalog, rows: Rows, wanted: Callable[[Any], Wanted]) -> None:
        self._catalog, self._rows, self._wanted = catalog, rows, wanted
        self.lock = threading.RLock()
        self._moved = threading.Condition(self.lock)
        self._loading = threading.Lock()
        self._beginning = threading.Lock()  # held by a query that begins aside: equal ones wait, and share it
        self._engine = LiveQueries()
        self._feed = Feed(rows)
        self._namings: dict[str, Naming] = {}
        self._filters: dict[str, _Filter] = {}
        self._unused: set[str] = set()
        self._filter_number = 0
        self._followers: list[Follower] = []
        self._views: dict[LiveView, View] = {}
        self._lives: dict[View, dict[LiveView, None]] = {}
        self._checked: dict[LiveView, None] = {}
        self._state: Literal["unknown", "complete"] = "complete"
        self.version = rows.version
        self._stop = False
        self._failure: Exception | None = None
        self._publisher: int | None = None
        self._showing: LiveView | None = None
        self._thread = threading.Thread(target=self._run, name="eddy-live", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> Exception | None:
        """The error that has ended all queries, for good; None while they go on."""
        return self._failure

    def open(self, live: LiveView) -> None:
        """Load the tables that the query needs, and show its rows. Raises: QueryError, NotReadyError."""
        if self._publisher == threading.get_ident():
            raise QueryError("live query: a listener opens one; another thread is needed, as all queries wait for it")
        self.check()
        named = _tables_named(live.select)
        served = {table.name: self._served(table.name) for table in named}
        check_columns(live.select, served)
        end = time.monotonic() + _PATIENCE_S
        while True:
            self._rows.wait(lambda version: True, max(0.0, end - time.monotonic()), "a version")
            try:
                return self._open(live, named)
            except NotReadyError:  # a table has to be read anew, once its rows are whole
                self.check()
                if time.monotonic() >= end:
                    raise
                time.sleep(_AGAIN_S)

    def _open(self, live: LiveView, named: list[Table]) -> None:
        """The same, once. Raises: NotReadyError where a table was not whole, or has gone meanwhile."""
        if self._open_now(live, named, begin_long=False):
            return
        with self._beginning:
            self._open_now(live, named, begin_long=True)

    def _open_now(self, live: LiveView, named: list[Table], *, begin_long: bool) -> bool:
        """Open a query; one that takes long only if it may begin now. Returns whether it is open."""
        with self._loading:  # to the end: another query must not load a table under other names meanwhile
            for table in named:
                self._load(table)
            with self.lock:
                try:
                    self._take()
                except Exception as error:
                    self._break(error)
                self.check()
                if missing := [table.name for table in named if table.name not in self._namings]:
                    raise NotReadyError(f"live query: table '{missing[0]}' has to be read anew. Try again")
                if not is_long(self._engine, live.select):
                    view = self._engine.open(live.select, max_rows=live.max_rows)
                    live._fill(view.operator.snapshot())
                    self._begin(live, view, [])
                    return True
                if not begin_long:
                    return False
                aside = Aside(self._engine, live.select)
        self._open_aside(live, aside)
        return True

    def _open_aside(self, live: LiveView, aside: Aside) -> None:
        """Make the rows of a query without the lock, so that others go on meanwhile."""
        try:
            view = aside.open(live.max_rows)
            live._fill(view.operator.snapshot())
            with self.lock:
                self.check()
                self._begin(live, view, aside.join())
        finally:
            with self.lock:
                aside.close()

    def _begin(self, live: LiveView, view: View, ops: list[Op]) -> None:
        """From now on a view is kept up to date; `ops` are the last that lead to its rows. The caller has the lock."""
        if live.is_closed:
            self._engine.close(view)
            raise QueryError("live query: it was closed while it was opened; an open one is needed")
        live._begin(view, ops)
        self._follow(live, view)
        live.state = self._state
        self._recomputed(live)

    def close(self, live: LiveView) -> None:
        """Keep it up to date no more."""
        if live in self._views:
            self._engine.close(self._unfollow(live))
            self._unused |= tables_of(live.select) & self._filters.keys()

    def follow(self, follower: Follower) -> None:
        """Tell it of versions from now on. The caller holds the lock."""
        self._followers.append(follower)

    def filtered(self, table: str, allowed: Allowed) -> str:
        """The name of a table's rows that `allowed` of key and value admits. `unfiltered` lets go of it.

        Equal functions have one name; its rows are kept while a query reads them. Raises: TableNotServedError.
        """
        self._catalog.table(table)
        with self.lock:
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
        with self.lock:
            self._filters[name].holders -= 1
            self._unused.add(name)

    def _served(self, name: str) -> ServedTable:
        return self._catalog.table(self._filters[name].table if name in self._filters else name)

    def _tidy(self) -> None:
        """Forget filtered tables that no query reads, and no caller holds. The caller has the lock."""
        if not self._unused or not self._loading.acquire(blocking=False):
            return
        try:
            for name in self._unused & self._filters.keys():
                loaded = self._engine.tables.get(name)
                if self._filters[name].holders or (loaded is not None and loaded.dependents):
                    continue
                if name in self._namings:
                    self._engine.unload(name)
                    del self._namings[name]
                    self._feed.unwatch(name)
                del self._filters[name]
            self._unused.clear()
        finally:
            self._loading.release()

    def _follow(self, live: LiveView, view: View) -> None:
        """From now on it gets the patches of a view."""
        self._views[live] = live.view = view
        self._lives.setdefault(view, {})[live] = None
        if live.checks.every is not None:
            self._checked[live] = None

    def _recomputed(self, live: LiveView) -> None:
        """Its rows were computed from the tables. From now on its actions are kept, where they are asked for."""
        if live.checks.actions is not None:
            self._engine.log(self._views[live])
            self._call(live, live._act, [Action("recompute")], self.version)

    def _unfollow(self, live: LiveView) -> View:
        """It gets no more patches; returns the view that it had."""
        view = self._views.pop(live)
        self._checked.pop(live, None)
        lives = self._lives[view]
        del lives[live]
        if not lives:
            del self._lives[view]
        return view

    def check(self) -> None:
        """Raises: the error that ended all queries; NotReadyError once they were stopped."""
        failure = self._failure or self._rows.failure
        if failure is not None:
            raise failure.with_traceback(None)
        if self._stop:
            raise NotReadyError("live queries: the views were closed; open ones are needed")

    def _end(self, live: LiveView, error: Exception) -> None:
        """A query ends with an error: it is kept up to date no more."""
        live._fail(error)
        self.close(live)

    def move_window(self, live: LiveView, skip: int, limit: int | None) -> None:
        """Show other rows of a view; from then on it is no longer shared with equal queries."""
        if self._showing not in {None, live}:
            raise QueryError("window: the listener of another query moves it; its own one, or a thread, is needed")
        own = self._engine.open(self._views[live].shape.select, max_rows=live.max_rows, shared=False)
        self._engine.close(self._unfollow(live))
        self._follow(live, own)
        ops = self._engine.move_window(own, skip, limit)
        if own.operator.failure is not None:
            self._end(live, own.operator.failure)
        elif ops:
            self._show(live, ops, self.version)
        if live in self._views:
            self._recomputed(live)

    def explain(self, live: LiveView) -> QueryPlan:
        """The plan of an open view."""
        return explain(self._views[live])

    def wait(self, at_least: Any, exact: bool, timeout_s: float) -> Version:
        """Wait until all views are of a version. Raises: NotReadyError."""
        wanted = None if at_least is None else self._wanted(at_least)
        end = time.monotonic() + timeout_s

        def reached() -> bool:
            return (self.version.exact or not exact) and (wanted is None or self.version.covers(wanted))

        with self._moved:
            while not reached():
                self.check()
                if not self._moved.wait(max(0.0, end - time.monotonic())):
                    raise NotReadyError(f"live query: the version has not come within {timeout_s:g} s")
            return self.version

    def stop(self) -> None:
        """End all queries."""
        self._stop = True
        with self._rows.changed:
            self._rows.changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        with self.lock:
            self._moved.notify_all()
        for live in list(self._views):
            live.close()
        for follower in self._followers:
            follower.stopped()
        self._feed.close()

    def _run(self) -> None:
        try:
            while not self._stop:
                with self._rows.changed:
                    self._rows.changed.wait_for(self._is_due, _LOOK_S)
                if self._rows.failure is not None:
                    self._fail(self._rows.failure)
                    return
                with self.lock:
                    self._take()
        except Exception as error:
            self._break(error)

    def _break(self, error: Exception) -> None:
        """A batch that could not be applied to its end: all queries end."""
        _log.error("live queries have ended: %s", error)
        self._fail(error if isinstance(error, EddyError) else QueryError(f"live queries: {error!r}"))

    def _is_due(self) -> bool:
        """Whether there is a version that is not taken, or nothing to wait for. The caller holds the rows' lock."""
        return self._stop or self._rows.failure is not None or self._rows.version is not self.version

    def _fail(self, error: Exception, table: str | None = None) -> None:
        """End the queries that read a table, or all for good, with an error."""
        with self.lock:
            for live in list(self._views):
                if table is None:
                    live._fail(error)
                elif table in tables_of(live.select):
                    self._end(live, error)
            if table is None:  # perhaps in the middle of a batch: nothing of it is used again
                self._failure, self._engine = error, LiveQueries()
                self._views.clear()
                self._lives.clear()
                self._checked.clear()
                self._namings.clear()
            self._moved.notify_all()

    def _load(self, table: Table) -> None:
        """Read a table whole, if it is not there. Raises: QueryError where queries name its key otherwise."""
        name = table.name
        with self.lock:
            known = self._namings.get(name)
            if known is not None and known.table == table:
                return
            if known is not None:
                self._unload(name, table)
        naming = Naming(self._served(name), table, self._filters[name].allowed if name in self._filters else None)
        try:
            rows = naming.rows(self._watch(name))
        except BaseException:
            self._feed.unwatch(name)
            raise
        with self.lock:
            self._namings[name] = naming
            self._engine.load(name, rows)

    def _watch(self, name: str) -> Snapshot:
        return self._feed.watch(name, self._served(name).name)

    def _unload(self, name: str, table: Table) -> None:
        try:
            self._engine.unload(name)
        except QueryError as error:
            known = self._namings[name].table
            raise QueryError(
                f"table '{name}': an open query names its columns key={known.key!r}, value={known.value!r}, this one "
                f"key={table.key!r}, value={table.value!r}; the same names are needed, or close that query first"
            ) from error
        del self._namings[name]
        self._feed.unwatch(name)

    def _reload(self) -> Deltas:
        """Tables that were read anew, once they are whole: as the difference to the rows that were shown."""
        stale = self._feed.stale & self._namings.keys()
        found: Deltas = {}
        for name in sorted(stale):
            try:
                rows = self._namings[name].rows(self._watch(name))
            except NotReadyError:
                self._feed.miss(name)
                break  # it is not whole yet, or is read anew once more
            except QueryError as error:
                self._forget(name, error)
                continue
            gone: dict[Flat, Row | None] = {key: None for key in self._engine.tables[name].rows if key not in rows}
            found[name] = {**gone, **rows}
        return found

    def _forget(self, name: str, error: QueryError) -> None:
        """A table whose rows cannot be read: its queries end, and the next one reads it anew."""
        self._fail(error, name)
        self._engine.unload(name)
        del self._namings[name]
        self._feed.unwatch(name)

    def _take(self) -> None:
        """Apply all changes since the last time, of all tables at once: those that were read anew too."""
        deltas = self._reload()
        changes, version = self._feed.take(self._namings)
        for name, rows in changes.items():
            try:
                deltas[name] = deltas.get(name, {}) | dict(self._namings[name].delta(rows.items()))
            except QueryError as error:
                deltas.pop(name, None)
                self._forget(name, error)
        state = self._state
        self._state = "unknown" if self._feed.stale & self._namings.keys() else "complete"
        self._publish(deltas, version)
        self._check_answers()
        if state != self._state:
            for live in self._views:
                live.state = self._state
        for follower in self._followers:
            follower.moved(version, self._state)
        self._tidy()

    def _publish(self, deltas: Deltas, version: Version) -> None:
        found = self._engine.apply(deltas) if deltas else []
        self.version = version
        for view, ops in found:
            for live in list(self._lives.get(view, ())):
                if self._views.get(live) is not view:  # a listener has closed it, or moved its window
                    continue
                if view.operator.failure is not None:
                    self._end(live, view.operator.failure)
                else:
                    self._show(live, ops, version)
        self._moved.notify_all()
        if deltas:
            self._tell_actions(version)

    def _tell_actions(self, version: Version) -> None:
        """Tell the actions of a batch to those that asked for them."""
        for view, actions in self._engine.actions.items():
            for live in list(self._lives.get(view, ())):
                if self._views.get(live) is view:
                    self._call(live, live._act, actions, version)

    def _check_answers(self) -> None:
        """Compare rows with the answer from scratch, where that is asked for and due. One that differs ends."""
        for live in list(self._checked):
            live.versions += 1
            if live.checks.every is not None and live.versions % live.checks.every == 0:
                try:
                    check_answer(live._plain_rows(), self._views[live].shape.select, self._engine.tables, self.version)
                except QueryError as error:
                    _log.error("live query: %s", error)
                    self._end(live, error)

    def _show(self, live: LiveView, ops: list[Op], version: Version) -> None:
        """Give a view its patch."""
        self._call(live, live._take, ops, version)

    def _call(self, live: LiveView, function: Callable[[Any, Version], None], found: Any, version: Version) -> None:
        """Call listeners of a view. One whose listener fails ends."""
        outer = self._publisher, self._showing
        self._publisher, self._showing = threading.get_ident(), live
        try:
            function(found, version)
        except Exception as error:
            _log.error("live query: it has ended, and others go on", exc_info=error)
            live._fail(
                error if isinstance(error, EddyError) else QueryError(f"live query: its patch failed: {error!r}")
            )
        finally:
            self._publisher, self._showing = outer
        if live.error is not None:
            self.close(live)


def _tables_named(select: Select) -> list[Table]:
    """The tables of a query, each once. Raises: QueryError for one that is named in two ways."""
    found = sorted(columns_read(select), key=lambda table: table.name)
    for one, two in pairwise(found):
        if one.name == two.name:
            raise QueryError(f"table '{one.name}': it is named by key={one.key!r} and key={two.key!r}; one is needed")
    return found
