"""The port between a worker and a log of partitioned topics: Kafka, or the embedded one.

A log is topics of partitions of records, each at an offset that never changes. The worker relies on these rules, and
every implementation keeps them (the suite `tests/connectors/test_log.py`):

1. *Transactions.* Records sent between `begin` and `commit` become visible together,
   with the consumer's positions, or not at all. Readers never see a record of an open or an
   aborted transaction.
2. *Offsets have holes.* A transaction's end takes an offset in each partition it wrote to (a
   control record), and so does every aborted record. Positions are compared, never counts.
3. *One owner.* `commit` carries the group's generation as of now: a member that the group has
   removed, or a producer whose transactional id another has taken over, gets `FencedError`
   and commits nothing; a consumer gets `SlotTakenError` if another has joined under its name.
4. *Ownership changes only inside `poll`*, which reports it; no transaction is open at that time,
   since a step ends with its commit. Records of a partition that was revoked are not returned.
5. *A poll does not commit.* After an abort the worker seeks back to the committed positions.
6. *Compaction.* If `compaction_waits`, the records of a compacted topic that a group has read can be read
   again: compaction drops a record only after the group has read the later record of its key.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from os import PathLike
from typing import Any, NamedTuple, Protocol, runtime_checkable

from eddy.errors import ConnectorError, DataError, RecordRefusedError, TopologyError
from eddy.partitioner import Partitioner

__all__ = [
    "UNBOUNDED",
    "Consumer",
    "Follower",
    "Headers",
    "Log",
    "Poll",
    "Position",
    "Producer",
    "Records",
    "TopicPartition",
    "TopicSpec",
    "check_headers",
    "check_log",
    "check_partitions",
    "check_topic_names",
    "never",
]

Headers = tuple[tuple[str, bytes], ...]

UNBOUNDED = 1 << 62
"""A `max_bytes` that no poll reaches."""


def check_log(where: str, log: object) -> None:
    """Refuse an argument that is not a log, such as the path of a log. Raises: TopologyError."""
    if not isinstance(log, type) and all(hasattr(log, method) for method in ("reopened", "producer", "topics")):
        return
    opened = f"eddy.open_log({str(log)!r})" if isinstance(log, str | PathLike) else "eddy.open_log('data')"
    cluster = f"eddy.kafka({log!r})" if isinstance(log, str) and ":" in log else "eddy.kafka('host:9092')"
    raise TopologyError(f"{where}: log={log!r}; a log is needed. Write log={opened}, or log={cluster}")


def check_headers(where: str, headers: object) -> None:
    """Check that headers are pairs (name, bytes). Raises: DataError."""
    if isinstance(headers, tuple | list) and all(
        isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], bytes)
        for pair in headers
    ):
        return
    raise DataError(f"{where}: headers={headers!r}; pairs (name, bytes) are needed. Write headers=(('name', b'…'),)")


def check_partitions(where: str, given: Iterable[Any]) -> list["TopicPartition"]:
    """Refuse arguments that are not partitions, such as the name of a topic. Raises: ConnectorError."""
    found: list[Any] = [given] if isinstance(given, str | bytes) else list(given)
    for one in found:
        if not isinstance(one, TopicPartition):
            raise ConnectorError(
                f"{where}: {one!r} is not a partition; a partition of a topic is needed. Write "
                f"eddy.connectors.log.TopicPartition({one if isinstance(one, str) else 'topic'!r}, 0)"
            )
    return found


def check_topic_names(where: str, given: Iterable[Any]) -> list[str]:
    """Refuse a text in place of a list of topics, since its characters would be names. Raises: ConnectorError."""
    if isinstance(given, str | bytes):
        raise ConnectorError(
            f"{where}: {given!r} are not names of topics; a list of names is needed. Write [{given!r}]"
        )
    return list(given)


def never() -> bool:
    """Return False. As the argument `is_last` of `Log.consumer` it means: never take back a name that was lost."""
    return False


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Position(NamedTuple):
    """A group's position in a partition: the next offset to read, and metadata stored with it."""

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

    @property
    def drops_replaced(self) -> bool:
        """Whether compaction drops records that have a later record of their key; the topic may also delete by age."""
        return "compact" in self.configs.get("cleanup.policy", "delete").split(",")


