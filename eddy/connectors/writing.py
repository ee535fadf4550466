"""Rows of a program into topics of a log, in transactions: `log.write`, `log.write_async` and `log.writer`.

log.write("nodes", {"bob": "ann", "cid": None})              # one transaction; None deletes a key of a table
with log.writer("orders", value=eddy.Json()) as writer:      # many rows, in transactions of 10,000
    writer.add("1", {"total": 5})
"""

import asyncio
import threading
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias

from eddy.connectors.log import Headers, Log, Producer, check_headers
from eddy.errors import ConfigurationError, ConnectorError, DataError
from eddy.partitioner import partitions_of
from eddy.serde import Plain, Serde, refusal, serde_for

__all__ = ["Ends", "RowWriter", "Rows", "Transactions", "WritableLog"]

Ends: TypeAlias = dict[str, dict[int, int]]
"""The offset after the last record that was written, by topic and partition."""
Rows: TypeAlias = Mapping[Any, Any] | Iterable[tuple[Any, Any]]

_MAX_RECORDS = 10_000
_COUNTED_ANEW_S = 30.0
"""Seconds after which the number of a topic's partitions is requested again."""


class RowRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers


class Transactions:
    """Writes records into topics, one transaction after the other, by one producer."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._producer: Producer | None = None
        self._counts: dict[str, tuple[int, float]] = {}

    def write(self, topic: str, records: list[RowRecord], first: int, tail: int = 0) -> Ends:
        """Write records in one transaction. Records without a key take turns, from number `first` on.

        `tail` is the number of last bytes of a key that do not count for the partition, see `Serde.tail`.
        """
        partitions = self.partitions(topic)
        keys, values, timestamps, headers = map(list, zip(*records, strict=True))
        known = iter(partitions_of([k for k in keys if k is not None], partitions, self._log.partitioner, tail))
        homes = [number % partitions if key is None else next(known) for number, key in enumerate(keys, first)]
        self._producer = producer = self._producer or self._log.producer(None)
        try:
            producer.begin()
            producer.send(topic, homes, keys, values, timestamps, headers if any(headers) else None)
            ends = producer.flush()
            producer.commit({}, None)
        except BaseException:
            self.close()
            raise
        return {topic: {at.partition: end for at, end in ends.items()}}

    def partitions(self, topic: str) -> int:
        """Return the number of a topic's partitions. The log is asked for the number again after a while.

        Raises: ConfigurationError if there is no topic.
        """
        count, asked_s = self._counts.get(topic, (0, 0.0))
        if not count or time.monotonic() - asked_s > _COUNTED_ANEW_S:
            spec = self._log.topics([topic]).get(topic)
            if spec is None:
                raise ConfigurationError(
                    f"write to '{topic}': the topic does not exist; topics are made before they are written. "
                    "Make the topics of a topology: eddy.create_topics(topology, log)"
                )
            count = spec.partitions
            self._counts[topic] = count, time.monotonic()
        return count

    def close(self) -> None:
        """Close the producer, which aborts its transaction; the next write makes another producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


