"""The port between a worker and a log of partitioned topics: Kafka, or the embedded one.

A log is topics of partitions of records, each at an offset that never changes. What the worker
relies on, and what every implementation has to keep (the suite `tests/connectors/test_log.py`):

1. *Transactions.* What a producer sends between `begin` and `commit` becomes visible together,
   with the consumer's positions, or not at all. Readers never see a record of an open or an
   aborted transaction.
2. *Offsets have holes.* A transaction's end takes an offset in each partition it wrote to (a
   control record), and so does all that was aborted. Positions are compared, never counts.
3. *One owner.* `commit` carries the group's generation as of now: a member that the group has
   left behind, or a producer whose transactional id another has taken over, gets `FencedError`
   and commits nothing; a consumer whose name another has joined under gets `SlotTakenError`.
4. *Ownership changes only inside `poll`*, which reports it; no transaction is open at that time,
   since a step ends with its commit. Records of a partition that was revoked are not returned.
5. *A poll does not commit.* After an abort the worker seeks back to the committed positions.
6. *Compaction.* Where `compaction_waits`, what a group has read of a compacted topic can be read
   again as it was: no record goes for the sake of one behind the group's position.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

__all__ = [
    "Consumer",
    "Headers",
    "Log",
    "Poll",
    "Position",
    "Producer",
    "Records",
    "TopicPartition",
    "TopicSpec",
]

Headers = tuple[tuple[str, bytes], ...]


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Position(NamedTuple):
    """Where a group has got to in a partition: the next offset it wants, and a note kept beside it."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic's name, its number of partitions, and its settings by their Kafka names."""

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def compacted(self) -> bool:
        """Whether the topic keeps the latest record of each key for ever."""
        return self.configs.get("cleanup.policy", "delete") == "compact"


@dataclass(slots=True)
class Records:
    """Consecutive records of one partition, in columns of equal length.

    `timestamps` are milliseconds since 1970. `headers` is None where no record has any.
    `next_offset` is the position behind the last of them and any control records that follow.
    """

    topic: str
    partition: int
    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers] | None
    next_offset: int

    def __len__(self) -> int:
        return len(self.offsets)


@dataclass(slots=True)
class Poll:
    """What one poll brought: records, and how ownership changed before them."""

    records: list[Records] = field(default_factory=list)
    revoked: frozenset[TopicPartition] = frozenset()
    assigned: frozenset[TopicPartition] = frozenset()


@runtime_checkable
class Consumer(Protocol):
    """One member of a group. Partition i of every subscribed topic goes to the same member (`range`)."""

    def poll(self, max_records: int, timeout_s: float) -> Poll:
        """Return up to `max_records` records of the partitions owned, waiting up to `timeout_s` for one.

        A newly assigned partition starts at the group's committed position, or at its first record.
        An empty `Records` with a higher `next_offset` is returned where only control records came.
        Raises: SlotTakenError; ConnectorError, also where a position lies before the partition's first offset.
        """

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns, as of the last poll."""

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Let the next poll start from these offsets; what was fetched beyond them is dropped."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until they are resumed; membership goes on."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`."""

    def group_metadata(self) -> object:
        """The group, member and generation as of now, for `Producer.commit` alone."""

    def close(self) -> None:
        """Leave the group."""


@runtime_checkable
class Producer(Protocol):
    """A transactional producer. Making one fences every earlier one of the same transactional id."""

    def begin(self) -> None:
        """Open a transaction."""

    def send(
        self,
        topic: str,
        partition: int | Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None = None,
    ) -> None:
        """Append records to a partition, or each to one of its own, as part of the open transaction.

        Raises: ConnectorError; RecordRefusedError before any is sent, for one that the topic does not take.
        """

    def flush(self) -> dict[TopicPartition, int]:
        """Wait until all that was sent is in the log, and return where each partition then ends.

        The offset is the one behind this transaction's last record there, its control record not counted.
        """

    def commit(self, positions: Mapping[TopicPartition, Position], group: object) -> None:
        """Make all that was sent visible and move the group's positions, in one step.

        Raises: FencedError, after which this producer is done; IndeterminateCommitError.
        """

    def abort(self) -> None:
        """Drop the open transaction; without one, do nothing."""

    def close(self) -> None:
        """Abort what is open and release the transactional id."""


@runtime_checkable
class Log(Protocol):
    """A place with topics: what a worker, the CLI and the tests need of it."""

    @property
    def partitioner(self) -> Callable[[bytes, int], int]:
        """The partition of a key among so many: Kafka's murmur2, by the quickest means there is."""

    @property
    def compaction_waits(self) -> bool:
        """Whether compaction waits for groups (rule 6), so that a compacted source can restore its table."""

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicSpec]:
        """Those of `names` that exist, or all."""

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        """Make topics. Raises: ConnectorError where one exists already; then none is made."""

    def delete_topics(self, names: Iterable[str]) -> None:
        """Remove topics with all their records; a name that does not exist is passed over."""

    def begin_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that is still kept, by partition."""

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last record, control records and open transactions included."""

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """The group's positions, for those partitions that have one; never one of an open transaction."""

    def read(self, partition: TopicPartition, start: int, end: int, max_records: int) -> Records:
        """Return committed records at `start` ≤ offset < `end`, without a group.

        `next_offset` reaches `end` once nothing more lies before it.
        """

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Drop all records of each partition before the offset given."""

    def delete_group(self, group: str) -> None:
        """Forget a group's positions. Raises: ConnectorError while it has members."""

    def set_positions(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Let a group without members begin at these offsets. Raises: ConnectorError while it has members."""

    def groups(self) -> dict[str, int]:
        """The groups known, each with the number of its members now."""

    def consumer(self, group: str, topics: Sequence[str], member: str) -> Consumer:
        """Join a group. `member` is a stable name: a restart under the same name takes its place."""

    def producer(self, transactional_id: str | None) -> Producer:
        """Make a producer; with None, one whose transactions have no id to be fenced by."""

    def close(self) -> None:
        """Release files and connections. Consumers and producers made here are closed before."""
