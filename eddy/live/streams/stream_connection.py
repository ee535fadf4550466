"""One stream of events: its queries, the version of each, and the events that are due.

An event is made when the client has received the earlier events. It is made from the patches that are kept for all
clients. So a slow client costs no memory, and gets sums of patches.

    open ──▶ snapshot, page by page, the last with the patches since ──▶ whole: moves with the others

Invariant: after each event all queries that are whole, and whose state is not "unknown", are at the version that was
sent last.

The reader's thread calls `events`. Other threads add queries and patches: the threads that open queries, and the live
server's thread.

Invariant: each acquired query is released once, whenever the stream closes. One block under the lock decides whether a
query becomes a subscription. The caller that removes a subscription releases its query; a query that has not become a
subscription is released by the caller that acquired it.
"""

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator

import msgspec

from eddy.errors import EddyError, NotReadyError, QueryError
from eddy.live.query.query import Query
from eddy.live.query.refusals import QueryFailedError
from eddy.live.query.shapes import levels_of
from eddy.live.server.difference import difference
from eddy.live.streams.events import (
    HEARTBEAT,
    Asked,
    LastEvent,
    Page,
    SnapshotPages,
    StepStamp,
    WindowChange,
    encode,
    event,
)
from eddy.live.streams.publisher import Published, Publisher, State
from eddy.live.streams.retained import KeptPatch, data_of, with_last
from eddy.live.streams.subscription import Subscription

__all__ = ["Connection", "Record"]

_log = logging.getLogger("eddy.live")
_STEPS = 8
"""The most versions that are sent one by one; a later reader gets the sum of their patches."""
_MAX_EVENT_BYTES = 8 << 20
_VERSION_S, _LOOK_S = 0.5, 0.05
"""Seconds between events of versions without changes, and the shortest sleep."""
Record = dict[str, tuple[Hashable, int]]
"""By the id of a whole query: its identity, which differs between callers that may read different rows, and the number
of the event since which it is whole.
"""


