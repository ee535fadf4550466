"""The queues between Faust's loop and the worker's thread: records to the worker, committed positions to Faust.

    Faust's loop    assign, revoke      put ──▶ batches ───▶ take      the worker's thread
                                   position ◀── positions ◀── release

Records remain in the batches in which Faust's consumer has fetched them, so that Faust's loop makes no call for each
record. The worker's thread turns the batches into columns.

Invariant: `position` returns committed positions only. Faust fetches no more while `full`, so at most `capacity`
records, or `max_bytes` bytes of them, and the records of one further call are under way.
"""

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eddy.connectors.log import Records, TopicPartition

__all__ = ["Assignment", "Feed"]

_PAUSE_S = 0.005
_HANDOVER_S = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """The partitions that Faust's group assigned to this process, with its member id and the generation."""

    generation: int
    member: str
    instance: str | None
    partitions: frozenset[TopicPartition]


class Feed:
    """Passes the records of a topology's sources, `topics`, to the worker, and committed positions back to Faust."""

    def __init__(self, topics: frozenset[str], capacity: int, max_bytes: int) -> None:
        self.topics, self._capacity, self._max_bytes = topics, capacity, max_bytes
        self._arrived = threading.Condition()
        self._batches: list[tuple[TopicPartition, Sequence[Any]]] = []
        self._given: dict[TopicPartition, range] = {}
        self._released: dict[TopicPartition, int] = {}
        self._sizes: defaultdict[TopicPartition, deque[tuple[int, int]]] = defaultdict(deque)
        """For each batch that is under way: the offset after its last record, and its size in bytes."""
        self._bytes = 0
        self._ended = self._was_full = False
        self.assignment: Assignment | None = None
        self.adopted: Assignment | None = None
        """The assignment that the worker has adopted; None before the first one."""

    def assign(self, assignment: Assignment) -> None:
        """Start a new assignment by Faust's group.

        Records of earlier generations are dropped, and will be read again.
        """
        with self._arrived:
            self._batches, self._given, self._released = [], {}, {}
            self._sizes.clear()
            self._bytes = 0
            self.assignment = assignment
            self._arrived.notify_all()

    async def revoke(self) -> None:
        """Revoke the partitions, and wait for the end of the worker's epoch. A worker that is too late is fenced."""
        with self._arrived:
            self.assignment = None
            self._arrived.notify_all()
        deadline = asyncio.get_running_loop().time() + _HANDOVER_S
        while self.adopted is not None and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_PAUSE_S)

    @property
    def full(self) -> bool:
        """Whether the queue is full, so that Faust should fetch no more records."""
        with self._arrived:
            under_way = sum(
                max(0, given.stop - max(given.start, self._released.get(partition, 0)))
                for partition, given in self._given.items()
            )
            is_full = (under_way >= self._capacity or self._bytes >= self._max_bytes) and not self._ended
            self._was_full |= is_full
            return is_full

    def was_full(self) -> bool:
        """Whether the queue was full since the last call. If it was, missing records do not mean that Faust is late."""
        with self._arrived:
            was_full, self._was_full = self._was_full, False
            return was_full

    def put(self, partition: TopicPartition, batch: Sequence[Any], generation: int) -> None:
        """Queue consecutive records of a partition, which aiokafka has fetched in the generation `generation`."""
        with self._arrived:
            current = self.assignment
            if current is None or self._ended or generation != current.generation or not batch:
                return  # Faust delivers them again, to this worker or to another one
            if partition in current.partitions:
                start = self._given[partition].start if partition in self._given else batch[0].offset
                self._given[partition] = range(start, stop := batch[-1].offset + 1)
                if stop > self._released.get(partition, 0):
                    self._sizes[partition].append((stop, size := _bytes(batch)))
                    self._bytes += size
                self._batches.append((partition, batch))
                self._arrived.notify_all()

    def take(self, assignment: Assignment, timeout_s: float) -> list[Records]:
        """Return the records put since the last call, after a wait of up to `timeout_s` for the first.

        If `assignment` is no longer the current one, return none.
        """
        with self._arrived:
            if not self._batches and self.assignment is assignment:
                self._arrived.wait(timeout_s)
            if self.assignment is not assignment:
                return []
            taken, self._batches = self._batches, []
        return [_columns(partition, batch) for partition, batch in taken]

    def release(self, positions: Mapping[TopicPartition, int]) -> None:
        """Pass on the positions that the worker's transaction has committed, so that Faust can commit them, too."""
        with self._arrived:
            self._released |= positions
            for partition, position in positions.items():
                sizes = self._sizes[partition]
                while sizes and sizes[0][0] <= position:
                    self._bytes -= sizes.popleft()[1]

    def position(self, partition: TopicPartition) -> int | None:
        """Return the committed position of a partition; None until it is known."""
        with self._arrived:
            return self._released.get(partition)

    def begin(self) -> None:
        """Note that a worker is about to start: records are accepted again."""
        self._ended = False

    def end(self) -> None:
        """Drop all records, and ignore further ones, since the worker has ended."""
        with self._arrived:
            self._ended, self._batches = True, []


def _bytes(batch: Sequence[Any]) -> int:
    """Return the size of a batch: the bytes of the keys, the values and the headers."""
    named = sum(len(name) + len(data or b"") for record in batch for name, data in record.headers)
    return named + sum(len(record.key or b"") + len(record.value or b"") for record in batch)


def _columns(partition: TopicPartition, batch: Sequence[Any]) -> Records:
    """Turn a batch of aiokafka's records into columns."""
    headers = [tuple(record.headers) for record in batch]
    return Records(
        *partition,
        [record.offset for record in batch],
        [record.timestamp for record in batch],
        [record.key for record in batch],
        [record.value for record in batch],
        headers if any(headers) else None,
        batch[-1].offset + 1,
    )
