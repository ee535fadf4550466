"""Named queries over HTTP: once, and as streams of events.

GET  /v1/queries                  the queries, with their arguments
GET  /v1/queries/NAME?arg=value   the result, once
GET  /v1/live?query=JSON          a stream of events: the rows of queries, and patches as they change
GET  /v1/live-text?query=JSON     the same; a query may also be a text, over the tables that the caller may read
POST /v1/live/STREAM              opens, closes and moves queries of a stream
GET  /v1/open-queries             the queries that are kept up to date, with their clients and costs

docs/live-queries.md has the events.
"""

import asyncio
import contextlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from eddy.errors import EddyError, NotReadyError, QueryError
from eddy.live.query.named import Claims, Queries
from eddy.live.query.refusals import ForbiddenError, QueryArgumentError, QueryLimitError
from eddy.live.streams.caller import Caller, Headers, rows_allowed
from eddy.live.streams.events import Asked, Change, LastEvent
from eddy.live.streams.limits import Limits, Quota
from eddy.live.streams.open_queries import open_queries
from eddy.live.streams.publisher import Publisher
from eddy.live.streams.stream_connection import Connection, Record
from eddy.program.open_tables import Tables
from eddy.serve.answers import HEADERS, answer, tagged, whole_number
from eddy.serve.event_stream import Bell, Stream

__all__ = ["MAX_BODY_BYTES", "Authorize", "LivePages", "body_of"]

Authorize = Callable[[Request, str], "bool | Callable[[Any, Any], bool]"]
"""A function that is called for each request and table: False refuses, True allows all rows, a function (key, value)
allows some.
"""

T = TypeVar("T")
MAX_BODY_BYTES = 1 << 20
"""The most bytes of a request's body."""
_MAX_WAIT_S, _READY_S, _BEHIND_S = 30.0, 5.0, 10.0
_THREADS = 2
"""The number of queries that are opened at a time. The other threads of the event loop are kept for reads of tables."""
_MAX_RECORDS, _MAX_RECORDED = 1_000, 100_000
_asked = msgspec.json.Decoder(Asked).decode
_change = msgspec.json.Decoder(Change).decode


class _Open(NamedTuple):
    """An open stream of events, with its client, the caller that was authorized, and the publisher of its events."""

    stream: Stream
    client: str
    caller: Caller
    publisher: Publisher


