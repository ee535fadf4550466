"""Decides which requests are answered: with a token, requests that send it; without one, requests to this machine.

Probes are open to all, and so are the files of the page and of a page of the user's own, which hold no data. Without a
token, the header Host has to name this machine. Otherwise a page in a browser could reach the server under a foreign
name that resolves to this machine (DNS rebinding).
"""

import hmac
import re

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from eddy.serve.admission import PROBES
from eddy.serve.endpoint import Endpoint
from eddy.serve.own_page import is_of_own_page
from eddy.serve.page.routes import FILES

__all__ = ["TRUSTED", "Guard"]

_OPEN = {*PROBES, *FILES}
TRUSTED = "eddy.trusted"
"""The key of a bool in a request's scope: true if the token was sent, or if no token is needed."""


class Guard:
    """An ASGI application that passes a request to the pages, or refuses it."""

    def __init__(self, app: ASGIApp, endpoint: Endpoint) -> None:
        self._app, self._token = app, endpoint.token
        names = "|".join(map(re.escape, ("localhost", "127.0.0.1", "[::1]", endpoint.host)))
        self._host = re.compile(rf"(?:{names})(?::\d+)?", re.IGNORECASE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        headers = Headers(scope=scope)
        answer: ASGIApp = self._app
        scope[TRUSTED] = self._token is None or self._shown(headers.get("authorization", ""))
        if self._token is None and not self._host.fullmatch(headers.get("host", "")):
            answer = PlainTextResponse("the header Host has to name this machine: localhost\n", 403)
        elif not (scope[TRUSTED] or scope["path"] in _OPEN or is_of_own_page(scope["path"])):
            challenge = {"WWW-Authenticate": 'Bearer realm="eddy"'}
            answer = PlainTextResponse("a token is needed: Authorization: Bearer …\n", 401, challenge)
        await answer(scope, receive, send)

    def _shown(self, authorization: str) -> bool:
        """Whether the header `Authorization` has the token; the comparison takes the same time for any text."""
        scheme, _, given = authorization.partition(" ")
        assert self._token is not None
        same = hmac.compare_digest(given.strip().encode("latin-1"), self._token)
        return same and scheme.lower() == "bearer"
