"""The embedded log's producer: a transaction is buffered in memory until its commit.

The commit checks the fences, appends, and moves the positions in one change of the storage. After a flush the producer
holds the writer's lock, so that no other writer takes the offsets it returned. An aborted transaction consumes its
offsets, as in Kafka (rule 2 of the port).

Invariant: after a `FencedError` a producer never commits again.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from eddy.connectors.local.group import ConsumerGroups, Membership
from eddy.connectors.local.storage import RecordBatch, Storage, encode_headers
from eddy.connectors.log import Headers, Position, TopicPartition, TopicSpec
from eddy.connectors.record_limits import check_records
from eddy.errors import ConnectorError, FencedError

__all__ = ["LocalProducer"]


class LocalProducer:
    """A producer of the embedded log. `epoch` counts the producers of its transactional id; None without an id."""

    def __init__(
        self, storage: Storage, groups: ConsumerGroups, transactional_id: str | None, epoch: int | None
    ) -> None:
        self._storage = storage
        self._groups = groups
        self._id = transactional_id
        self._epoch = epoch
        self._batches: dict[TopicPartition, list[RecordBatch]] | None = None
        self._specs: dict[int, TopicSpec] = {}  # by partition's id, which is never used again; a topic never changes
        self._holding = False
        self._closed = False
        self._fenced = ""

    def begin(self) -> None:
        """Open a transaction. Raises: ConnectorError if one is open; FencedError, also after an earlier FencedError."""
        self._check_usable()
        if self._batches is not None:
            raise self._misused("has a transaction open already", "Commit or abort it first.")
        self._batches = {}

    def send(
        self,
        topic: str,
        partition: int | Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None = None,
    ) -> None:
        """As `Producer.send`."""
        batches = self._open()
        if not isinstance(partition, int):
            for home, rows in _rows_by_partition(partition).items():
                own_keys, own_values = [keys[row] for row in rows], [values[row] for row in rows]
                own_headers = None if headers is None else [headers[row] for row in rows]
                self.send(topic, home, own_keys, own_values, [timestamps[row] for row in rows], own_headers)
            return
        target = TopicPartition(topic, partition)
        self._check(target, keys, values, timestamps, headers)
        if keys:
            packed = None if headers is None else tuple(encode_headers(h) if h else None for h in headers)
            batch = RecordBatch(tuple(timestamps), tuple(keys), tuple(values), packed)
            batches.setdefault(target, []).append(batch)

    def _check(
        self,
        target: TopicPartition,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None,
    ) -> None:
        """Check that the log would accept all records. Raises: RecordRefusedError, ConnectorError."""
        where = f"{self._storage.where}: send to {target.topic}-{target.partition}"
        id_ = self._storage.extent(target).id
        if (spec := self._specs.get(id_)) is None:
            spec = self._specs[id_] = self._storage.spec(target)
        check_records(where, spec, keys, values, timestamps, headers)

    def flush(self) -> dict[TopicPartition, int]:
        """Return the end offsets as `Producer.flush`; other writers wait from now to the end of the transaction."""
        batches = self._open()
        if not batches:
            return {}
        with self._writer_lock():
            ends = {p: self._storage.extent(p).end + _count(sent) for p, sent in batches.items()}
            self._storage.reserve(ends)
            return ends

    def commit(self, positions: Mapping[TopicPartition, Position], group: object) -> None:
        """Commit as `Producer.commit`.

        If the writer's lock is not available, the transaction remains open, and the commit can be retried. Any other
        error ends the transaction.
        """
        batches = self._open()
        with self._writing():
            self._batches = None
            self._check_fences(positions, group)
            for partition, sent in batches.items():
                self._storage.append(partition, sent)
            if isinstance(group, Membership):
                self._storage.move(group.group, positions)

    def _check_fences(self, positions: Mapping[TopicPartition, Position], group: object) -> None:
        try:
            if self._id is not None and self._storage.epoch(self._id) != self._epoch:
                raise FencedError(self._taken_over())
            if isinstance(group, Membership):
                self._groups.check(group, positions)
        except FencedError as error:
            self._fenced = str(error)
            raise
        if positions and not isinstance(group, Membership):
            raise self._misused("commits positions without a group", "Pass consumer.group_metadata().")

    def abort(self) -> None:
        """Drop the records of the open transaction; their offsets are consumed, as in Kafka."""
        batches, self._batches = self._batches, None
        # Consumed offsets are optional: if the log cannot be written, the transaction is dropped without them.
        with contextlib.suppress(ConnectorError):
            if batches:
                with self._writing():
                    for partition, sent in batches.items():
                        self._storage.take_offsets(partition, _count(sent))

    @contextlib.contextmanager
    def _writer_lock(self) -> Iterator[None]:
        """Take the writer's lock, which remains held after the block, and hold the mutex within the block.

        Raises: FencedError, also if `fence` has released the lock since it was taken.
        """
        if not self._holding:
            self._storage.hold()
            self._holding = True
        with self._storage.mutex:
            if self._fenced:
                self._let_go()
            self._check_usable()
            yield

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Run the block as one change, which releases the lock."""
        with self._writer_lock():
            self._holding = False
            self._storage.reserve({})
            with self._storage.changing():
                yield

    def _let_go(self) -> None:
        if self._holding:
            self._holding = False
            self._storage.reserve({})
            self._storage.release()

    def fence(self) -> None:
        """End this producer: another producer of this process has taken over its transactional id."""
        with self._storage.mutex:
            self._fenced = self._taken_over()
            self._let_go()

    def close(self) -> None:
        """Abort an open transaction and release the transactional id; the second call does nothing."""
        self.abort()
        self._closed = True

    def _open(self) -> dict[TopicPartition, list[RecordBatch]]:
        self._check_usable()
        if self._batches is None:
            raise self._misused("has no transaction open", "Call begin() first.")
        return self._batches

    def _check_usable(self) -> None:
        if self._fenced:
            raise FencedError(self._fenced)
        if self._closed:
            raise self._misused("was closed", "Make another: log.producer(…)")

    def _taken_over(self) -> str:
        return (
            f"{self._storage.where}: transactional id {self._id!r} was taken over by a later producer;"
            f" an id belongs to one producer. Make a new producer, or give each worker its own id."
        )

    def _misused(self, what: str, fix: str) -> ConnectorError:
        return ConnectorError(
            f"{self._storage.where}: producer {self._id!r} {what}; the order is begin, send, commit. {fix}"
        )


def _count(batches: Iterable[RecordBatch]) -> int:
    return sum(len(batch.keys) for batch in batches)


def _rows_by_partition(partitions: Sequence[int]) -> dict[int, list[int]]:
    """Return the row numbers of each partition, in rising order."""
    rows: dict[int, list[int]] = {partition: [] for partition in sorted(set(partitions))}
    for row, partition in enumerate(partitions):
        rows[partition].append(row)
    return rows
