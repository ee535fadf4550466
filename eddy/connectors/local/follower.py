"""The embedded log's follower: reads partitions side by side, each from a position of its own, without a group."""

from collections.abc import Iterable, Mapping

from eddy.connectors.local.consumer import share
from eddy.connectors.local.storage import Storage
from eddy.connectors.log import UNBOUNDED, Records, TopicPartition
from eddy.errors import ConnectorError

__all__ = ["LocalFollower"]

_END = 1 << 62  # an offset above all offsets


class LocalFollower:
    """A `Follower`. One poll reads all partitions at one moment."""

    def __init__(self, storage: Storage, positions: Mapping[TopicPartition, int]) -> None:
        self._storage = storage
        self._positions = dict(positions)
        self._paused: set[TopicPartition] = set()

    def poll(self, max_records: int, timeout_s: float, max_bytes: int = UNBOUNDED) -> list[Records]:
        """As `Follower.poll`."""
        deadline = self._storage.clock() + timeout_s if timeout_s > 0 else None
        while True:
            seen = self._storage.version()
            with self._storage.mutex:
                found = self._read(max_records, max_bytes)
            if found or deadline is None or not self._storage.wait(seen, deadline):
                return found

    def _read(self, max_records: int, max_bytes: int) -> list[Records]:
        lags = {tp: lag for tp in self._positions if tp not in self._paused and (lag := self._lag(tp))}
        shares = share(lags, max_records)
        found = []
        for partition, records in shares.items():
            room = max_bytes // len(shares)
            begin = partition, self._positions[partition], _END
            read = self._storage.read(*begin, records, room)
            if not len(read) and read.next_offset == begin[1]:
                read = self._storage.read(*begin, 1)  # a record longer than the bound is read alone
            self._positions[partition] = read.next_offset
            found.append(read)
        return found

    def _lag(self, partition: TopicPartition) -> int:
        end, position = self._storage.extent(partition).end, self._positions[partition]
        if position > end:
            raise ConnectorError(
                f"{self._storage.where}: position {position} of {partition.topic}-{partition.partition} lies after its "
                f"end {end}; the log must have the records that were read. The topic was made anew"
            )
        return end - position

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Follower.pause`."""
        self._paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Follower.resume`."""
        self._paused.difference_update(partitions)

    def close(self) -> None:
        """Do nothing, because the log has the file."""
