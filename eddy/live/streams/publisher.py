"""Publishes queries: each is kept up to date once for all clients that request it, and its patches for late clients.

    LiveServer ─patch─▶ Published ─▶ Retained ─▶ each Subscriber, when it reads

A published query has users. Without users it is kept for a while, so that a client that reconnects finds the query with
its patches. This time is shorter if the query was never part of a stream. Queries without users are *idle*. Their bytes
are bounded, except those of the latest idle query. All queries are at the version of the last `on_version`; `now` is
the step that led to this version. Locks: the live server's lock first, then `lock`, which is held only briefly.
"""

import threading
import time
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from eddy.live.dataflow.held_bytes import held_bytes
from eddy.live.dataflow.patch import Buckets, Entry, Op
from eddy.live.query.held_alone import held_alone
from eddy.live.query.nested import nested
from eddy.live.query.planning import PlannedView
from eddy.live.query.query import Query
from eddy.live.query.refusals import QueryLimitError
from eddy.live.server.live_server import LiveServer
from eddy.live.server.live_view import LiveView
from eddy.live.streams.events import Asked, StepStamp
from eddy.live.streams.limits import Limits
from eddy.live.streams.retained import KeptPatch, Retained
from eddy.tables.version import Version

__all__ = ["Published", "Publisher", "State", "StreamFigures", "Subscriber"]

State = Any
_STAMPS = 64
_WEIGHED_S = 0.5
"""Seconds after which the bytes of idle queries are estimated anew."""
_AT_LEAST_S = 1.0
"""Seconds that patches are kept at least, for connected clients, also if `retain_s` is less."""


class Subscriber(Protocol):
    """A reader of a query. It is notified of patches and of the query's end, with the publisher's lock held."""

    @property
    def asked(self) -> Asked:
        """The request for the query."""

    @property
    def connection(self) -> object:
        """The stream of the reader."""

    def touch(self) -> Callable[[], None]:
        """Note a patch. Returns the function that wakes the reader.

        All subscriptions of a reader return the same function.
        """

    def fail(self, error: Exception) -> Callable[[], None]:
        """Note that the query has ended. Returns the function that wakes the reader."""


class StreamFigures:
    """Counts of the streams' patches, events, snapshots and refusals since the start."""

    def __init__(self) -> None:
        self.patches = self.events = self.snapshots = self.resumed = 0
        self.summed = self.refused = self.slow = 0


class Published(LiveView):
    """A live query for any number of subscribers. `users` is the number of callers that have not released it."""

    def __init__(self, publisher: "Publisher", query: Query, identity: Hashable, max_rows: int) -> None:
        super().__init__(publisher.server, query, max_rows)
        self._publisher, self.identity = publisher, identity
        self.users = 0
        self.idle_until = 0.0
        self.is_streamed = False
        self.subscribers: dict[Subscriber, None] = {}
        self.retained = Retained(0, {}, 0)

    def copied(self) -> dict[str, list[Entry]]:
        """Return a copy of the buckets, with a new list of rows for each. The caller holds the live server's lock."""
        self._check()
        return self._copied()

    def held_bytes(self) -> int:
        """Return an estimate of the bytes of the query's rows, without its operators."""
        return held_bytes(self._buckets.entries)

    def _begin(self, view: PlannedView, buckets: Buckets) -> None:
        self.view, self.state = view, "complete"
        self._buckets = buckets
        self.retained = Retained(self._publisher.now.number, self._buckets.entries, self._publisher.limits.retain_ops)

    def _take(self, ops: Sequence[Op], version: Version) -> None:
        self._buckets.apply(ops)
        self._publisher._patched(self, tuple(ops))

    def _fail(self, error: Exception) -> None:
        super()._fail(error)
        self._publisher._failed(self, error)