class Connection:
    """One stream of events to a client.

    `wake` is called, from any thread, when events may be due. `query_of` returns the query of an `Asked`.
    """

    def __init__(
        self, publisher: Publisher, server: str, query_of: Callable[[Asked], Query], wake: Callable[[], None]
    ) -> None:
        self._publisher, self._server, self._query_of, self.wake = publisher, server, query_of, wake
        self.id = secrets.token_urlsafe(12)
        self.asked: dict[str, Asked] = {}
        self.to_resend: deque[Subscription] = deque()
        """Queries whose patches are not kept any more: they need their rows anew."""
        self.dirty: dict[Subscription, None] = {}
        self.failed: list[tuple[Asked, Exception]] = []
        self.ended = 0
        """The number of queries that have ended by an error, and that nobody has counted yet."""
        self.unknown: list[str] = []
        """Queries for which the client may have rows of another version than the one it is sent next."""
        self.is_closed = False
        self._subscriptions: dict[str, Subscription] = {}
        self._pages: deque[tuple[Subscription, SnapshotPages]] = deque()
        self._seq = 0
        self._sent_at = self._announced_at = time.monotonic()
        self._state: State | None = "complete"  # the state of whole queries that was sent last; None if it is not known
        self._at = publisher.now
        self._until: StepStamp | None = None  # the version at which the stream waits for a window that is being moved
        self._announced: StepStamp | None = None  # the version to be sent once no other event is due

    @property
    def waiting(self) -> int:
        """The number of queries whose rows are being sent."""
        return len(self._pages)

    # Called by threads that open queries.

    def resume(self, last: LastEvent, record: Record, asked: Iterable[Asked]) -> list[Asked]:
        """Continue queries from the last event's version. Returns those of `asked` whose rows have to be sent anew."""
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
                self._at = StepStamp(last.number, last.token, exact=False)
                self._state = None  # the last event may have been "unknown": the client has to learn when that ends
                for subscription in found:
                    subscription.is_whole = True
                    self.dirty[subscription] = None
                self._publisher.figures.resumed += len(found)
        return left

    def _resumed(self, asked: Asked, last: LastEvent, record: Record) -> Subscription | None:
        identity, since = record.get(asked.id, (None, 0))
        if identity is None or since > last.seq:
            return None
        try:
            query = self._query_of(asked)
            published = self._publisher.find(query)
        except EddyError:
            return None  # the error is sent when the query is opened
        if published is None:
            return None
        subscription = Subscription(self, asked, published)
        with self._publisher.lock:
            is_same = published.identity == identity
            is_there = is_same and published.error is None and last.number >= published.retained.floor
            is_kept = is_there and self._keep(subscription)
            if is_kept:
                published.subscribers[subscription] = None
        if not is_kept:
            self._publisher.release(published)
            return None
        return subscription

    def open(self, asked: Asked) -> bool:
        """Open a query, and queue its rows for sending. A failure becomes an event for the client.

        Returns False if tables are not complete, so that the caller has to try again; otherwise True.
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
        """Add a subscription, which `close` releases; return False if the stream is closed.

        The caller holds the lock.
        """
        if not self.is_closed:
            self._subscriptions[subscription.asked.id] = subscription
        return not self.is_closed

    def _acquired(self, asked: Asked, first: Asked) -> Published | None:
        """Return the requested query; None if that fails, and the error becomes an event of the query `first`.

        Raises: NotReadyError if tables are not complete, so that the caller has to try again.
        """
        try:
            return self._publisher.acquire(self._query_of(asked))
        except Exception as error:
            if isinstance(error, NotReadyError) and not self._publisher.is_stopped:
                raise
            self._fail(first, error)
            return None

    def show_again(self, subscription: Subscription) -> None:
        """Queue all rows of a query for sending again."""
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
        found = SnapshotPages(id_, view.operator.root.id, levels_of(view.shape), rows)
        publisher.figures.snapshots += 1
        with publisher.lock:
            if self._subscriptions.get(subscription.asked.id) is subscription:
                self._pages.append((subscription, found))
            else:  # the query was closed meanwhile
                subscription.published.subscribers.pop(subscription, None)
        self.wake()

    def move(self, window: WindowChange) -> bool:
        """Move the window of a query: the difference is queued for sending. Returns False where `open` does."""
        subscription = self._subscriptions.get(window.id)
        if subscription is None:
            return True  # the query has ended, and the client gets an event
        asked = msgspec.structs.replace(subscription.asked, id=window.id, skip=window.skip, limit=window.limit)
        try:
            published = self._acquired(asked, subscription.first)
        except NotReadyError:
            return False
        if published is not None:
            self._exchange(subscription, asked, published)
        return True

    def _exchange(self, subscription: Subscription, asked: Asked, published: Published) -> None:
        """Give a subscription another query: the rest of the former one's patches is sent first, then the difference.

        The stream does not pass the version of the difference before the difference is sent.
        """
        publisher, former = self._publisher, subscription.published
        try:
            with publisher.server.lock:
                before, rows = former.copied(), published.copied()
                with publisher.lock:
                    stamp = self._until = publisher.now
            moved = difference(before, rows)
            sizes = {op.bucket: len(before.get(op.bucket, ())) for op in moved}
            with publisher.lock:
                if self._subscriptions.get(asked.id) is not subscription:
                    raise QueryError("live query: it was closed while its window was moved")
                kept = subscription.after(self._at.number, stamp.number) if subscription.is_whole else None
                former.subscribers.pop(subscription, None)
                published.subscribers[subscription] = None
                subscription.asked, subscription.published, subscription.at = asked, published, stamp.number
                if kept is None:
                    self.unknown += [asked.id] if subscription.is_whole else []
                    self._leave(subscription)
                else:
                    subscription.due = with_last(kept, KeptPatch(stamp.number, tuple(moved), sizes, time.monotonic()))
                    self.dirty[subscription] = None
        except EddyError as error:
            publisher.release(published)
            self._fail(subscription.first, error)
            return
        finally:
            self._until = None
        publisher.release(former)
        if kept is None:
            self._show(subscription)
        self.wake()

    def _leave(self, subscription: Subscription) -> None:
        """Mark a subscription as not whole, and send none of its patches. The caller holds the lock."""
        subscription.is_whole, subscription.due = False, []
        self.dirty.pop(subscription, None)
        self._pages = deque(pair for pair in self._pages if pair[0] is not subscription)

    def _fail(self, first: Asked, error: Exception) -> None:
        if not isinstance(error, EddyError):
            _log.error("%s has failed", first.told, exc_info=error)
            error = QueryFailedError(f"{first.told}: it has failed; the server's log has the error")
        with self._publisher.lock:
            self.failed.append((first, error))
        self.wake()

    # Called by the reader's thread.

    def drop(self, id_: str) -> None:
        """Remove a query from the stream."""
        subscription = self._subscriptions.get(id_)
        if subscription is not None:
            self._drop(subscription)

    def _drop(self, subscription: Subscription) -> None:
        with self._publisher.lock:
            if self._subscriptions.get(subscription.asked.id) is not subscription:
                return
            del self._subscriptions[subscription.asked.id]
            subscription.published.subscribers.pop(subscription, None)
            self._leave(subscription)
        self._publisher.release(subscription.published)

    def close(self) -> Record:
        """End the stream. Returns the record from which another stream can continue."""
        with self._publisher.lock:
            self.is_closed = True
            left = list(self._subscriptions.values())
        record = self.record()
        for subscription in left:
            self._drop(subscription)
        return record

    def record(self) -> Record:
        """Return the queries that can continue after a reconnect, each with the event since which it is whole."""
        with self._publisher.lock:
            whole = {id_: each for id_, each in self._subscriptions.items() if each.is_whole and not each.due}
            return {id_: (each.published.identity, each.since) for id_, each in whole.items()}

    def hello(self) -> bytes:
        """Return the first event."""
        heartbeat_s = self._publisher.limits.heartbeat_s
        data = {"connection": self.id, "server": self._server, "heartbeat_s": heartbeat_s}
        return event("hello", encode(data), self._id())

    def bye(self, reason: str) -> bytes:
        """Return the last event."""
        return event("bye", encode({"reason": reason}), self._id())

    def _id(self, at: StepStamp | None = None) -> str:
        at = at or self._at
        return f"{at.token}.{self._server}.{self.id}.{at.number}.{self._seq}"

    def _event(self, kind: str, data: bytes, at: StepStamp | None = None) -> bytes:
        self._seq += 1
        return event(kind, data, self._id(at))

    def events(self) -> bytes:
        """Return the events that are due, with at most one page of rows; empty if none is due."""
        now = time.monotonic()
        # Pages are last: the last page of a query leads to the version that the other queries have reached by patches.
        found = [*self._failures(), *self._patches(), *self._version_event(now), *self._page()]
        if not found and now - self._sent_at >= self._publisher.limits.heartbeat_s:
            found = [HEARTBEAT]
        if found:
            self._sent_at = now
            self._publisher.figures.events += len(found)
        return b"".join(found)

    def due_s(self) -> float:
        """Return the seconds after which an event may be due although nobody calls `wake`."""
        now = time.monotonic()
        if self._publisher.rests(self.wake, self._announced):
            return max(_LOOK_S, self._publisher.limits.heartbeat_s - (now - self._sent_at))
        return max(_LOOK_S, _VERSION_S - (now - self._announced_at))

    def _version_event(self, now: float) -> Iterator[bytes]:
        """Yield the event of a version without changes, if due: when the version is exact again, and at intervals."""
        said, at = self._announced, self._at
        if said is None:
            is_due = len(self.asked) == len(self._subscriptions) and not self._pages
        else:
            is_due = at.exact and not said.exact
        if is_due or (at is not said and now - self._announced_at >= _VERSION_S):
            yield self._patch_event(at, {})

    def _patch_event(self, stamp: StepStamp, queries: dict[str, bytes]) -> bytes:
        self._announced, self._announced_at = stamp, time.monotonic()
        return self._event("patch", _patch(stamp, queries), stamp)

    def _failures(self) -> Iterator[bytes]:
        with self._publisher.lock:
            failed, self.failed = self.failed, []
        for first, error in failed:
            if self.asked.get(first.id) is not first:
                continue  # the query was closed meanwhile, and another one may have its id
            self.drop(first.id)
            del self.asked[first.id]
            self.ended += 1
            told = {"code": getattr(error, "code", QueryError.code), "message": str(error)}
            yield self._event("error", encode({"query": first.id, "error": told}))

    def _patches(self) -> Iterator[bytes]:
        """Yield the patches of all whole queries up to the latest version; the queries' new states come first."""
        publisher, was = self._publisher, self._at
        with publisher.lock:
            target, state = self._until or publisher.now, publisher.state
            found = self._taken(was.number, target.number)
            moved = [each for each, _ in found if each.due]
            for each in moved:
                each.due = []
            self._at = target
            unknown, self.unknown = self.unknown, []
        yield from self._states(state, unknown, was)
        if found:
            yield from self._composed([(each.asked.id, kept) for each, kept in found])
        for each in moved:
            each.since = self._seq

    def _taken(self, was: int, target: int) -> list[tuple[Subscription, list[KeptPatch]]]:
        """Take the patches of queries.

        Queries whose patches were dropped get their rows anew. The caller holds the lock.
        """
        found: list[tuple[Subscription, list[KeptPatch]]] = []
        size = 0
        for each in [each for each in self.dirty if each.is_whole]:
            kept = each.after(was, target)
            size += sum(len(patch.data) for patch in kept or ())
            if kept is None or size > _MAX_EVENT_BYTES:
                self._leave(each)
                self.to_resend.append(each)
                self.unknown.append(each.asked.id)
                continue
            if kept:
                found.append((each, kept))
            if each.published.retained.latest <= target:
                del self.dirty[each]
        return found

    def _states(self, state: State, unknown: list[str], was: StepStamp) -> Iterator[bytes]:
        """Yield the events about states of queries.

        The id of each event is the step `was`: a client that reconnects with it gets all patches since `was`.
        """
        if state != self._state:
            self._state = state
            for id_, subscription in list(self._subscriptions.items()):
                if subscription.is_whole:
                    yield self._event("state", encode({"query": id_, "state": state}), was)
        for id_ in unknown:
            yield self._event("state", encode({"query": id_, "state": "unknown"}), was)

    def _composed(self, found: list[tuple[str, list[KeptPatch]]]) -> Iterator[bytes]:
        """Yield one event a version, or a single event with the sum of the patches if there are many versions."""
        numbers = sorted({patch.number for _, kept in found for patch in kept})
        with self._publisher.lock:
            stamps = [self._publisher.stamp(number) for number in numbers[-_STEPS - 1 :]]
        if len(numbers) > _STEPS or None in stamps:
            self._publisher.figures.summed += 1
            yield self._patch_event(self._at, {id_: data_of(kept) for id_, kept in found})
            return
        for stamp in stamps:
            assert stamp is not None
            patches = {id_: patch for id_, kept in found for patch in kept if patch.number == stamp.number}
            yield self._patch_event(stamp, {id_: patch.data for id_, patch in patches.items()})

    def _page(self) -> Iterator[bytes]:
        """Yield one page of the first query whose rows are queued, unless their version is later than the stream's."""
        pages = self._pages
        if not pages or pages[0][0].at > self._at.number:
            return
        pair = subscription, snapshot = pages[0]
        if not snapshot.is_begun:
            kept = self._caught_up(pair)
            if kept is None:
                return
            for patch in kept:
                snapshot.apply(patch.ops)
        try:
            page = next(snapshot)
        except Exception as error:  # a row that JSON cannot represent
            with self._publisher.lock:
                self._leave(subscription)
            self._fail(subscription.first, error)
            return
        if page.is_last:
            yield from self._last_page(pair, page)
        else:
            yield self._event("snapshot", page.more())

    def _caught_up(self, pair: tuple[Subscription, SnapshotPages], *, whole: bool = False) -> list[KeptPatch] | None:
        """Return the patches from queued rows to the stream's version, which the subscription then has.

        Returns None if the rows must not be sent any more: patches were dropped, or the window was moved meanwhile.
        """
        subscription = pair[0]
        with self._publisher.lock:
            if not self._pages or self._pages[0] is not pair:
                return None
            kept = subscription.published.retained.after(subscription.at, self._at.number)
            subscription.at = self._at.number
            if kept is None:
                self._leave(subscription)
                self.to_resend.append(subscription)
            elif whole:
                self._pages.popleft()
                subscription.is_whole = True
                self.dirty[subscription] = None
            return kept

    def _last_page(self, pair: tuple[Subscription, SnapshotPages], page: Page) -> Iterator[bytes]:
        """Yield the last page, with the changes since the first page. From now on the query moves with the others."""
        subscription = pair[0]
        kept = self._caught_up(pair, whole=True)
        if kept is None:
            return
        if kept:
            yield self._event("snapshot", page.more())
            page = Page(page.query, b"", data_of(kept), is_last=True)
        yield self._event("snapshot", page.last(self._at))
        if self._state != "complete":
            yield self._event("state", encode({"query": subscription.asked.id, "state": self._state}))
        subscription.since = self._seq
        self._announced = None


def _patch(stamp: StepStamp, queries: dict[str, bytes]) -> bytes:
    """Return the data of a patch event: the operations in JSON, by the ids of queries."""
    return b'{"version":%b,"queries":{%b}}' % (
        stamp.data,
        b",".join(b"%b:%b" % (encode(id_), ops) for id_, ops in queries.items()),
    )
