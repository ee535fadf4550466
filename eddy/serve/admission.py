"""Bounds the number of requests at a time. Probes have a separate bound, so that a busy server does not seem dead.

A request counts once it has arrived whole, or once its body is larger than the application accepts. A request beyond
the bound is refused with 503, so that the client retries. Streams of events count as long as they last.
"""

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["MAX_BYTES", "PROBES", "Admission"]

PROBES = frozenset({"/healthz", "/readyz"})
_MAX_PROBES = 16
_MAX_BODY_BYTES, MAX_BYTES = 1 << 20, 32 << 20
"""The most bytes of one body that has not arrived whole, and of all such bodies together."""


class Admission:
    """Passes at most `most` requests at a time to the application."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = {False: most, True: _MAX_PROBES}
        self._count = {False: 0, True: 0}
        self._bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        came: list[Message] = []
        size = 0
        try:
            while size <= _MAX_BODY_BYTES and (not came or came[-1].get("more_body")):
                came.append(await receive())
                size += (more := len(came[-1].get("body", b"")))
                self._bytes += more
                if self._bytes > MAX_BYTES:
                    await _refuse("the bodies of incomplete requests are too large", scope, receive, send)
                    return
        finally:
            self._bytes -= size
        if came[-1]["type"] != "http.disconnect":  # otherwise no client waits for an answer
            await self._admitted(scope, _replayed(came, receive), send)

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that has arrived whole, or refuse it."""
        is_probe = scope["path"] in PROBES
        if self._count[is_probe] >= self._most[is_probe]:
            most = self._most[is_probe]
            await _refuse(f"{most} requests are being answered, which is the limit", scope, receive, send)
            return
        self._count[is_probe] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._count[is_probe] -= 1


def _replayed(came: list[Message], receive: Receive) -> Receive:
    """Return a function that first returns the received messages `came`, and then receives more."""
    came.reverse()

    async def again() -> Message:
        return came.pop() if came else await receive()

    return again


async def _refuse(why: str, scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse(f"{why}. Try again later\n", 503, {"Retry-After": "1"})(scope, receive, send)
