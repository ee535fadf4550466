"""The embedded log: the port of `log.py` over one SQLite file, or in memory.

It runs topologies without Kafka, with the same guarantees: transactions over partitions and positions, fencing, groups
of members, compacted topics. A commit that has returned survives a loss of power. Its limits: the members of a group
are in one process (other processes may produce and read meanwhile), nothing is replicated, and no record is deleted by
age.

    LocalLog → consumer, producer → group → files (the directory)
                                  → storage (tables) → database (locks)

Invariant: timestamps are the caller's; the wall clock is never read.
"""

import contextlib
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from eddy.connectors.local.consumer import LocalConsumer
from eddy.connectors.local.follower import LocalFollower
from eddy.connectors.local.group import ConsumerGroups
from eddy.connectors.local.log_files import check_name, open_database
from eddy.connectors.local.producer import LocalProducer
from eddy.connectors.local.storage import Storage
from eddy.connectors.log import (
    Headers,
    Position,
    Records,
    TopicPartition,
    TopicSpec,
    check_partitions,
    check_topic_names,
    never,
)
from eddy.connectors.record_limits import DEFAULT_MAX_BYTES, refusals
from eddy.connectors.writing import WritableLog
from eddy.errors import ConnectorError, RecordRefusedError
from eddy.partitioner import Partitioner, partition_of

__all__ = ["LocalLog"]

_LONGEST_TOPIC_NAME = 249


