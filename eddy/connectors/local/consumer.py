"""The embedded log's consumer: its membership in a group, its positions, and its paused partitions.

A poll first adopts a new generation. Then it reads equally many records from each partition, as far as there are any.
Positions move only when all of a poll's records are read, so that a failed poll loses no record.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence

from eddy.connectors.local.group import ConsumerGroups, Membership
from eddy.connectors.local.storage import Storage
from eddy.connectors.log import UNBOUNDED, Poll, Records, TopicPartition
from eddy.errors import ConnectorError, FencedError

__all__ = ["LocalConsumer", "share"]

_END = 1 << 62  # an offset above all offsets


def share(lags: Mapping[TopicPartition, int], room: int) -> dict[TopicPartition, int]:
    """Divide `room` records among partitions, as equally as their lags allow; return the number for each partition.

    If `room` is less than the number of partitions, the first partitions get one record each.

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
    """A member of a group in this process. `topics` maps subscribed topics to their partition counts.

    A new assignment ends all pauses, and starts from the committed positions.
    """

    def __init__(
        self, storage: Storage, groups: ConsumerGroups, group: str, topics: Mapping[str, int], member: str
    ) -> None:
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

    def poll(self, max_records: int, timeout_s: float, max_bytes: int = UNBOUNDED) -> Poll:
        """Poll as `Consumer.poll`. Raises: ConnectorError; SlotTakenError if another member has this member's name."""
        deadline = self._storage.clock() + timeout_s if timeout_s > 0 else None
        while True:
            seen = self._storage.version()
            poll = self._poll_now(max_records, max_bytes)
            if poll.records or poll.revoked or poll.assigned or deadline is None:
                return poll
            if not self._storage.wait(seen, deadline):
                return poll

    def _poll_now(self, max_records: int, max_bytes: int) -> Poll:
        with self._storage.mutex:
            if self._closed:
                raise ConnectorError(
                    f"{self._storage.where}: this consumer of group {self._membership.group!r} was closed;"
                    f" an open one is needed. Make another: log.consumer(…)"
                )
            poll = self._follow_group()
            # A new assignment is returned without records, so that a failing read cannot lose it.
            if not poll.revoked and not poll.assigned:
                poll.records = self._fetch(max_records, max_bytes)
            return poll

    def _follow_group(self) -> Poll:
        """Adopt the group's newest generation; return the revoked and the assigned partitions.

        An evicted member joins again.
        """
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

    def _fetch(self, max_records: int, max_bytes: int) -> list[Records]:
        """Read the next records of the partitions.

        Each partition gets an equal share of the bytes, and of the bytes that earlier partitions did not use.
        """
        lags = self._lags()
        shares = share(lags, max_records)
        fetched: dict[TopicPartition, Records] = {}
        for partition in filter(shares.__contains__, lags):
            room = max_bytes // (len(shares) - len(fetched))
            begin = partition, self._positions[partition], _END
            found = self._storage.read(*begin, shares[partition], room)
            if not len(found) and not any(map(len, fetched.values())):
                found = self._storage.read(*begin, 1)  # a record longer than the bound is read alone
            fetched[partition] = found
            if len(fetched) < len(shares):
                max_bytes = max(0, max_bytes - found.bytes())
        self._positions.update((partition, records.next_offset) for partition, records in fetched.items())
        return list(fetched.values())

    def _lags(self) -> dict[TopicPartition, int]:
        """Return the number of offsets from position to end of each partition that is behind its end and not paused.

        Each call begins with another partition, so that all partitions get their turn.
        """
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
                f" after its end {end}; the log must hold the records that were read. Was the topic made anew?"
                f" Reset the application, or seek."
            )
        return end - position

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that this member owned at the last poll."""
        return frozenset(self._positions)

    def subscribe(self, topics: Sequence[str]) -> None:
        """As `Consumer.subscribe`."""
        with self._storage.mutex:
            found = self._storage.topics()
            if missing := [topic for topic in topics if topic not in found]:
                raise ConnectorError(
                    f"{self._storage.where}: group {self._membership.group!r} subscribes to topic {missing[0]!r}, which"
                    " does not exist; topics are made before they are read. Create it with its number of partitions."
                )
            self._topics = {topic: found[topic].partitions for topic in topics}
            self._groups.subscribe(self._membership, self._topics)
        self._storage.announce()

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Move to offsets as `Consumer.seek`. Raises: ConnectorError for a partition that is not owned."""
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
        """Return the membership as of the last poll."""
        return self._membership

    def close(self) -> None:
        """End the membership; the second call does nothing."""
        with self._storage.mutex:
            if not self._closed:
                self._closed = True
                with contextlib.suppress(
                    FencedError
                ):  # another member has the name, so this consumer is no longer a member
                    self._groups.leave(self._membership)
        self._storage.announce()
