"""Keeps the records of tables' topics that were read, but are not shown yet."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping

from eddy.connectors.log import Records, TopicPartition

__all__ = ["MAX_BYTES", "PendingRecords"]

MAX_BYTES = 64 << 20
"""The memory for records that are not shown yet."""
_LEAST_SHARE = 1 << 20


class PendingRecords:
    """Batches of records by partition, in order. `fetched` is the offset up to which each partition was read."""

    def __init__(self, positions: Mapping[TopicPartition, int]) -> None:
        self.fetched = dict(positions)
        self._batches: dict[TopicPartition, deque[Records]] = {tp: deque() for tp in positions}
        self._bytes = dict.fromkeys(positions, 0)

    def __len__(self) -> int:
        return sum(sum(map(len, batches)) for batches in self._batches.values())

    @property
    def load(self) -> float:
        """The bytes of all records, as a fraction of the memory for them."""
        return sum(self._bytes.values()) / MAX_BYTES

    def add(self, records: Records) -> int:
        """Add a batch. Returns the number of its bytes."""
        tp = TopicPartition(records.topic, records.partition)
        self.fetched[tp] = records.next_offset
        if not len(records):
            return 0
        size = records.bytes()
        self._batches[tp].append(records)
        self._bytes[tp] += size
        return size

    def take(self, tp: TopicPartition, end: int) -> Iterator[Records]:
        """Remove and return the records of a partition that are before the offset `end`."""
        batches = self._batches[tp]
        while batches and batches[0].offsets[0] < end:
            records = batches.popleft()
            stop = bisect_left(records.offsets, end)
            if stop < len(records):
                batches.appendleft(records.slice(stop, len(records)))
                records = records.slice(0, stop)
            self._bytes[tp] -= records.bytes()
            yield records

    def has_read(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether all partitions were read up to these offsets."""
        return all(self.fetched[tp] >= end for tp, end in ends.items())

    def after_last(self, tp: TopicPartition, end: int) -> int | None:
        """Return the offset after the last record before `end`; None if there is no such record."""
        offsets = [offset for records in self._batches[tp] for offset in records.offsets if offset < end]
        return max(offsets) + 1 if offsets else None

    def full(self) -> set[TopicPartition]:
        """Return the partitions whose records take more than an equal share of the memory."""
        share = max(_LEAST_SHARE, MAX_BYTES // max(1, len(self._bytes)))
        return {tp for tp, size in self._bytes.items() if size > share}