@dataclass(slots=True)
class Records:
    """Consecutive records of one partition, in columns of equal length.

    `timestamps` are milliseconds since 1970. `headers` is None if no record has any.
    `next_offset` is the position after the last record and any control records that follow it.
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

    def bytes(self) -> int:
        """Return the total size of the keys, values and headers, in bytes."""
        size = sum(map(len, filter(None, chain(self.keys, self.values))))
        return size + sum(len(name) + len(data) for pairs in self.headers or () for name, data in pairs)

    def slice(self, start: int, stop: int) -> "Records":
        """Return the records from index `start` to before `stop`. The last slice has the `next_offset` of all."""
        return Records(
            self.topic,
            self.partition,
            self.offsets[start:stop],
            self.timestamps[start:stop],
            self.keys[start:stop],
            self.values[start:stop],
            None if self.headers is None else self.headers[start:stop],
            self.next_offset if stop >= len(self) else self.offsets[stop],
        )


@dataclass(slots=True)
class Poll:
    """The result of one poll: records, and the changes of ownership before them."""

    records: list[Records] = field(default_factory=list)
    revoked: frozenset[TopicPartition] = frozenset()
    assigned: frozenset[TopicPartition] = frozenset()


@runtime_checkable
class Consumer(Protocol):
    """One member of a group. Partition i of all topics with equal counts is assigned to the same member (`range`)."""

    def poll(self, max_records: int, timeout_s: float, max_bytes: int = UNBOUNDED) -> Poll:
        """Return up to `max_records` records of the partitions owned, waiting up to `timeout_s` for one.

        Their keys, values and headers together have up to `max_bytes` bytes, unless a single record has more.
        A newly assigned partition starts at the group's committed position, or at its first record.
        If only control records were read, an empty `Records` with a higher `next_offset` is returned.
        Raises: SlotTakenError; ConnectorError, also if a position lies before the partition's first offset.
        """

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that this member owns, as of the last poll."""

    def subscribe(self, topics: Sequence[str]) -> None:
        """Ask for the partitions of these topics from now on; a later poll reports the changes of ownership.

        Raises: ConnectorError if a topic does not exist.
        """

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Let the next poll start from these offsets; prefetched records after them are dropped."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until they are resumed or revoked; the membership continues."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`."""

    def group_metadata(self) -> object:
        """Return the group, member and generation at this moment, for `Producer.commit` only."""

    def close(self) -> None:
        """End the membership."""


@runtime_checkable
class Producer(Protocol):
    """A transactional producer. Creating one fences every earlier one with the same transactional id."""

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
        """Append records to a partition, or each to its own partition, in the open transaction.

        Raises: ConnectorError; RecordRefusedError, before any record is sent, for one that the topic does not accept.
        """

    def flush(self) -> dict[TopicPartition, int]:
        """Wait until all records sent are in the log, and return the end offset of each partition.

        An end offset is the offset after this transaction's last record in the partition, without its control record.
        """

    def commit(self, positions: Mapping[TopicPartition, Position], group: object) -> None:
        """Make the transaction's records visible and move the group's positions, atomically.

        Raises: FencedError, after which this producer cannot be used; IndeterminateCommitError.
        """

    def abort(self) -> None:
        """Drop the open transaction; if there is none, do nothing."""

    def close(self) -> None:
        """Abort an open transaction and release the transactional id."""


@runtime_checkable
class Follower(Protocol):
    """Reads committed records of partitions side by side, from positions of its own, without a group."""

    def poll(self, max_records: int, timeout_s: float, max_bytes: int = UNBOUNDED) -> list[Records]:
        """Return the next records, about `max_records` and `max_bytes` at most, waiting up to `timeout_s` for one.

        If only control records were read, an empty `Records` with a higher `next_offset` is returned.
        Raises: ConnectorError, not retriable if a position lies outside of the kept offsets.
        """

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until they are resumed."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`."""

    def close(self) -> None:
        """Release the client; a second call does nothing."""


@runtime_checkable
class Log(Protocol):
    """A set of topics: the operations that a worker, the CLI and the tests need."""

    @property
    def partitioner(self) -> Partitioner:
        """The function that returns a key's partition for a partition count: Kafka's murmur2, in its fastest form."""

    @property
    def session_s(self) -> float | None:
        """The seconds for which a member that has ended still counts as a member; None if only the broker knows."""

    @property
    def compaction_waits(self) -> bool:
        """Whether compaction waits for groups (rule 6), so that a compacted source can restore its table."""

    def reach(self, timeout_s: float) -> None:
        """Check that the log answers. Raises: ConnectorError, retriable, if it does not within `timeout_s`."""

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicSpec]:
        """Return the topics among `names` that exist, or all topics if `names` is None."""

    def refusals(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[Headers] | None,
    ) -> dict[int, RecordRefusedError]:
        """Return the errors of the records that `Producer.send` would refuse for an existing topic, by index."""

    def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic that exists, by one request."""

    def topic_ids(self, names: Iterable[str]) -> Callable[[], dict[str, int]]:
        """Request the ids of the topics among `names` that exist, and return a function that waits for the answer.

        A topic that is deleted and made anew has another id. The answer is as of a moment after this call. It has no
        ids if the log knows none. The function raises: ConnectorError.
        """

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        """Make topics. Raises: ConnectorError if one of them exists already; then no topic is made."""

    def delete_topics(self, names: Iterable[str]) -> None:
        """Remove topics with all their records; missing names are ignored."""

    def begin_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first retained offset of each partition."""

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition; control records and open transactions count."""

    def stable_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset up to which readers of committed records may read each partition.

        It is the start of the first open transaction, or the end. After a commit it may rise later in one partition
        than in another.
        """

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """Return the group's positions, for partitions that have one; never positions of an open transaction."""

    def read(self, partition: TopicPartition, start: int, end: int, max_records: int) -> Records:
        """Return committed records at `start` ≤ offset < `end`, without a group.

        `next_offset` is `end` if no more records are before `end`.
        """

    def follower(self, positions: Mapping[TopicPartition, int]) -> Follower:
        """Return a follower that reads partitions from the offsets `positions` on, without a group."""

    def reopened(self) -> "Log":
        """Return a log of the same topics with its own clients, for another thread. A log in memory returns itself."""

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete all records of each partition before the given offset."""

    def delete_group(self, group: str) -> None:
        """Delete a group's positions. Raises: ConnectorError while it has members."""

    def set_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        """Set the positions of a group. Raises: ConnectorError while it has members."""

    def groups(self) -> dict[str, int]:
        """Return the known groups, each with its current number of members."""

    def strangers(self, group: str) -> list[str]:
        """Return the members of a group that did not join by `consumer`, by the names that messages show."""

    def consumer(self, group: str, topics: Sequence[str], member: str, is_last: Callable[[], bool] = never) -> Consumer:
        """Join a group. `member` is a stable name: a restart with the same name takes its place.

        `is_last` is called when another member has the name. If it returns True, the other member started earlier, and
        this member takes the name back.
        """

    def producer(self, transactional_id: str | None) -> Producer:
        """Make a producer; for None, with a transactional id that is never used again."""

    def close(self) -> None:
        """Release files and connections. The log's consumers and producers are to be closed first."""
