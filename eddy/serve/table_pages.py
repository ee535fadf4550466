"""Tables over HTTP. They can be read only.

/v1/tables                               the tables, with the numbers of their rows
/v1/tables/NAME/KEY                      one row
/v1/tables/NAME?from=&to=&prefix=&limit=&after=    rows in the order of keys, a page at a time
                        at=N, find=KEY   the page from the N-th row on, or from a key on, with its place
                        search=TEXT&order=COLUMN    rows by their values, half a second at a time
                        format=csv|jsonl|parquet    a file of one exact version
/v1/queries, /v1/live                    named queries: `serve/live_pages.py`
/v1/sql                                  SQL queries: `serve/sql_pages.py`
/healthz, /readyz, /metrics              whether topics are read, whether all tables are whole; figures

Every answer names its version, and whether it is exact; `at_least=TOKEN` waits for a version. With
`Accept: application/x-ndjson` all rows of a range are sent as lines, at one version. In a URL a key that is a string or
bytes is written as text, and any other key as JSON; text that is not JSON is a string.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from eddy.errors import EddyError, NotReadyError, QueryError
from eddy.live.streams.caller import rows_allowed
from eddy.live.streams.limits import Limits
from eddy.program.open_tables import Tables, TablesSnapshot
from eddy.serve.answers import HEADERS, answer, encode, refused, tagged, whole_number
from eddy.serve.http_server import RENEW
from eddy.serve.live_figures import LiveFigures
from eddy.serve.live_pages import Authorize, LivePages
from eddy.serve.metrics import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from eddy.serve.row_export import Export, export_of, exported, formats
from eddy.serve.row_places import Sought, placed, sought_of
from eddy.serve.row_search import Search, search_of, searched
from eddy.serve.sql_pages import SqlPages
from eddy.serve.table_figures import TableFigures, registry_of
from eddy.tables.key_text import form_of_keys, key_of_text, text_of_key
from eddy.tables.open_table import KeyRange, OpenTable
from eddy.tables.version import Version

__all__ = ["MAX_PAGE_BYTES", "MAX_STREAM_S", "MAX_WAIT_S", "METHODS", "Authorize", "TablesLater", "tables_app"]

_log = logging.getLogger("eddy.tables")
METHODS = ["GET", "POST"]
"""The methods that web pages of other origins may use. POST changes the queries of a stream, but no table."""
Row = tuple[Any, Any]
Allowed = Callable[[Any, Any], Any]
"""A function of (key, value) that is true for the rows that a caller may read."""

_DEFAULT_ROWS, _MAX_ROWS = 1_000, 10_000
MAX_PAGE_BYTES, _CHUNK_BYTES = 16 << 20, 64 << 10
"""The bytes of a page of rows, and the bytes that a stream of rows sends at a time."""
MAX_WAIT_S, MAX_STREAM_S, MAX_EXPORT_S = 30.0, 60.0, 3_600.0
"""Seconds that an answer waits for a version, that a stream of rows or a chunk of a file takes, and a whole file."""
MAX_EXPORTS = 2
"""The most files that are written at a time."""
_BESIDE_A_WORKER = Limits(connections=40)
_NDJSON = "application/x-ndjson"


class _KeyConvertor(PathConvertor):
    """The rest of a path with its line breaks, which belong to a key; Starlette's own `path` ends before them."""

    regex = "(?s:.*)"


register_url_convertor("eddy_key", _KeyConvertor())  # for the whole process, so the name is eddy's own


