"""Defines the order of the records of several source partitions, and the part of this order that is already final.

    order of a record    (event time that its partition has reached with it, number of its topic or pattern, partition,
                         offset, number of its row among the record's rows; of a pattern the name of its topic)
    known                the least (event time, number of the topic, partition) of all source partitions

The order is *known*, that is, final, up to `known`. Within a partition records are sorted by offset, whatever their
timestamps, because the event time of a partition never decreases. A record that is read later has at least the event
time of its partition, and a greater offset. So no later record is at or before `known`, and the order is a function of
each partition's records alone.

Records that an exchange has sent carry their places. After an exchange, rows made from one record may be in different
partitions, so they have no numbers, and are sorted by a hash of their bytes:

    order of a row       (event time, number of the topic or pattern, partition, offset, 0; of a pattern the name of its
                         topic; a hash of the row and its timestamp)
    known                before the least event time of all partitions whose rows the exchanges send

The topics of a pattern share one number, so that a new topic does not change the numbers of other topics. A later
record of one of them may have a lesser offset than an earlier record of another. So for a pattern only the orders
before `known` are final, not `known` itself.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from struct import Struct
from typing import Any

from eddy.join_windows import JoinSide
from eddy.operators.batch import Batch, Place, PlacedTime, Row
from eddy.operators.context import Arrivals, Context, Moment, Wake
from eddy.operators.windows.assignment import AssignWindows
from eddy.operators.windows.frontier import Marked, SourceFrontier, is_pattern
from eddy.operators.windows.lateness import check_time
from eddy.operators.windows.source_times import event_times, timestamps
from eddy.row_hash import row_hash
from eddy.serde import Serde

__all__ = ["KnownOrder", "OrderRecords", "OrderVersions", "Orders", "event_time_of", "is_known"]

_NO_TOPIC = 2**32 - 1
_UP_TO, _ORDER = Struct(">qII"), Struct(">qIIqI")


def event_time_of(order: bytes) -> int:
    """Return the event time in an order."""
    return int(_UP_TO.unpack_from(order)[0])


class Orders:
    """Makes the orders of rows. `topics` has the topics of the rows' records, by label.

    `sent` has the serdes of keys and values if the records were sent through exchanges; otherwise it is None.
    """

    def __init__(self, topics: Mapping[str, Sequence[str]], sent: tuple[Serde[Any], Serde[Any]] | None) -> None:
        numbers = _numbers(topics)
        self._numbers = {topic: numbers[label] for label, of in topics.items() for topic in of}
        self._tails = {topic: topic.encode() for label, of in topics.items() if is_pattern(label) for topic in of}
        self._sent = sent

    def of(self, rows: Sequence[Row], batch: Batch, stamps: Sequence[int], times: Sequence[int]) -> list[bytes]:
        """Return the orders of rows, which were made of the rows of `batch`, given their timestamps and event times.

        Raises: any exception of the serdes.
        """
        counts: Counter[Place] = Counter()
        found: list[bytes] = []
        for row, place, stamp, time in zip(rows, batch.places_of_rows(), stamps, times, strict=True):
            place = time.place if isinstance(time, PlacedTime) else place
            head, tail = _ORDER.pack(time, _NO_TOPIC, 0, 0, 0), b""
            if place is not None:  # rows sent by an older release, or plan, may have none
                topic, partition, offset = place
                number, tail = 0 if self._sent else counts[place], self._tails.get(topic, b"")
                head = _ORDER.pack(time, self._numbers[topic], partition, offset, number)
                counts[place] += 1
            row_bytes = b"" if self._sent is None else row_hash(self._sent, row, stamp)
            found.append(head + tail + row_bytes)
        return found


class OrderRecords(AssignWindows):
    """Input: records (B, (K, V)). Output: records (B, (order, timestamp, K, V)).

    Records without a B, and late records, are dropped. A record at t is late if the event time of its partition is
    t + `windows.lag_ms` or more.
    """

    def __init__(self, name: str, windows: JoinSide, sources: Sequence[str], orders: Orders) -> None:
        super().__init__(name, windows, sources)
        self._lag, self._orders = windows.lag_ms, orders

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Give each row its order. Raises: DataError for a record without a timestamp."""
        batch = self.with_keys(inputs[0])
        stamps, times = timestamps(context, batch), event_times(context, batch)
        for (by, _), stamp in zip(batch.rows, stamps, strict=True):
            check_time(self.name, by, stamp)
        orders = self._orders.of([row for _, row in batch.rows], batch, stamps, times)
        columns = zip(batch.rows, orders, stamps, strict=True)
        rows = [(by, (order, stamp, key, value)) for (by, (key, value)), order, stamp in columns]
        kept = [stamp > time - self._lag for stamp, time in zip(stamps, times, strict=True)]
        self.late += kept.count(False)
        made = batch.with_rows(rows).without_places()
        return made if all(kept) else made.select(kept)