class LocalLog(WritableLog):
    """A `Log` in the directory `path`, which is made if it does not exist; in memory if it is None.

    `clock` and `sleep` time the waits of polls; a given `sleep` has to advance `clock`.
    `busy_timeout_s`: the seconds that a writer waits for another writer, in this process or in another one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] | None = None,
        busy_timeout_s: float = 5.0,
    ) -> None:
        path = None if path is None else pathlib.Path(path)
        where = "local log in memory" if path is None else f"local log {path}"
        self._storage = Storage(
            open_database(path, where, busy_timeout_s),
            where,
            shared=path is not None,
            busy_timeout_s=busy_timeout_s,
            clock=clock,
            sleep=sleep,
        )
        self.path, self._busy_timeout_s = path, busy_timeout_s
        self._groups = ConsumerGroups(path, where)
        self._producers: dict[str, LocalProducer] = {}
        self._runs_groups = self._closed = False

    @property
    def partitioner(self) -> Partitioner:
        """As `Log.partitioner`, in Python."""
        return partition_of

    @property
    def session_s(self) -> float:
        """0: a member's lock ends with its process."""
        return 0.0

    @property
    def compaction_waits(self) -> bool:
        """True: compaction keeps the records from the lowest position of any group on."""
        return True

    def reach(self, timeout_s: float) -> None:
        """Do nothing, because a log that was opened always answers."""

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicSpec]:
        """As `Log.topics`."""
        wanted = None if names is None else check_topic_names(self._storage.where, names)
        found = self._storage.topics()
        return found if wanted is None else {name: found[name] for name in wanted if name in found}

    def refusals(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[Headers] | None,
    ) -> dict[int, RecordRefusedError]:
        """As `Log.refusals`."""
        spec = self._storage.topics(topic).get(topic)
        return {} if spec is None else refusals(f"send to '{topic}'", spec, keys, values, headers)

    def partition_counts(self) -> dict[str, int]:
        """As `Log.partition_counts`."""
        return {name: spec.partitions for name, spec in self._storage.topics().items()}

    def topic_ids(self, names: Iterable[str]) -> Callable[[], dict[str, int]]:
        """As `Log.topic_ids`."""
        found = self._storage.topic_ids(check_topic_names(self._storage.where, names))
        return lambda: found

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        """As `Log.create_topics`."""
        with self._storage.change():
            existing = set(self._storage.topics())
            for spec in specs:
                self._check_new(spec, existing)
                existing.add(spec.name)
                self._storage.create_topic(spec)

    def _check_new(self, spec: TopicSpec, existing: set[str]) -> None:
        where = self._storage.where
        check_name(where, "topic", spec.name, _LONGEST_TOPIC_NAME)
        if spec.name in existing:
            raise ConnectorError(
                f"{where}: topic {spec.name!r} exists already; a new name is needed. Delete it, or use it."
            )
        if spec.partitions < 1:
            raise ConnectorError(
                f"{where}: topic {spec.name!r} with {spec.partitions} partitions; one or more are needed."
                f" Give the number that its sources have."
            )
        limit = spec.configs.get("max.message.bytes", str(DEFAULT_MAX_BYTES))
        if not limit.isdecimal():
            raise ConnectorError(
                f"{where}: topic {spec.name!r} with max.message.bytes={limit}; a number is needed."
                f" For 4 MiB: configs={{'max.message.bytes': '4194304'}}."
            )

    def delete_topics(self, names: Iterable[str]) -> None:
        """Remove topics with their records, and the positions of groups in these topics, as Kafka does."""
        wanted = check_topic_names(self._storage.where, names)
        with self._storage.change():
            for name in wanted:
                self._storage.delete_topic(name)

    def begin_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `Log.begin_offsets`."""
        return {partition: self._storage.extent(partition).begin for partition in self._checked(partitions)}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return end offsets as `Log.end_offsets`, without the open transactions of other processes."""
        return {partition: self._storage.end(partition) for partition in self._checked(partitions)}

    def stable_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offsets: readers may read up to them, since a commit is visible everywhere at once."""
        return self.end_offsets(partitions)

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """As `Log.committed`."""
        wanted, found = self._checked(partitions), self._storage.committed(group)
        return {partition: found[partition] for partition in wanted if partition in found}

    def read(self, partition: TopicPartition, start: int, end: int, max_records: int) -> Records:
        """Read records as `Log.read`. Raises: ConnectorError if records at `start` were deleted."""
        self._checked([partition])
        return self._storage.read(partition, start, end, max_records)

    def _checked(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return check_partitions(self._storage.where, partitions)

    def follower(self, positions: Mapping[TopicPartition, int]) -> LocalFollower:
        """As `Log.follower`."""
        self._checked(positions)
        return LocalFollower(self._storage, positions)

    def reopened(self) -> "LocalLog":
        """As `Log.reopened`."""
        return self if self.path is None else LocalLog(self.path, busy_timeout_s=self._busy_timeout_s)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete all records before the given offsets. Raises: ConnectorError for an offset beyond the end."""
        self._checked(before)
        with self._storage.change():
            for partition, offset in before.items():
                self._storage.delete_before(partition, offset)

    def delete_group(self, group: str) -> None:
        """As `Log.delete_group`."""
        with self._storage.change():
            self._groups.refuse_members(group)
            self._storage.delete_group(group)

    def set_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        """As `Log.set_positions`."""
        self._checked(positions)
        with self._storage.change():
            self._groups.refuse_members(group)
            self._storage.move(group, positions)

    def groups(self) -> dict[str, int]:
        """Return the groups with their numbers of members; a group that another process runs counts one member."""
        with self._storage.mutex:
            return dict.fromkeys(self._storage.groups(), 0) | self._groups.sizes()

    def strangers(self, group: str) -> list[str]:
        """Return no members, because every member has joined by `consumer`."""
        return []

    def evict(self, group: str, member: str) -> None:
        """Remove a member, as a session timeout does; its next poll joins again."""
        with self._storage.mutex:
            self._groups.evict(group, member)
        self._storage.announce()

    def compact(self, topic: str | None = None, *, drop_tombstones: bool = False) -> None:
        """Delete each record that has a later record of its key, in one compacted topic or in all compacted topics.

        With `drop_tombstones`, latest records that are tombstones are deleted, too: no reader may still need them.
        """
        for spec in self.topics(None if topic is None else [topic]).values():
            if spec.compacted:
                self._compact(spec, drop_tombstones)

    def _compact(self, spec: TopicSpec, drop_tombstones: bool) -> None:
        for partition in range(spec.partitions):
            with self._storage.change():
                self._storage.compact(TopicPartition(spec.name, partition), drop_tombstones)

    def _compact_what_grew(self) -> None:
        """Compact topics on disk that are mostly superseded. After an error, the next call tries again.

        This holds the writer's lock for a while, so only a process that runs a group does it.
        """
        if self.path is None or not self._runs_groups:
            return
        with contextlib.suppress(ConnectorError):
            for spec in self.topics().values():
                if spec.compacted and self._storage.grew(spec.name):
                    if self._storage.mostly_superseded(spec.name):
                        self._compact(spec, drop_tombstones=False)
                    with self._storage.change():
                        self._storage.mark_weighed(spec.name)

    def consumer(
        self, group: str, topics: Sequence[str], member: str, is_last: Callable[[], bool] = never
    ) -> LocalConsumer:
        """Join a group as `Log.consumer`. If two members have one name, the later member keeps it.

        Raises: ConnectorError if another process runs the group.
        """
        topics = check_topic_names(self._storage.where, topics)
        found = self.topics(topics)
        if missing := [topic for topic in topics if topic not in found]:
            raise ConnectorError(
                f"{self._storage.where}: group {group!r} subscribes to topic {missing[0]!r}, which does not"
                f" exist; topics are made before they are read. Create it with its number of partitions."
            )
        sizes = {topic: found[topic].partitions for topic in topics}
        consumer = LocalConsumer(self._storage, self._groups, group, sizes, member)
        if not self._runs_groups:
            self._runs_groups = True
            self._compact_what_grew()
        return consumer

    def producer(self, transactional_id: str | None) -> LocalProducer:
        """As `Log.producer`."""
        if transactional_id is None:
            return LocalProducer(self._storage, self._groups, None, None)
        if earlier := self._producers.get(transactional_id):
            earlier.fence()
        with self._storage.change():
            epoch = self._storage.next_epoch(transactional_id)
        made = LocalProducer(self._storage, self._groups, transactional_id, epoch)
        self._producers[transactional_id] = made
        return made

    def close(self) -> None:
        """Release the file; a process that has run a group compacts topics first. The second call does nothing."""
        if not self._closed:
            self._closed = True
            self._end_writes()
            try:
                self._compact_what_grew()
            finally:
                self._groups.close()
                self._storage.close()
