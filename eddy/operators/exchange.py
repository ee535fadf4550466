"""The exchange: sends rows to the worker that owns their key.

A worker is one circuit over all the partitions that it owns, so most rows remain in memory. Only rows of keys that
another worker owns are sent, through a topic, and enter that worker's circuit at the same step. They are deltas with
weights, so their order across partitions does not matter.

Invariant: rows from one partition to another keep their order, whichever workers own the two partitions, and whether
the rows remain in memory or use the topic. So the values of a key keep their order, and no retraction precedes its row.
Therefore rows of owned partitions, too, use the topic while it still has earlier rows of their partition. Such a
partition is *draining*.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import compress
from typing import Any, Literal, NamedTuple

from eddy.operators.batch import EMPTY, Batch, Row, concat, keys_of
from eddy.operators.context import Context
from eddy.operators.errors.row_sizes import OVERHEAD
from eddy.operators.errors.set_aside import Aside
from eddy.operators.keyed import Keyed, keyed
from eddy.operators.windows.source_times import event_times, placed_times
from eddy.partitioner import Partitioner, partitions_of
from eddy.serde import Serde
from eddy.state.spec import Refusals, refuses_none

__all__ = ["Budget", "Exchange", "Gate", "Outgoing", "Ownership", "Received", "by_iteration"]


_ROWS_A_LOOK = 256
_NONE: frozenset[int] = frozenset()


class Ownership:
    """The partitions owned by this worker, by the partition count of a topic.

    Partition i of every topic with the same count belongs to the same worker. If a count is not in `partitions`, all
    partitions are owned. `draining` has, by topic, the owned partitions of which the topic still has earlier rows.
    `term` grows with each change of ownership, on any worker.
    """

    def __init__(self) -> None:
        self.partitions: dict[int, frozenset[int]] = {}
        self.draining: Mapping[str, frozenset[int]] = {}
        self.term = 0

    def all_of(self, count: int) -> bool:
        """Whether all `count` partitions are owned."""
        return len(self.of(count)) == count

    def owns(self, partition: int, count: int) -> bool:
        """Whether this partition of a topic with `count` partitions is owned."""
        return partition in self.of(count)

    def of(self, count: int) -> Collection[int]:
        """The owned partitions of a topic with `count` partitions."""
        return self.partitions.get(count, range(count))

    def first_of(self, count: int) -> int:
        """The first owned partition of a topic with `count` partitions; -1 if none is owned."""
        return min(self.of(count), default=-1)


class Budget:
    """The work that an epoch may do before it has to commit, so that its transaction does not time out.

    The clock is read at intervals, not for every wave.
    """

    def __init__(self, max_rows: int, expired: Callable[[], bool] = lambda: False) -> None:
        self._bound, self._expired = max_rows, expired
        self.begin()

    def begin(self, times: int = 1) -> None:
        """Begin an epoch, which may process `times` times the usual number of rows."""
        self.max_rows = self._bound * times
        self._rows = self._next = 0
        self._spent = False

    @property
    def rows(self) -> int:
        """The number of rows spent since `begin`."""
        return self._rows

    def spend(self, rows: int) -> bool:
        """Count rows of a loop; return whether the epoch should end."""
        self._rows += rows
        if self._rows >= self._next and not self._spent:
            self._next = min(self.max_rows, self._rows + _ROWS_A_LOOK)
            self._spent = self._rows >= self.max_rows or self._expired()
        return self._spent

    @property
    def spent(self) -> bool:
        """Whether the epoch should end."""
        return self._spent

    def exceeded(self, rows: int) -> bool:
        """Whether `rows` additional rows, not counted yet, exceed the budget, or the time has passed."""
        return self._spent or self._rows + rows >= self.max_rows or self._expired()


class Received(Batch):
    """Rows received through an exchange's topic. `iterations` has the iteration of each row in its loop."""

    __slots__ = ("iterations",)

    def __init__(self, batch: Batch, iterations: list[int]) -> None:
        super().__init__(batch.rows, batch.weights, batch.time, batch.times, batch.headers, None, batch.event_times)
        self.iterations = iterations