class OrderVersions(AssignWindows):
    """Gives each record of the right side of an as-of join its moment and its order, and drops late records.

    Input: records (K, (V | None,)). Output: records (Windowed(K, t, t), (V | None, order)).
    """

    def __init__(self, name: str, windows: JoinSide, sources: Sequence[str], orders: Orders) -> None:
        super().__init__(name, windows, sources)
        self._orders = orders

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Give each row its moment and its order. Raises: DataError for a record without a timestamp."""
        batch = self.with_both(inputs[0])
        stamps, times = timestamps(context, batch), event_times(context, batch)
        orders = self._orders.of([(key, value[0]) for key, value in batch.rows], batch, stamps, times)
        rows = [(key, (*value, order)) for (key, value), order in zip(batch.rows, orders, strict=True)]
        return super().step(context, batch.with_rows(rows))


class KnownOrder:
    """Finds how far the order is final, in each partition of a step's rows.

    `sent`: the records were sent through exchanges before they got their orders.
    """

    def __init__(self, frontier: SourceFrontier, topics: Mapping[str, Sequence[str]], sent: bool) -> None:
        self._frontier, self._numbers, self._sent = frontier, _numbers(topics), sent
        self._by_marks = sent or isinstance(frontier, Marked)
        self._topics = frozenset(chain.from_iterable(topics.values()))
        self._single = next(iter(topics)) if len(topics) == 1 and not any(map(is_pattern, topics)) else None

    def up_to(self, context: Context, partition: int) -> bytes:
        """Return the greatest bytes with which final orders of a partition begin; empty if no order is final."""
        if self._sent:
            least = self._frontier.at(context, partition)
            return b"" if least < 0 else _before(_UP_TO.pack(least, 0, 0))
        times = self._frontier.each(context, partition)
        time, number, of, label = min((time, self._numbers[label], of, label) for (label, of), time in times)
        if time < 0:
            return b""
        last = _UP_TO.pack(time, number, of)
        return _before(last) if is_pattern(label) else last

    def homes(self, orders: Sequence[bytes], homes: Sequence[int]) -> Sequence[int]:
        """Return the partitions in which records wait.

        After an exchange these are `homes`, the partitions of their keys. Without an exchange records wait in their
        source partitions, since a producer may have written a record to another partition than its key's.
        """
        if self._by_marks:
            return homes
        return [_UP_TO.unpack_from(order)[2] for order in orders]

    def places(self, orders: Sequence[bytes]) -> list[Place | None] | None:
        """Return the topic, partition and offset of each record, read from its order.

        Returns None unless all records are from one topic and still in its partitions.
        """
        if self._by_marks or self._single is None:
            return None
        found = map(_ORDER.unpack, orders)
        return [(self._single, partition, offset) for _, _, partition, offset, _ in found]

    def reaches(self, firsts: Mapping[int, bytes]) -> Moment | None:
        """Return the moment at which an order in `firsts` may become final.

        `firsts` has an order for each partition.
        """
        if not firsts:
            return None
        if self._sent:
            return self._frontier.passes({p: event_time_of(order) + 1 for p, order in firsts.items()})
        if not self._by_marks:
            return Arrivals(self._topics)
        context = Context()
        known = (is_known(order, self.up_to(context, partition)) for partition, order in firsts.items())
        return Wake.AT_ONCE if any(known) else None


def is_known(order: bytes, up_to: bytes) -> bool:
    """Return whether an order is final, that is, whether no record can arrive any more that is before it or has it.

    `up_to` is the result of `KnownOrder.up_to`.
    """
    return order[: _UP_TO.size] <= up_to


def _before(up_to: bytes) -> bytes:
    """Return the bytes of the number that is less by 1; empty if the number is 0."""
    number = int.from_bytes(up_to)
    return (number - 1).to_bytes(_UP_TO.size) if number else b""


def _numbers(labels: Iterable[str]) -> dict[str, int]:
    return {label: number for number, label in enumerate(sorted(labels))}
