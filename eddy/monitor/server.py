"""The server: uvicorn in a daemon thread, beside the worker's.

Limits: one request a connection, a few connections at a time, each for a few seconds. What is more is cut off,
so that nobody takes the process's files or its time.
"""

import asyncio
import socket
import threading

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["Server"]

_MAX_CONNECTIONS = 64
_CONNECTION_S = 10.0
_MAX_HEAD_BYTES = 16 << 10
_STOP_S = 2.0


class _Connection(H11Protocol):
    """A connection that ends in time, whatever its other side does."""

    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it, or cut it off where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > _MAX_CONNECTIONS:
            transport.abort()
        else:
            self._end = self.loop.call_later(_CONNECTION_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)


class _Uvicorn(uvicorn.Server):
    """Says when it is up: only then it can be told to stop."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        await super().startup(sockets)
        self.up.set()


class Server:
    """Serves an application on a listening socket, between `start` and `stop`."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            http=_Connection,
            loop="asyncio",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[("Connection", "close")],
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        )
        self._uvicorn = _Uvicorn(config)
        self._thread = threading.Thread(target=self._uvicorn.run, args=([listener],), name="eddy-http", daemon=True)

    def start(self) -> None:
        """Serve, from when this returns."""
        self._thread.start()
        self._uvicorn.up.wait(_STOP_S)

    def stop(self) -> None:
        """Answer what was asked and stop; within a second where nobody dallies."""
        self._uvicorn.should_exit = True
        self._thread.join(_STOP_S)
