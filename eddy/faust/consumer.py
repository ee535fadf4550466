"""The worker's `Consumer` in mode="agents", in which Faust reads the sources and balances their partitions.

    sources      from Faust, by the `Feed`; records that Faust does not deliver are read from the log
    exchanges    loops, repartitions and changelogs of the app's tables, by a follower of eddy's: partition i belongs to
                 the owner of a source's partition i, a single partition to the owner of a source's partition 0
    positions    eddy's, in a group without members; Faust's member guards each transaction (`GuardedGroup`)

Records below eddy's stored positions are skipped. Faust may deliver them after a crash, because its own positions
follow eddy's.
Records that Faust has not delivered for a while are read from the log: records before Faust's own position, and records
of a partition that Faust has stopped fetching (faust#629). A log message says so, once for each assignment. At most
`MAX_KEPT` records, or about `MAX_KEPT_BYTES` of them, are read from the log before earlier records are committed.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence

from eddy.connectors.kafka import GuardedGroup, KafkaLog, Member
from eddy.connectors.kafka.record_columns import within
from eddy.connectors.log import UNBOUNDED, Follower, Poll, Position, Records, TopicPartition
from eddy.errors import ConfigurationError, ConnectorError
from eddy.faust.backlog import Backlog
from eddy.faust.feed import Assignment, Feed

__all__ = ["ASSUMED_BYTES", "LOOK_S", "MAX_KEPT", "MAX_KEPT_BYTES", "FaustConsumer"]

_log = logging.getLogger("eddy.faust")
_SLICE_S = 0.01
MAX_KEPT, MAX_KEPT_BYTES = 20_000, 32 << 20
"""The limits of the records that were read from the log and are not committed, in records and in bytes, for all
partitions together.
"""
ASSUMED_BYTES = 64 << 10
"""The assumed bytes of a record before the first one was read."""
LOOK_S = 0.5
"""Seconds between two checks of the ends of the sources.