def tables_app(
    tables: Tables, authorize: Authorize | None = None, cors: list[str] | None = None, limits: Limits | None = None
) -> Starlette:
    """Make an ASGI application that serves the tables and named queries of `tables`, to run or to mount in another.

    `authorize` decides for each request which rows may be read, `cors` has the origins of web pages that may read, and
    `limits` bounds live queries. Call `app.state.live.stop()` to end the streams before the application is stopped.
    """
    may_read = authorize or (lambda request, table: True)
    sql = SqlPages(tables, may_read)
    live = LivePages(tables, tables.queries, may_read, limits or Limits(), sql.stop)
    pages = _Pages(tables, may_read, live)
    middleware = [Middleware(CORSMiddleware, allow_origins=cors or [], allow_methods=METHODS, allow_headers=["*"])]
    app = Starlette(
        routes=[
            Route("/healthz", pages.health),
            Route("/readyz", pages.readiness),
            Route("/metrics", pages.metrics),
            Route("/v1/tables", pages.tables),
            Route("/v1/tables/{name}", pages.rows),
            Route("/v1/tables/{name}/{key:eddy_key}", pages.row),
            *live.routes(),
            *sql.routes(),
        ],
        middleware=middleware if cors else [],
        exception_handlers={EddyError: refused},
    )
    app.router.redirect_slashes = False
    app.state.live = live
    return app


