"""A subscription: a query of one stream of events, with its version and its patches that are due."""

from collections.abc import Callable
from typing import Protocol

from eddy.live.streams.events import Asked
from eddy.live.streams.publisher import Published
from eddy.live.streams.retained import KeptPatch

__all__ = ["Subscription"]


class Carrier(Protocol):
    """The stream that carries a query."""

    dirty: "dict[Subscription, None]"
    failed: list[tuple[Asked, Exception]]

    @property
    def wake(self) -> Callable[[], None]:
        """Wakes the thread that sends events."""


class Subscription:
    """A query of a stream.

    `at` is the number of the step that the query's rows belong to, until the query is whole. Then the query moves with
    the stream.

    `first` is the request that opened the query, `asked` the request with its present window. `due` are the patches up
    to `at` that lead from the window that the client has to the window that it asked for.
    """

    __slots__ = ("asked", "at", "connection", "due", "first", "is_whole", "published", "since")

    def __init__(self, connection: Carrier, asked: Asked, published: Published) -> None:
        self.connection, self.asked, self.published = connection, asked, published
        self.first = asked
        self.is_whole, self.at, self.since = False, 0, 0
        self.due: list[KeptPatch] = []

    def after(self, number: int, up_to: int) -> list[KeptPatch] | None:
        """Return the query's patches of the steps after `number`, up to `up_to`; None if some of them were dropped."""
        kept = self.published.retained.after(max(number, self.at), up_to)
        return None if kept is None else [*self.due, *kept]

    def touch(self) -> Callable[[], None]:
        """Note a patch. Returns the function that wakes the reader."""
        self.connection.dirty[self] = None
        return self.connection.wake

    def fail(self, error: Exception) -> Callable[[], None]:
        """Note that the query has ended. Returns the function that wakes the reader."""
        self.connection.failed.append((self.first, error))
        return self.connection.wake