class Outgoing(NamedTuple):
    """Rows to send through an exchange's topic, the partition of each row, and the loop iteration of all of them."""

    batch: Batch
    partitions: list[int]
    iteration: int


class Gate:
    """Splits batches: rows of owned partitions continue in this worker, all other rows are sent.

    Rows of more than `max_row_bytes` bytes are refused; None is no limit. `refusals` returns the errors of records that
    the topic does not accept.
    """

    def __init__(
        self,
        topic: str,
        key: Serde[Any],
        value: Serde[Any],
        partitions: int,
        ownership: Ownership,
        partitioner: Partitioner,
        max_row_bytes: int | None = None,
        refusals: Refusals = refuses_none,
    ) -> None:
        self.topic, self.key, self.value, self.partitions = topic, key, value, partitions
        self.max_row_bytes, self._refusals = max_row_bytes, refusals
        self._ownership, self._partitioner = ownership, partitioner
        self.outbox: list[Outgoing] = []

    @property
    def draining(self) -> frozenset[int]:
        """The owned partitions of which the topic still has earlier rows."""
        return self._ownership.draining.get(self.topic, _NONE)

    @property
    def shared(self) -> bool:
        """Whether some rows have to be sent: other workers own keys, or partitions are draining."""
        ownership = self._ownership
        return bool(ownership.draining and self.draining) or not ownership.all_of(self.partitions)

    def own(self, batch: Batch, iteration: int = 0) -> Batch:
        """Return the rows that continue in this worker, and put all other rows into the outbox."""
        if not batch.rows or not self.shared:
            return batch
        homes = self.homes(batch)
        owns, count, draining = self._ownership.owns, self.partitions, self.draining
        mine = [owns(home, count) and home not in draining for home in homes]
        if not all(mine):
            theirs = [not own for own in mine]
            self.outbox.append(Outgoing(batch.select(theirs), list(compress(homes, theirs)), iteration))
        return batch.select(mine)

    def refusals(self, batch: Batch) -> Mapping[int, Exception]:
        """Return the errors of the rows that the topic does not accept, by the row's index.

        The bytes that an epoch adds to a row are counted, too. The serdes have to accept the rows.
        """
        keys, room = [self.key.encode(key) for key in keys_of(batch.rows)], bytes(OVERHEAD)
        values = [room if value is None else room + self.value.encode(value) for _, value in batch.rows]
        return self._refusals(self.topic, keys, values, batch.headers)

    @property
    def owns_all(self) -> bool:
        """Whether this worker owns all partitions."""
        return self._ownership.all_of(self.partitions)

    @property
    def owned(self) -> Collection[int]:
        """The partitions that this worker owns."""
        return self._ownership.of(self.partitions)

    @property
    def first(self) -> int:
        """The first partition that this worker owns, -1 for none."""
        return self._ownership.first_of(self.partitions)

    @property
    def term(self) -> int:
        """A number that grows whenever partitions change owners, on any worker."""
        return self._ownership.term

    def mine(self, rows: list[Row]) -> list[Row]:
        """The rows whose partitions this worker owns."""
        owns, count = self._ownership.owns, self.partitions
        if self._ownership.all_of(count):
            return rows
        homes = self.homes_of(rows)
        return [row for row, home in zip(rows, homes, strict=True) if owns(home, count)]

    def spill(self, batch: Batch, iteration: int) -> None:
        """Send every row through the topic, also rows of owned partitions, because the epoch's budget is spent."""
        self.outbox.append(Outgoing(batch, self.homes(batch), iteration))

    def encode(self, row: Row) -> bytes:
        """Encode a row for the topic. Raises: any exception of the serdes."""
        key, value = row
        return b"".join(
            b"" if part is None else serde.encode(part) for part, serde in ((key, self.key), (value, self.value))
        )

    def homes(self, batch: Batch) -> list[int]:
        """The partition of each row."""
        return self.homes_of(batch.rows)

    def homes_of(self, rows: Sequence[Row]) -> list[int]:
        """Return the partition of each row. Here the rows are not in a batch."""
        if self.partitions == 1:
            return [0] * len(rows)
        keys = list(keys_of(rows))
        if None in keys:  # a record without a key belongs to partition 0
            homes = iter(self._homes_of([key for key in keys if key is not None]))
            return [0 if key is None else next(homes) for key in keys]
        return self._homes_of(keys)

    def _homes_of(self, keys: list[Any]) -> list[int]:
        return partitions_of(self.key.identify_many(keys), self.partitions, self._partitioner, self.key.tail)


