"""Records on their way from Faust's loop to the worker's thread, and acknowledgements on their way back.

    Faust's loop    assign, revoke      put ──▶ records ──▶ take      the worker's thread
                                        ack ◀── positions ◀── release

Invariant: a record is acknowledged after the transaction that moved the position past it. At most `capacity` records
are under way; `put` waits, and so does Faust's stream.

Faust waits for the acknowledgement of all records before it rebalances or stops (`stream_wait_empty`). So records that
this worker is not going to commit are dropped: Faust no longer waits for them, and its positions do not pass them.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from faust.types import EventT

from eddy.connectors.log import Headers, TopicPartition

__all__ = ["Assignment", "Fed", "Feed"]

_PAUSE_S = 0.005
_HANDOVER_S = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """The partitions that Faust's group gave to this process, and as which member in which generation."""

    generation: int
    member: str
    instance: str | None
    partitions: frozenset[TopicPartition]


class Fed(NamedTuple):
    """One record as Faust's consumer has read it; the timestamp in milliseconds."""

    partition: TopicPartition
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Feed:
    """The records of one topology's sources."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._arrived = threading.Condition()
        self._records: deque[Fed] = deque()
        self._unacknowledged: dict[TopicPartition, deque[EventT[Any]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._under_way = 0
        self._ended = False
        self.assignment: Assignment | None = None
        self.adopted: Assignment | None = None
        """The assignment that the worker works with."""

    def assign(self, assignment: Assignment) -> None:
        """Faust's group has assigned partitions; records of earlier generations are dropped, and come again."""
        self._loop = asyncio.get_running_loop()
        self._drop()
        with self._arrived:
            if not self._ended:
                self._unacknowledged = {partition: deque() for partition in assignment.partitions}
            self.assignment = assignment
            self._arrived.notify_all()

    async def revoke(self) -> None:
        """Take the partitions back, and wait for the end of the worker's epoch; if it is late, it is fenced."""
        with self._arrived:
            self.assignment = None
            self._arrived.notify_all()
        deadline = asyncio.get_running_loop().time() + _HANDOVER_S
        while self.adopted is not None and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_PAUSE_S)

    async def put(self, events: Sequence[EventT[Any]]) -> None:
        """Give records to the worker; waits while too many are under way."""
        while self._under_way >= self._capacity:
            await asyncio.sleep(_PAUSE_S)
        fed = []
        for event in events:
            message = event.message
            partition = TopicPartition(message.topic, message.partition)
            waiting = self._unacknowledged.get(partition)
            current = self.assignment
            if waiting is None or current is None or message.generation_id != current.generation:
                message.acked = True  # it comes again, here or elsewhere
                continue
            waiting.append(event)
            headers: Any = message.headers  # pairs, as aiokafka gives them
            time_ms = round((message.timestamp or 0.0) * 1_000)
            fed.append(Fed(partition, message.offset, time_ms, message.key, message.value, tuple(headers or ())))
        with self._arrived:
            self._under_way += len(fed)
            self._records.extend(fed)
            self._arrived.notify_all()

    def take(self, assignment: Assignment, timeout_s: float) -> list[Fed]:
        """The records that have come, waiting up to `timeout_s` for one; none once the assignment has changed."""
        with self._arrived:
            if not self._records and self.assignment is assignment:
                self._arrived.wait(timeout_s)
            if self.assignment is not assignment:
                return []
            taken = list(self._records)
            self._records.clear()
            return taken

    def release(self, positions: Mapping[TopicPartition, int]) -> None:
        """The worker's transaction has committed: let Faust acknowledge the records before these positions."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._acknowledge, dict(positions))

    def _acknowledge(self, positions: Mapping[TopicPartition, int]) -> None:
        for partition, position in positions.items():
            waiting = self._unacknowledged.get(partition, deque())
            while waiting and waiting[0].message.offset < position:
                waiting.popleft().ack()
                self._under_way -= 1

    def begin(self) -> None:
        """A worker is about to start."""
        self._ended = False

    def end(self) -> None:
        """The worker has ended: drop its records, and those that still come."""
        self._ended = True
        self.give_up()

    def give_up(self) -> None:
        """Drop the records under way, and those that still come in this generation."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._drop)

    def _drop(self) -> None:
        for waiting in self._unacknowledged.values():
            for event in waiting:
                event.message.acked = True  # for Faust's waiting only: its positions are moved by `ack`
        with self._arrived:
            self._records.clear()
            self._unacknowledged = {}
            self._under_way = 0