class Publisher:
    """All published queries of a live server."""

    def __init__(self, server: LiveServer, limits: Limits) -> None:
        self.server, self.limits = server, limits
        self.lock = threading.Lock()
        self.figures = StreamFigures()
        self._opening: dict[Hashable, threading.Event] = {}
        self._published: dict[Hashable, Published] = {}
        self._idle: dict[Published, None] = {}  # idle queries, in the order in which they were released
        self._stamps: OrderedDict[int, StepStamp] = OrderedDict()
        self._order: deque[tuple[Published, KeptPatch]] = deque()
        self.retained_bytes = self.idle_bytes = 0
        self._weighed_at = 0.0
        self._wakes: dict[Callable[[], None], None] = {}
        self._readers: dict[Callable[[], None], None] = {}
        self._resting: dict[Callable[[], None], None] = {}
        self.is_stopped = False
        with server.lock:
            self.state: State = server.state
            self._version = server.version
            self._is_patched = False
            self.now = StepStamp(0, self._version.token, exact=self._version.exact and self.state == "complete")
            server.follow(self)

    @property
    def queries(self) -> int:
        """The number of queries that are kept up to date."""
        return len(self._published)

    @property
    def idle(self) -> int:
        """The number of queries without users."""
        return len(self._idle)

    @property
    def has_ended(self) -> bool:
        """Whether an error has ended all queries, until the server is started again."""
        return self.server.failure is not None

    def add_reader(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever all readers have to check for events: from any thread, with no lock held."""
        with self.lock:
            self._readers[wake] = None

    def remove_reader(self, wake: Callable[[], None]) -> None:
        """Stop calling `wake`."""
        with self.lock:
            self._readers.pop(wake, None)
            self._resting.pop(wake, None)

    def rests(self, wake: Callable[[], None], told: StepStamp | None) -> bool:
        """Return whether `told` is the latest version. If so, `wake` is called at the next version."""
        with self.lock:
            if self.now is not told:
                return False
            self._resting[wake] = None
            return True

    def acquire(self, query: Query) -> Published:
        """Return the published query. It is opened if it is not open yet.

        Release it once for each call. Raises: QueryError.
        """
        identity = repr(query.syntax)
        while True:
            with self.lock:
                found = self._found(identity)
                if found is not None:
                    return found
                opening = self._opening.get(identity)
                if opening is None:
                    self._check_room()
                    opened = self._opening[identity] = threading.Event()
                    break
            opening.wait()  # another thread is opening the query
        try:
            self._make_room()
            return self._opened(query, identity)
        finally:
            with self.lock:
                del self._opening[identity]
            opened.set()

    def _check_room(self) -> None:
        if len(self._published) + len(self._opening) >= self.limits.queries and not self._idle:
            raise QueryLimitError(f"queries: {self.limits.queries:,} are open here, which is the limit. Try later")

    def _make_room(self) -> None:
        """Close the idle queries that exceed the bounds on idle queries."""
        with self.server.lock:
            with self.lock:
                self._weighed_at = 0.0
                expired = self._expired(time.monotonic())
            for published in expired:
                published.close()

    def _opened(self, query: Query, identity: Hashable) -> Published:
        made = Published(self, query, identity, self.limits.rows)
        made.users = 1
        made.open()
        with self.lock:
            if made.error is None and not self.is_stopped:
                self._published[identity] = made
        return made

    def find(self, query: Query) -> Published | None:
        """Return the published query, as `acquire` does; None if it is not open."""
        with self.lock:
            return self._found(repr(query.syntax))

    def _found(self, identity: Hashable) -> Published | None:
        found = self._published.get(identity)
        if found is not None:
            found.users += 1
            self._idle.pop(found, None)
        return found

    def check_settled(self, query: Query) -> None:
        """Raise NotReadyError while the rows of a query are computed anew, and are of an earlier version."""
        found = self._published.get(repr(query.syntax))
        if found is not None:
            self.server.check_settled(found)

    def stamp(self, number: int) -> StepStamp | None:
        """Return the step with this number; None if it is forgotten already. The caller holds the lock."""
        return self._stamps.get(number)

    def release(self, published: Published) -> None:
        """Subtract one user of a query."""
        with self.lock:
            published.users -= 1
            if published.users or self._published.get(published.identity) is not published:
                return
            lingers_s = self.limits.lingers_s
            lingers_s = lingers_s if published.is_streamed else min(self.limits.read_linger_s, lingers_s)
            published.idle_until = time.monotonic() + lingers_s
            self._idle[published] = None

    def subscribe(
        self, published: Published, subscriber: Subscriber
    ) -> tuple[dict[str, list[Entry]], StepStamp, PlannedView]:
        """Notify the subscriber of patches from now on.

        Returns the present rows, the step they belong to, and the view.

        Raises: QueryError if the query was closed; the error that has ended it.
        """
        with self.server.lock:
            rows, view = published.copied(), published.view
            assert view is not None
            with self.lock:
                published.subscribers[subscriber] = None
                published.is_streamed = True
            return rows, self.now, view

    def read(self, query: Query) -> tuple[Any, StepStamp]:
        """Return the present result of a query, with its nests, and the step that it belongs to. Raises: QueryError."""
        published = self.acquire(query)
        try:
            with self.server.lock:
                self.server.check_settled(published)
                rows, view, stamp = published.copied(), published.view, self.now
            assert view is not None
            return nested(rows, view.shape, view.operator.root.id, self.limits.rows), stamp
        finally:
            self.release(published)

    def on_version(self, version: Version, state: State) -> None:
        """Begin a step: all queries are at this version. Called by the live server, with its lock held."""
        now = time.monotonic()
        with self.lock:
            was, is_new = self.now, state != self.state
            self.state = state
            self._step(version)
            wakes, self._wakes = self._wakes, {}
            if is_new or (self.now.exact and not was.exact):
                wakes = self._readers
            elif self.now is not was:
                wakes |= self._resting
                self._resting = {}
            called = list(wakes)
            self._forget(now)
            expired = self._expired(now)
        for wake in called:
            wake()
        for published in expired:
            published.close()

    def _step(self, version: Version) -> None:
        """Count a step if the version or a query has changed.

        While the state of one query is unknown, no version is exact.
        """
        exact = version.exact and self.state == "complete"
        if version is self._version and exact == self.now.exact and not self._is_patched:
            return
        self._version, self._is_patched = version, False
        self.now = StepStamp(self.now.number + 1, version.token, exact=exact)
        self._stamps[self.now.number] = self.now
        while len(self._stamps) > _STAMPS:
            self._stamps.popitem(last=False)

    def stopped(self) -> None:
        """Remove all queries, since no more versions follow. Called by the live server."""
        with self.lock:
            self.is_stopped = True
            called = list(self._readers)
            self._published.clear()
            self._idle.clear()
        for wake in called:
            wake()

    def _patched(self, published: Published, ops: tuple[Op, ...]) -> None:
        now = time.monotonic()
        with self.lock:
            kept = published.retained.add(self.now.number + 1, ops, now)
            self._is_patched = True
            self._order.append((published, kept))
            self.retained_bytes += len(kept.data)
            self.figures.patches += 1
            for subscriber in published.subscribers:
                self._wakes[subscriber.touch()] = None

    def _failed(self, published: Published, error: Exception) -> None:
        with self.lock:
            if self._published.get(published.identity) is published:
                del self._published[published.identity]
            self._idle.pop(published, None)
            called = {subscriber.fail(error): None for subscriber in published.subscribers}
            published.subscribers.clear()
        for wake in called:
            wake()

    def _forget(self, now: float) -> None:
        """Drop patches that are too old, or too many."""
        limits, order = self.limits, self._order
        oldest_s = now - max(limits.retain_s, _AT_LEAST_S)
        while order and (self.retained_bytes > limits.retain_bytes or order[0][1].at_s < oldest_s):
            published, kept = order.popleft()
            self.retained_bytes -= len(kept.data)
            if not kept.is_gone:
                published.retained.forget(kept)

    def _expired(self, now: float) -> list[Published]:
        """Remove the idle queries that were unused for too long, and the oldest ones beyond the bounds. Returns them.

        The caller has both locks: the live server's lock and `lock`.
        """
        found: list[Published] = []
        for published in self._idle:
            too_many = len(self._published) - len(found) >= self.limits.queries
            if published.idle_until <= now or too_many or len(self._idle) - len(found) > self.limits.idle:
                found.append(published)
        if now >= self._weighed_at + _WEIGHED_S:
            self._weighed_at = now
            found += self._too_large([each for each in self._idle if each not in found])
        for published in found:
            del self._idle[published], self._published[published.identity]
        return found

    def _too_large(self, idle: list[Published]) -> list[Published]:
        """Return the oldest idle queries that have to be closed, so that the rest fits into `idle_bytes`.

        The latest idle query does not count, and is not closed.
        """

        def fits(gone: int) -> bool:
            return _held_bytes(idle[gone:-1]) <= self.limits.idle_bytes

        gone = 0 if fits(0) else bisect_left(range(len(idle)), True, key=fits)
        self.idle_bytes = _held_bytes(idle[gone:])
        return idle[:gone]


def _held_bytes(found: Sequence[Published]) -> int:
    """Estimate the bytes in memory that only these queries hold."""
    rows = sum(each.held_bytes() for each in found)
    return rows + held_alone(each.view for each in found if each.view is not None)
