"""The live queries of a table server: one thread applies the changes of each version of the tables.

    reader of tables ─put─▶ TableChanges ─take─▶ deltas ─▶ LiveQueries ─▶ patches ─▶ each LiveView

A table is read whole, from a snapshot, when the first query needs it. Its changes wait in `TableChanges` until then;
other queries are updated. Locks: `lock` first, then the rows' lock. All views are at the version of the last changes
that were taken.

If a batch fails before its end, all operators are dropped: all queries are opened anew over the present tables, and
their readers get the difference.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

from msgspec.structs import replace

from eddy.errors import NotReadyError, QueryError, StateError
from eddy.live.dataflow.action import Action
from eddy.live.dataflow.patch import Buckets, Op
from eddy.live.query.engine import LiveQueries
from eddy.live.query.explain import QueryPlan, explain
from eddy.live.query.long_opening import LongOpening, is_long
from eddy.live.query.planning import PlannedView, tables_of
from eddy.live.query.syntax import Select
from eddy.live.server.check import check_answer
from eddy.live.server.difference import difference
from eddy.live.server.live_view import LiveView
from eddy.live.server.loading import TABLE_ROWS, Deltas, LoadedTables, StoredTableLostError
from eddy.live.server.readers import Readers, as_shown
from eddy.live.server.renewals import Renewals, Restarts
from eddy.live.server.version_follower import VersionFollower
from eddy.state.spaces import Spaces
from eddy.tables.catalog import Catalog
from eddy.tables.served_rows import ServedRows
from eddy.tables.version import Version, Wanted

__all__ = ["AT_ONCE_ROWS", "LiveServer"]

_log = logging.getLogger("eddy.live")

_LOOK_S = 0.5
_PATIENCE_S, _AGAIN_S = 30.0, 0.05
AT_ONCE_ROWS = 20_000
"""The most rows of a view that is opened while other queries wait; a larger view is opened without the lock."""
_ANEW = "live query: all queries were opened anew meanwhile. Try again"
_RESTARTS, _WITHIN_S = 3, 600.0
"""After an unexpected error all queries are opened anew, at most this number of times in this number of seconds."""


class LiveServer:
    """Live queries over the rows of a catalog's tables. While a query is open, its tables are loaded."""

    def __init__(
        self,
        catalog: Catalog,
        rows: ServedRows,
        wanted: Callable[[Any], Wanted],
        table_rows: int = TABLE_ROWS,
        spaces: Spaces | None = None,
    ) -> None:
        """Tables of more than `table_rows` rows are kept in `spaces`, not in memory."""
        self._rows, self._wanted = rows, wanted
        self.lock = threading.RLock()
        self._version_changed = threading.Condition(self.lock)
        # Held by a query that is opened without `lock`: equal queries wait, and share its view.
        self._beginning = threading.Lock()
        self.tables = LoadedTables(catalog, rows, self.lock, table_rows, Spaces() if spaces is None else spaces)
        self._followers: list[VersionFollower] = []
        self._readers = Readers(ended=self.close)
        self._state: Literal["unknown", "complete"] = "complete"
        self.version = rows.version
        self._stop = False
        self._failure: Exception | None = None
        self.restarts = Restarts(_RESTARTS, _WITHIN_S)
        self._renewals = Renewals(self.lock, self._renew)
        self._thread = threading.Thread(target=self._run, name="eddy-live", daemon=True)
        self._thread.start()

    @property
    def _engine(self) -> LiveQueries:
        return self.tables.engine

    @property
    def state(self) -> Literal["unknown", "complete"]:
        """ "complete" if all views are at `version`; "unknown" while some rows are read or computed anew."""
        return self._state

    @property
    def failure(self) -> Exception | None:
        """The error that has ended all queries for good; None if there is none."""
        return self._failure

    def open(self, live: LiveView) -> None:
        """Load the tables that the query needs, and show its rows. Raises: QueryError, NotReadyError."""
        if self._readers.in_listener:
            raise QueryError("live query: a listener opens one; another thread is needed, as all queries wait for it")
        self.check()
        self.tables.check(live.select)
        end = time.monotonic() + _PATIENCE_S
        while True:
            self._rows.wait(lambda version: True, max(0.0, end - time.monotonic()), "a version")
            try:
                return self._open(live)
            except NotReadyError:  # a table has to be read anew when it is whole
                self.check()
                if time.monotonic() >= end:
                    raise
                time.sleep(_AGAIN_S)

    def _open(self, live: LiveView) -> None:
        """Try once to open a query. Raises: NotReadyError if a table is not complete, or was unloaded meanwhile."""
        engine = self._engine
        try:
            if not self._open_now(live, begin_long=False):
                with self._beginning:
                    self._open_now(live, begin_long=True)
        except StateError as error:
            with self.lock:
                self.check()
                if engine is not self._engine:
                    raise NotReadyError(_ANEW) from error
            raise QueryError(f"live query: its rows cannot be kept on disk: {error}") from error

    def _open_now(self, live: LiveView, *, begin_long: bool) -> bool:
        """Open a query if it can be opened quickly, or, with `begin_long`, in any case.

        Returns whether the query is open.
        """
        with self.tables.loading:  # held to the end: another query must not load a table under other names meanwhile
            may_pass = live.checks.every is None
            select = self.tables.chosen(live.select, may_pass=may_pass)
            try:
                self.tables.load_all(select)
                with self.lock:
                    self.take_whole()
                    self.check()
                    select = self.tables.still_chosen(select, live.select, may_pass=may_pass)
                    view = self._open_at_once(select, live.max_rows)
                    if view is not None:
                        self._begin(live, view, self._readers.rows_of(view))
                        return True
                    if not begin_long:
                        return False
                    aside = LongOpening(self._engine, select, self.tables.scans(select))
            except BaseException:
                with self.lock:
                    self.tables.leave(tables_of(select))
                raise
        self._open_aside(live, aside)
        return True

    def _open_at_once(self, select: Select, max_rows: int) -> PlannedView | None:
        """Open a query and return its view, if this is quick. Otherwise return None: others would wait."""
        return None if is_long(self._engine, select) else self._engine.open_at_once(select, max_rows, AT_ONCE_ROWS)

    def _open_aside(self, live: LiveView, aside: LongOpening) -> None:
        """Open a query whose rows are computed without the lock, so that other queries are updated meanwhile."""
        try:
            view = aside.open(live.max_rows)
            buckets = view.filled()
            with self.lock:
                self.take_whole()  # apply changes first: its tables were read at the version that was the latest then
                self.check()
                if aside.engine is not self._engine:
                    raise NotReadyError(_ANEW)
                for ops in aside.join(live.select.skip, live.select.limit):
                    buckets.apply(ops)
                self._begin(live, view, buckets)
                if view.operator.is_low:
                    self._renewals.add(live, frozen=False)
        finally:
            with self.lock:
                aside.close()
                self.tables.leave(aside.tables)  # the query itself now keeps its tables loaded

    def _begin(self, live: LiveView, view: PlannedView, buckets: Buckets) -> None:
        """Give a reader its view and its first rows, which are kept up to date from now on.

        The caller holds the lock.
        """
        # A listener may have closed or failed it while it was computed anew.
        if live.is_closed or live.error is not None:
            self._engine.close(view)
            raise live.error or QueryError("live query: it was closed while it was opened; an open one is needed")
        if live in self._renewals:
            self._replace(live, view, buckets)
            return
        live._begin(view, buckets)
        self._readers.add(live, view)
        live.state = self._state
        self._recomputed(live)

    def _replace(self, live: LiveView, view: PlannedView, buckets: Buckets) -> None:
        """Give a reader another view.

        As a patch it gets the difference between its present rows and the new view's rows.
        """
        if live in self._readers:
            former = self._readers.remove(live)
            self._engine.close(former)
            self.tables.leave(tables_of(former.shape.select))
        self._readers.add(live, view)
        ops = difference(live.entries, buckets.entries)
        if ops:
            self._show(live, ops, self.version)
        if live in self._readers:
            self._recomputed(live)
        self._renewals.discard(live)  # after its rows have changed: until then they do not count as present rows
        self._report_state()

    def _renew(self, live: LiveView) -> None:
        """Compute the rows of an open query anew. Raises: NotReadyError if this has to be tried again."""
        try:
            self.tables.check(live.select)
            self._open(live)
        except NotReadyError:
            if self._stop or self._rows.failure is not None:
                with self.lock:
                    self._renewals.discard(live)
            raise
        except Exception as error:
            with self.lock:
                if live in self._renewals:
                    _log.error("live query: its rows could not be computed anew: %s", error)
                    self._end(live, as_shown(error))

    def _all(self) -> list[LiveView]:
        """Return all open queries, including queries that wait for rows after all queries were opened anew."""
        return [*self._readers, *(live for live in self._renewals if live not in self._readers)]

    def readers(self) -> list[LiveView]:
        """Return the queries whose rows are kept up to date. The caller has the lock."""
        return list(self._readers)

    def check_settled(self, live: LiveView) -> None:
        """Raise NotReadyError while the query's rows are computed anew, because they are of an earlier version then."""
        if self._renewals.is_frozen(live):
            raise NotReadyError("live query: its rows are computed anew. Try again later")

    def close(self, live: LiveView) -> None:
        """Stop keeping a query up to date."""
        self._renewals.discard(live)
        if live in self._readers:
            self._engine.close(self._readers.remove(live))
        self.tables.leave(live.tables)

    def follow(self, follower: VersionFollower) -> None:
        """Notify a follower of each version from now on. The caller holds the lock."""
        self._followers.append(follower)

    def _recomputed(self, live: LiveView) -> None:
        """Report to a query's listener of actions that its rows were computed anew; keep its actions from now on."""
        if live.checks.actions is not None:
            self._engine.log(self._readers[live])
            self._readers.call(live, live._act, [Action("recompute")], self.version)

    def check(self) -> None:
        """Raise the error that has ended all queries, or NotReadyError if they were stopped."""
        failure = self._failure or self._rows.failure
        if failure is not None:
            raise failure.with_traceback(None)
        if self._stop:
            raise NotReadyError("live queries: the tables were closed; open ones are needed")

    def _end(self, live: LiveView, error: Exception) -> None:
        """End a query with an error, and close it."""
        live._fail(error)
        self.close(live)

    def move_window(self, live: LiveView, skip: int, limit: int | None) -> None:
        """Move the window of a query; from then on its view is not shared with equal queries."""
        if self._readers.called not in {None, live}:
            raise QueryError("window: the listener of another query moves it; its own one, or a thread, is needed")
        self.check_settled(live)
        live.select = replace(live.select, skip=skip, limit=limit)
        former = self._readers[live]
        try:
            own = self._engine.unshared(former)
        except (NotReadyError, StateError):
            # Too few rows are kept, or the disk failed: the rows are read from the table again.
            self._renewals.add(live, frozen=True)
            return
        ops = self._engine.move_window(own, skip, limit)
        if ops is None:  # these rows are not kept, or the disk failed
            if own is not former:
                self._engine.close(own)
            self._renewals.add(live, frozen=True)
            return
        if own is not former:
            self._engine.close(self._readers.remove(live))
            self._readers.add(live, own)
        if own.operator.failure is not None:
            self._end(live, own.operator.failure)
        elif ops:
            self._show(live, ops, self.version)
        if live in self._readers:
            self._recomputed(live)

    def settle(self, live: LiveView) -> None:
        """Wait while the rows of a query are computed anew, except in a listener. Raises: NotReadyError."""
        if not self._readers.in_listener:
            self.wait(None, False, _PATIENCE_S, live)

    def explain(self, live: LiveView) -> QueryPlan:
        """Return the plan of an open view. Raises: NotReadyError."""
        self.check_settled(live)
        return explain(self._readers[live])

    def wait(self, at_least: Any, exact: bool, timeout_s: float, live: LiveView | None = None) -> Version:
        """Wait until all queries, or the query `live`, are at a version. Raises: NotReadyError."""
        wanted = None if at_least is None else self._wanted(at_least)
        end = time.monotonic() + timeout_s

        def reached() -> bool:
            return (
                (live is None or not self._renewals.is_frozen(live))
                and (self.version.exact or not exact)
                and (wanted is None or self.version.covers(wanted))
            )

        with self._version_changed:
            while not reached():
                self.check()
                self.check_halted()
                if not self._version_changed.wait(max(0.0, end - time.monotonic())):
                    raise NotReadyError(f"live query: the version was not reached within {timeout_s:g} s")
            return self.version

    def wake(self) -> None:
        """Wake all readers that wait for versions and patches, because the worker may have ended."""
        with self.lock:
            self._version_changed.notify_all()
            for live in self._all():
                live._wake()

    def check_halted(self) -> None:
        """Raise the error that says why there will be no later version, if there is such a reason."""
        if self._rows.halted is not None:
            raise self._rows.halted.with_traceback(None)

    def stop(self) -> None:
        """End all queries."""
        self._stop = True
        with self._rows.changed:
            self._rows.changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        with self.lock:
            lives = self._all()
            renewing = self._renewals.stop()
            self._version_changed.notify_all()
        if renewing is not None and renewing is not threading.current_thread():
            renewing.join()
        for live in lives:
            live.close()
        for follower in self._followers:
            follower.stopped()
        self.tables.close()

    def _run(self) -> None:
        while not self._stop and self._failure is None:
            with self._rows.changed:
                self._rows.changed.wait_for(self._is_due, _LOOK_S)
            if self._rows.failure is not None:
                self._fail(self._rows.failure)
                return
            with self.lock:
                self.take_whole()

    def take_whole(self) -> None:
        """Apply changes; after an unexpected error all queries are opened anew. The caller has the lock."""
        try:
            self._take()
        except StoredTableLostError as error:
            _log.info("live queries are opened anew: %s", error)
            self.begin_anew()
        except Exception as error:
            self._break(error)

    def _break(self, error: Exception) -> None:
        """Open all queries anew after a batch that failed before its end; if this happens too often, end them."""
        if not self.restarts.admits(time.monotonic()):
            _log.error("live queries have ended, after they were opened anew %d times: %s", self.restarts.most, error)
            self._fail(as_shown(error))
            return
        _log.error("live queries are opened anew, since a change could not be applied", exc_info=error)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Drop all operators, and open all queries again. The caller has the lock."""
        lives = self._all()
        self._forget_all()
        self._state = "unknown"
        for live in lives:
            self._renewals.add(live, frozen=True)
            live.state = "unknown"

    def _forget_all(self) -> None:
        """Drop all operators, which may be in the middle of a batch."""
        self.tables.unload_all()
        self._readers.clear()

    def _is_due(self) -> bool:
        """Return whether there is work: a version whose changes are not applied, an end of the server, or its failure.

        The caller holds the lock of the rows.
        """
        return self._stop or self._rows.failure is not None or self._rows.version is not self.version

    def _fail(self, error: Exception, table: str | None = None) -> None:
        """End the queries that read a table, or all queries if `table` is None, with an error."""
        with self.lock:
            for live in self._all():
                if table is None:
                    self._renewals.discard(live)
                    live._fail(error)
                elif table in live.tables:
                    self._end(live, error)
            if table is None:
                self._failure = error
                self._forget_all()
            self._version_changed.notify_all()

    def _take(self) -> None:
        """Apply the changes of all tables since the last call as one batch, also of tables that were read anew."""
        deltas, failed, version = self.tables.take()
        for name, error in failed.items():  # the table's queries end, and the next query reads the table anew
            self._fail(error, name)
            self.tables.unload(name)
        self._renew_all(self.tables.renewed)
        self.tables.renewed = []
        self._publish(deltas, version)
        self._check_answers()
        self._report_state()
        self.tables.tidy()

    def _report_state(self) -> None:
        """Report the state to all views, and the version to followers. The caller has the lock."""
        is_whole = not self._renewals.any_frozen() and not self.tables.is_stale()
        state: Literal["unknown", "complete"] = "complete" if is_whole else "unknown"
        if state != self._state:
            self._state = state
            for live in self._readers:
                live.state = state
        self._version_changed.notify_all()
        for follower in self._followers:
            follower.on_version(self.version, state)

    def _publish(self, deltas: Deltas, version: Version) -> None:
        found = self._engine.apply(deltas) if deltas else []
        self.version = version
        if deltas:
            self._renew_all(self._engine.spent)
        for view, ops in found:
            for live in self._readers.of(view):
                if view.operator.failure is not None:
                    self._end(live, view.operator.failure)
                else:
                    self._show(live, ops, version)
        self._version_changed.notify_all()
        if deltas:
            self._tell_actions(version)

    def _renew_all(self, views: list[PlannedView]) -> None:
        """Have the rows of these views computed anew. A view that is short does not change until then."""
        for view in views:
            for live in self._readers.of(view):
                self._renewals.add(live, frozen=view.operator.is_short)

    def _tell_actions(self, version: Version) -> None:
        """Report the actions of a batch to the queries with a listener of actions."""
        for view, actions in self._engine.actions.items():
            for live in self._readers.of(view):
                self._readers.call(live, live._act, actions, version)

    def _check_answers(self) -> None:
        """Compare the rows of each query that has `checks.every` with the answer from scratch, when this check is due.

        If they differ, the query is ended.
        """
        for live in self._readers.checked():
            live.versions += 1
            if live.checks.every is not None and live.versions % live.checks.every == 0:
                try:
                    check_answer(
                        live._plain_rows(), self._readers[live].shape.select, self._engine.tables, self.version
                    )
                except QueryError as error:
                    _log.error("live query: %s", error)
                    self._end(live, error)

    def _show(self, live: LiveView, ops: list[Op], version: Version) -> None:
        """Give a reader its patch."""
        self._readers.call(live, live._take, ops, version)
