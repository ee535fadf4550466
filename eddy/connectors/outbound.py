"""From batches to records: what an epoch sends, each row to the partition of its key."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import Any

from eddy.connectors.inbound import PACKED, Misfit
from eddy.connectors.log import Headers, Producer
from eddy.errors import DataError, EddyError
from eddy.operators.batch import Batch, concat, keys_of
from eddy.operators.exchange import Gate, Outgoing
from eddy.operators.stateless import latest_of
from eddy.serde import Serde
from eddy.state.spec import Changes

__all__ = ["Outbound", "SinkTopic"]


class SinkTopic:
    """A sink with all that sending to it takes."""

    def __init__(self, topic: str, key: Serde[Any], value: Serde[Any], partitions: int, facts: bool) -> None:
        self.topic, self.key, self.value, self.partitions, self.facts = topic, key, value, partitions, facts


class Outbound:
    """Sends within the producer's open transaction."""

    def __init__(self, producer: Producer, partitioner: Callable[[bytes, int], int]) -> None:
        self._producer, self._partitioner = producer, partitioner

    def sink(self, sink: SinkTopic, batches: Sequence[Batch]) -> int:
        """Write what reached a sink: facts as often as they weigh, a table's changes as its new values.

        Returns the number of records. Raises: DataError where a row does not fit the sink's serdes.
        """
        batch = concat(batches)
        batch = repeated(batch) if sink.facts else latest_of(batch)
        if not batch.rows:
            return 0
        keys = encoded([row[0] for row in batch.rows], sink.key, f"sink '{sink.topic}': key")
        values = encoded([row[1] for row in batch.rows], sink.value, f"sink '{sink.topic}': value")
        homes = self._homes(keys, sink.partitions)
        self._producer.send(sink.topic, homes, keys, values, batch.times_of_rows(), batch.headers)
        return len(keys)

    def exchange(self, gate: Gate, outgoing: Iterable[Outgoing]) -> int:
        """Write rows that leave through a gate, with their weights. Returns the number of rows."""
        count = 0
        for batch, partitions, hop in outgoing:
            keys = encoded(list(keys_of(batch.rows)), gate.key, f"topic '{gate.topic}': key")
            bodies = encoded([row[1] for row in batch.rows], gate.value, f"topic '{gate.topic}': value")
            values = [
                PACKED.pack(weight, hop, body is not None) + (body or b"")
                for weight, body in zip(batch.weights, bodies, strict=True)
            ]
            self._producer.send(gate.topic, partitions, keys, values, batch.times_of_rows(), batch.headers)
            count += len(keys)
        return count

    def changelog(self, topic: str, changes: Changes, time: int) -> None:
        """Write the changed rows of a state."""
        self._producer.send(topic, changes.partitions, changes.keys, changes.values, [time] * len(changes))

    def dead_letters(self, topic: str, misfits: Iterable[Misfit]) -> None:
        """Write records that were left out, as they came, with where they came from in their headers."""
        for record in misfits:
            headers: Headers = (
                *record.headers,
                ("eddy.topic", record.topic.encode()),
                ("eddy.partition", str(record.partition).encode()),
                ("eddy.offset", str(record.offset).encode()),
                ("eddy.error", record.reason.encode()),
            )
            self._producer.send(topic, 0, [record.key], [record.value], [record.timestamp], [headers])

    def dead_rows(self, topic: str, gate: Gate, batch: Batch, loop: str, limit: int) -> None:
        """Write rows that a recursion would have made beyond its limit."""
        keys = encoded(list(keys_of(batch.rows)), gate.key, f"recursively '{loop}': key")
        values = encoded([row[1] for row in batch.rows], gate.value, f"recursively '{loop}': value")
        reason = f"recursively '{loop}': beyond limit {limit}".encode()
        headers: list[Headers] = [
            (("eddy.loop", loop.encode()), ("eddy.error", reason), ("eddy.weight", str(weight).encode()))
            for weight in batch.weights
        ]
        self._producer.send(topic, 0, keys, values, batch.times_of_rows(), headers)

    def _homes(self, keys: Sequence[bytes | None], partitions: int) -> list[int]:
        if partitions == 1:
            return [0] * len(keys)
        partitioner = self._partitioner
        return [0 if key is None else partitioner(key, partitions) for key in keys]


def encoded(values: Sequence[Any], serde: Serde[Any], where: str) -> list[bytes | None]:
    """Encode a column, null for None. Raises: DataError naming the value that does not fit."""
    try:
        if None not in values:
            return serde.encode_many(values)  # type: ignore[return-value]
        return [None if value is None else serde.encode(value) for value in values]
    except EddyError:
        raise
    except Exception as error:
        bad = next((value for value in values if value is not None and not fits(value, serde)), None)
        raise DataError(
            f"{where} {bad!r} is no {serde.name}: {error}. Name the serde that fits: to(..., key=, value=)"
        ) from error


def fits(value: Any, serde: Serde[Any]) -> bool:
    """Whether `serde` can encode `value`."""
    try:
        serde.encode(value)
    except Exception:
        return False
    return True


def repeated(batch: Batch) -> Batch:
    """Each fact as often as it weighs."""
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
