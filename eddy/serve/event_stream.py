"""A stream of events to one client, as an ASGI answer: due events are sent as fast as the client receives them.

    pump      sends events; waits for the client, never for a query
    worker    opens and closes queries and moves windows, one after the other, on a thread

A client that receives no bytes for `slow_s` seconds is disconnected.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import Receive, Scope, Send

from eddy.errors import EddyError, NotReadyError
from eddy.live.query.refusals import QueryArgumentError, QueryLimitError
from eddy.live.streams.events import Asked, Change, WindowChange
from eddy.live.streams.stream_connection import Connection
from eddy.live.streams.subscription import Subscription
from eddy.serve.http_server import RENEW

__all__ = ["Bell", "Stream"]

_MAX_WAITING = 4
_MAX_TODO = 10_000
_AHEAD_S, _PAUSE_S = 30.0, 0.2
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Accel-Buffering": "no",
}


class Bell:
    """Wakes streams of one event loop from other threads, many of them by one call to the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung: deque[asyncio.Event] = deque()
        self._is_ringing = False

    def ring(self, event: asyncio.Event) -> None:
        """Set the event, in its loop."""
        self._rung.append(event)
        if not self._is_ringing:
            self._is_ringing = True
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the loop is closed
                self._is_ringing = False

    def _answer(self) -> None:
        self._is_ringing = False
        while self._rung:
            self._rung.popleft().set()


class Stream:
    """An HTTP answer with events, which does not end by itself.

    Args:
        connection: makes the events.
        woken: set when events may be due.
        in_thread: runs a function on a thread, a few at a time.
        ready: waits until queries can be opened. Raises: NotReadyError if this takes long.
        ended: called with the number of queries that have ended.
        closed: called at the end.
        slow_s: seconds that the client may take for one event.
    """

    def __init__(
        self,
        connection: Connection,
        woken: asyncio.Event,
        in_thread: Callable[..., Awaitable[Any]],
        ready: Callable[[], Awaitable[object]],
        ended: Callable[[int], None],
        closed: Callable[["Stream"], None],
        slow_s: float,
    ) -> None:
        self.connection, self._woken = connection, woken
        self._in_thread, self._ready, self._ended, self._closed, self._slow_s = in_thread, ready, ended, closed, slow_s
        self.loop = asyncio.get_running_loop()
        self._todo: deque[Asked | str | WindowChange | Subscription] = deque()
        self._working: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._reason = ""
        self.is_gone = self.is_slow = False

    def check(self, change: Change) -> None:
        """Check that the ids of a change fit the stream's queries. Raises: QueryError."""
        taken = self.connection.asked.keys() - set(change.close)
        for asked in change.open:
            if asked.id in taken:
                raise QueryArgumentError(
                    f"live queries: id '{asked.id}' is taken on this stream; another one is needed"
                )
            taken.add(asked.id)
        if missing := [window.id for window in change.window if window.id not in taken]:
            raise QueryArgumentError(f"live queries: there is no query '{missing[0]}' on this stream")
        waiting = len(self._todo) + len(change.open) + len(change.close) + len(change.window)
        if waiting > _MAX_TODO:
            raise QueryLimitError(f"live queries: more than {_MAX_TODO:,} changes wait on this stream. Send fewer")

    def change(self, change: Change) -> None:
        """Close, open and move queries, in this order. The caller has called `check`."""
        asked = self.connection.asked
        for id_ in change.close:
            self.connection.ended += asked.pop(id_, None) is not None
        asked.update((each.id, each) for each in change.open)
        self.work(*change.close, *change.open, *change.window)

    def work(self, *todo: Asked | str | WindowChange | Subscription) -> None:
        """Append tasks to the worker's queue."""
        self._todo.extend(todo)
        if self._todo and (self._working is None or self._working.done()) and not self.is_gone:
            self._working = asyncio.create_task(self._work())
        self._woken.set()

    async def _work(self) -> None:
        while self._todo:
            task = self._todo[0]
            if isinstance(task, str):
                self.connection.drop(task)
            elif not await self._opened(task):
                await asyncio.sleep(_PAUSE_S)
                continue
            self._todo.popleft()
            while self.connection.waiting >= _MAX_WAITING:
                self._room.clear()
                await self._room.wait()

    async def _opened(self, task: Asked | WindowChange | Subscription) -> bool:
        """Open a query, move a window or subscribe, in a thread.

        Returns False, for another try, if tables are not whole.
        """
        connection = self.connection
        with contextlib.suppress(EddyError):  # the error is reported when the query is opened
            try:
                await self._ready()
            except NotReadyError:
                return False
        if isinstance(task, Asked):
            is_wanted = connection.asked.get(task.id) is task
            return not is_wanted or bool(await self._in_thread(connection.open, task))
        if isinstance(task, WindowChange):
            return bool(await self._in_thread(connection.move, task))
        await self._in_thread(connection.show_again, task)
        return True

    def stop(self, reason: str) -> None:
        """End the stream with this reason."""
        self._reason = self._reason or reason
        self._woken.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        renew: Callable[[float], None] = scope.get("state", {}).get(RENEW, lambda seconds: None)
        renew(_AHEAD_S)
        watching = asyncio.create_task(self._watch(receive))
        try:
            await self._pump(send, renew)
        except TimeoutError:
            self.is_slow = True
            renew(0.0)  # an orderly close would wait for the client
            await asyncio.wait({watching}, timeout=1.0)
        finally:
            self.is_gone = True
            watching.cancel()
            if self._working is not None:
                self._working.cancel()
            self._closed(self)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True
        self._woken.set()

    async def _pump(self, send: Send, renew: Callable[[float], None]) -> None:
        """Send due events until the client disconnects, or the server stops. Raises: TimeoutError for a slow client."""
        headers = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        data = self.connection.hello()
        while not self.is_gone:
            if data:
                async with asyncio.timeout(self._slow_s):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                renew(self._slow_s + _AHEAD_S)
                await asyncio.sleep(0)  # let other tasks run
            elif self._reason:
                bye = self.connection.bye(self._reason)
                await send({"type": "http.response.body", "body": bye, "more_body": False})
                return
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), self.connection.due_s())
            self._woken.clear()
            data = self._due()

    def _due(self) -> bytes:
        """Return the events that are due. Queries whose rows have to be sent anew are passed to the worker."""
        connection = self.connection
        data = b"" if self._reason else connection.events()
        if connection.ended:
            ended, connection.ended = connection.ended, 0
            self._ended(ended)
        if connection.to_resend:
            again = list(connection.to_resend)
            connection.to_resend.clear()
            self.work(*again)
        self._room.set()
        return data