If the log has a record at one check, and Faust has not delivered it by the next check, it is read from the log.
"""


class FaustConsumer:
    """A member of Faust's group. `sources` and `exchanges` map topics to their partitions."""

    def __init__(
        self,
        log: KafkaLog,
        feed: Feed,
        groups: tuple[str, str],
        sources: Mapping[str, int],
        exchanges: Mapping[str, int],
    ) -> None:
        self._log, self._feed, (self._group, self._faust_group) = log, feed, groups
        self._sources, self._exchanges = sources, exchanges
        self._assignment: Assignment | None = None
        self._backlogs: dict[TopicPartition, Backlog] = {}
        self._exchanged: dict[TopicPartition, int] = {}
        self._follower: Follower | None = None
        self._paused: set[TopicPartition] = set()
        self._typical = ASSUMED_BYTES
        self._looked_at, self._unread, self._said = time.monotonic(), dict[TopicPartition, int](), False

    def poll(self, max_records: int, timeout_s: float, max_bytes: int = UNBOUNDED) -> Poll:
        """As `Consumer.poll`."""
        try:
            return self._poll(max_records, timeout_s, max_bytes)
        except ConnectorError as error:
            if error.retriable or not self._is_outdated():
                raise
            return self._adopt(self._feed.assignment)

    def _is_outdated(self) -> bool:
        """Whether another worker has committed positions beyond ours in an exchange.

        That worker may have deleted the records between its positions and ours.

        This happens after a pause longer than the session timeout, until Faust learns that its session has ended.
        """
        starts = self._log.starts(self._group, [*self._exchanged])
        return any(starts[partition] > position for partition, position in self._exchanged.items())

    def _poll(self, max_records: int, timeout_s: float, max_bytes: int) -> Poll:
        if self._feed.assignment is not self._assignment:
            return self._adopt(self._feed.assignment)
        if self._assignment is None or self._paused:
            time.sleep(min(timeout_s, _SLICE_S))
            return Poll()
        self._request_undelivered()
        deadline = time.monotonic() + timeout_s
        while True:
            found = self._exchanged_records(max_records, max_bytes) or self._source_records(max_records, max_bytes)
            left = deadline - time.monotonic()
            if found or self._feed.assignment is not self._assignment:
                return Poll(found)
            if left <= 0:
                return Poll()
            self._take_in(min(left, _SLICE_S))

    def _take_in(self, timeout_s: float) -> None:
        """Add the records that Faust has delivered to the backlogs of their partitions."""
        assert self._assignment is not None
        try:
            for records in self._feed.take(self._assignment, timeout_s):
                self._backlogs[TopicPartition(records.topic, records.partition)].add(records)
        except BaseException:
            for backlog in self._backlogs.values():
                backlog.joined = (
                    False  # after a failure, records that were taken from the feed are missing in the backlog
                )
            raise

    def _fill(self) -> None:
        """Read, from the log, a slice of the wanted records of each partition whose backlog has room."""
        for partition, backlog in self._backlogs.items():
            share = max(1, min(MAX_KEPT, MAX_KEPT_BYTES // self._typical) // len(self._backlogs))
            if backlog.next_offset < backlog.wanted and backlog.kept < share:
                records = self._log.read(partition, backlog.next_offset, backlog.wanted, share)
                if records.next_offset == backlog.next_offset:
                    # An open transaction: the next check requests the records again.
                    backlog.wanted = backlog.next_offset
                else:
                    backlog.extend(records)
                    self._typical = max(1, records.bytes() // len(records)) if len(records) else self._typical

    def _request_undelivered(self) -> None:
        """Request the records that were in the log at the last check and that Faust has not delivered since.

        If Faust was paused meanwhile, because too many records were under way, it is not late, and no record is
        requested.
        """
        if time.monotonic() - self._looked_at < LOOK_S:
            return
        self._looked_at = time.monotonic()
        if self._feed.was_full():
            self._unread = {}
        for partition, end in self._unread.items():
            backlog = self._backlogs[partition]
            if backlog.next_offset < end:
                backlog.wanted = max(backlog.wanted, end)
                if not self._said:
                    _log.info(
                        "Faust delivers records of '%s' partition %d, and perhaps of others, late: eddy reads "
                        "them from the log",
                        *partition,
                    )
                    self._said = True
        self._unread = self._log.end_offsets(self._backlogs)

    def _source_records(self, room: int, max_bytes: int) -> list[Records]:
        self._take_in(0.0)
        self._fill()
        polled = []
        backlogs = [backlog for backlog in self._backlogs.values() if backlog.position < backlog.next_offset]
        for backlog in sorted(backlogs, key=len):
            share = max(1, room // len(backlogs))
            if (records := backlog.first(share)) is not None:
                polled.append(records)
        kept = within(polled, max_bytes)
        for records in kept:
            self._backlogs[TopicPartition(records.topic, records.partition)].advance(records)
        return kept

    def _exchanged_records(self, room: int, max_bytes: int) -> list[Records]:
        if not self._exchanged:
            return []
        if self._follower is None:
            self._follower = self._log.follower(self._exchanged)
        found = self._follower.poll(room, 0.0, max_bytes)
        self._exchanged |= {TopicPartition(r.topic, r.partition): r.next_offset for r in found}
        return found

    def _adopt(self, assignment: Assignment | None) -> Poll:
        """Use a new assignment from now on; return the changes of ownership.

        After a failure, the next poll tries again.
        """
        revoked = self.assignment()
        self._end_follower()
        self._backlogs, self._exchanged, self._unread = {}, {}, {}
        self._paused.clear()
        self._said = False
        self._assignment = self._feed.adopted = None
        if assignment is None:
            return Poll(revoked=revoked)
        sources = sorted(tp for tp in assignment.partitions if tp.topic in self._sources)
        numbers = self._numbers(sources)
        exchanges = [TopicPartition(t, p) for t, count in self._exchanges.items() for p in numbers.get(count, ())]
        starts = self._log.starts(self._group, [*sources, *exchanges])
        self._backlogs = {tp: Backlog(tp, starts[tp]) for tp in sources}
        self._exchanged = {tp: starts[tp] for tp in exchanges}
        self._feed.release({tp: starts[tp] for tp in sources})
        self._assignment = self._feed.adopted = assignment
        return Poll(revoked=revoked, assigned=self.assignment())

    def _numbers(self, sources: Iterable[TopicPartition]) -> dict[int, set[int]]:
        """Return the owned partition numbers, by partition count.

        A single partition belongs to the owner of partition 0 of the first source.

        Raises: ConfigurationError if topics with the same partition count have different owned partitions.
        """
        owned: dict[str, set[int]] = {topic: set() for topic in self._sources}
        for topic, number in sources:
            owned[topic].add(number)
        numbers: dict[int, set[int]] = {}
        for topic, mine in owned.items():
            if numbers.setdefault(self._sources[topic], mine) != mine:
                raise ConfigurationError(
                    f"group '{self._faust_group}': Faust has not assigned equal partitions of {', '.join(owned)}; a "
                    "worker needs partition i of each. Set table_standby_replicas=1 in the app, or host in "
                    "mode='worker'"
                )
        numbers.setdefault(1, {0} if 0 in owned[min(owned)] else set())
        return numbers

    def subscribe(self, topics: Sequence[str]) -> None:
        """Refuse other topics, since Faust subscribes once. Raises: ConfigurationError."""
        raise ConfigurationError(
            f"faust.host '{self._group}': mode='agents' reads the topics of the app's start; patterns of topics need "
            "mode='worker': eddy.faust.host(app, topology)"
        )

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that this worker owned at the last poll."""
        return frozenset([*self._backlogs, *self._exchanged])

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """As `Consumer.seek`."""
        for partition, offset in positions.items():
            if partition in self._backlogs:
                self._backlogs[partition].seek(offset)
            elif self._exchanged[partition] != offset:
                self._exchanged[partition] = offset
                self._end_follower()

    def _end_follower(self) -> None:
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Pause all partitions, even if `partitions` has only some of them, because the worker always pauses all."""
        self._paused |= set(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.resume`."""
        self._paused -= set(partitions)

    def group_metadata(self) -> object:
        """Return the group of the positions, guarded by Faust's member."""
        current = self._assignment
        if current is None:
            raise ConnectorError(f"group '{self._group}': no partitions are assigned", retriable=True)
        guard = Member(self._faust_group, current.generation, current.member, current.instance)
        return GuardedGroup(self._group, guard, TopicPartition(f"{self._group}-cuts", 0))

    def committed(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Note that a transaction with these positions has committed."""
        done = {tp: at.offset for tp, at in positions.items() if tp in self._backlogs}
        for partition, offset in done.items():
            self._backlogs[partition].forget(offset)
        self._feed.release(done)

    def close(self) -> None:
        """Stop reading. The member of the group is Faust's, and remains in it."""
        self._end_follower()
        self._feed.adopted = None
