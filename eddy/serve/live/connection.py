"""One stream of events: the queries that it carries, how far each has come, and the events that are due.

All queries that have come whole are at one version, `at`. What is due is made when the client has taken what was sent
before, of the patches that are kept for all: so a slow client costs no memory, and gets sums of patches.

    open ──▶ snapshot, page by page ──▶ patches since that version ──▶ whole: moves with the others

The reader's thread calls `events`; threads that open queries, and that of the live server, put in what is new.

Invariant: each query that is acquired is released once, whenever the stream closes. A query is either among the
subscriptions, and then whoever takes it out releases it, or it is released by whoever could not put it there; which of
both is decided within one hold of the lock.
"""

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from eddy.errors import EddyError, NotReadyError, QueryError
from eddy.operators.views.patch import Op
from eddy.serve.live.difference import difference
from eddy.serve.live.events import HEARTBEAT, Asked, LastEvent, Stamp, Window, encode, event, pages
from eddy.serve.live.publisher import Published, Publisher
from eddy.serve.live.retained import Kept, summed
from eddy.topology.queries.query import Query
from eddy.topology.queries.refusals import QueryFailedError
from eddy.topology.queries.shapes import levels_of

__all__ = ["Connection", "Record", "Subscription"]

_log = logging.getLogger("eddy.live")
_STEPS = 8
"""Versions that are sent one by one; a reader that is later gets their sum."""
_MAX_EVENT_BYTES = 8 << 20
_VERSION_S, _LOOK_S = 1.0, 0.25
Record = dict[str, tuple[bytes, int]]
"""By the id of a query that has come whole: the question, and the number of the event since which it is whole."""


class Subscription:
    """A query of a stream. `at` is the number of its version until it is whole; then it moves with the stream.

    `first` is the question that it was opened by, `asked` that of its window now.
    """

    __slots__ = ("asked", "at", "connection", "first", "is_whole", "published", "since")

    def __init__(self, connection: "Connection", asked: Asked, published: Published) -> None:
        self.connection, self.asked, self.published = connection, asked, published
        self.first = asked
        self.is_whole, self.at, self.since = False, 0, 0

    def touch(self) -> Callable[[], None]:
        """There is a patch."""
        self.connection.dirty[self] = None
        return self.connection.wake

    def fail(self, error: Exception) -> Callable[[], None]:
        """The query has ended."""
        self.connection.failed.append((self.first, error))
        return self.connection.wake


