"""The routes of the page: its files, the topology that it draws, and traces of rows.

/                        the page; /page.css and /page.js, all its scripts as one
/client.js, /client.d.ts the client, for other pages too
/topology                the topology as JSON, or as text, a Mermaid flowchart or an SVG document by `format=`
/v1/trace/STEP?key=KEY   the trace of a row; with `open=` once or more, parts of its sum are open;
                         `since=VERSION` shows the changes since a version that is kept

The files are sent compressed, and their scripts without comments. They are equal for all readers and contain no data,
so they need no token: the page asks the user for the token, and sends it with
each request. Its content security policy allows no requests to other hosts, and only these scripts.
"""

import asyncio
import gzip
import hashlib
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from eddy.errors import EddyError, NotReadyError
from eddy.json_text import encode
from eddy.program.open_tables import Tables
from eddy.program.row_trace import RowTrace, Traces
from eddy.serve.answers import refused
from eddy.serve.page.bundle import bundle
from eddy.serve.record_pages import record_routes
from eddy.topology.plan.picture import PictureStep, steps
from eddy.topology.topology import Topology

__all__ = ["FILES", "page_routes", "topology_route", "trace_route", "with_page"]

_MAX_TRACED, _MAX_NAMED, _KEPT_S = 1_000_000, 200, 60.0

_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".ts": "text/plain"}
FILES = {
    "/": "index.html",
    "/page.js": "page.js",
    "/dagre/dagre.js": "dagre/dagre.js",
    "/page.css": "page.css",
    "/client.js": "client.js",
    "/client.d.ts": "client.d.ts",
}
"""The files by their paths."""
_COMMENT = re.compile(rb"^ *(?:/\*\*(?:[^*]|\*(?!/))*\*/|//[^\n]*)\n", re.MULTILINE)
"""Comments on lines of their own, which are not sent."""
_PATHS = {*FILES, "/topology", "/v1/dead-letters"}

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
_PICTURES = {"text": "text/plain", "mermaid": "text/plain", "svg": "image/svg+xml"}


class _Description(msgspec.Struct):
    application: str
    text: str
    mermaid: str
    picture: str
    steps: list[PictureStep]


def with_page(app: ASGIApp, topology: Topology, tables: Tables) -> ASGIApp:
    """Return an ASGI application of tables with the page beside it."""
    more = [trace_route(topology, lambda: tables), *record_routes(topology, lambda: tables)]
    page = Starlette(routes=[*page_routes(), topology_route(topology), *more])
    page.router.redirect_slashes = False

    async def either(scope: Scope, receive: Receive, send: Send) -> None:
        # Looked up by path, since most requests are for rows and would try each route in turn.
        path = scope.get("path", "")
        is_page = path in _PATHS or path.startswith(("/v1/trace/", "/v1/records/"))
        await (page if is_page else app)(scope, receive, send)

    return either


def page_routes() -> list[BaseRoute]:
    """Return the files of the page and of the client."""
    return [Route(path, _file(name)) for path, name in FILES.items()]


def _file(name: str) -> Callable[[Request], Awaitable[Response]]:
    file = Path(__file__).parent / name
    content = bundle(file) if name == "page.js" else file.read_bytes()
    if file.suffix == ".js" and not name.startswith("dagre/"):  # whose licence is a comment
        content = _COMMENT.sub(b"", content)
    packed = gzip.compress(content, mtime=0)
    tag = hashlib.blake2b(content, digest_size=12).hexdigest()
    common = {"Cache-Control": "no-cache", "Content-Security-Policy": _POLICY, "Vary": "Accept-Encoding"}
    if name.startswith("client."):
        common["Access-Control-Allow-Origin"] = "*"  # a module for pages of any origin, without data

    async def answer(request: Request) -> Response:
        is_packed = "gzip" in request.headers.get("accept-encoding", "")
        headers = _HEADERS | common | {"ETag": f'"{tag}{"-gzip" if is_packed else ""}"'}
        if headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if is_packed:
            headers["Content-Encoding"] = "gzip"
        return Response(packed if is_packed else content, headers=headers, media_type=_TYPES[file.suffix])

    return answer


def topology_route(topology: Topology) -> BaseRoute:
    """Return the route of a topology's description, which is made at the first request."""
    made: list[_Description] = []

    async def answer(request: Request) -> Response:
        form = request.query_params.get("format", "json")
        if form != "json" and form not in _PICTURES:
            return PlainTextResponse("format: json, text, mermaid or svg is needed\n", 400)
        if not made:
            made.append(_described(topology))
        headers = _HEADERS | {"Cache-Control": "no-store"}
        if form == "json":
            return Response(msgspec.json.encode(made[0]) + b"\n", headers=headers, media_type="application/json")
        shown = made[0].picture if form == "svg" else getattr(made[0], form)
        return Response(shown, headers=headers, media_type=_PICTURES[form])

    return Route("/topology", answer)


def trace_route(topology: Topology, tables: Callable[[], Tables | None]) -> BaseRoute:
    """Return the route of traces: one at a time, since a trace computes steps again. Waiting requests occupy no thread.

    The last step that was computed is kept for a minute, in which parts of its sums are opened at once.
    """
    one_at_a_time = asyncio.Lock()
    traces = Traces(topology.plan, _MAX_NAMED, _MAX_TRACED)
    forgetting: list[asyncio.TimerHandle] = []

    def found(name: str, key: str, path: list[str], since: str | None) -> RowTrace:
        served = tables()
        if served is None:
            raise NotReadyError("trace: tables are not served here, or not yet. Try again later")
        return traces.trace(served, name, key, path, since)

    async def answer(request: Request) -> Response:
        name, given = request.path_params["name"], request.query_params
        asked = name, given.get("key", ""), given.getlist("open"), given.get("since")
        headers = _HEADERS | {"Cache-Control": "no-store"}
        try:
            async with one_at_a_time:
                if await request.is_disconnected():
                    return Response(status_code=408)  # the client does not wait any more
                while forgetting:
                    forgetting.pop().cancel()
                try:
                    made = await asyncio.to_thread(found, *asked)
                finally:
                    forgetting.append(asyncio.get_running_loop().call_later(_KEPT_S, traces.forget))
        except EddyError as error:
            return await refused(request, error)
        body = encode(made) + b"\n"
        return Response(body, headers=headers, media_type="application/json")

    return Route("/v1/trace/{name}", answer)


def _described(topology: Topology) -> _Description:
    return _Description(
        topology.name, topology.describe(), topology.mermaid(), topology.picture(), steps(topology.plan)
    )