class LivePages:
    """Answers the requests for named queries.

    Clients may request `queries`; `stop` ends the streams, and calls `stopped`.
    """

    def __init__(
        self, tables: Tables, queries: Queries, authorize: Authorize, limits: Limits, stopped: Callable[[], None]
    ) -> None:
        self._stopped = stopped
        self._tables, self._queries, self._authorize, self.limits = tables, queries, authorize, limits
        self.quota = Quota(limits)
        self.publisher: Publisher | None = None
        self._server = secrets.token_urlsafe(6)
        self._streams: dict[str, _Open] = {}
        self._records: OrderedDict[str, tuple[float, Record]] = OrderedDict()
        self._recorded = 0
        self._is_stopping = False
        self._making = threading.Lock()
        self._loops: dict[asyncio.AbstractEventLoop, tuple[Bell, asyncio.Semaphore]] = {}

    def routes(self) -> list[Route]:
        """Return the routes of the answers."""
        return [
            Route("/v1/queries", self.listed),
            Route("/v1/queries/{name}", self.once),
            Route("/v1/live", self.live),
            Route("/v1/live-text", self.live_text),
            Route("/v1/live/{stream}", self.changed, methods=["POST"]),
            Route("/v1/open-queries", self.open_now),
        ]

    def stop(self) -> None:
        """End all streams, and refuse new ones. It may be called by any thread."""
        self._is_stopping = True
        self._stopped()
        for found in list(self._streams.values()):
            found.stream.loop.call_soon_threadsafe(found.stream.stop, "stopping")

    async def listed(self, request: Request) -> Response:
        """Return the queries."""
        self._claims(request)
        return answer({"queries": [query.described() for query in self._queries]})

    async def open_now(self, request: Request) -> Response:
        """Answer with the open queries over tables of which the caller may read all rows."""
        self._claims(request)
        publisher = await self._publish()

        def may_read_all(table: str) -> bool:
            try:
                return rows_allowed(lambda name: self._authorize(request, name), table) is None
            except ForbiddenError:
                return False

        return answer(await self._in_thread(open_queries, publisher.server, may_read_all))

    async def once(self, request: Request) -> Response:
        """Return the result of a query, once."""
        headers = Headers(request.headers)
        claims = self._queries.claims(headers)
        given = dict(request.query_params)
        at_least, seconds = given.pop("at_least", None), whole_number(request, "wait")
        given.pop("wait", None)
        wait_s = min(_MAX_WAIT_S, _MAX_WAIT_S if seconds is None else seconds) if at_least else 0.0
        await self._tables.wait_async(at_least, timeout_s=wait_s)
        publisher = await self._publish()
        return await self._in_thread(self._read, publisher, request, claims, headers, given, at_least, wait_s)

    def _read(
        self,
        publisher: Publisher,
        request: Request,
        claims: Claims,
        headers: Headers,
        given: Mapping[str, str],
        at_least: str | None,
        wait_s: float,
    ) -> Response:
        caller = self._caller(request, claims, publisher)
        try:
            query = caller.of_text(request.path_params["name"], given)
            if at_least is not None:
                publisher.server.wait(at_least, False, wait_s)
            publisher.check_settled(query)
            publisher.server.check()  # otherwise the last version would be sent for ever
            rows, stamp = publisher.read(query)
        finally:
            caller.close()
        content = {"rows": rows, "version": msgspec.Raw(stamp.data)}
        return tagged(request, content, _claimed(claims), headers.read)

    async def live(self, request: Request) -> Any:
        """Return a stream of events."""
        return await self._streamed(request, None)

    async def live_text(self, request: Request) -> Any:
        """Return a stream of events of queries, which may also be texts.

        It has a path of its own, since `authorize` may allow only named queries.
        """
        return await self._streamed(request, [name for name in self._tables.names if self._may_read(request, name)])

    def _may_read(self, request: Request, table: str) -> bool:
        """Whether the caller may read some rows of a table."""
        try:
            rows_allowed(lambda name: self._authorize(request, name), table)
        except ForbiddenError:
            return False
        return True

    async def _streamed(self, request: Request, of_texts: list[str] | None) -> Any:
        claims = self._claims(request)
        asked = [_decoded(_asked, text.encode()) for text in request.query_params.getlist("query")]
        if request.method == "HEAD":
            return Response(headers=HEADERS | {"Content-Type": "text/event-stream; charset=utf-8"})
        if self._is_stopping:
            raise NotReadyError("live queries: the server stops; another one, or a later time, is needed")
        publisher = await self._publish()
        client = _client(request, claims)
        try:
            self.quota.add_stream(client)
        except QueryLimitError:
            publisher.figures.refused += 1
            raise
        stream = self._opened(publisher, client, self._caller(request, claims, publisher, of_texts))
        try:
            await self._begin(stream, request, asked)
        except BaseException:
            self._close(stream)
            raise
        return stream

    def _opened(self, publisher: Publisher, client: str, caller: Caller) -> Stream:
        bell, _ = self._of_loop()
        woken = asyncio.Event()
        connection = Connection(publisher, self._server, caller.query, lambda: bell.ring(woken))
        stream = Stream(
            connection,
            woken,
            self._in_thread,
            ready=lambda: self._tables.wait_async(timeout_s=_READY_S),
            ended=lambda count: self.quota.remove_queries(client, count),
            closed=self._close,
            slow_s=self.limits.slow_s,
        )
        self._streams[connection.id] = _Open(stream, client, caller, publisher)
        publisher.add_reader(connection.wake)
        return stream

    def _close(self, stream: Stream) -> None:
        """Release a stream that has ended; the second call does nothing."""
        connection = stream.connection
        found = self._streams.pop(connection.id, None)
        if found is None:
            return
        found.publisher.remove_reader(connection.wake)
        found.publisher.figures.slow += stream.is_slow
        self._record(connection.id, connection.close())
        self.quota.remove_queries(found.client, len(connection.asked) + connection.ended)
        self.quota.remove_stream(found.client)
        asyncio.get_running_loop().run_in_executor(None, found.caller.close)

    def _record(self, stream: str, record: Record) -> None:
        """Keep the record of an ended stream, with which its client can continue, as long as patches are kept."""
        now = time.monotonic()
        if record:
            self._records[stream] = now, record
            self._recorded += len(record)
        while self._records:
            at, oldest = next(iter(self._records.values()))
            is_old = at < now - self.limits.lingers_s
            if not (is_old or len(self._records) > _MAX_RECORDS or self._recorded > _MAX_RECORDED):
                return
            self._records.popitem(last=False)
            self._recorded -= len(oldest)

    async def _begin(self, stream: Stream, request: Request, asked: list[Asked]) -> None:
        change = Change(open=asked)
        self._admit(stream, change)
        for each in asked:
            stream.connection.asked[each.id] = each
        last = LastEvent.of(request.headers.get("last-event-id") or request.query_params.get("last_event_id", ""))
        left = asked
        if last is not None:
            left = await self._resumed(stream, last, asked)
            stream.connection.unknown += [each.id for each in left]
        stream.work(*left)

    def _admit(self, stream: Stream, change: Change) -> None:
        """Check a change of a stream, and count its queries. Raises: QueryError; then no query is counted."""
        found = self._streams[stream.connection.id]
        stream.check(change)
        closed = len(stream.connection.asked.keys() & set(change.close))
        try:
            self.quota.add_queries(found.client, len(stream.connection.asked) - closed, len(change.open))
        except QueryLimitError:
            found.publisher.figures.refused += 1
            raise

    async def _resumed(self, stream: Stream, last: LastEvent, asked: list[Asked]) -> list[Asked]:
        """Continue queries from the last event. Returns the queries that cannot continue."""
        if last.server != self._server:
            # The event is from another replica: wait, so that versions do not decrease if possible.
            with contextlib.suppress(EddyError):
                await self._tables.wait_async(last.token, timeout_s=_BEHIND_S)
            return asked
        former = self._streams.get(last.stream)
        if former is not None and former.stream is not stream:
            record = former.stream.connection.record()
            former.stream.stop("retired")
        else:
            _, record = self._records.get(last.stream, (0.0, {}))
        left: list[Asked] = await self._in_thread(stream.connection.resume, last, record, asked)
        return left

    async def changed(self, request: Request) -> Response:
        """Open, close and move queries of a stream."""
        self._claims(request)
        found = self._streams.get(request.path_params["stream"])
        body = await body_of(request)
        if body is None:
            error = f"live queries: a body of at most {MAX_BODY_BYTES:,} bytes is needed"
            return answer({"code": QueryLimitError.code, "error": error}, 413)
        change = _decoded(_change, body)
        if found is None or found.stream.is_gone:
            return answer({"code": "NOT_FOUND", "error": "there is no such stream; connect again"}, 404)
        if found.stream.loop is not asyncio.get_running_loop():
            raise QueryError("live queries: the stream is of another event loop; one loop serves an application")
        self._admit(found.stream, change)
        found.stream.change(change)
        return Response(status_code=204, headers=HEADERS)

    async def _publish(self) -> Publisher:
        """Return the publisher of open queries, which the first request makes."""
        if self.publisher is not None:
            return self.publisher
        return await asyncio.to_thread(self._made)

    def _made(self) -> Publisher:
        with self._making:
            if self.publisher is None:
                self.publisher = Publisher(self._tables.live_server(), self.limits)
        return self.publisher

    def _caller(
        self, request: Request, claims: Claims, publisher: Publisher, of_texts: list[str] | None = None
    ) -> Caller:
        return Caller(self._queries, claims, lambda table: self._authorize(request, table), publisher.server, of_texts)

    def _claims(self, request: Request) -> Claims:
        return self._queries.claims(Headers(request.headers))

    def _of_loop(self) -> tuple[Bell, asyncio.Semaphore]:
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops = {each: found for each, found in self._loops.items() if not each.is_closed()}
            self._loops[loop] = Bell(), asyncio.Semaphore(_THREADS)
        return self._loops[loop]

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function on a thread, a few at a time in each event loop. If cancelled, it still runs to its end."""
        _, semaphore = self._of_loop()
        async with semaphore:
            return await asyncio.to_thread(function, *arguments)


def _client(request: Request, claims: Claims) -> str:
    """Return the client of a request, for its quotas: the claims, or the address if there are no claims."""
    if claims:
        return _claimed(claims)
    return request.client.host if request.client is not None else ""


def _claimed(claims: Claims) -> str:
    return repr(sorted(claims.items()))


def _decoded(decode: Callable[[bytes], T], data: bytes) -> T:
    try:
        return decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise QueryArgumentError(f"live queries: this is not a request: {error}") from error


async def body_of(request: Request) -> bytes | None:
    """Return the body of a request; None if it is too large. Raises: QueryArgumentError if a part is missing."""
    data = bytearray()
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > MAX_BODY_BYTES:
                return None
    except ClientDisconnect as error:  # the client has gone: no one reads an answer
        raise QueryArgumentError("live queries: the request ended in its body; a complete one is needed") from error
    return bytes(data)
