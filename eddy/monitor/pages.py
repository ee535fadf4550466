"""The pages of the monitor, to be read only.

/healthz, /readyz    whether the worker is alive, whether it is ready: 200 or 503, and why
/metrics             figures for Prometheus
/topology            the topology as text and as a Mermaid flowchart

The probes are open also where there is a token, since those who probe, such as Kubernetes, cannot keep a
secret: they get the state and a reason, and only who shows the token sees the error with what it names.
Without a token, a page in a browser must not reach us under a name that its owner lets point here (DNS
rebinding): the request has to name this machine.
"""

import hmac
import re
from collections.abc import Awaitable, Callable

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from eddy.monitor.endpoint import Endpoint
from eddy.monitor.metrics import CONTENT_TYPE_PLAIN_0_0_4, generate_latest, registry_of
from eddy.monitor.state import Facts, Verdict, health, readiness
from eddy.monitor.watch import Watch
from eddy.topology.topology import Topology

__all__ = ["pages"]

_OPEN = {"/healthz", "/readyz"}
_TRUSTED = "eddy.trusted"
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class _Guard:
    """Lets a request through to the pages, or refuses it."""

    def __init__(self, app: ASGIApp, endpoint: Endpoint) -> None:
        self._app, self._token = app, endpoint.token
        names = "|".join(map(re.escape, ("localhost", "127.0.0.1", "[::1]", endpoint.host)))
        self._host = re.compile(rf"(?:{names})(?::\d+)?", re.IGNORECASE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        headers = Headers(scope=scope)
        answer: ASGIApp = self._app
        scope[_TRUSTED] = self._token is None or self._shown(headers.get("authorization", ""))
        if self._token is None and not self._host.fullmatch(headers.get("host", "")):
            answer = PlainTextResponse("the header Host has to name this machine: localhost\n", 403)
        elif not scope[_TRUSTED] and scope["path"] not in _OPEN:
            challenge = {"WWW-Authenticate": 'Bearer realm="eddy"'}
            answer = PlainTextResponse("a token is needed: Authorization: Bearer …\n", 401, challenge)
        await answer(scope, receive, send)

    def _shown(self, authorization: str) -> bool:
        """Whether the token was shown; takes as long whatever is shown in its place."""
        scheme, _, given = authorization.partition(" ")
        assert self._token is not None
        same = hmac.compare_digest(given.strip().encode("latin-1"), self._token)
        return same and scheme.lower() == "bearer"


class _Answer(msgspec.Struct, omit_defaults=True):
    state: str
    reason: str
    error: str = ""


class _Description(msgspec.Struct):
    application: str
    text: str
    mermaid: str


def pages(watch: Watch, topology: Topology, endpoint: Endpoint) -> ASGIApp:
    """The application that serves them, for one worker."""
    registry = registry_of(watch)
    description = _Description(topology.name, topology.describe(), topology.mermaid())

    def probe(verdict: Callable[[Facts], Verdict]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            facts = watch.facts()
            found = verdict(facts)
            error = facts.error if request.scope[_TRUSTED] else ""
            return _json(_Answer(found.state, found.reason, error), 200 if found.ok else 503)

        return answer

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), headers=_HEADERS | {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def describe(request: Request) -> Response:
        form = request.query_params.get("format", "json")
        if form == "json":
            return _json(description)
        if form not in {"text", "mermaid"}:
            return PlainTextResponse("format: json, text or mermaid is needed\n", 400)
        return PlainTextResponse(getattr(description, form), headers=_HEADERS)

    app = Starlette(
        routes=[
            Route("/healthz", probe(health)),
            Route("/readyz", probe(readiness)),
            Route("/metrics", metrics),
            Route("/topology", describe),
        ]
    )
    app.router.redirect_slashes = False
    return _Guard(app, endpoint)


def _json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content) + b"\n", status, _HEADERS, "application/json")
