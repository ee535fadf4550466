"""From batches to records: the rows that an epoch sends, each to the partition of its key."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

from eddy.connectors.log import Headers, Producer
from eddy.errors import DataError, EddyError, RecordRefusedError, UnwritableRowError
from eddy.operators.batch import Batch, Row, concat, keys_of
from eddy.operators.circuit import Output
from eddy.operators.errors.set_aside import Aside
from eddy.operators.exchange import Gate, Outgoing
from eddy.operators.stateless import latest_of
from eddy.partitioner import Partitioner, partition_of, partitions_of
from eddy.runtime.decoding import Rejected
from eddy.runtime.origins import HEADER, Origins
from eddy.runtime.row_wire_format import row_values
from eddy.serde import Serde, refusal, serde_for
from eddy.source_lines import describe_exception, line_of
from eddy.state.spec import Changes

__all__ = ["DeadRow", "Encoder", "SinkTopic"]

_ERROR_BYTES = 1_000
"""The most bytes of an error's text in a dead letter that would be too large with the whole text."""

Columns = Sequence[bytes | None]
Refusals = Callable[[Columns, Columns, Sequence[Headers] | None], Mapping[int, DataError]]


class SinkTopic:
    """A sink's topic with its serdes and partition count.

    `final`: each row is written once, and never replaced. `partitioner(key, value, partitions)` is the author's.
    `refusals(keys, values, headers)` returns errors for the records that the topic does not accept, by index.
    """

    def __init__(
        self,
        topic: str,
        key: Serde[Any],
        value: Serde[Any],
        partitions: int,
        facts: bool,
        final: bool = False,
        partitioner: Callable[[Any, Any, int], int] | None = None,
        refusals: Refusals = lambda keys, values, headers: {},
    ) -> None:
        self.topic, self.key, self.value, self.partitions, self.facts = topic, key, value, partitions, facts
        self.final = facts or final
        self.partitioner, self._refusals = partitioner, refusals

    def batch(self, batches: Sequence[Batch]) -> Batch:
        """Return one row for each record to write.

        A fact is repeated as often as its weight; a table's key has its new value.
        """
        batch = concat(batches)
        return repeated(batch) if self.facts else latest_of(batch)

    def columns(self, rows: Sequence[Row]) -> tuple[list[bytes | None], list[bytes | None]]:
        """Encode the keys and the values of rows. Raises: DataError if a row does not fit the serdes."""
        keys = encoded([row[0] for row in rows], self.key, f"sink '{self.topic}': key")
        return keys, encoded([row[1] for row in rows], self.value, f"sink '{self.topic}': value")

    def homes(self, rows: Sequence[Row], keys: Sequence[bytes | None], partitioner: Partitioner) -> list[int]:
        """Return the partition of each record, by the author's partitioner or else by its key. Raises: DataError."""
        if self.partitioner is not None:
            return [self._chosen(row) for row in rows]
        homes = iter(
            partitions_of([key for key in keys if key is not None], self.partitions, partitioner, self.key.tail)
        )
        return [0 if key is None else next(homes) for key in keys]

    def _chosen(self, row: Row) -> int:
        """Return the partition that the author's partitioner chooses for a row. Raises: DataError."""
        assert self.partitioner is not None
        line = line_of(self.partitioner)
        where = f"sink '{self.topic}': partitioner={f' of {line}' if line else ''}"
        try:
            partition = self.partitioner(row[0], row[1], self.partitions)
        except Exception as error:
            raise DataError(f"{where} raised {describe_exception(error)}") from error
        if isinstance(partition, int) and not isinstance(partition, bool) and 0 <= partition < self.partitions:
            return partition
        raise DataError(
            f"{where} returned {partition!r} for key {row[0]!r}; a whole number from 0 to {self.partitions - 1} is "
            "needed. Write: lambda key, value, partitions: … % partitions"
        )

    def columns_setting_aside(self, batch: Batch, aside: Aside) -> tuple[Batch, list[bytes | None], list[bytes | None]]:
        """Encode the rows that fit the serdes and the topic, and set the other rows aside.

        Returns the rows to write, their keys and their values.

        If the value or headers of a table's row do not fit, its key gets a tombstone without headers, until a value
        fits. The key of a final row never gets another value, so the row is reported and forgotten.
        """
        errors = self.failures(batch) if aside.care.on or not self.facts else {}
        times = batch.times_of_rows()
        headers = None if batch.headers is None else list(batch.headers)
        kept: list[bool] = []
        rows: list[Row] = []
        for index, (key, value) in enumerate(batch.rows):
            error = errors.get(index)
            fits = error is None
            if error is not None and (self.final or self._error((key, None), None) is not None):
                aside.report((key, value), 1, error, times[index])
            elif error is not None:
                if value is None:
                    aside.report((key, None), 1, error, times[index])
                    aside.release(key)
                else:
                    aside.withhold(key, value, error, time=times[index])
                value, fits = None, True
                if headers is not None:
                    headers[index] = ()
            elif not self.facts:
                aside.release(key)
            kept.append(fits)
            if fits:
                rows.append((key, value))
        batch = Batch(batch.rows, batch.weights, batch.time, batch.times, headers).select(kept).with_rows(rows)
        return batch, *self.columns(rows)

    def failures(self, batch: Batch) -> dict[int, DataError]:
        """Return the errors of rows that do not fit the serdes, or that the topic does not accept, by index."""
        try:
            self._check(batch.rows, batch.headers)
        except DataError:
            errors = [self._error(row, own) for row, own in zip(batch.rows, batch.headers_of_rows(), strict=True)]
            return {index: error for index, error in enumerate(errors) if error is not None}
        return {}

    def as_written(self, keys: Columns, values: Columns, headers: list[Headers] | None) -> tuple[Columns, Columns, Any]:
        """Return keys, values and headers in the form that is written: serdes may move schema ids into headers."""
        found: Sequence[Headers] | None = self.forwarded(headers)
        keys, found = self.key.ids_apart(keys, found)
        values, found = self.value.ids_apart(values, found)
        return keys, values, found

    def forwarded(self, headers: list[Headers] | None) -> list[Headers] | None:
        """Return the headers of records without the ids of schemas of the source records.

        The keys and values that are written have schema ids of their own.
        """
        if headers is None or not (self.key.id_header or self.value.id_header):
            return headers
        return [self.key.without_ids(self.value.without_ids(pairs)) for pairs in headers]

    def _check(self, rows: Sequence[Row], headers: list[Headers] | None) -> None:
        columns = self.as_written(*self.columns(rows), headers)
        if self.partitioner is not None:
            self.homes(rows, (), partition_of)
        for error in self._refusals(*columns).values():
            raise error

    def _error(self, row: Row, headers: Headers | None) -> DataError | None:
        try:
            self._check([row], None if headers is None else [headers])
        except DataError as error:
            return error
        return None