class Connection:
    """A stream. `wake` is called, from any thread, when there may be events; `query_of` makes queries of questions."""

    def __init__(
        self, publisher: Publisher, server: str, query_of: Callable[[Asked], Query], wake: Callable[[], None]
    ) -> None:
        self._publisher, self._server, self._query_of, self.wake = publisher, server, query_of, wake
        self.id = secrets.token_urlsafe(12)
        self.asked: dict[str, Asked] = {}
        self.again: deque[Subscription] = deque()
        """Queries whose patches are not kept any more: they need their rows anew."""
        self.dirty: dict[Subscription, None] = {}
        self.failed: list[tuple[Asked, Exception]] = []
        self.ended = 0
        """Queries that have ended by an error, and that nobody has counted yet."""
        self.unknown: list[str] = []
        """Queries that the client may have rows of, which are not those of the version that it is told next."""
        self.is_closed = False
        self._subscriptions: dict[str, Subscription] = {}
        self._pages: deque[tuple[Subscription, Iterator[tuple[str, bytes]]]] = deque()
        self._seq = 0
        self._sent_at = time.monotonic()
        self._state = publisher.state
        self._at = publisher.now
        self._said: Stamp | None = None  # the version to be told, once nothing else is due

    @property
    def waiting(self) -> int:
        """The number of queries whose rows are being sent."""
        return len(self._pages)

    # Called by threads that open queries.

    def resume(self, last: LastEvent, record: Record, asked: Iterable[Asked]) -> list[Asked]:
        """Go on from the version of the last event. Returns the queries that need their rows anew."""
        found: list[Subscription] = []
        left: list[Asked] = []
        for each in asked:
            subscription = self._resumed(each, last, record)
            if subscription is None:
                left.append(each)
            else:
                found.append(subscription)
        if found:
            with self._publisher.lock:
                self._at = Stamp(last.number, last.token, exact=False)
                for subscription in found:
                    subscription.is_whole = True
                    self.dirty[subscription] = None
                self._publisher.figures.resumed += len(found)
        return left

    def _resumed(self, asked: Asked, last: LastEvent, record: Record) -> Subscription | None:
        key, since = record.get(asked.id, (b"", 0))
        if key != asked.key or since > last.seq:
            return None
        try:
            query = self._query_of(asked)
            published = self._publisher.find(query)
        except EddyError:
            return None  # it is told when the query is opened
        if published is None:
            return None
        subscription = Subscription(self, asked, published)
        with self._publisher.lock:
            is_there = published.error is None and last.number >= published.retained.floor
            is_kept = is_there and self._keep(subscription)
            if is_kept:
                published.subscribers[subscription] = None
        if not is_kept:
            self._publisher.release(published)
            return None
        return subscription

    def open(self, asked: Asked) -> bool:
        """Open a query, and put its rows among what is to be sent. A failure becomes an event.

        Returns whether that is done; False where tables are not whole, and it has to be tried again.
        """
        try:
            published = self._acquired(asked, asked)
        except NotReadyError:
            return False
        if published is None:
            return True
        subscription = Subscription(self, asked, published)
        with self._publisher.lock:
            is_kept = self._keep(subscription)
        if is_kept:
            self._show(subscription)
        else:
            self._publisher.release(published)
        return True

    def _keep(self, subscription: Subscription) -> bool:
        """Let `close` release the subscription's query; False where it has closed. The caller holds the lock."""
        if not self.is_closed:
            self._subscriptions[subscription.asked.id] = subscription
        return not self.is_closed

    def _acquired(self, asked: Asked, first: Asked) -> Published | None:
        """The query that is asked for; None where it failed, which becomes an event of the query `first`.

        Raises: NotReadyError where tables are not whole, and it has to be tried again.
        """
        try:
            return self._publisher.acquire(self._query_of(asked))
        except Exception as error:
            if isinstance(error, NotReadyError) and not self._publisher.is_stopped:
                raise
            self._fail(first, error)
            return None

    def show_again(self, subscription: Subscription) -> None:
        """Put a query's rows anew among what is to be sent."""
        if self._subscriptions.get(subscription.asked.id) is subscription:
            self._show(subscription)

    def _show(self, subscription: Subscription) -> None:
        publisher, published, id_ = self._publisher, subscription.published, subscription.asked.id
        try:
            rows, stamp, view = publisher.subscribe(published, subscription)
        except EddyError as error:
            self._fail(subscription.first, error)
            return
        subscription.at = stamp.number
        found = pages(id_, stamp, view.operator.root.id, levels_of(view.shape), rows)
        publisher.figures.snapshots += 1
        self._put(subscription, (("snapshot", data) for data in found))

    def _put(self, subscription: Subscription, found: Iterator[tuple[str, bytes]]) -> None:
        with self._publisher.lock:
            if self._subscriptions.get(subscription.asked.id) is subscription:
                self._pages.append((subscription, found))
            else:  # it was closed meanwhile
                subscription.published.subscribers.pop(subscription, None)
        self.wake()

    def move(self, window: Window) -> bool:
        """Show other rows of a query: the difference is put among what is to be sent. Returns as `open` does."""
        subscription = self._subscriptions.get(window.id)
        if subscription is None:
            return True  # it has ended, which the client is told
        asked = Asked(window.id, subscription.asked.name, subscription.asked.args, window.skip, window.limit)
        try:
            published = self._acquired(asked, subscription.first)
        except NotReadyError:
            return False
        if published is not None:
            self._exchange(subscription, asked, published)
        return True

    def _exchange(self, subscription: Subscription, asked: Asked, published: Published) -> None:
        """From one query to another: first the patches that are left of the former, then the difference."""
        publisher, former = self._publisher, subscription.published
        try:
            with publisher.server.lock:
                before, rows = former.copied(), published.copied()
                stamp = publisher.now
                with publisher.lock:
                    if self._subscriptions.get(asked.id) is not subscription:
                        raise QueryError("live query: it was closed while its window moved")
                    kept = former.retained.after(self._at.number, stamp.number) if subscription.is_whole else None
                    subscription.is_whole = False
                    former.subscribers.pop(subscription, None)
                    published.subscribers[subscription] = None
                    subscription.asked, subscription.published = asked, published
        except EddyError as error:
            publisher.release(published)
            self._fail(subscription.first, error)
            return
        publisher.release(former)
        if kept is None:
            self._show(subscription)
            return
        subscription.at = stamp.number
        id_ = asked.id
        missing = [_patch(stamp, {id_: _data(kept)})] if kept else []
        moved = _patch(stamp, {id_: encode(difference(before, rows))})
        self._put(subscription, (("patch", data) for data in [*missing, moved]))

    def _fail(self, first: Asked, error: Exception) -> None:
        if not isinstance(error, EddyError):
            _log.error("query '%s' has failed", first.name, exc_info=error)
            error = QueryFailedError(f"query '{first.name}': it has failed; the log of the server says how")
        with self._publisher.lock:
            self.failed.append((first, error))
        self.wake()

    # Called by the reader's thread.

    def drop(self, id_: str) -> None:
        """A query is not wanted any more."""
        subscription = self._subscriptions.get(id_)
        if subscription is not None:
            self._drop(subscription)

    def _drop(self, subscription: Subscription) -> None:
        with self._publisher.lock:
            if self._subscriptions.get(subscription.asked.id) is not subscription:
                return
            del self._subscriptions[subscription.asked.id]
            subscription.published.subscribers.pop(subscription, None)
            self.dirty.pop(subscription, None)
            self._pages = deque(pair for pair in self._pages if pair[0] is not subscription)
        self._publisher.release(subscription.published)

    def close(self) -> Record:
        """It has ended. Returns how to go on from it."""
        with self._publisher.lock:
            self.is_closed = True
            left = list(self._subscriptions.values())
        record = self.record()
        for subscription in left:
            self._drop(subscription)
        return record

    def record(self) -> Record:
        """How a client that connects again goes on from here."""
        with self._publisher.lock:
            return {id_: (each.asked.key, each.since) for id_, each in self._subscriptions.items() if each.is_whole}

    def hello(self) -> bytes:
        """The first event."""
        heartbeat_s = self._publisher.limits.heartbeat_s
        data = {"connection": self.id, "server": self._server, "heartbeat_s": heartbeat_s}
        return event("hello", encode(data), self._id())

    def bye(self, reason: str) -> bytes:
        """The last event."""
        return event("bye", encode({"reason": reason}), self._id())

    def _id(self, at: Stamp | None = None) -> str:
        at = at or self._at
        return f"{at.token}.{self._server}.{self.id}.{at.number}.{self._seq}"

    def _event(self, kind: str, data: bytes, at: Stamp | None = None) -> bytes:
        self._seq += 1
        return event(kind, data, self._id(at))

    def events(self) -> bytes:
        """The events that are due, with at most one page of rows; empty where there are none."""
        # Pages first: a query whose last page was sent moves with the others from this version on.
        found = [*self._failures(), *self._states(), *self._page(), *self._patches()]
        now = time.monotonic()
        if not found:
            found = self._news(now)
        if found:
            self._sent_at = now
            self._publisher.figures.events += len(found)
        return b"".join(found)

    def due_s(self) -> float:
        """Seconds after which an event may be due though nobody calls `wake`."""
        silence_s = time.monotonic() - self._sent_at
        is_told = self._publisher.now is self._said
        return max(_LOOK_S, (self._publisher.limits.heartbeat_s if is_told else _VERSION_S) - silence_s)

    def _news(self, now: float) -> list[bytes]:
        """A version without changes, or a sign of life."""
        said, at = self._said, self._at
        are_whole = len(self.asked) == len(self._subscriptions) and not self._pages
        if are_whole and (said is None or self._is_news(at, said, now)):
            return [self._said_patch(at, {})]
        if now - self._sent_at >= self._publisher.limits.heartbeat_s:
            return [HEARTBEAT]
        return []

    def _is_news(self, at: Stamp, said: Stamp, now: float) -> bool:
        return (at.exact and not said.exact) or (at is not said and now - self._sent_at >= _VERSION_S)

    def _said_patch(self, stamp: Stamp, queries: dict[str, bytes]) -> bytes:
        self._said = stamp
        return self._event("patch", _patch(stamp, queries), stamp)

    def _failures(self) -> Iterator[bytes]:
        with self._publisher.lock:
            failed, self.failed = self.failed, []
        for first, error in failed:
            if self.asked.get(first.id) is not first:
                continue  # it was closed meanwhile, and perhaps another one has its id
            self.drop(first.id)
            del self.asked[first.id]
            self.ended += 1
            told = {"code": getattr(error, "code", QueryError.code), "message": str(error)}
            yield self._event("error", encode({"query": first.id, "error": told}))

    def _states(self) -> Iterator[bytes]:
        unknown, self.unknown = self.unknown, []
        for id_ in unknown:
            yield self._event("state", encode({"query": id_, "state": "unknown"}))
        state = self._publisher.state
        if state != self._state:
            self._state = state
            for id_, subscription in list(self._subscriptions.items()):
                if subscription.is_whole:
                    yield self._event("state", encode({"query": id_, "state": state}))

    def _patches(self) -> Iterator[bytes]:
        """Patches of all queries that are whole, a version an event; of more than a few versions their sum."""
        publisher = self._publisher
        found: list[tuple[str, list[Kept]]] = []
        size = 0
        with publisher.lock:
            target, was = publisher.now, self._at.number
            touched = [each for each in self.dirty if each.is_whole]
            for each in touched:
                kept = each.published.retained.after(was, target.number)
                size += sum(len(patch.data) for patch in kept or ())
                if kept is None or size > _MAX_EVENT_BYTES:
                    each.is_whole = False
                    self.again.append(each)
                    del self.dirty[each]
                elif kept:
                    found.append((each.asked.id, kept))
                if kept is not None and each.published.retained.latest <= target.number:
                    self.dirty.pop(each, None)
            self._at = target
        if found:
            yield from self._composed(found)

    def _composed(self, found: list[tuple[str, list[Kept]]]) -> Iterator[bytes]:
        numbers = sorted({patch.number for _, kept in found for patch in kept})
        with self._publisher.lock:
            stamps = [self._publisher.stamp(number) for number in numbers[-_STEPS - 1 :]]
        if len(numbers) > _STEPS or None in stamps:
            self._publisher.figures.summed += 1
            yield self._said_patch(self._at, {id_: _data(kept) for id_, kept in found})
            return
        for stamp in stamps:
            assert stamp is not None
            patches = {id_: patch for id_, kept in found for patch in kept if patch.number == stamp.number}
            yield self._said_patch(stamp, {id_: patch.data for id_, patch in patches.items()})

    def _page(self) -> Iterator[bytes]:
        """One page of the first query whose rows are to be sent; before it, the ends of those that were sent whole."""
        while self._pages:
            subscription, left = self._pages[0]
            try:
                page = next(left, None)
            except Exception as error:  # a row that JSON has not
                self._pages.popleft()
                self._fail(subscription.first, error)
                continue
            if page is not None:
                yield self._event(*page)
                return
            self._pages.popleft()
            yield from self._end_of_pages(subscription)

    def _end_of_pages(self, subscription: Subscription) -> Iterator[bytes]:
        """All rows were sent: what has changed since, and from now on it moves with the others."""
        publisher = self._publisher
        with publisher.lock:
            kept = subscription.published.retained.after(subscription.at, self._at.number)
            if kept is None:
                self.again.append(subscription)
                return
            subscription.is_whole = True
            self.dirty[subscription] = None
        if kept:
            yield self._event("patch", _patch(self._at, {subscription.asked.id: _data(kept)}))
        if self._state != "complete":
            yield self._event("state", encode({"query": subscription.asked.id, "state": self._state}))
        subscription.since = self._seq
        self._said = None


def _patch(stamp: Stamp, queries: dict[str, bytes]) -> bytes:
    """The data of a patch: operations in JSON by the ids of queries."""
    return b'{"version":%b,"queries":{%b}}' % (
        stamp.data,
        b",".join(b"%b:%b" % (encode(id_), ops) for id_, ops in queries.items()),
    )


def _data(kept: list[Kept]) -> bytes:
    """The operations of several patches as those of one, in JSON."""
    if len(kept) == 1:
        return kept[0].data
    ops: list[Op] = summed((patch.ops, patch.sizes) for patch in kept)
    return encode(ops)
