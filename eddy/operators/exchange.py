"""The exchange: rows go to the worker that owns their key.

A worker is one circuit over all the partitions it owns, so most rows go on in memory. Only rows of
keys that another worker owns leave, through a topic, and come back in at the same place of that
worker's circuit. They travel as deltas with weights, so their order across partitions is free.

Invariant: rows from one partition to another keep their order, whoever owns the two and whether they
go in memory or through the topic. So the last value of a key is the last, and no retraction comes
before its row. For that our own rows of a partition take the topic, too, while earlier ones that
were sent to it wait there to be read: the partition is *draining*.
"""

from collections.abc import Callable
from itertools import compress
from typing import Any, NamedTuple

from eddy.operators.batch import EMPTY, Batch, concat, keys_of
from eddy.operators.operator import Operator
from eddy.serde import Serde

__all__ = ["Budget", "Exchange", "Gate", "Outgoing", "Ownership", "Received", "by_hop"]


_ROWS_A_LOOK = 256


class Ownership:
    """Which partitions this worker owns, by the number of partitions of a topic.

    Partition i of every topic with as many partitions belongs to the same worker. A number that is
    not in `partitions` is owned whole.
    """

    def __init__(self) -> None:
        self.partitions: dict[int, frozenset[int]] = {}

    def all_of(self, count: int) -> bool:
        """Whether all `count` partitions are owned."""
        return len(self.partitions.get(count, range(count))) == count

    def owns(self, partition: int, count: int) -> bool:
        """Whether one partition of `count` is owned."""
        return partition in self.partitions.get(count, range(count))


class Budget:
    """How much an epoch may do before it has to commit, for its transaction not to time out.

    The clock is asked once in a while, not for every wave.
    """

    def __init__(self, max_rows: int, expired: Callable[[], bool] = lambda: False) -> None:
        self.max_rows, self._expired = max_rows, expired
        self.begin()

    def begin(self) -> None:
        """An epoch begins."""
        self._rows = self._next = 0
        self._spent = False

    def spend(self, rows: int) -> bool:
        """Count rows that went round a loop; return whether the epoch should end."""
        self._rows += rows
        if self._rows >= self._next and not self._spent:
            self._next = min(self.max_rows, self._rows + _ROWS_A_LOOK)
            self._spent = self._rows >= self.max_rows or self._expired()
        return self._spent


class Received(Batch):
    """Rows that came through an exchange's topic. `hops`: how often each has been round its loop."""

    __slots__ = ("hops",)

    def __init__(self, batch: Batch, hops: list[int]) -> None:
        super().__init__(batch.rows, batch.weights, batch.time, batch.times, batch.headers)
        self.hops = hops


class Outgoing(NamedTuple):
    """Rows that leave through an exchange's topic, each with its partition."""

    batch: Batch
    partitions: list[int]
    hop: int


class Gate:
    """Splits batches into rows of ours, which go on, and rows of others, which leave."""

    def __init__(
        self,
        topic: str,
        key: Serde[Any],
        value: Serde[Any],
        partitions: int,
        ownership: Ownership,
        partitioner: Callable[[bytes, int], int],
    ) -> None:
        self.topic, self.key, self.value, self.partitions = topic, key, value, partitions
        self._ownership, self._partitioner = ownership, partitioner
        self.outbox: list[Outgoing] = []
        self.draining: frozenset[int] = frozenset()

    @property
    def shared(self) -> bool:
        """Whether some rows have to leave: keys belong to other workers, or partitions are draining."""
        return bool(self.draining) or not self._ownership.all_of(self.partitions)

    def own(self, batch: Batch, hop: int = 0) -> Batch:
        """The rows that may go on here; the others go to the outbox."""
        if not batch.rows or not self.shared:
            return batch
        homes = self._homes(batch)
        owns, count, draining = self._ownership.owns, self.partitions, self.draining
        mine = [owns(home, count) and home not in draining for home in homes]
        if not all(mine):
            theirs = [not own for own in mine]
            self.outbox.append(Outgoing(batch.select(theirs), list(compress(homes, theirs)), hop))
        return batch.select(mine)

    def spill(self, batch: Batch, hop: int) -> None:
        """Send every row out, our own too: the epoch's budget is spent."""
        self.outbox.append(Outgoing(batch, self._homes(batch), hop))

    def _homes(self, batch: Batch) -> list[int]:
        if self.partitions == 1:
            return [0] * len(batch)
        keys = list(keys_of(batch.rows))
        partitioner, count = self._partitioner, self.partitions
        if None in keys:  # a record without a key is at home in partition 0
            return [0 if key is None else partitioner(self.key.identify_many([key])[0], count) for key in keys]
        return [partitioner(key, count) for key in self.key.identify_many(keys)]


class Exchange(Operator):
    """Rows from here and rows received in, rows of keys that this worker owns out.

    An epoch's rows leave consolidated, unless they are `facts`: whatever part of them the other worker takes in
    first, no row is taken back there before it came. Inside a recursion rows are kept apart by hop: what was
    received waits in `later` for its own.
    """

    def __init__(self, name: str, gate: Gate, facts: bool = False) -> None:
        self.name, self.gate, self._facts = name, gate, facts
        self.level = 0
        self.later: dict[int, Batch] = {}

    def step(self, *inputs: Batch) -> Batch:
        """Split what is ours; what was received is ours already."""
        batch, received = inputs
        if self.gate.shared and not self._facts:
            batch = batch.consolidated(self.name)
        own = self.gate.own(batch, self.level)
        if received.rows:
            self.later = by_hop(received)
        return concat((self.later.pop(self.level, EMPTY), own))


def by_hop(received: Batch) -> dict[int, Batch]:
    """What was received, by how often it has been round."""
    if not isinstance(received, Received):
        return {0: received} if received.rows else {}
    return {hop: received.select([h == hop for h in received.hops]) for hop in set(received.hops)}