class DeadRow(NamedTuple):
    """A row that was set aside, as bytes, for a dead letter."""

    key: bytes | None
    value: bytes | None
    step: str
    weight: int
    reason: str
    origins: Origins
    time: int = 0


class Encoder:
    """Sends an epoch's records within the producer's open transaction.

    `latest_ms` is the latest timestamp that internal topics are sure to accept; None if they accept any.
    """

    def __init__(self, producer: Producer, partitioner: Partitioner, latest_ms: int | None) -> None:
        self._producer, self._partitioner, self._latest_ms = producer, partitioner, latest_ms

    def own_time(self, time: int) -> int:
        """Return the timestamp for a record in an internal topic: `time`, or the latest one that the topic accepts."""
        return time if self._latest_ms is None else min(time, self._latest_ms)

    def sink(self, sink: SinkTopic, output: Output) -> int:
        """Write the batches of a sink. Returns the number of records. Raises: DataError as `SinkTopic.columns` does."""
        batch, aside = sink.batch(output.batches), output.aside
        if not batch.rows:
            return 0
        if aside is not None and (aside.care.on or aside.kept):
            batch, keys, values = sink.columns_setting_aside(batch, aside)
        else:
            keys, values = sink.columns(batch.rows)
        written, bodies, headers = sink.as_written(keys, values, batch.headers)
        homes = sink.homes(batch.rows, written, self._partitioner)
        self._producer.send(sink.topic, homes, written, bodies, batch.times_of_rows(), headers)
        return len(keys)

    def exchange(self, gate: Gate, outgoing: Sequence[Outgoing], origins: Origins) -> int:
        """Send a gate's outgoing rows, with their weights. Returns the number of rows.

        The first row of each partition has a header with the source records of all rows.
        """
        counts = Counter(chain.from_iterable(partitions for _, partitions, _ in outgoing))
        unsaid = set(counts)
        for batch, partitions, iteration in outgoing:
            try:
                keys = encoded(list(keys_of(batch.rows)), gate.key, f"topic '{gate.topic}': key")
                bodies = encoded([row[1] for row in batch.rows], gate.value, f"topic '{gate.topic}': value")
            except DataError as error:
                raise UnwritableRowError(str(error), gate.topic) from error
            _check_sizes(gate, keys, bodies)
            values = row_values(batch.weights, iteration, bodies, batch.event_times)
            columns = (partitions, keys, values, batch.times_of_rows())
            start = 0
            for index in sorted(map(partitions.index, unsaid.intersection(partitions))):
                header = origins.header(counts[partitions[index]])
                self._send(gate.topic, slice(start, index), columns, batch.headers)
                self._send(gate.topic, slice(index, index + 1), columns, batch.headers, (header,))
                start = index + 1
            self._send(gate.topic, slice(start, None), columns, batch.headers)
            unsaid.difference_update(partitions)
        return sum(counts.values())

    def _send(
        self, topic: str, rows: slice, columns: Sequence[Any], headers: list[Headers] | None, more: Headers = ()
    ) -> None:
        """Send rows with these columns, each with the headers `more` in addition."""
        partitions, keys, values, times = (column[rows] for column in columns)
        if not keys:
            return
        own = None if headers is None else headers[rows]
        if more:
            own = [more] * len(keys) if own is None else [(*one, *more) for one in own]
        self._producer.send(topic, partitions, keys, values, times, own)

    def changelog(self, topic: str, changes: Changes, time: int) -> None:
        """Write the changed rows of a state."""
        times = [self.own_time(time)] * len(changes)
        self._producer.send(topic, changes.partitions, changes.keys, changes.values, times)

    def dead_letters(self, topic: str, rejected: Iterable[Rejected]) -> None:
        """Write rejected records unchanged, with their origin in headers."""
        for record in rejected:
            headers: Headers = (
                ("eddy.topic", record.topic.encode()),
                ("eddy.partition", str(record.partition).encode()),
                ("eddy.offset", str(record.offset).encode()),
                ("eddy.error", record.reason.encode()),
            )
            self._letter(topic, record.key, record.value, record.timestamp, headers, record.headers)

    def dead_rows(self, topic: str, rows: Iterable[DeadRow]) -> None:
        """Write rows that were set aside, with the step and their source records in headers."""
        for row in rows:
            record = row.origins.record
            places = () if record is None else zip(("topic", "partition", "offset"), record, strict=True)
            headers: Headers = (
                ("eddy.step", row.step.encode()),
                ("eddy.weight", str(row.weight).encode()),
                *((f"eddy.{name}", str(place).encode()) for name, place in places),
                (HEADER, str(row.origins).encode()),
                ("eddy.error", row.reason.encode()),
            )
            self._letter(topic, row.key, row.value, row.time, headers)

    def _letter(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        time: int,
        headers: Headers,
        passed_on: Headers = (),
    ) -> None:
        """Write a dead letter. A timestamp that its topic may not accept is written in a header instead.

        If the topic refuses the letter as too large, a smaller one is written, because one record must not end the
        worker. It has no key, no value and none of the headers `passed_on`. A header has their sizes, and the error is
        cut short.
        """
        own = self.own_time(time)
        if own < time:
            headers = (*headers, ("eddy.timestamp", str(time).encode()))
        try:
            self._producer.send(topic, 0, [key], [value], [own], [(*passed_on, *headers)])
        except RecordRefusedError:
            sizes = f"key {len(key or b'')}, value {len(value or b'')}"
            told = [(name, _beginning(data) if name == "eddy.error" else data) for name, data in headers]
            self._producer.send(topic, 0, [None], [None], [own], [(*told, ("eddy.left_out_bytes", sizes.encode()))])

    def cut_rows(self, topic: str, gate: Gate, batch: Batch, loop: str, limit: int) -> None:
        """Write to `topic`, as dead letters, the rows that the recursion `loop` would have made beyond its limit."""
        keys = encoded(list(keys_of(batch.rows)), gate.key, f"recursively '{loop}': key")
        values = encoded([row[1] for row in batch.rows], gate.value, f"recursively '{loop}': value")
        reason = f"recursively '{loop}': beyond limit {limit}".encode()
        headers: list[Headers] = [
            (("eddy.loop", loop.encode()), ("eddy.error", reason), ("eddy.weight", str(weight).encode()))
            for weight in batch.weights
        ]
        self._producer.send(topic, 0, keys, values, list(map(self.own_time, batch.times_of_rows())), headers)


