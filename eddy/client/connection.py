"""A connection to a table server, for any number of live queries.

    async with Client("http://localhost:8080") as client, client.live("tree", root="x") as view:
        print(view.rows)
        async for version in view:
            print(version.exact, view.rows)

One stream of events has the patches of all queries. When it breaks, the client reconnects, with back-off, and queries
continue from the last version seen; the protocol is in docs/live-queries.md.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from eddy.client.remote_view import ClientError, RemoteView, SnapshotEvent, ViewVersion
from eddy.errors import ConfigurationError
from eddy.live.dataflow.patch import Op

__all__ = ["Client"]

_HEARTBEAT_S = 15.0
_MAX_RETRY_S, _MAX_DOUBLINGS = 30.0, 30
_MAX_QUERY_CHARS = 6_000
_FINAL = {400, 401, 403, 404, 405}


class _Patch(msgspec.Struct):
    version: ViewVersion
    queries: dict[str, list[Op]]


class Client:
    """Live queries of the table server at `url`, inside an `async with` block.

    Args:
        url: the server's address, without /v1.
        token: the server's token, if it requires one.
        retry_s: the first pause before the client reconnects; each further pause is twice as long, up to 30 s.
        open_timeout_s: the seconds within which the rows of a query have to arrive when it is opened; None waits for
            ever. A view that is open waits for a server that is away as long as it takes.
        texts: whether queries may also be texts, where the server lets this caller read the tables themselves.

    Raises: ConfigurationError for arguments that cannot work.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        retry_s: float = 0.25,
        open_timeout_s: float | None = 30.0,
        texts: bool = False,
    ) -> None:
        _check(url, token, retry_s, open_timeout_s, texts)
        self._path = "/v1/live-text" if texts else "/v1/live"
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.AsyncClient(base_url=url.rstrip("/"), headers=headers, timeout=10.0)
        self._heartbeat_s = _HEARTBEAT_S
        self._retry_s = retry_s
        self.url, self.open_timeout_s = url, open_timeout_s
        self.trouble = ""
        """The error of the last attempt to connect; empty once an attempt was answered."""
        self._views: dict[str, RemoteView] = {}
        self._count = 0
        self._name: str | None = None
        self._last_id = ""
        self._sent: set[str] = set()
        self._failures = 0
        self._task: asyncio.Task[None] | None = None
        self._posts: set[asyncio.Task[None]] = set()
        self._posting = asyncio.Lock()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *error: object) -> None:
        await _end(self._task, *self._posts)
        for view in list(self._views.values()):
            early = ClientError(
                "live query: the client was closed before the query's rows arrived. Close it later", "CLOSED"
            )
            view.take_state("closed", early if view.version is None else None)
        await self._http.aclose()

    def live(self, name: str, /, *, window: tuple[int, int | None] | None = None, **args: Any) -> RemoteView:
        """Return a named query, to be opened by `async with`. `window` is (skip, limit), in place of the query's own.

        Opening it raises ClientError if the server refuses the query, or has sent no rows within `open_timeout_s`.
        Raises: TypeError, ValueError if the arguments cannot be written as JSON, or the window is invalid.
        """
        json.dumps(args, allow_nan=False)
        return RemoteView(self, self._next_id(), name, args, window)

    def live_text(self, text: str, /, *, window: tuple[int, int | None] | None = None) -> RemoteView:
        """Return a query given as a text, such as `folders.where(folders.size > 9)`, to be opened by `async with`.

        Raises: ConfigurationError if the client has no `texts`, or `text` is none; ValueError if the window is invalid.
        """
        if self._path == "/v1/live":
            raise ConfigurationError("client: live_text; a client of texts is needed. Write Client(url, texts=True)")
        if not isinstance(text, str) or not text:
            raise ConfigurationError(f"client: live_text({text!r}); the text of a query is needed, as repr writes it")
        return RemoteView(self, self._next_id(), "", {}, window, text)

    def _next_id(self) -> str:
        self._count += 1
        return f"q{self._count}"

    async def open(self, view: RemoteView) -> None:
        """Ask the server for a query."""
        self._views[view.id] = view
        if self._name is not None:
            self._change(open=[view])
        elif self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def close_view(self, view: RemoteView) -> None:
        """End a query. The connection ends with the last query."""
        if self._views.pop(view.id, None) is None:
            return
        if not self._views and self._task is not None:
            task, self._task, self._name, self._last_id = self._task, None, None, ""
            await _end(task)  # a query that is opened meanwhile gets a new connection
        elif view.id in self._sent:
            self._change(close=[view.id])

    def move_window(self, view: RemoteView) -> None:
        """Request other rows of a query from the server."""
        if view.id in self._sent:
            self._change(window=[view])
        else:
            view.whole = False

    async def _run(self) -> None:
        """Keep a connection while there are queries."""
        while self._views:
            try:
                await self._stream()
            except (ClientError, httpx.UnsupportedProtocol) as error:
                self._refused(error)
            except (httpx.HTTPError, TimeoutError) as error:
                self.trouble = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            except Exception as error:  # a retry would fail in the same way
                self._refused(error)
            self._failures = self._failures + 1 if self._name is None else 0
            await self._pause()

    async def _pause(self) -> None:
        """Set the views to "offline", and wait before the next attempt."""
        self._name = None
        self._sent.clear()
        for view in list(self._views.values()):
            view.take_state("offline")
        if self._views:
            await asyncio.sleep(pause_s(self._retry_s, self._failures) * random.uniform(0.5, 1.0))

    async def _reconnect(self) -> None:
        """Open another connection, since this one accepts no more changes of its queries."""
        former = self._task
        await _end(former)
        if self._task is not former:
            return  # the last query was closed meanwhile
        self._failures += 1

        async def run() -> None:
            await self._pause()
            await self._run()

        self._task = asyncio.create_task(run())

    def _refused(self, error: Exception) -> None:
        views, self._views = self._views, {}
        for view in views.values():
            view.take_state("error", error)

    async def _stream(self) -> None:
        """Read the events of one connection until it ends.

        Raises: ClientError if the server refuses it; httpx.HTTPError; TimeoutError if no bytes arrive for long.
        """
        resumed = [view for view in self._views.values() if view.whole and self._last_id]
        sent: list[RemoteView] = []
        size = 0
        for view in resumed or list(self._views.values()):
            size += len(quote(json.dumps(_query_parameters(view))))
            if size > _MAX_QUERY_CHARS and sent:
                break
            sent.append(view)
        parameters: list[tuple[str, str | int | float | bool | None]]
        parameters = [("query", json.dumps(_query_parameters(view))) for view in sent]
        if resumed:
            parameters.append(("last_event_id", self._last_id))
        silence = asyncio.timeout(3 * _HEARTBEAT_S)

        def alive() -> None:
            silence.reschedule(asyncio.get_running_loop().time() + 3 * self._heartbeat_s)

        endless = httpx.Timeout(10.0, read=None)
        async with silence, self._http.stream("GET", self._path, params=parameters, timeout=endless) as answer:
            if answer.is_error:
                raise _refusal(answer.status_code, await answer.aread())
            async for id_, event, data in _events(answer, alive):
                if event == "bye":
                    return
                if event == "hello":
                    self._greeted(json.loads(data), sent)
                else:
                    self._take(event, data)
                self._last_id = id_ or self._last_id
                if not self._views:
                    return  # the server has refused the last query

    def _greeted(self, hello: dict[str, Any], sent: list[RemoteView]) -> None:
        self._name, self._sent = hello["connection"], {view.id for view in sent}
        self.trouble = ""
        self._heartbeat_s = hello.get("heartbeat_s", _HEARTBEAT_S)
        for view in sent:
            if view.whole:
                view.take_state("complete")
        gone = [id_ for id_ in self._sent if id_ not in self._views]
        others = [view for view in self._views.values() if view.id not in self._sent]
        for view in others:
            view.whole = False  # the patches of this connection do not continue the view's rows
        if gone or others:
            self._change(open=others, close=gone)

    def _take(self, event: str, data: bytes) -> None:
        if event == "patch":
            patch = msgspec.json.decode(data, type=_Patch)
            queries = patch.queries
            news = [view for view in self._views.values() if view.take_patch(queries.get(view.id), patch.version)]
            for view in news:
                view.tell(view.state)
            return
        said = json.loads(data)
        found = self._views.get(said["query"])
        if found is None:
            return
        if event == "snapshot":
            found.take_snapshot(msgspec.json.decode(data, type=SnapshotEvent))
        elif event == "state":
            found.take_state(said["state"])
        elif event == "error":
            del self._views[found.id]
            found.take_state("error", ClientError(said["error"]["message"], said["error"]["code"]))

    def _change(
        self, *, open: Sequence[RemoteView] = (), close: Sequence[str] = (), window: Sequence[RemoteView] = ()
    ) -> None:
        body = {
            "open": [_query_parameters(view) for view in open],
            "close": close,
            "window": [{"id": view.id, **_window_of(view)} for view in window],
        }
        self._sent |= {view.id for view in open}
        task = asyncio.create_task(self._post(self._name, body, [*open, *window]))
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)

    async def _post(self, name: str | None, body: dict[str, Any], views: list[RemoteView]) -> None:
        """Change the queries of the connection, in order. If the connection has ended, reconnect with all queries."""
        async with self._posting:
            if name is None or name != self._name:
                return
            with suppress(httpx.HTTPError):
                answer = await self._http.post(f"/v1/live/{name}", json=body)
                if answer.is_success:
                    self._failures = 0
                    return
                if answer.status_code != 404 and answer.status_code < 500:
                    for view in views:
                        await self.close_view(view)
                        view.take_state("error", _client_error(answer.status_code, answer.content))
                    return
            if name == self._name:
                await self._reconnect()


