"""A transactional producer: `Producer` over librdkafka's producer.

Records are passed to the client one by one without a callback, which is its fastest way. Only the last record of each
partition in a call requests its offset; the offsets of earlier records follow from their order in the partition.

The client writes batches of up to `batch.size` bytes, and a broker refuses a batch that is larger than its topic's
`max.message.bytes`, whatever the sizes of its records. So records of a topic with a lower limit are flushed before they
may make such a batch. A limit that was changed after the spec of the topic was read is read anew.

If the end of a transaction took long, or the network failed meanwhile, a delayed request may end the *next* transaction
(Kafka before KIP-890's second part, which librdkafka does not implement). A new producer fences such a request, so a
new one is made before the next `begin`. A new one is also made after an abort that dropped records, because the
sequence numbers of records have a gap then.
Source: Jepsen, "Bufstream 0.1.0", 2024, §3; librdkafka issue 5423.
"""

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import repeat
from operator import length_hint
from queue import Empty, SimpleQueue
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from eddy.connectors.closing import CLOSE_S, close_within, keep
from eddy.connectors.kafka.cluster_trouble import ClusterTrouble
from eddy.connectors.kafka.error_codes import is_transient, kafka_error, the_error
from eddy.connectors.kafka.membership import GuardedGroup, Member
from eddy.connectors.kafka.slices import SLICE_S
from eddy.connectors.log import Headers, Position, TopicPartition, TopicSpec
from eddy.connectors.record_limits import check_records, max_bytes, record_sizes
from eddy.errors import (
    ConfigurationError,
    ConnectorError,
    FencedError,
    IndeterminateCommitError,
    RecordRefusedError,
    SlotTakenError,
)

__all__ = ["OVERHEAD_BYTES", "PATIENCE_S", "KafkaProducer"]

_log = logging.getLogger("eddy.kafka")
_PAUSE_S = 0.005
_FULL_QUEUE_PAUSE_S = 0.05
PATIENCE_S = 30.0
"""Seconds that the producer waits for one answer of the broker."""
_SUSPICIOUS_S = 1.0
_CONSEQUENCES = {KafkaError._STATE, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
_REFUSALS = {KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD}
_BATCH_BYTES = 1_000_000
"""The client's own `batch.size`."""
_PER_BATCH_BYTES, _PER_RECORD_BYTES = 61, 35
"""The most bytes that a batch takes, and each record in it, in addition to keys, values and headers."""

OVERHEAD_BYTES = _PER_BATCH_BYTES + _PER_RECORD_BYTES
"""The most bytes that a record alone in a batch takes in addition to its key, value and headers."""


class _Reports:
    """The delivery reports of one transaction: the ends of partitions, and the first failure.

    The error of a refused record takes precedence: later batches fail, too, since their sequence numbers have a gap.
    """

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, int] = {}
        self.failed: KafkaError | None = None

    def take(self, error: KafkaError | None, message: confluent_kafka.Message) -> None:
        """Store a delivery report, as a callback of the client. It must not raise: a successful commit would fail."""
        if error is not None:
            if self.failed is None or (error.code() in _REFUSALS and self.failed.code() not in _REFUSALS):
                self.failed = error
        else:
            self.ends[TopicPartition(message.topic(), message.partition())] = message.offset() + 1  # type: ignore