class TablesLater:
    """An ASGI application, to be mounted at /v1, that serves tables once `serve` was called with open tables."""

    def __init__(self) -> None:
        self._app: Starlette | None = None
        self.tables: Tables | None = None
        self._registry = CollectorRegistry()

    def serve(self, tables: Tables) -> None:
        """Serve these tables."""
        self._app, self.tables = tables_app(tables, limits=_BESIDE_A_WORKER), tables
        self._registry.register(TableFigures(tables))
        self._registry.register(LiveFigures(self._app.state.live))

    def stop(self) -> None:
        """End the streams of live queries."""
        if self._app is not None:
            self._app.state.live.stop()

    def figures(self) -> bytes:
        """Return the figures of the tables, for Prometheus; empty before tables are served."""
        return generate_latest(self._registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        if self._app is None:
            content = {"code": NotReadyError.code, "error": "tables are not served here, or not yet"}
            await answer(content, 503, {"Retry-After": "1"})(scope, receive, send)
            return
        whole = {**scope, "root_path": scope.get("root_path", "").removesuffix("/v1")}
        await self._app(whole, receive, send)


class _Pages:
    """Answers the requests for tables."""

    def __init__(self, tables: Tables, authorize: Authorize, live: LivePages) -> None:
        self._tables, self._authorize = tables, authorize
        self._exports = asyncio.Semaphore(MAX_EXPORTS)
        self._one_search = asyncio.Lock()  # one at a time, since a search occupies the processor
        self._registry = registry_of(tables)
        self._registry.register(LiveFigures(live))

    async def health(self, request: Request) -> Response:
        failure = self._tables.failure
        reason = "" if failure is None else type(failure).__name__
        return answer({"ok": not reason, "reason": reason}, not reason)

    async def readiness(self, request: Request) -> Response:
        if self._tables.rows.failure is not None:
            why = "reading has ended"
        elif self._tables.rows.halted is not None:
            why = "the worker of this program has ended"
        else:
            why = self._tables.rows.hindrance if self._tables.failure is None else "live queries have ended"
        return answer({"ready": not why, "reason": why}, not why)

    async def metrics(self, request: Request) -> Response:
        return Response(generate_latest(self._registry), headers=HEADERS | {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def tables(self, request: Request) -> Response:
        version = await self._version(request)
        counts, found = self._tables.rows.counts, self._tables.catalog.tables.values()
        listed = [
            {
                "name": t.name,
                "kind": t.kind,
                "key": t.key.name,
                "value": t.value.name,
                "keys": form_of_keys(t),
                "rows": counts[t.name],
            }
            for t in found
            if self._authorize(request, t.name)
        ]
        return answer({"tables": listed, "formats": formats(), **_version_fields(version)})

    async def row(self, request: Request) -> Response:
        allowed = self._allowed(request)
        await self._version(request)
        table = self._tables[request.path_params["name"]]
        key = key_of_text(table.table, request.path_params["key"])
        with self._tables.rows.changed:  # under the lock, so that rows and version belong together
            value, version = table.get(key, _NONE), self._tables.version
        if value is _NONE or not (allowed is None or allowed(key, value)):
            return answer({"code": "NOT_FOUND", "error": "there is no such row", **_version_fields(version)}, 404)
        return tagged(request, {"key": key, "value": value, **_version_fields(version)})

    async def rows(self, request: Request) -> Response:
        allowed = self._allowed(request)
        table = self._tables[request.path_params["name"]]
        keys = _asked(table, request)  # a bad request is refused before a stream begins
        limit, sought = whole_number(request, "limit"), sought_of(request, table, shows_all=allowed is None)
        search = search_of(request, table)
        in_lines = _NDJSON in request.headers.get("accept", "")
        export = export_of(request, table)
        _check_together(table, in_lines or export is not None, sought, search)
        if export is not None:
            return await self._file(request, keys, export, allowed)
        await self._version(request)
        if in_lines:
            return StreamingResponse(self._stream(request, limit, allowed), headers=HEADERS, media_type=_NDJSON)
        rows = min(limit or _DEFAULT_ROWS, _MAX_ROWS)
        if search is None:
            return await asyncio.to_thread(self._page, request, keys, sought, rows, allowed)
        async with self._one_search:
            if await request.is_disconnected():
                return Response(status_code=408)  # the client does not wait any more
            return await asyncio.to_thread(self._searched, request, keys, search, rows, allowed)

    def _searched(
        self, request: Request, keys: KeyRange, search: Search, limit: int, allowed: Allowed | None
    ) -> Response:
        with self._tables.snapshot(timeout_s=0.0) as snapshot:
            table = snapshot[request.path_params["name"]]
            found = searched(table, table.between(keys), search, limit, allowed)
            return answer(found | _version_fields(snapshot.version))

    def _page(
        self, request: Request, keys: KeyRange, sought: Sought | None, limit: int, allowed: Allowed | None
    ) -> Response:
        name = request.path_params["name"]
        rows: list[msgspec.Raw] = []
        size, last, more, place = 0, None, False, {}
        with ExitStack() as opened:
            if sought is None:
                snapshot = opened.enter_context(self._tables.snapshot(timeout_s=0.0))
            else:
                found = placed(self._tables, name, keys, sought)
                snapshot, keys = opened.enter_context(found.snapshot), found.keys
                place = {"at": found.at, "count": found.total}
            for key, value in snapshot[name].between(keys):
                if len(rows) >= limit or size >= MAX_PAGE_BYTES:
                    more = True
                    break
                last = key
                if allowed is None or allowed(key, value):
                    row = encode({"key": key, "value": value})
                    size += len(row)
                    rows.append(msgspec.Raw(row))
            version = snapshot.version
        content = {
            "rows": rows,
            "next": text_of_key(self._tables.catalog.table(name), last) if more else None,
            **place,
            **_version_fields(version),
        }
        return tagged(request, content)

    async def _stream(self, request: Request, limit: int | None, allowed: Allowed | None) -> AsyncIterator[bytes]:
        """Yield lines of rows at one version, sent as fast as the client receives them.

        The answer is cut off after a minute.
        """
        end = time.monotonic() + MAX_STREAM_S
        with self._tables.snapshot(timeout_s=0.0) as snapshot:
            yield encode(_version_fields(snapshot.version)) + b"\n"
            table = snapshot[request.path_params["name"]]
            rows = _limited(table.between(_asked(table, request)), allowed, limit)
            while chunk := await asyncio.to_thread(_lines, rows):
                yield chunk
                if time.monotonic() > end:
                    yield encode({"error": f"not read within {MAX_STREAM_S:.0f} s; ask for less at a time"}) + b"\n"
                    return
            yield encode({"end": True}) + b"\n"

    async def _file(self, request: Request, keys: KeyRange, export: Export, allowed: Allowed | None) -> Response:
        """Return the rows of a range as a file of one exact version, sent as fast as the client receives it.

        A file that cannot be completed has no end: the connection is cut off, so that the client notices.
        """
        if self._exports.locked():
            raise NotReadyError(f"tables: {MAX_EXPORTS} files are being written, which is the limit. Try again later")
        async with AsyncExitStack() as held:
            await held.enter_async_context(self._exports)
            snapshot = held.enter_context(await self._exact(request))
            table = snapshot[request.path_params["name"]]
            chunks = exported(table, lambda: _limited(table.between(keys), allowed, None), export)
            first = await asyncio.to_thread(next, chunks, None)  # an error so far has a status of its own
            parts = _sent(request, table.table.name, first, chunks, held.pop_all())
        headers = {"Content-Disposition": export.disposition(table.table.name), "Eddy-Version": snapshot.version.token}
        return StreamingResponse(parts, headers=HEADERS | headers, media_type=export.media_type)

    async def _exact(self, request: Request) -> TablesSnapshot:
        """Return a snapshot at an exact version. Raises: NotReadyError if there is none for 30 seconds."""
        asked, end = request.query_params.get("at_least"), time.monotonic() + MAX_WAIT_S
        while True:
            await self._tables.wait_async(asked, exact=True, timeout_s=max(0.0, end - time.monotonic()))
            with suppress(NotReadyError):  # the version has changed in between
                return self._tables.snapshot(asked, exact=True, timeout_s=0.0)

    def _allowed(self, request: Request) -> Allowed | None:
        """Return the function that decides which rows the caller may read; None if all."""
        return rows_allowed(lambda table: self._authorize(request, table), request.path_params["name"])

    async def _version(self, request: Request) -> Version:
        asked = request.query_params.get("at_least")
        seconds = whole_number(request, "wait")
        wait_s = min(MAX_WAIT_S, seconds if seconds is not None else MAX_WAIT_S) if asked else 0.0
        return await self._tables.wait_async(asked, timeout_s=wait_s)


_NONE = object()


def _asked(table: OpenTable, request: Request) -> KeyRange:
    """Return the keys that the query string names."""
    given = {name: request.query_params.get(name) for name in ("from", "to", "prefix", "after")}
    low, high, prefix, after = (None if text is None else key_of_text(table.table, text) for text in given.values())
    keys = table.keys(low, high) if prefix is None else table.keys_with(prefix)
    return keys if after is None else table.keys_after(keys, after)


async def _sent(
    request: Request, name: str, first: bytes | None, chunks: Iterator[bytes], held: AsyncExitStack
) -> AsyncIterator[bytes]:
    """Send chunks, each within a minute, and close `held`, the resources that they need."""
    renew = request.scope.get("state", {}).get(RENEW)
    end, chunk = time.monotonic() + MAX_EXPORT_S, first
    async with held:
        try:
            while chunk is not None:
                if renew is not None:
                    renew(MAX_STREAM_S)
                if chunk:
                    yield chunk
                if time.monotonic() > end:
                    raise QueryError(f"it was not received within {MAX_EXPORT_S:.0f} s")
                chunk = await asyncio.to_thread(next, chunks, None)
        except Exception as error:
            _log.warning("table '%s' was not sent whole as a file: %s", name, error)
            if renew is None:
                raise
            renew(0.0)
            await asyncio.sleep(
                1.0
            )  # until the connection is cut off: an end of the answer would look like a whole one


def _check_together(table: OpenTable, in_lines: bool, sought: Sought | None, search: Search | None) -> None:
    """Refuse parameters of a request that exclude one another. Raises: QueryError."""
    name = table.table.name
    if in_lines and (sought or search):
        raise QueryError(
            f"table '{name}': at=, find=, search= and order= are not for lines or files; from= or prefix= is needed"
        )
    if sought and search:
        raise QueryError(
            f"table '{name}': at= and find= are places among all rows, not among found ones; one is needed"
        )


def _limited(rows: Iterator[Row], allowed: Allowed | None, limit: int | None) -> Iterator[Row]:
    given = 0
    for key, value in rows:
        if limit is not None and given >= limit:
            return
        if allowed is None or allowed(key, value):
            given += 1
            yield key, value


def _lines(rows: Iterator[Row]) -> bytes:
    """Return the next rows as lines of JSON, some kilobytes; empty bytes at the end."""
    chunk = bytearray()
    for key, value in rows:
        chunk += encode({"key": key, "value": value}) + b"\n"
        if len(chunk) >= _CHUNK_BYTES:
            break
    return bytes(chunk)


def _version_fields(version: Version) -> dict[str, Any]:
    return {"version": version.token, "exact": version.exact}
