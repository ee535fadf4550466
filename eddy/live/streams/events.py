"""The events of a stream of live queries, as server-sent events; and the requests that change its queries.

    id: TOKEN.SERVER.STREAM.NUMBER.SEQ       a client that connects again sends the last id that it received
    event: hello | snapshot | patch | state | error | bye
    data: one line of JSON

TOKEN is the token of a version; NUMBER counts the steps of this SERVER, SEQ the events of the STREAM.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple

import msgspec

from eddy.json_text import encode
from eddy.live.dataflow.patch import Buckets, Entry, Insert, Op
from eddy.live.query.shapes import LevelShape

__all__ = [
    "HEARTBEAT",
    "Asked",
    "Change",
    "LastEvent",
    "Page",
    "SnapshotPages",
    "StepStamp",
    "WindowChange",
    "encode",
    "event",
]

HEARTBEAT = b":\n\n"
_PAGE_BYTES = 64 << 10

_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_Rows = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)] | None


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request for a query, by its name or as a text, with an id that the client chooses.

    If `skip` or `limit` is None, the query's own number applies.
    """

    id: _Id
    name: str = ""
    args: dict[str, Any] = {}
    text: str | None = None
    skip: _Rows = None
    limit: _Rows = None

    @property
    def told(self) -> str:
        """The text by which messages name the query."""
        return f"query '{self.name}'" if self.text is None else "query"


class WindowChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A client's request to move the window at the root of a query."""

    id: _Id
    skip: _Rows = None
    limit: _Rows = None


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request that changes the queries of a stream."""

    open: list[Asked] = []
    close: list[_Id] = []
    window: list[WindowChange] = []


class LastEvent(NamedTuple):
    """The id of the last event that a client has received."""

    token: str
    server: str
    stream: str
    number: int
    seq: int

    @classmethod
    def of(cls, text: str) -> "LastEvent | None":
        """Return the event id that a text has; None if the text is not an event id."""
        parts = text.split(".")
        if len(parts) != len(cls._fields) or not all(part.isdecimal() and len(part) < 16 for part in parts[3:]):
            return None
        return cls(parts[0], parts[1], parts[2], int(parts[3]), int(parts[4]))


class StepStamp:
    """A step that all queries make together. It has a number, and the version to which it leads.

    `data` is this version in JSON.
    """

    __slots__ = ("data", "exact", "number", "token")

    def __init__(self, number: int, token: str, *, exact: bool) -> None:
        self.number, self.token, self.exact = number, token, exact
        self.data = encode({"token": token, "exact": exact})


def event(kind: str, data: bytes, id_: str) -> bytes:
    """Return one event."""
    return b"event: %b\nid: %b\ndata: %b\n\n" % (kind.encode(), id_.encode(), data)


class Page(NamedTuple):
    """One page of the operations that build a view from an empty one.

    In the first page, `first` has the id of the root bucket and the shape.
    """

    query: str
    first: bytes
    ops: bytes
    is_last: bool

    def more(self) -> bytes:
        """Return the data of the page's event if more pages follow."""
        return b'{"query":%b%b,"more":true,"ops":%b}' % (encode(self.query), self.first, self.ops)

    def last(self, stamp: StepStamp) -> bytes:
        """Return the data of the last page's event, with the version of the rows."""
        return b'{"query":%b,"version":%b%b,"ops":%b}' % (encode(self.query), stamp.data, self.first, self.ops)


class SnapshotPages:
    """The rows of a query, in one page or more. The rows may be changed until the first page is made."""

    def __init__(self, query: str, root: str, shape: list[LevelShape], rows: dict[str, list[Entry]]) -> None:
        self._buckets = Buckets()
        self._buckets.entries = rows
        self._query, self._first = query, b',"root":%b,"shape":%b' % (encode(root), encode(shape))
        self._pages = self._made()
        self.is_begun = False

    def apply(self, ops: Iterable[Op]) -> None:
        """Change the rows."""
        self._buckets.apply(ops)

    def __next__(self) -> Page:
        self.is_begun = True
        return next(self._pages)

    def _made(self) -> Iterator[Page]:
        first, found, size = self._first, list[bytes](), 0
        for bucket, entries in self._buckets.entries.items():
            for index, (row, below) in enumerate(entries):
                if size > _PAGE_BYTES:
                    yield Page(self._query, first, b"[%b]" % b",".join(found), is_last=False)
                    first, found, size = b"", [], 0
                found.append(encode(Insert(bucket, index, row, below)))
                size += len(found[-1])
        yield Page(self._query, first, b"[%b]" % b",".join(found), is_last=True)
