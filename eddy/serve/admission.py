"""How many requests are answered at a time. Probes have a number of their own: a busy server is not taken for dead.

A request beyond the number is answered at once: 503, to be tried again. Streams of events count as long as they last.
"""

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["PROBES", "Admission"]

PROBES = frozenset({"/healthz", "/readyz"})
_MAX_PROBES = 16


class Admission:
    """Passes so many requests at a time to the application."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = {False: most, True: _MAX_PROBES}
        self._count = {False: 0, True: 0}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        is_probe = scope["path"] in PROBES
        if self._count[is_probe] >= self._most[is_probe]:
            text = f"{self._most[is_probe]} requests are answered at a time, and no more are. Try again later\n"
            await PlainTextResponse(text, 503, {"Retry-After": "1"})(scope, receive, send)
            return
        self._count[is_probe] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._count[is_probe] -= 1