def _check(url: Any, token: Any, retry_s: Any, open_timeout_s: Any, texts: Any) -> None:
    """Raises: ConfigurationError."""
    if not isinstance(url, str) or not url:
        raise ConfigurationError(f"client: url={url!r}; an address is needed, as in Client('http://localhost:8080')")
    if token is not None and not isinstance(token, str):
        raise ConfigurationError(f"client: token={token!r}; the server's token, as text, or None is needed")
    if not isinstance(texts, bool):
        raise ConfigurationError(f"client: texts={texts!r}; True or False is needed. A text is for live_text(text)")
    for what, seconds in (("retry_s", retry_s), ("open_timeout_s", 0 if open_timeout_s is None else open_timeout_s)):
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
            raise ConfigurationError(f"client: {what}={seconds!r}; a number of seconds, 0 or more, is needed")


async def _end(*tasks: asyncio.Task[None] | None) -> None:
    """Cancel tasks, and wait for their ends."""
    found = {task for task in tasks if task is not None}
    for task in found:
        task.cancel()
    if found:
        await asyncio.wait(found)


def pause_s(first_s: float, failures: int) -> float:
    """Return the seconds to wait after `failures` failed attempts in a row."""
    return min(_MAX_RETRY_S, first_s * 2.0 ** min(failures, _MAX_DOUBLINGS))


