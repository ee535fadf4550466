"""The pages of the monitor. They can be read only.

/healthz, /readyz    whether the worker is alive, whether it is ready: 200 or 503, with the reason
/metrics             figures for Prometheus
/topology            the topology as text and as pictures
/worker, /workers    this worker, and all workers whose addresses are given: `serve/peer_workers.py`
/v1                  tables, if they are served here
/                    a page that shows all of these in a browser

The probes need no token, since clients such as Kubernetes cannot keep a secret. Such clients get the state and a
reason. Only readers with the token see the error text, the parts without a finite answer, and the partitions for which
windows wait; these do not affect health. On a server without a token, a request has to name this machine. Otherwise a
page in a browser could reach this server under a foreign name that resolves to this machine (DNS rebinding).
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from eddy.runtime.holding import told
from eddy.serve.access import TRUSTED, Guard
from eddy.serve.endpoint import Endpoint
from eddy.serve.metrics import CONTENT_TYPE_PLAIN_0_0_4, generate_latest, registry_of
from eddy.serve.page.routes import page_routes, topology_route, trace_route
from eddy.serve.peer_workers import worker_routes
from eddy.serve.record_pages import record_routes
from eddy.serve.state import Facts, ProbeResult, health, readiness
from eddy.serve.table_pages import TablesLater
from eddy.serve.worker_watch import WorkerWatch
from eddy.topology.topology import Topology

__all__ = ["pages", "pages_for_anybody"]

_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class _Answer(msgspec.Struct, omit_defaults=True):
    state: str
    reason: str
    error: str = ""
    held: list[str] = []
    waiting: list[str] = []


def pages(
    watch: WorkerWatch, topology: Topology, endpoint: Endpoint, tables: TablesLater, peers: Sequence[str]
) -> ASGIApp:
    """Return the ASGI application of these pages, for one worker. /metrics has the figures of its tables too.

    `peers` has the addresses of the application's other workers.
    """
    return Guard(
        _routes(
            watch,
            topology,
            [
                *page_routes(),
                *worker_routes(watch, endpoint, peers),
                trace_route(topology, lambda: tables.tables),
                *record_routes(topology, lambda: tables.tables),
                Mount("/v1", tables),
            ],
            tables.figures,
        ),
        endpoint,
    )


def pages_for_anybody(watch: WorkerWatch, topology: Topology) -> ASGIApp:
    """Return the same pages without tables, for a web server that itself decides about access.

    They show no data of records, because no reader counts as having the token.
    """
    return _routes(watch, topology, [])


def _routes(
    watch: WorkerWatch, topology: Topology, others: list[BaseRoute], more_figures: Callable[[], bytes] = bytes
) -> Starlette:
    registry = registry_of(watch)

    def probe(check: Callable[[Facts], ProbeResult]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            facts = watch.facts()
            found = check(facts)
            trusted = request.scope.get(TRUSTED, False)
            error = facts.error if trusted else ""
            held = told(watch.held) if trusted else []
            windows = watch.reading.open_windows if trusted and watch.reading else ()
            waiting = [str(window) for window in windows if window.behind_ms]
            return _json(_Answer(found.state, found.reason, error, held, waiting), 200 if found.ok else 503)

        return answer

    async def metrics(request: Request) -> Response:
        text = generate_latest(registry) + more_figures()
        return Response(text, headers=_HEADERS | {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    app = Starlette(
        routes=[
            Route("/healthz", probe(health)),
            Route("/readyz", probe(readiness)),
            Route("/metrics", metrics),
            topology_route(topology),
            *others,
        ]
    )
    app.router.redirect_slashes = False
    return app


def _json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content) + b"\n", status, _HEADERS, "application/json")
