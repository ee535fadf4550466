"""A live query in a program: its present rows, and its patches one after the other.

    with tables.live(query) as view:          async with tables.live(query) as view:
        view.rows                                 view.rows
        for patch in view: …                      async for patch in view: …

The first patch follows the rows with which the view was opened. A reader that is more than `MAX_OPS` changes late gets
one patch instead: the difference between the rows that it has seen and the present rows.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol

import msgspec

from eddy.errors import NotReadyError, QueryError
from eddy.live.dataflow.action import Action
from eddy.live.dataflow.patch import Buckets, Entry, Op
from eddy.live.query.explain import QueryPlan
from eddy.live.query.nested import nested
from eddy.live.query.planning import PlannedView, tables_of
from eddy.live.query.query import Query, R, kind_of
from eddy.live.query.syntax import Select
from eddy.live.query.typed import typed
from eddy.live.server.difference import difference
from eddy.live.server.notebook import frame_of, html_of, keep_shown
from eddy.tables.version import Version

__all__ = ["MAX_OPS", "Checks", "LiveView", "Patch", "QueryServer"]

MAX_OPS = 10_000
"""The most changes that wait for a reader; more are replaced by one patch with the difference."""


class Patch(msgspec.Struct, frozen=True):
    """The changes of a view that lead to a version. See `eddy.live.dataflow.patch` for how to apply them."""

    ops: tuple[Op, ...]
    version: Version


@dataclass(frozen=True, slots=True)
class Checks:
    """Optional checks of a view.

    Attributes:
        actions: a function that is called with the actions of each batch on the view, in the thread that makes patches.
        every: the number of versions after which the rows are compared with the answer from scratch; None for never.
    """

    actions: Callable[[list[Action], Version], object] | None = None
    every: int | None = None

    def __post_init__(self) -> None:
        if self.every is not None and (type(self.every) is not int or self.every < 1):
            raise QueryError(f"live query: check_every={self.every!r}; a number of versions of at least 1 is needed")


class QueryServer(Protocol):
    """Keeps views up to date."""

    lock: threading.RLock

    def open(self, view: "LiveView[Any]") -> None:
        """Open a view, and keep it up to date from now on. Raises: QueryError."""

    def close(self, view: "LiveView[Any]") -> None:
        """Stop keeping a view up to date."""

    def move_window(self, view: "LiveView[Any]", skip: int, limit: int | None) -> None:
        """Show other rows of a view."""

    def check_halted(self) -> None:
        """Raise the error that says why there will be no later version, if there is such a reason."""

    def settle(self, live: "LiveView[Any]") -> None:
        """Wait until the rows of a view are computed, if they are computed anew now."""

    def explain(self, view: "LiveView[Any]") -> QueryPlan:
        """Return the plan of an open view."""

    @property
    def version(self) -> Version:
        """The version that all views are at."""

    def wait(self, at_least: Any, exact: bool, timeout_s: float, live: "LiveView[Any] | None" = None) -> Version:
        """Wait until a view, or all views if `live` is None, are at a version. Returns the version."""


class LiveView(Generic[R]):
    """A query that is kept up to date while it is open. `tables.live` makes the view, and any thread may use it.

    `state` is "unknown" before the view is opened, while its tables or rows are read anew, and after it was closed. It
    is "error" if the view has ended with `error`.
    """

    def __init__(self, server: QueryServer, query: Query[R], max_rows: int, checks: "Checks | None" = None) -> None:
        if type(max_rows) is not int or max_rows < 0:
            raise QueryError(f"live query: max_rows={max_rows!r}; a number of rows of at least 0 is needed")
        self._server, self.max_rows = server, max_rows
        self.checks = Checks() if checks is None else checks
        self.select: Select = query.syntax
        self._kind = kind_of(query)
        self.view: PlannedView | None = None
        self.state: Literal["unknown", "complete", "error"] = "unknown"
        self.error: Exception | None = None
        self.opening_s = 0.0
        """The seconds that opening the view took, with the reading of tables."""
        self._buckets, self._seen = Buckets(), Buckets()
        self._queue: deque[Patch] = deque()
        self._queued = self.versions = 0
        self._late = False
        self._opened = self._closed = False
        self._changed = threading.Condition(server.lock)
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._listeners: list[Callable[[Patch], None]] = []
        self._rows: Any = None
        self._number = 0  # the number of changes of the view's rows

    @property
    def tables(self) -> set[str]:
        """The names under which the tables of the query are loaded."""
        return tables_of(self.select if self.view is None else self.view.shape.select)

    @property
    def version(self) -> Version:
        """The version of `rows`: a token for `wait` and other readers, and whether it is exact. See `versioned`."""
        return self._server.version

    def versioned(self) -> tuple[R, Version]:
        """The result, as `rows` has it, with its version.

        Read separately, `rows` and `version` may belong to different versions.

        Raises: QueryError, in the same cases as `rows`.
        """
        return self._current()

    @property
    def rows(self) -> R:
        """The present result: rows with their nests, with `one` a row or None, or the value of an aggregate.

        Raises: QueryError if the view is closed, has ended with an error, or has a row that does not fit its type.
        """
        return self._current()[0]

    def _current(self) -> tuple[R, Version]:
        """Return the result with its version. The rows are nested without the lock, so that other views get patches."""
        with self._server.lock:
            self._check()
            view, version, number, found = self.view, self._server.version, self._number, self._rows
            entries = {} if found is not None else self._copied()
        if found is None:
            assert view is not None
            found = typed(nested(entries, view.shape, view.operator.root.id, self.max_rows), self._kind)
            with self._server.lock:
                if self._number == number:
                    self._rows = found
        return found, version

    def _copied(self) -> dict[str, list[Entry]]:
        """Return a copy of the view's rows, with a new list for each bucket. The caller holds the lock."""
        return {bucket: list(rows) for bucket, rows in self._buckets.entries.items()}

    def _plain_rows(self) -> Any:
        """Return the result as plain data, not converted to the query's type. The caller holds the lock."""
        assert self.view is not None
        return nested(self._buckets.entries, self.view.shape, self.view.operator.root.id, self.max_rows)

    def _check(self) -> None:
        if self.error is not None:
            raise self.error.with_traceback(None)
        if self.view is None:
            raise QueryError("live query: it is not open. Write: with tables.live(query) as view: ...")
        self._server.check_halted()

    def wait(self, at_least: Any = None, *, exact: bool = False, timeout_s: float = 30.0) -> Version:
        """Wait until `rows` are at a version as late as `at_least`, as in `Tables.wait`. Raises: NotReadyError."""
        return self._server.wait(at_least, exact, timeout_s, self)

    def window(self, skip: int = 0, limit: int | None = None) -> None:
        """Move the window at the root of the query. Readers get the difference as a patch. Raises: QueryError."""
        if type(skip) is not int or skip < 0 or not (limit is None or (type(limit) is int and limit >= 0)):
            raise QueryError(f"window(skip={skip!r}, limit={limit!r}): numbers of rows are needed")
        self._server.settle(self)
        with self._server.lock:
            self._check()
            if self.select.aggregates and not self.select.group:
                raise QueryError("window: a query of one row has no window to move")
            self._server.move_window(self, skip, limit)
        self._server.settle(self)

    def explain(self) -> QueryPlan:
        """Return the plan by which the query is kept up to date: its operators, with rows and costs, and the choices.

        Raises: QueryError if it is not open.
        """
        with self._server.lock:
            self._check()
            return self._server.explain(self)

    def listen(self, function: Callable[[Patch], None]) -> Callable[[], None]:
        """Call a function with each patch, in the thread that makes the patch. Returns a function that ends the calls.

        An error that `function` raises ends this query.
        """
        with self._server.lock:
            self._listeners.append(function)

        def stop() -> None:
            with self._server.lock:
                if function in self._listeners:
                    self._listeners.remove(function)

        return stop

    @property
    def is_closed(self) -> bool:
        """Whether the view was closed, perhaps before it was open."""
        return self._closed

    @property
    def entries(self) -> dict[str, list[Entry]]:
        """The rows of the view's buckets. The caller holds the server's lock, and does not change them."""
        return self._buckets.entries

    def _begin(self, view: PlannedView, buckets: Buckets) -> None:
        """Set the rows with which the view begins. Called by the server."""
        self.view, self.state = view, "complete"
        self._buckets = buckets
        self._seen.entries = self._copied()

    def _take(self, ops: Sequence[Op], version: Version) -> None:
        """Apply a patch. Called by the server, which holds its lock."""
        patch = Patch(tuple(ops), version)
        self._buckets.apply(ops)
        self._rows = None
        self._number += 1
        self._queued += len(ops)
        if self._queued > MAX_OPS:
            self._queue.clear()
            self._late = True
        else:
            self._queue.append(patch)
        if all(self._calls(listener, patch) for listener in list(self._listeners)):
            self._wake()

    def _calls(self, function: Callable[..., object], *arguments: Any) -> bool:
        """Call a user's function. Returns False if it raised an error, which ends this query; otherwise True."""
        try:
            function(*arguments)
        except Exception as error:
            self._fail(error)
            return False
        return True

    def _act(self, actions: list[Action], version: Version) -> None:
        """Call the user's function with the actions of a batch. The caller holds the lock."""
        if actions and self.checks.actions is not None:
            self._calls(self.checks.actions, actions, version)

    def _fail(self, error: Exception) -> None:
        """End the view: readers get the error."""
        self.state, self.error = "error", error
        self._wake()

    def _wake(self) -> None:
        self._changed.notify_all()
        waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_resolve, future)

    def _next(self) -> Patch | None:
        """Return the next patch; None if there is none yet. The caller holds the lock."""
        if self._late:
            ops = difference(self._seen.entries, self._buckets.entries)
            self._seen.entries = self._copied()
            self._late, self._queued = False, 0
            if ops:
                return Patch(tuple(ops), self._server.version)
        if self._queue:
            patch = self._queue.popleft()
            self._queued -= len(patch.ops)
            self._seen.apply(patch.ops)
            return patch
        if self.error is not None or not (self._opened or self._closed):
            self._check()
        if not self._closed:
            self._server.check_halted()
        return None

    def next(self, timeout_s: float = 30.0) -> Patch:
        """Return the next patch. Raises: NotReadyError after `timeout_s`; QueryError before `open`."""
        end = time.monotonic() + timeout_s
        with self._changed:
            while (patch := self._next()) is None:
                if self._closed or not self._changed.wait(max(0.0, end - time.monotonic())):
                    raise NotReadyError(f"live query: no patch has arrived within {timeout_s:g} s. Try again later")
            return patch

    def __iter__(self) -> Iterator[Patch]:
        """Yield each patch when it arrives, until the view is closed."""
        while True:
            with self._changed:
                while not self._closed and (patch := self._next()) is None:
                    self._changed.wait()
                if self._closed:
                    return
            assert patch is not None
            yield patch

    async def __aiter__(self) -> AsyncIterator[Patch]:
        """Yield each patch when it arrives, until the view is closed."""
        loop = asyncio.get_running_loop()
        while True:
            with self._server.lock:
                if self._closed:
                    return
                patch = self._next()
                if patch is None:
                    future = loop.create_future()
                    self._waiting.append((loop, future))
            if patch is not None:
                yield patch
                continue
            try:
                await future
            finally:  # also if cancelled: no coroutine waits any more
                with self._server.lock:
                    if (loop, future) in self._waiting:
                        self._waiting.remove((loop, future))

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame, with the columns of the rows. Raises: ImportError without pandas."""
        with self._server.lock:
            self._check()
            return frame_of(self._plain_rows())

    def _repr_html_(self) -> str:
        with self._server.lock:
            if self.view is None or self.error is not None:
                return html_of([], f"live query: {self.error or 'not open'}")
            return html_of(self._plain_rows(), "exact" if self.version.exact else "committed, not exact")

    def _ipython_display_(self) -> None:
        """In a notebook: shows the rows, and updates them while the view is open."""
        is_open = lambda: not self._closed and self.error is None  # noqa: E731
        keep_shown(self._repr_html_, is_open, self.listen, lambda: self.error is not None)

    def open(self) -> "LiveView[R]":
        """Open the view, as `with` does. Raises: QueryError for a query that does not fit the tables; NotReadyError."""
        with self._server.lock:
            if self._opened or self._closed:
                raise QueryError("live query: it was opened before; tables.live makes another one. Open each once")
            self._opened = True
        began = time.monotonic()
        try:
            self._server.open(self)
        except BaseException:
            self._opened = False
            raise
        self.opening_s = time.monotonic() - began
        return self

    def close(self) -> None:
        """Close the view; the second call does nothing."""
        with self._server.lock:
            if not self._closed:
                self._closed = True
                self._server.close(self)
                self.view = None
                self.state = "error" if self.error is not None else "unknown"
                self._wake()

    def __enter__(self) -> "LiveView[R]":
        return self.open()

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> "LiveView[R]":
        try:
            return await asyncio.to_thread(self.open)
        except asyncio.CancelledError:  # the thread still opens the view
            asyncio.get_running_loop().run_in_executor(None, self.close)
            raise

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.close)


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
