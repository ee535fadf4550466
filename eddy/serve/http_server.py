"""The HTTP server: uvicorn in a daemon thread, beside the worker's thread.

Limits: a few requests at a time (`admission.py`), each for a few seconds, and one for each connection unless
`keep_alive`; a stream of events lasts as long as its client receives them. A connection has five seconds for a request,
from its first byte to the end of its body; until then it counts as waiting. If too many wait, the connection that has
waited longest is closed. So clients that send no request, or a part of one, cannot block others or exhaust the
process's files.
"""

import asyncio
import socket
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from eddy.serve.admission import Admission

__all__ = ["ANSWER_S", "RENEW", "HttpServer"]

RENEW = "eddy.renew"
"""The key, in a scope's state, of a function that extends the connection's time limit by a number of seconds."""

_MAX_REQUESTS = 64
ANSWER_S, _REQUEST_S = 10.0, 5.0
"""Seconds for an answer to be read, unless its handler renews them, and for a request to arrive whole."""
_MAX_HEAD_BYTES = 16 << 10
_STOP_S = 2.0


class _Connection(H11Protocol):
    """A connection with time limits. `_waiting` has the connections whose request has not arrived whole yet."""

    _waiting: "dict[_Connection, None]"
    _most: int
    _seconds: float | None = None
    _request_s: float | None = None
    _end: asyncio.TimerHandle | None = None
    _request: asyncio.TimerHandle | None = None
    _is_begun = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection. If too many connections wait, close the one that has waited longest."""
        super().connection_made(transport)
        # asyncio sets it only on sockets that name their protocol. Without it a second answer waits 40 ms for an ACK.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.app_state = {**self.app_state, RENEW: self._renew}
        self._wait()

    def _wait(self) -> None:
        """Wait for a request. Each request of a connection has the same time limit."""
        self._is_begun = False
        self._waiting[self] = None
        self._renew(self._seconds or ANSWER_S)
        self._within_s(self._request_s or _REQUEST_S)
        if len(self._waiting) > self._most:
            oldest = next(iter(self._waiting))
            oldest._leave()
            oldest.transport.abort()

    def _within_s(self, seconds: float) -> None:
        if self._request is not None:
            self._request.cancel()
        self._request = self.loop.call_later(seconds, self.transport.abort)

    def _leave(self) -> None:
        """Note that the connection does not wait any more."""
        self._waiting.pop(self, None)
        if self._request is not None:
            self._request.cancel()
            self._request = None

    @property
    def _is_asked(self) -> bool:
        """Whether a request has arrived whole, and its answer is not complete."""
        cycle = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """Process a part of a request."""
        if self in self._waiting and not self._is_begun:
            self._is_begun = True
            self._within_s(self._request_s or _REQUEST_S)
        super().data_received(data)
        if self._is_asked:
            self._leave()

    def on_response_complete(self) -> None:
        """Note that the request is answered, and wait for another one."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._wait()
            if self._is_asked:  # the next request arrived before the answer was complete
                self._leave()

    def _renew(self, seconds: float) -> None:
        """Set the time limit anew, `seconds` from now: for a stream whose client receives its events."""
        if self._end is not None:
            self._end.cancel()
        self._end = self.loop.call_later(seconds, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limits of a connection that has ended."""
        if self._end is not None:
            self._end.cancel()
        self._leave()
        super().connection_lost(exc)


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that signals when it has started, since it can be stopped only then."""

    def __init__(self, config: uvicorn.Config, handshake_s: float) -> None:
        super().__init__(config)
        self._handshake_s = handshake_s
        self.up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections. A TLS handshake has the time limit of a request."""
        if self.config.ssl_certfile is not None:
            loop = asyncio.get_running_loop()
            timed = partial(loop.create_server, ssl_handshake_timeout=self._handshake_s)
            loop.create_server = timed  # type: ignore[method-assign]
        await super().startup(sockets)
        self.up.set()


class HttpServer:
    """Serves an application on a listening socket, between `start` and `stop`.

    Args:
        requests: the number of requests that are answered at a time, and of connections that may wait in addition.
        answer_s, request_s: seconds that a connection has for a request with its answer, and for the request alone.
        proxies: addresses and networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
        tls: the files of a certificate and its key.
    """

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        *,
        requests: int = _MAX_REQUESTS,
        answer_s: float | None = None,
        request_s: float | None = None,
        keep_alive: bool = False,
        proxies: Sequence[str] = (),
        tls: tuple[Path, Path] | None = None,
    ) -> None:
        limits: dict[str, Any] = {"_most": requests, "_seconds": answer_s, "_request_s": request_s, "_waiting": {}}
        admitted: Any = Admission(app, requests)
        config = uvicorn.Config(
            ProxyHeadersMiddleware(admitted, list(proxies)) if proxies else admitted,
            http=type("_Limited", (_Connection,), limits),
            loop="asyncio",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[] if keep_alive else [("Connection", "close")],
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
            ssl_certfile=None if tls is None else str(tls[0]),
            ssl_keyfile=None if tls is None else str(tls[1]),
        )
        self._uvicorn = _Uvicorn(config, request_s or _REQUEST_S)
        self._thread = threading.Thread(target=self._uvicorn.run, args=([listener],), name="eddy-http", daemon=True)

    def start(self) -> None:
        """Serve; it accepts connections when this returns."""
        self._thread.start()
        self._uvicorn.up.wait(_STOP_S)

    def stop(self) -> None:
        """Finish open requests and stop; within a second unless a client is slow."""
        self._uvicorn.should_exit = True
        self._thread.join(_STOP_S)