class Exchange(Keyed):
    """Input: local rows and received rows. Output: the rows of keys that this worker owns.

    The rows that an epoch sends are consolidated, unless they are `facts`. So the receiving worker never gets a
    retraction before the row itself, whatever part of the rows it reads first. With `needs_keys`, rows without a key
    are dropped. Inside a recursion rows are processed by depth: received rows wait in `later` until the recursion
    reaches their depth. `times` says what each row carries for a later step that assigns windows: the event time of its
    source partition, and with "placed" also the place of its record.
    """

    def __init__(
        self,
        name: str,
        gate: Gate,
        facts: bool = False,
        needs_keys: bool = False,
        times: Literal["", "plain", "placed"] = "",
    ) -> None:
        self.name, self.gate, self._facts, self._needs_keys, self._times = name, gate, facts, needs_keys, times
        self.later: dict[int, Batch] = {}

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Split the local rows into owned rows and rows to send; received rows are owned."""
        batch, received = inputs
        batch = batch.with_event_times(self._carried(context, batch)) if self._times else batch.without_places()
        if self._needs_keys:
            batch = self.with_keys(batch)
        if self.gate.shared and not self._facts:
            batch = batch.consolidated(self.name)
        own = self.gate.own(batch, context.iteration)
        if received.rows:
            self.later = by_iteration(received)
        return concat((self.later.pop(context.iteration, EMPTY), own))

    def _carried(self, context: Context, batch: Batch) -> list[int | None]:
        return [*(placed_times if self._times == "placed" else event_times)(context, batch)]

    def forget_later(self) -> None:
        """Drop the waiting rows, because the epoch is undone."""
        self.later = {}

    def end_epoch(self) -> None:
        """Empty the gate's outbox: its rows were sent, or the epoch was undone."""
        super().end_epoch()
        self.gate.outbox = []

    def explore(self, *inputs: Batch) -> Batch:
        """Return all rows that pass the exchange, including rows whose keys other workers own."""
        return keyed(inputs[0]) if self._needs_keys else inputs[0]

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the rows that the topic cannot store, if rows have to be sent at all."""
        batch, received = inputs
        batch = aside.without_kept(batch)
        if self.gate.shared and aside.care.on:
            batch = aside.without(batch, self._unwritten(batch))
        return self.step(context, batch, received)

    def _unwritten(self, batch: Batch) -> dict[int, Exception]:
        found: dict[int, Exception] = {}
        for index, row in enumerate(batch.rows):
            try:
                if not self._facts:
                    hash(row)
                self.gate.encode(row)
            except Exception as error:
                found[index] = error
        kept = [index for index in range(len(batch)) if index not in found]
        refused = self.gate.refusals(batch.select([index not in found for index in range(len(batch))]))
        return found | {kept[index]: error for index, error in refused.items()}


def by_iteration(received: Batch) -> dict[int, Batch]:
    """The received rows, by iteration. Cost: O(rows)."""
    if not isinstance(received, Received):
        return {0: received} if received.rows else {}
    places: dict[int, list[int]] = {}
    for place, iteration in enumerate(received.iterations):
        places.setdefault(iteration, []).append(place)
    if len(places) == 1:
        rows = Batch(received.rows, received.weights, received.time, received.times, received.headers)
        return dict.fromkeys(places, rows.with_event_times(received.event_times))
    return {iteration: received.at(places[iteration]) for iteration in sorted(places)}
