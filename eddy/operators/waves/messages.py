"""The messages by which workers agree on the rows that a recursion holds, and their encoding; see `agreement.py`.

A message is a record of a loop's topic, or of the topic of an exchange inside op. Its row is empty, a negative
iteration distinguishes it from rows, and its content is in a header.
"""

import enum
from collections.abc import Callable, Iterable, Iterator
from itertools import compress
from typing import Any

import msgspec

from eddy.operators.batch import Batch, Row
from eddy.operators.exchange import Gate, Outgoing, Received
from eddy.state.row_layout import row_key, split

__all__ = [
    *("Begin", "Borrow", "Changed", "Holds", "Lend", "Message", "ReachedRows", "Release", "Review", "Stop"),
    *("Suspect",),
    *("Loan", "News", "Post", "chunks", "grouped"),
]

_ITERATION = -10
"""The iteration that distinguishes messages. Rows have 0 or more, messages of earlier versions other negative numbers.
"""
_NOTE = "eddy.agreement"
_MOST_BYTES = 64 << 10


class Message(msgspec.Struct, tag=True, array_like=True):
    """A message to the owner of a partition of the loop, or of an exchange inside op."""


class News(enum.IntEnum):
    """The reasons to decide anew about held rows, from the least to the greatest. A reason includes all lesser ones."""

    NONE = 0
    SUSPECTS = 1
    """There are new suspects."""
    STOPS = 2
    """Stops have changed since they were sent."""
    OWNERS = 3
    """Partitions have new owners, without memory of earlier reviews."""


class Review(Message):
    """To the arbiter: the held rows have to be decided anew."""

    news: News = News.OWNERS


class Begin(Message):
    """To all partitions: a review begins.

    `anew`: all reached rows will be sent, not only changes. `since`: changes of rows that were lent for reviews with
    lower numbers need not be reported any more.
    """

    number: int
    anew: bool
    since: int


class Holds(Message):
    """To the arbiter: the suspects of a worker, and its stops with waiting weight.

    `passed` are suspects that are not in X any more. Only the last of the worker's messages has `partitions`, which it
    owns.
    """

    number: int
    rows: list[bytes]
    partitions: list[int] = []
    passed: list[bytes] = []


class Borrow(Message):
    """To the owner of some keys: send the arbiter the rows outside that a join finds for these keys."""

    search: int
    join: int
    keys: list[bytes]


Loan = tuple[bytes, list[bytes], bool]
"""A key, values outside with this key, and whether more of them follow."""


class Lend(Message):
    """To the arbiter: here are the rows that it wants to borrow."""

    search: int
    join: int
    loans: list[Loan]


class Suspect(Message):
    """To the owner of some rows: a cycle or an endless path may be ahead of them."""

    rows: list[bytes]


class Stop(Message):
    """To the owner of some rows: end the waves at these rows, which become stops."""

    rows: list[bytes]


class ReachedRows(Message, tag="Reached"):
    """To the owner of some rows: cycles reach these rows, or, if `no_more`, do not reach them any more."""

    number: int
    rows: list[bytes]
    no_more: bool = False


class Release(Message):
    """To all partitions: the review has ended, and all reached rows were sent.

    `whole`: the recursion is held as a whole.
    """

    number: int
    whole: bool


class Changed(Message):
    """To the arbiter: rows outside that it has borrowed have changed."""


_ANY = Review | Begin | Holds | Borrow | Lend | Stop | ReachedRows | Release | Suspect | Changed
_DECODER = msgspec.msgpack.Decoder(_ANY)
_encode = msgspec.msgpack.Encoder().encode


class Post:
    """Sends messages through the gates of a recursion, and separates them from received rows."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def send(self, message: Message, partition: int, gate: Gate | None = None) -> None:
        """Send a message to the owner of a partition of the loop's gate, or of `gate`."""
        batch = Batch([(None, None)], [1], headers=[((_NOTE, _encode(message)),)])
        (gate or self._gate).outbox.append(Outgoing(batch, [partition], _ITERATION))

    def tell_all(self, message: Message) -> None:
        """Send a message to the owners of all partitions."""
        for partition in range(self._gate.partitions):
            self.send(message, partition)

    def send_rows(self, rows: Iterable[Row], make: Callable[[list[bytes]], Message]) -> None:
        """Send rows to their owners, in the messages that `make` makes of lists of encoded rows."""
        there = list(rows)
        homes: dict[int, list[bytes]] = {}
        for row, home in zip(there, self._gate.homes_of(there), strict=True):
            homes.setdefault(home, []).append(self.encode(row))
        for home, encoded in homes.items():
            for chunk in chunks(encoded):
                self.send(make(chunk), home)

    def encode(self, row: Row) -> bytes:
        """Encode a row."""
        key, value = row
        return row_key(self._gate.key.encode(key), b"" if value is None else b"\x01" + self._gate.value.encode(value))

    def decode(self, data: bytes) -> Row:
        """Decode a row."""
        key, value = split(data)
        return self._gate.key.decode(key), self._gate.value.decode(value[1:]) if value else None

    @staticmethod
    def opened(received: Batch) -> tuple[Batch, list[Message | None]]:
        """Separate what a topic has delivered into rows and messages.

        A message of an earlier version is returned as None.
        """
        if not isinstance(received, Received) or min(received.iterations, default=0) >= 0:
            return received, []
        rows = [iteration >= 0 for iteration in received.iterations]
        kept = Received(received.select(rows), list(compress(received.iterations, rows)))
        headers = compress(received.headers_of_rows(), [not row for row in rows])
        notes = (dict(noted).get(_NOTE) for noted in headers)
        return kept, [None if note is None else _DECODER.decode(note) for note in notes]


def chunks(items: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Divide items into groups that fit into a message."""
    return grouped(items, len)


def grouped(items: Iterable[Any], size_of: Callable[[Any], int]) -> Iterator[list[Any]]:
    """Divide items into groups with a bounded number of bytes. An item with more bytes is alone in its group."""
    group: list[Any] = []
    size = 0
    for item in items:
        size += size_of(item)
        if group and size > _MOST_BYTES:
            yield group
            group, size = [], size_of(item)
        group.append(item)
    if group:
        yield group