class RowWriter:
    """Writes rows into one topic, in transactions of up to `max_records`, on one thread.

    A `with` block commits the last rows at its end, unless it ends with an error.
    """

    def __init__(
        self,
        transactions: Transactions,
        topic: str,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        max_records: int | None,
    ) -> None:
        if not isinstance(topic, str):
            raise DataError(f"write: topic={topic!r}; the name of a topic, as text, is needed")
        for what, serde in (("key", key), ("value", value)):
            if serde is not None and not isinstance(serde, Serde):
                raise DataError(f"write to '{topic}': {what}={serde!r}; a serde is needed. Write {what}=eddy.String")
        self._transactions, self._topic, self._max_records = transactions, topic, max_records
        self._key = (key or Plain).in_topic(topic, "key")
        self._value = (value or Plain).in_topic(topic, "value")
        self._where = f"write to '{topic}'"
        self._waiting: list[RowRecord] = []
        self.written = 0
        """The number of committed records."""
        self.ends: Ends = {topic: {}}
        """The offsets after the last committed records, by partition."""
        transactions.partitions(topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.commit()
        finally:
            self.close()

    def add(self, key: Any, value: Any, timestamp_ms: int | None = None, headers: Headers = ()) -> None:
        """Add a record, and commit if the transaction is full. A value of None is a tombstone; a key may be None.

        `timestamp_ms` are milliseconds since 1970, by default of now.
        Raises: DataError if the key or the value does not fit its serde; the errors of `commit`.
        """
        self._check(timestamp_ms, headers)
        time_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        key, value = self._encoded(self._key, key, "key"), self._encoded(self._value, value, "value")
        own = self._key.without_ids(self._value.without_ids(headers))
        (key,), apart = self._key.ids_apart([key], [own])
        (value,), apart = self._value.ids_apart([value], apart)
        self._waiting.append(RowRecord(key, value, time_ms, apart[0] if apart else own))
        if self._max_records is not None and len(self._waiting) >= self._max_records:
            self.commit()

    def add_all(self, rows: Rows, timestamp_ms: int | None = None, headers: Headers = ()) -> None:
        """Add each pair (key, value) of a dict or of an iterable."""
        pairs = rows.items() if isinstance(rows, Mapping) else rows
        if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
            raise DataError(f"{self._where}: rows={rows!r}; a dict or pairs (key, value) are needed")
        self._check(timestamp_ms, headers)  # even if there are no rows
        for pair in pairs:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise DataError(f"{self._where}: of rows, {pair!r} is not a pair; a tuple (key, value) is needed")
            self.add(*pair, timestamp_ms, headers)

    def _check(self, timestamp_ms: int | None, headers: Headers) -> None:
        if timestamp_ms is not None and (type(timestamp_ms) is not int or timestamp_ms < 0):
            raise DataError(
                f"{self._where}: timestamp_ms={timestamp_ms!r}; milliseconds since 1970, an int, are needed"
            )
        if headers != ():
            check_headers(self._where, headers)

    def commit(self) -> Ends:
        """Write the rows that were added, in one transaction. Returns the offsets after its last records.

        After an error the rows are kept, and the next call tries them again.
        Raises: ConnectorError; IndeterminateCommitError if it is unknown whether they were written; RecordRefusedError
        for a record that the topic does not accept.
        """
        if not self._waiting:
            return {self._topic: {}}
        ends = self._transactions.write(self._topic, self._waiting, self.written, self._key.tail)
        self.written += len(self._waiting)
        self._waiting.clear()
        self.ends[self._topic] |= ends[self._topic]
        return ends

    def close(self) -> None:
        """Release the producer. Rows that were added since the last commit are not written."""
        self._waiting.clear()
        self._transactions.close()

    def _encoded(self, serde: Serde[Any], value: Any, what: str) -> bytes | None:
        if value is None:
            return None
        try:
            return serde.encode(value)
        except ConnectorError:
            raise
        except Exception as error:
            raise DataError(
                f"{self._where}: {what} {value!r} is not a valid {serde.name}: {refusal(serde, value)}; a serde that "
                "fits is "
                f"needed. Name it: {what}={serde_for(value)}"
            ) from error


class WritableLog:
    """The base class of logs that programs write to."""

    def writer(
        self: Any,
        topic: str,
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        max_records: int = _MAX_RECORDS,
    ) -> RowWriter:
        """Write many rows into a topic, in transactions of up to `max_records`, on the thread of this log.

        Without a serde, str is written as UTF-8, bytes as they are, int and float as 64 bits.
        Raises: ConfigurationError if the topic does not exist, or if `max_records` is less than 1.
        """
        if type(max_records) is not int or max_records < 1:
            raise ConfigurationError(f"writer of '{topic}': max_records={max_records!r}; one or more are needed")
        return RowWriter(Transactions(self), topic, key, value, max_records)

    def write(
        self,
        topic: str,
        rows: Rows,
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Ends:
        """Write rows into a topic in one transaction, on any thread. A value of None is a tombstone.

        `rows` is a dict, or an iterable of pairs (key, value). Without a serde, str is written as UTF-8, bytes as they
        are, int and float as 64 bits. `timestamp_ms` are milliseconds since 1970, by default of now.
        Returns the offsets after the last records, by partition, as `wait` of tables and `at_least` take them.
        Raises: ConfigurationError if the topic does not exist; DataError for a row that does not fit, before anything
        is written; ConnectorError; IndeterminateCommitError if it is unknown whether the rows were written.
        """
        return self._programs_writes.write(topic, rows, key, value, timestamp_ms, headers)

    async def write_async(
        self,
        topic: str,
        rows: Rows,
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Ends:
        """Write rows as `write` does, in a coroutine: other coroutines run meanwhile."""
        return await asyncio.to_thread(self._programs_writes.write, topic, rows, key, value, timestamp_ms, headers)

    @property
    def _programs_writes(self: Any) -> "_Writes":
        found: _Writes = self.__dict__.setdefault("_writes", _Writes(self))
        return found

    def _end_writes(self) -> None:
        """Release the clients that `write` uses."""
        if (found := self.__dict__.pop("_writes", None)) is not None:
            found.close()


class _Writes:
    """Runs calls of `WritableLog.write` one after the other, with its own clients, so that any thread may write."""

    def __init__(self, log: Log) -> None:
        self._given, self._mutex = log, threading.Lock()
        self._log: Log | None = None
        self._transactions: Transactions | None = None

    def write(
        self,
        topic: str,
        rows: Rows,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        timestamp_ms: int | None,
        headers: Headers,
    ) -> Ends:
        with self._mutex:
            if self._transactions is None:
                self._log = self._given.reopened()
                self._transactions = Transactions(self._log)
            writer = RowWriter(self._transactions, topic, key, value, max_records=None)
            writer.add_all(rows, timestamp_ms, headers)
            return writer.commit()

    def close(self) -> None:
        with self._mutex:
            if self._transactions is not None:
                self._transactions.close()
            if self._log is not None and self._log is not self._given:
                self._log.close()