class KafkaProducer:
    """A `Producer` over librdkafka's.

    `spec_of` returns a topic's spec, without partitions if there is no such topic.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        spec_of: Callable[[str], TopicSpec],
        forget: Callable[[Collection[str]], None],
        trouble: ClusterTrouble,
    ) -> None:
        self._settings, self._spec_of, self._forget, self._trouble = dict(settings), spec_of, forget, trouble
        self._batch_bytes = int(str(settings.get("batch.size", _BATCH_BYTES)))
        self._unflushed: dict[tuple[str, int], int] = {}
        """The bytes since the last flush, by topic and partition, of topics with a limit below that of a batch."""
        self._where = f"producer '{settings['transactional.id']}'"
        self._pid = os.getpid()
        self._open = self._done = self._stuck = self._needs_new_client = self._closed = False
        self._reports = _Reports()
        self._observers: list[Callable[[Mapping[TopicPartition, Position]], None]] = []
        self._topics: set[str] = set()
        self._client = self._make_client()

    def _make_client(self) -> confluent_kafka.Producer:
        client = confluent_kafka.Producer(self._settings | {"error_cb": self._on_error})
        self._insist(client.init_transactions, "init_transactions")
        return client

    def _on_error(self, error: KafkaError) -> None:
        self._trouble.report(error)
        self._needs_new_client = True

    def _listen(self) -> None:
        """Let the client report events, such as lost brokers, by its callbacks."""
        with contextlib.suppress(KafkaException, RuntimeError, SystemError):
            self._client.poll(0)

    def begin(self) -> None:
        """Open a transaction, with a new client if requests of an ended transaction may be under way."""
        if self._done:
            raise FencedError(f"{self._where}: fenced; another worker has taken over. Make another: log.producer(…)")
        if self._open:
            raise ConnectorError(f"{self._where}: begin within a transaction; commit or abort it first")
        if self._pid != os.getpid():
            raise ConnectorError(f"{self._where}: used in a forked process; a client of its own is needed there")
        if not self._needs_new_client:
            self._listen()
        if self._needs_new_client:
            _log.info("%s: made anew, since requests of an ended transaction may be under way", self._where)
            self._close_client()
            self._client = self._make_client()
            self._needs_new_client = False  # set after the new client is made: if that fails, the next call retries
        self._insist(lambda _: self._client.begin_transaction(), "begin_transaction")
        self._open = True

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
        self._demand_open("send")
        if not keys:
            return
        spec = self._spec_of(topic)
        self._topics.add(topic)
        where = f"{self._where}: send to '{topic}'"
        partitions = [partition] * len(keys) if isinstance(partition, int) else partition
        if not 0 <= max(partitions) < spec.partitions:
            raise ConnectorError(f"{where} partition {max(partitions)}; the topic has {spec.partitions} partitions")
        try:
            check_records(where, spec, keys, values, timestamps, headers, OVERHEAD_BYTES)
        except RecordRefusedError:
            self._forget([topic])  # the limit may have been raised: the next attempt reads it anew
            raise
        reports: list[object] = [None] * len(keys)
        for last in dict(zip(partitions, range(len(keys)), strict=True)).values():
            reports[last] = self._reports.take
        # The broker may refuse a batch with a record whose timestamp is in the future.
        if max(timestamps) > (now_ms := time.time() * 1000):
            for place, timestamp in enumerate(timestamps):
                if timestamp > now_ms:
                    reports[place] = self._reports.take
        columns: list[Sequence[Any]] = [values, keys, partitions, reports, reports, timestamps]
        if headers is not None:
            columns.append([list(pairs) for pairs in headers])
        if (limit := max_bytes(spec)) < self._batch_bytes:
            sizes = record_sizes(keys, values, headers, _PER_RECORD_BYTES)
            self._produce_in_rounds(topic, limit - _PER_BATCH_BYTES, partitions, sizes, columns)
        else:
            self._produce(topic, columns)

    def _produce_in_rounds(
        self,
        topic: str,
        limit: int,
        partitions: Sequence[int],
        sizes: Sequence[int],
        columns: Sequence[Sequence[Any]],
    ) -> None:
        """Pass records to the client, and flush it before a partition's batch can have more than `limit` bytes.

        A round has a batch of each partition, so that as many flushes are needed as the fullest partition has batches.
        """
        filled = {partition: self._unflushed.get((topic, partition), 0) for partition in set(partitions)}
        last = dict.fromkeys(filled, 0)
        rounds: list[list[int]] = [[]]
        for row, (partition, size) in enumerate(zip(partitions, sizes, strict=True)):
            filled[partition] += size
            if filled[partition] > limit:
                filled[partition] = size
                last[partition] += 1
                if last[partition] == len(rounds):
                    rounds.append([])
            rounds[last[partition]].append(row)
        for number, rows in enumerate(rounds):
            if number:
                self.flush()
            if rows:
                self._produce(topic, [[column[row] for row in rows] for column in columns])
        ended = {(topic, partition): filled[partition] for partition, at in last.items() if at == len(rounds) - 1}
        self._unflushed.update(ended)

    def _produce(self, topic: str, columns: list[Sequence[Any]]) -> None:
        """Pass records to the client, in a loop without Python bytecode; wait while its queue is full."""
        count, left = len(columns[0]), [iter(column) for column in columns]
        try:
            while True:
                try:
                    deque(map(self._client.produce, repeat(topic), *left), maxlen=0)
                    return
                except BufferError:  # the iterators are after the record that the full queue has refused
                    refused = count - length_hint(left[0]) - 1
                    self._produce_after_waiting(topic, [column[refused] for column in columns])
        except KafkaException as exception:
            raise self._error(exception, f"send to '{topic}'") from exception

    def _produce_after_waiting(self, topic: str, record: list[Any]) -> None:
        """Pass a record to the client once its queue has room."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self._client.poll(_FULL_QUEUE_PAUSE_S)
            with contextlib.suppress(BufferError):
                self._client.produce(topic, *record)
                return
        raise ConnectorError(
            f"{self._where}: the queue has been full for {PATIENCE_S:.0f} s; the broker does not accept the records",
            retriable=True,
        )

    def flush(self) -> dict[TopicPartition, int]:
        """As `Producer.flush`."""
        deadline = time.monotonic() + PATIENCE_S
        while self._flush():
            if time.monotonic() > deadline:
                self._needs_new_client = True
                raise ConnectorError(
                    f"{self._where}: {len(self._client)} records were not accepted by the broker within "
                    f"{PATIENCE_S:.0f} s",
                    retriable=True,
                )
        if self._reports.failed is not None:
            error, what = self._cause(self._reports.failed, "send")
            raise (
                self._refusal(error, what)
                or self._lowered_limit_error(error)
                or kafka_error(f"{self._where}: {what}", error)
            )
        self._unflushed.clear()
        return dict(self._reports.ends)

    def _flush(self) -> int:
        """Let the client flush for one slice of time. Returns the number of records left."""
        try:
            return self._client.flush(SLICE_S)
        except SystemError as trouble:  # the client reports a fatal error of a callback as a SystemError
            self._done = True
            raise FencedError(
                f"{self._where}: flush: {trouble.__cause__ or 'a fatal error'}; this producer cannot be used any more"
            ) from trouble
        except KafkaException as exception:
            raise self._error(exception, "flush") from exception

    def commit(self, positions: Mapping[TopicPartition, Position], group: object) -> None:
        """As `Producer.commit`."""
        self._demand_open("commit")
        if positions and group is None:
            raise ConnectorError(f"{self._where}: positions without a group; give the consumer's group_metadata()")
        if positions and isinstance(group, GuardedGroup):
            self._send_positions(positions, Member(group.group).metadata())
            self._send_positions({group.anchor: Position(0)}, group.guard.metadata())
        elif positions:
            self._send_positions(positions, group)
        self.flush()
        started = time.monotonic()
        self._commit()
        if time.monotonic() - started > _SUSPICIOUS_S:
            self._needs_new_client = True
        self._close_transaction()
        for observer in self._observers:
            observer(positions)

    def observe(self, observer: Callable[[Mapping[TopicPartition, Position]], None]) -> None:
        """Call `observer` with the positions of each transaction, once it has committed."""
        self._observers.append(observer)

    def _send_positions(self, positions: Mapping[TopicPartition, Position], group: object) -> None:
        """Send positions in a thread: if a coordinator has stopped, the call may never return (librdkafka issue 5511).

        So a client that has seen the network fail does not make the call, and a client whose call does not return is
        abandoned. Meanwhile the broker receives the last record, a cut, which saves two round trips. The delivery of
        that record is reported by `flush`.
        """
        self._listen()
        if self._needs_new_client:
            raise ConnectorError(f"{self._where}: the network failed during the transaction", retriable=True)
        moved = [confluent_kafka.TopicPartition(*where, at.offset, at.metadata) for where, at in positions.items()]
        client, outcome = self._client, SimpleQueue[BaseException | None]()

        def send() -> None:
            try:
                self._insist(lambda wait_s: client.send_offsets_to_transaction(moved, group, wait_s), "send positions")
                outcome.put(None)
            except BaseException as error:
                outcome.put(error)

        threading.Thread(target=send, name="eddy-positions", daemon=True).start()
        with contextlib.suppress(KafkaException, RuntimeError, SystemError):
            self._client.flush(SLICE_S)
        try:
            error = outcome.get(timeout=PATIENCE_S + SLICE_S)
        except Empty:
            self._stuck = self._done = True
            raise ConnectorError(
                f"{self._where}: a call that sends positions does not return; a new producer is needed", retriable=True
            ) from None
        if error is not None:
            raise error

    def _commit(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._client.commit_transaction(SLICE_S)
                return
            except KafkaException as exception:
                error = the_error(exception)
                if not error.fatal() and not error.txn_requires_abort() and is_transient(error):
                    if time.monotonic() < deadline:
                        continue
                    self._done = True
                    raise IndeterminateCommitError(
                        f"{self._where}: no answer to a commit within {PATIENCE_S:.0f} s: {error.str()}"
                    ) from exception
                raise self._error(exception, "commit") from exception

    def _close_transaction(self) -> None:
        """Note the end of the transaction. Its late delivery reports are stored in an object that is no longer read."""
        self._open = False
        self._reports = _Reports()
        self._topics.clear()
        self._unflushed.clear()

    def abort(self) -> None:
        """Drop the open transaction, if there is one. Raises: ConnectorError if the client is unusable."""
        self._abort(PATIENCE_S)

    def _abort(self, patience_s: float) -> None:
        if not self._open:
            return
        failed = self._reports.failed is not None
        self._close_transaction()
        if self._stuck:
            raise ConnectorError(
                f"{self._where}: the client does not answer any more; a new producer is needed", retriable=True
            )
        started = time.monotonic()
        self._needs_new_client |= failed or self._records_under_way()
        try:
            self._insist(self._abort_transaction, "abort", patience_s)
        except ConnectorError as error:
            self._stuck = error.retriable  # if the client were closed, it would abort again, and wait for an answer
            raise
        if time.monotonic() - started > _SUSPICIOUS_S:
            self._needs_new_client = True

    def _records_under_way(self) -> bool:
        """Wait a moment for the records under way. Returns whether some are left, which an abort drops.

        After an abort that drops records, the next transaction of this client would begin with a gap in the sequence
        numbers of their partitions.
        """
        if self._needs_new_client:
            return True
        with contextlib.suppress(KafkaException, RuntimeError, SystemError):
            return self._client.flush(SLICE_S) > 0
        return True

    def _abort_transaction(self, wait_s: float) -> None:
        """Abort the transaction. A transaction without partitions is unknown to the coordinator, which is no error."""
        try:
            self._client.abort_transaction(wait_s)
        except KafkaException as exception:
            if the_error(exception).code() != KafkaError.INVALID_TXN_STATE:
                raise
            self._needs_new_client = True

    def close(self) -> None:
        """Abort an open transaction and release the client. A transaction that cannot be aborted times out."""
        with contextlib.suppress(ConnectorError):
            self._abort(CLOSE_S)
        self._done = True
        if not self._closed:
            self._closed = True
            self._close_client()

    def _close_client(self) -> None:
        """Close the client, and drop the reference to it.

        The client's callback refers to this object, so that otherwise the client and this object would not be freed. A
        process may have some 1,000 clients that are not freed.
        """
        client = self.__dict__.pop("_client", None)
        if self._stuck:
            keep(client)
        elif client is not None:
            close_within(client.close, self._where)

    def _demand_open(self, what: str) -> None:
        if not self._open:
            raise ConnectorError(f"{self._where}: {what} without a transaction; begin one first")

    def _insist(self, call: Callable[[float], object], what: str, patience_s: float = PATIENCE_S) -> None:
        """Retry a call of the transactional API until it succeeds, in slices between which signals are handled."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                call(SLICE_S)
                return
            except KafkaException as exception:
                error = the_error(exception)
                self._trouble.check(self._where)
                again = not error.fatal() and not error.txn_requires_abort() and is_transient(error)
                if not again or time.monotonic() > deadline:
                    raise self._error(exception, what) from exception
                time.sleep(_PAUSE_S)

    def _error(self, exception: KafkaException, what: str) -> ConnectorError | RecordRefusedError:
        """Return the error to raise. After a fatal or a fencing error this producer cannot be used.

        Whether the worker has lost its name is decided by the consumer, which asks which member has the name.
        """
        error, what = self._cause(the_error(exception), what)
        if known := self._refusal(error, what) or self._lowered_limit_error(error):
            return known
        made = kafka_error(f"{self._where}: {what}", error)
        fatal = error.fatal() or error.code() == KafkaError._FATAL
        if isinstance(made, SlotTakenError) or (fatal and not isinstance(made, FencedError | ConfigurationError)):
            made = FencedError(f"{made}; this producer cannot be used any more")
        self._done |= fatal
        return made

    def _refusal(self, error: KafkaError, what: str) -> RecordRefusedError | None:
        """Return the error for a batch that the broker refuses for one of its records; None for any other error."""
        if error.code() not in _REFUSALS:
            return None
        topics = ", ".join(f"'{topic}'" for topic in sorted(self._topics))
        return RecordRefusedError(
            f"{self._where}: {what} to {topics}: {error.str()} ({error.name()}); a record has a timestamp that "
            f"its topic does not accept. Set message.timestamp.after.max.ms or message.timestamp.before.max.ms "
            f"of the topic"
        )

    def _lowered_limit_error(self, error: KafkaError) -> ConnectorError | None:
        """Return the error to raise if the broker refused a batch by a limit that is lower now; None otherwise."""
        if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
            return None
        topics = ", ".join(f"'{topic}'" for topic in sorted(self._topics))
        self._forget(self._topics)
        return ConnectorError(
            f"{self._where}: send to {topics}: {error.str()} ({error.name()}); a topic accepts less than it did, or "
            "its configs may not be read. They are read anew; give the user the right to DescribeConfigs of the topic",
            retriable=True,
        )

    def _cause(self, error: KafkaError, what: str) -> tuple[KafkaError, str]:
        """Return the error to report for a failed transaction, and the name of the operation that has caused it.

        A call may report only that the transaction has failed, for example because the client may not write to a topic.
        Then the client refuses to begin another transaction, and tells the cause.
        """
        failed = self._reports.failed
        if failed is not None and failed.code() in _REFUSALS:
            return failed, "send"
        if not self._open or error.code() not in _CONSEQUENCES:
            return error, what
        try:
            self._client.begin_transaction()
        except KafkaException as refusal:
            cause = the_error(refusal)
            if cause.code() not in _CONSEQUENCES:
                topics = ", ".join(f"'{topic}'" for topic in sorted(self._topics))
                return cause, f"transaction with {topics or 'no records'}"
        return error, what
