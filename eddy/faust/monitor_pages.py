"""The monitor's pages under Faust's web server: /eddy/healthz, /eddy/readyz, /eddy/metrics, /eddy/topology.

These pages equal the pages of `eddy run --http`, and are answered in this process. Faust's server has no token, so
every user of Faust's own pages can read these; they show no data of records. The pages of the second and each further
topology of an app are under /eddy/NAME/….
"""

from collections.abc import MutableMapping
from typing import Any

import faust
from faust.web import Request, Response, View

from eddy.faust.hosted import HostedTopology
from eddy.serve.worker_pages import pages_for_anybody
from eddy.serve.worker_watch import WorkerWatch

__all__ = ["add_pages"]

_PAGES = ("healthz", "readyz", "metrics", "topology")


def add_pages(app: faust.App, hosted: HostedTopology, prefix: str) -> None:
    """Add the pages of a hosted topology below `prefix`, which ends with a slash."""

    async def overview(view: View, request: Request) -> Response:
        links = "".join(f'<li><a href="{prefix}{page}">{page}</a></li>' for page in _PAGES)
        return view.html(f"<title>eddy</title><h1>{hosted.topology.name}</h1><ul>{links}</ul>")

    app.page(prefix, name=f"eddy:{prefix}")(overview)
    for page in _PAGES:
        app.page(f"{prefix}{page}", name=f"eddy:{prefix}{page}")(_handler(hosted, page))


def _handler(hosted: HostedTopology, page: str) -> Any:
    async def answer(view: View, request: Any) -> Response:
        # Before Faust has started the service there is no worker to watch: the state is CREATED.
        pages = pages_for_anybody(hosted.watch or WorkerWatch(), hosted.topology)
        status, kind, body = await _asked(pages, f"/{page}", request.query_string.encode())
        return view.bytes(body, status=status, headers={"Content-Type": kind, "Cache-Control": "no-store"})

    return answer


async def _asked(pages: Any, path: str, query: bytes) -> tuple[int, str, bytes]:
    """Request a page from an ASGI application. Returns its status, content type and body."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query,
        "headers": [],
    }
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await pages(scope, receive, send)
    headers = dict(sent[0]["headers"])
    return sent[0]["status"], headers[b"content-type"].decode(), b"".join(m.get("body", b"") for m in sent[1:])