def _beginning(text: bytes) -> bytes:
    """Cut a text in UTF-8 to `_ERROR_BYTES`, so that its dead letter has room for other headers."""
    if len(text) <= _ERROR_BYTES:
        return text
    return text[:_ERROR_BYTES].decode(errors="ignore").encode() + " …".encode()


def _check_sizes(gate: Gate, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> None:
    """Refuse rows above the gate's limit of bytes. Raises: UnwritableRowError."""
    most = gate.max_row_bytes
    sizes = (len(key or b"") + len(value or b"") for key, value in zip(keys, values, strict=True))
    if most is None or max(sizes, default=0) <= most:
        return
    raise UnwritableRowError(
        f"topic '{gate.topic}': a row takes more than {most:,} bytes; rows of recursions have to fit into "
        "max_row_bytes. Make the row smaller, or raise max_row_bytes",
        gate.topic,
    )


def encoded(values: Sequence[Any], serde: Serde[Any], where: str) -> list[bytes | None]:
    """Encode a column, null for None. Raises: DataError naming the value that does not fit."""
    try:
        if None not in values:
            return serde.encode_many(values)  # type: ignore[return-value]
        return [None if value is None else serde.encode(value) for value in values]
    except EddyError:
        raise
    except Exception as error:
        bad = next((value for value in values if value is not None and refusal(serde, value)), None)
        part = where.rpartition(" ")[2]
        step = "to(..." if where.startswith("sink") else "the step that makes it: map(..."
        raise DataError(
            f"{where} {bad!r} is not a valid {serde.name}: {refusal(serde, bad) or error}; a serde that fits is "
            f"needed. Name it in {step}, {part}={serde_for(bad)})"
        ) from error


def repeated(batch: Batch) -> Batch:
    """Return a batch with each fact as often as its weight, in rows of weight 1."""
    weights = batch.weights
    if weights.count(1) == len(weights):
        return batch

    def column(values: Iterable[Any]) -> list[Any]:
        return list(chain.from_iterable(map(repeat, values, weights)))

    return Batch(
        column(batch.rows),
        [1] * sum(weights),
        batch.time,
        None if batch.times is None else column(batch.times),
        None if batch.headers is None else column(batch.headers),
    )