def _query_parameters(view: RemoteView) -> dict[str, Any]:
    query = {"name": view.name, "args": dict(view.args)} if view.text is None else {"text": view.text}
    return {"id": view.id, **query, **_window_of(view)}


def _window_of(view: RemoteView) -> dict[str, int | None]:
    return {} if view.shown is None else dict(zip(("skip", "limit"), view.shown, strict=True))


def _refusal(status: int, body: bytes) -> Exception:
    error = _client_error(status, body)
    return error if status in _FINAL else httpx.TransportError(str(error))


def _client_error(status: int, body: bytes) -> ClientError:
    try:
        said = json.loads(body)
        return ClientError(said["error"], said["code"])
    except (ValueError, KeyError, TypeError):
        return ClientError(body[:200].decode(errors="replace"), f"HTTP_{status}")


async def _events(answer: httpx.Response, alive: Callable[[], None]) -> AsyncIterator[tuple[str, str, bytes]]:
    """Yield the events of a stream as (id, kind, data). `alive` is called whenever bytes arrive."""
    rest = b""
    async for part in answer.aiter_bytes():
        alive()
        *blocks, rest = (rest + part).split(b"\n\n")
        for block in blocks:
            fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
            if b"data" in fields:
                yield fields.get(b"id", b"").decode(), fields.get(b"event", b"message").decode(), fields[b"data"]
