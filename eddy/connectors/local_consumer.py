"""The embedded log's consumer: a membership, the positions of what it owns, and the paused partitions.

A poll first learns of a new generation, then shares its records out over the partitions that have
any. Positions move only once all of a poll's records are there, so that a failed poll loses none.
"""

import contextlib
from collections.abc import Iterable, Mapping

from eddy.connectors.local_group import Groups, Membership
from eddy.connectors.local_storage import Storage
from eddy.connectors.log import Poll, Records, TopicPartition
from eddy.errors import ConnectorError, FencedError

__all__ = ["LocalConsumer", "share"]

_END = 1 << 62  # behind every offset


def share(lags: Mapping[TopicPartition, int], room: int) -> dict[TopicPartition, int]:
    """How many records to take of each: as even as the lags allow, `room` in all.

    Where there is less room than partitions, the first ones get one each.

    >>> a, b, c = (TopicPartition("t", i) for i in range(3))
    >>> share({a: 1, b: 90, c: 90}, 11) == {a: 1, b: 5, c: 5}
    True
    """
    shares = {}
    chosen = sorted(list(lags)[:room], key=lags.__getitem__)
    for taken, partition in enumerate(chosen):
        shares[partition] = min(lags[partition], room // (len(chosen) - taken))
        room -= shares[partition]
    return shares


class LocalConsumer:
    """A member of a group of this process. `topics` maps what it subscribes to → number of partitions.

    A new assignment ends all pauses, and starts from the committed positions.
    """

    def __init__(self, storage: Storage, groups: Groups, group: str, topics: Mapping[str, int], member: str) -> None:
        self._storage = storage
        self._groups = groups
        self._topics = dict(topics)
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._turn = 0
        self._closed = False
        with storage.mutex:
            self._membership = groups.join(group, member, self._topics)
        storage.announce()

    def poll(self, max_records: int, timeout_s: float) -> Poll:
        """As `Consumer.poll`. Raises: ConnectorError; SlotTakenError where another took this one's name."""
        deadline = self._storage.clock() + timeout_s if timeout_s > 0 else None
        while True:
            seen = self._storage.version()
            poll = self._poll_now(max_records)
            if poll.records or poll.revoked or poll.assigned or deadline is None:
                return poll
            if not self._storage.wait(seen, deadline):
                return poll

    def _poll_now(self, max_records: int) -> Poll:
        with self._storage.mutex:
            if self._closed:
                raise ConnectorError(
                    f"{self._storage.where}: this consumer of group {self._membership.group!r} was closed;"
                    f" an open one is needed. Make another: log.consumer(…)"
                )
            poll = self._follow_group()
            # Told alone, so that a failing read cannot lose the news of who owns what.
            if not poll.revoked and not poll.assigned:
                poll.records = self._fetch(max_records)
            return poll

    def _follow_group(self) -> Poll:
        """Take over the newest generation; what was thrown out joins again and has lost everything."""
        before = self.assignment()
        thrown_out = not self._groups.holds(self._membership)
        if thrown_out:
            group, member = self._membership[:2]
            self._membership = self._groups.join(group, member, self._topics)
            self._storage.announce()
        self._membership, owned, dealt_anew = self._groups.refresh(self._membership)
        if owned == before and not dealt_anew and not thrown_out:
            return Poll()
        self._start_over(owned)
        return Poll(revoked=before, assigned=owned)

    def _start_over(self, owned: frozenset[TopicPartition]) -> None:
        committed = self._storage.committed(self._membership.group)
        self._positions = {
            partition: committed[partition].offset if partition in committed else self._storage.extent(partition).begin
            for partition in sorted(owned)
        }
        self._paused.clear()

    def _fetch(self, max_records: int) -> list[Records]:
        fetched = {
            partition: self._storage.read(partition, self._positions[partition], _END, records)
            for partition, records in share(self._lags(), max_records).items()
        }
        self._positions.update((partition, records.next_offset) for partition, records in fetched.items())
        return list(fetched.values())

    def _lags(self) -> dict[TopicPartition, int]:
        """How far each partition's end is away (holes counted too), another one first each time."""
        wanted = [partition for partition in self._positions if partition not in self._paused]
        self._turn += 1
        start = self._turn % len(wanted) if wanted else 0
        lags = {p: self._lag(p, self._positions[p]) for p in wanted[start:] + wanted[:start]}
        return {partition: lag for partition, lag in lags.items() if lag}

    def _lag(self, partition: TopicPartition, position: int) -> int:
        end = self._storage.extent(partition).end
        if position > end:
            raise ConnectorError(
                f"{self._storage.where}: position {position} of {partition.topic}-{partition.partition} lies"
                f" behind its end {end}; the log must hold what was read of it. Was the topic made anew?"
                f" Reset the application, or seek."
            )
        return end - position

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions owned as of the last poll."""
        return frozenset(self._positions)

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """As `Consumer.seek`. Raises: ConnectorError for a partition that is not owned."""
        if foreign := sorted(set(positions) - self._positions.keys()):
            raise ConnectorError(
                f"{self._storage.where}: seek in {foreign[0].topic}-{foreign[0].partition}, which"
                f" {self._membership.member!r} does not own; only owned partitions have a position."
                f" Seek after the poll that assigns it."
            )
        self._positions.update(positions)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.pause`."""
        self._paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.resume`."""
        self._paused.difference_update(partitions)

    def group_metadata(self) -> Membership:
        """The membership as of the last poll."""
        return self._membership

    def close(self) -> None:
        """Leave the group; the second time, do nothing."""
        with self._storage.mutex:
            if not self._closed:
                self._closed = True
                with contextlib.suppress(FencedError):  # another has the name: nothing to leave
                    self._groups.leave(self._membership)
        self._storage.announce()
