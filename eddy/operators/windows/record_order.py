"""The order of the records of several source partitions, and the part of this order that is already final.

    order of a record    (event time of its partition up to and with it, number of its topic or pattern, partition,
                         offset, number of its row among the record's rows; of a pattern the name of its topic)
    known                the least (event time, number of the topic, partition) of all source partitions

Within a partition the order is by offset, whatever the timestamps, since the event time of a partition never decreases.
A record that is read later has at least the event time of its partition, and a greater offset. So no later record is at
or before `known`, and the order is a function of each partition's records alone.

The topics of a pattern share one number, so that a new topic does not change the number of another one. A later record
of a pattern may have a lesser offset than a record of another of its topics, so for a pattern only the orders before
`known` are final.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from struct import Struct

from eddy.join_windows import JoinSide
from eddy.operators.batch import Batch, Place, Row
from eddy.operators.context import Arrivals, Context, Moment, Wake
from eddy.operators.windows.assignment import AssignWindows
from eddy.operators.windows.frontier import Marked, SourceFrontier, is_pattern
from eddy.operators.windows.lateness import check_time
from eddy.operators.windows.source_times import event_times, timestamps

__all__ = ["KnownOrder", "OrderRecords", "event_time_of", "is_known"]

_UP_TO, _ORDER = Struct(">qII"), Struct(">qIIqI")


def event_time_of(order: bytes) -> int:
    """The event time in an order."""
    return int(_UP_TO.unpack_from(order)[0])


class OrderRecords(AssignWindows):
    """Input: records (B, (K, V)). Output: records (B, (order, timestamp, K, V)); one without a B, or a late one, is
    dropped.

    A record at t is late at the event time t + `windows.lag_ms` of its partition.
    """

    def __init__(self, name: str, windows: JoinSide, topics: Mapping[str, Sequence[str]]) -> None:
        super().__init__(name, windows, list(chain.from_iterable(topics.values())))
        numbers = _numbers(topics)
        self._lag = windows.lag_ms
        self._numbers = {topic: numbers[label] for label, of in topics.items() for topic in of}
        self._tails = {topic: topic.encode() for label, of in topics.items() if is_pattern(label) for topic in of}

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Give each row its order. Raises: DataError for a record without a timestamp."""
        batch = self.with_keys(inputs[0])
        stamps = timestamps(context, batch)
        rows: list[Row] = []
        kept: list[bool] = []
        counts: Counter[Place] = Counter()
        columns = zip(batch.rows, batch.places_of_rows(), stamps, event_times(context, batch), strict=True)
        for (by, (key, value)), place, stamp, time in columns:
            check_time(self.name, by, stamp)
            assert place is not None
            topic, partition, offset = place
            order = _ORDER.pack(time, self._numbers[topic], partition, offset, counts[place])
            order += self._tails.get(topic, b"")
            counts[place] += 1
            rows.append((by, (order, stamp, key, value)))
            kept.append(stamp > time - self._lag)
        self.late += kept.count(False)
        made = batch.with_rows(rows).without_places()
        return made if all(kept) else made.select(kept)


class KnownOrder:
    """The part of the order that is final, in each partition of a step's rows."""

    def __init__(self, frontier: SourceFrontier, topics: Mapping[str, Sequence[str]]) -> None:
        self._frontier, self._numbers = frontier, _numbers(topics)
        self._topics = frozenset(chain.from_iterable(topics.values()))
        self._single = next(iter(topics)) if len(topics) == 1 and not any(map(is_pattern, topics)) else None

    def up_to(self, context: Context, partition: int) -> bytes:
        """The first bytes of the last orders that are known in a partition; empty for none."""
        times = self._frontier.each(context, partition)
        time, number, of, label = min((time, self._numbers[label], of, label) for (label, of), time in times)
        if time < 0:
            return b""
        last = _UP_TO.pack(time, number, of)
        return _before(last) if is_pattern(label) else last

    def homes(self, orders: Sequence[bytes], homes: Sequence[int]) -> Sequence[int]:
        """The partitions in which records wait: of their keys, which are given; without an exchange, of their source.

        A producer may have written a record to another partition than its key's.
        """
        if isinstance(self._frontier, Marked):
            return homes
        return [_UP_TO.unpack_from(order)[2] for order in orders]

    def places(self, orders: Sequence[bytes]) -> list[Place | None] | None:
        """The places of the records if no record has to wait: all are of one topic, and in its partitions."""
        if isinstance(self._frontier, Marked) or self._single is None:
            return None
        found = map(_ORDER.unpack, orders)
        return [(self._single, partition, offset) for _, _, partition, offset, _ in found]

    def reaches(self, firsts: Mapping[int, bytes]) -> Moment | None:
        """The moment at which one of these orders may become final: the first order of each partition that is not."""
        if not firsts:
            return None
        if not isinstance(self._frontier, Marked):
            return Arrivals(self._topics)
        context = Context()
        known = (is_known(order, self.up_to(context, partition)) for partition, order in firsts.items())
        return Wake.AT_ONCE if any(known) else None


def is_known(order: bytes, up_to: bytes) -> bool:
    """Whether no record arrives any more that is before an order, or has it."""
    return order[: _UP_TO.size] <= up_to


def _before(up_to: bytes) -> bytes:
    """The bytes before these, as a number; empty for zeros."""
    number = int.from_bytes(up_to)
    return (number - 1).to_bytes(_UP_TO.size) if number else b""


def _numbers(labels: Iterable[str]) -> dict[str, int]:
    return {label: number for number, label in enumerate(sorted(labels))}
