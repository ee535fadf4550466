"""A live query of a server, kept up to date by patches."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, Protocol

import msgspec

from eddy.errors import EddyError
from eddy.live.dataflow.patch import Buckets, Op
from eddy.live.query.nested import nested
from eddy.live.query.planning import Shape
from eddy.live.query.shapes import LevelShape, shape_of

__all__ = ["ClientError", "RemoteView", "Updates", "ViewVersion"]


class ClientError(EddyError):
    """The server refuses one query, or all, or has not answered in time."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[misc]


class ViewVersion(msgspec.Struct, frozen=True):
    """The version of rows: a token for later reads (`at_least`), and whether all tables are exactly at one cut."""

    token: str
    exact: bool


class SnapshotEvent(msgspec.Struct):
    """A page of a query's rows. The first page has the root bucket's id and the shape, the last page the version."""

    query: str
    ops: list[Op]
    version: ViewVersion | None = None
    more: bool = False
    root: str | None = None
    shape: list[LevelShape] | None = None


class Updates(Protocol):
    """A connection to the server at `url` that keeps views up to date.

    `trouble` is the error of its last attempt to connect, if there was one.
    """

    url: str
    open_timeout_s: float | None
    trouble: str

    async def open(self, view: "RemoteView") -> None:
        """Begin to keep a view up to date."""

    async def close_view(self, view: "RemoteView") -> None:
        """Stop keeping a view up to date."""

    def move_window(self, view: "RemoteView") -> None:
        """Show other rows."""


class RemoteView:
    """A query that is kept up to date inside an `async with` block: a query with a `name` and `args`, or a `text`.

    `state` is "connecting", "complete", "unknown" while the server reads a table anew, "offline" while there is no
    connection (the view's rows are kept), "error" or "closed".
    """

    def __init__(
        self,
        connection: Updates,
        id_: str,
        name: str,
        args: Mapping[str, Any],
        window: tuple[int, int | None] | None = None,
        text: str | None = None,
    ) -> None:
        self._connection, self.id, self.name, self.args, self.text = connection, id_, name, args, text
        self.shown = None if window is None else _checked(*window)
        self.state: Literal["connecting", "complete", "unknown", "offline", "error", "closed"] = "connecting"
        self.error: Exception | None = None
        self.version: ViewVersion | None = None
        self.whole = False
        """Whether its rows are at the connection's last version, so that patches may follow."""
        self._buckets, self._staged = Buckets(), Buckets()
        self._shape: Shape | None = None
        self._next: tuple[str, Shape] | None = None
        self._root = ""
        self._rows: Any = None
        self._turn = self._read = 0
        self._changed = asyncio.Event()  # a new event for the next change

    @property
    def rows(self) -> Any:
        """The rows with their nests; None before they arrive. They must not be changed. Raises: the query's error."""
        self._read = self._turn
        if self.error is not None:
            raise self.error
        if self._rows is None and self._shape is not None:
            self._rows = nested(self._buckets.entries, self._shape, self._root)
        return self._rows

    async def window(self, skip: int = 0, limit: int | None = None) -> None:
        """Move the window at the root; readers get the difference. Raises: ValueError if a number is below 0."""
        self.shown = _checked(skip, limit)
        self._connection.move_window(self)

    async def __aenter__(self) -> "RemoteView":
        await self._connection.open(self)
        try:
            await self._rows_arrive()
            if self.error is not None:
                raise self.error
        except BaseException:
            await self._connection.close_view(self)
            raise
        self._read = self._turn
        return self

    async def _rows_arrive(self) -> None:
        """Wait for the first rows, or for the query's error. Raises: ClientError if the wait takes too long."""
        seconds = self._connection.open_timeout_s
        try:
            async with asyncio.timeout(seconds) as deadline:
                while self.version is None and self.error is None:
                    await self._changed.wait()
        except TimeoutError as error:
            if not deadline.expired():
                raise
            trouble, query = self._connection.trouble, self.name if self.text is None else self.text
            raise ClientError(
                f"live query '{query}': {self._connection.url} has sent no rows within {seconds:g} s"
                f"{trouble and f', the last attempt: {trouble}'}; a table server that answers is needed. Start it: "
                "eddy serve FILE, or wait longer: Client(url, open_timeout_s=…)",
                "OPEN_TIMEOUT",
            ) from error

    async def __aexit__(self, *error: object) -> None:
        await self._connection.close_view(self)
        self.tell("closed")

    async def __aiter__(self) -> AsyncIterator[ViewVersion]:
        """Yield the version after each change since `rows` was last read; changes that arrive together are one version.

        Raises: the query's error.
        """
        seen = self._read
        while True:
            while self._turn == seen:
                await self._changed.wait()
            seen = self._turn
            if self.error is not None:
                raise self.error
            if self.state == "closed":
                return
            assert self.version is not None
            yield self.version

    def take_snapshot(self, page: SnapshotEvent) -> None:
        """Add a page of a snapshot; the last page replaces the rows."""
        if page.shape is not None:
            self._staged, self.whole = Buckets(), False
            self._next = page.root or "", shape_of(page.shape)
        self._staged.apply(page.ops)
        if page.more or page.version is None or self._next is None:
            return
        (self._root, self._shape), self._next = self._next, None
        self._buckets, self._staged, self._rows = self._staged, Buckets(), None
        self.whole, self.version = True, page.version
        self.tell("complete")

    def take_patch(self, ops: list[Op] | None, version: ViewVersion) -> bool:
        """Apply a version, with its operations for this query.

        Without operations, rows in the state "unknown" keep their state.

        Returns whether readers have to be notified, once all queries of the connection are at the version.
        """
        if not self.whole or not (ops or self.state != "unknown"):
            return False
        self.version = version
        if ops:
            self._buckets.apply(ops)
            self._rows = None
        return True

    def take_state(self, state: Any, error: Exception | None = None) -> None:
        """Apply a state from the server or the connection."""
        if self.state not in {"closed", "error"}:
            self.error = error
            self._next = None if state == "offline" else self._next
            self.tell(state)

    def tell(self, state: Any) -> None:
        """Set the state, and wake the readers, since the view has changed."""
        self.state = state
        self._turn += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _checked(skip: int, limit: int | None) -> tuple[int, int | None]:
    """Check a window, and return it.

    Raises: ValueError, since the server would refuse all queries of the connection for an invalid one.
    """
    if skip < 0 or (limit is not None and limit < 0):
        raise ValueError(f"live query: window({skip}, {limit}); numbers of rows are needed, 0 or more")
    return skip, limit
