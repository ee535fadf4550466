"""The server: uvicorn in a daemon thread, beside the worker's.

Limits: a few connections at a time, each for a few seconds, and one request each unless `keep_alive`; a stream of
events lasts as long as its client takes them. Further connections are closed, so that clients cannot exhaust the
process's files or time.
"""

import asyncio
import socket
import threading
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["RENEW", "Server"]

RENEW = "eddy.renew"
"""The key in a scope's state of a function that puts the end of the connection off by so many seconds."""

_MAX_CONNECTIONS = 64
_CONNECTION_S = 10.0
_MAX_HEAD_BYTES = 16 << 10
_STOP_S = 2.0


class _Connection(H11Protocol):
    """A connection with a time limit, whatever the client does."""

    _most: int | None = None
    _seconds: float | None = None
    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept it, or close it if there are too many."""
        super().connection_made(transport)
        # asyncio does it only for sockets that name their protocol, and else a second answer waits for an ACK: 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > (self._most or _MAX_CONNECTIONS):
            transport.abort()
        else:
            self.app_state = {**self.app_state, RENEW: self._renew}
            self._end = self.loop.call_later(self._seconds or _CONNECTION_S, transport.abort)

    def _renew(self, seconds: float) -> None:
        """Put the end off, for a stream that the client takes."""
        if self._end is not None:
            self._end.cancel()
            self._end = self.loop.call_later(seconds, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)


class _Uvicorn(uvicorn.Server):
    """Signals when it is up: only then can it be stopped."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        await super().startup(sockets)
        self.up.set()


class Server:
    """Serves an application on a listening socket, between `start` and `stop`. `tls` are certificate and key."""

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        *,
        connections: int | None = None,
        connection_s: float | None = None,
        keep_alive: bool = False,
        tls: tuple[Path, Path] | None = None,
    ) -> None:
        protocol = type("_Limited", (_Connection,), {"_most": connections, "_seconds": connection_s})
        config = uvicorn.Config(
            app,
            http=protocol,
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
        self._uvicorn = _Uvicorn(config)
        self._thread = threading.Thread(target=self._uvicorn.run, args=([listener],), name="eddy-http", daemon=True)

    def start(self) -> None:
        """Serve; it accepts connections when this returns."""
        self._thread.start()
        self._uvicorn.up.wait(_STOP_S)

    def stop(self) -> None:
        """Finish open requests and stop; within a second unless a client is slow."""
        self._uvicorn.should_exit = True
        self._thread.join(_STOP_S)
