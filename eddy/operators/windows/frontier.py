"""The frontier of a partition: the latest end of a window for which no record can arrive any more.

    rows of the sources' own partition     the least event time of this partition in all sources
    rows that came through an exchange     the least mark of all partitions of all sources

A mark says that a partition of a source has passed the end of a window and the grace. It is sent to all partitions of
the exchange behind the rows that were sent before, in the same transactions, so that no row arrives after it that is
not late. It is the end itself, no event time, so that marks are a function of the input.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from eddy.operators.batch import EMPTY, Batch
from eddy.operators.context import AllOf, Arrivals, Context, FirstOf, Moment, Wake, Watermark
from eddy.operators.exchange import Gate, Outgoing, Received
from eddy.operators.operator import ClocksRead, Operator, State
from eddy.state.partitioned_map import PartitionedMap
from eddy.windows import Windows

__all__ = ["Frontier", "Marked", "Marks", "OwnPartition", "Slower", "SourceFrontier", "mark_of"]

_ITERATION = -11
"""The iteration of marks. Rows have 0 or more, messages about held rows another negative number."""
_NOTE = "eddy.mark"


class Frontier(Protocol):
    """The frontiers of the partitions of a step's rows."""

    @property
    def reads(self) -> ClocksRead:
        """The clocks that they need."""

    def at(self, context: Context, partition: int) -> int:
        """The frontier of a partition; -1 if no window is closed."""

    def passes(self, firsts: Mapping[int, int]) -> Moment | None:
        """The moment at which a partition's frontier reaches the end that is given for it."""

    def slowest(self, context: Context, partition: int) -> tuple[str, int]:
        """The source, and its partition, that a partition's frontier waits for."""


class SourceFrontier(Frontier, Protocol):
    """The frontiers of rows of one stream: the least ones of several source partitions."""

    def each(self, context: Context, partition: int) -> Iterable[tuple[tuple[str, int], int]]:
        """The source partitions of a partition's rows, each with its own frontier, -1 for none."""


def mark_of(windows: Windows, event_time: int) -> int:
    """The latest end of a window that has passed, with the grace, at an event time; -1 if there is none."""
    return windows.last_end(event_time - windows.lag_ms)


class OwnPartition:
    """Frontiers of rows that are in the partitions of their sources."""

    def __init__(self, windows: Windows, sources: Sequence[str]) -> None:
        self._windows, self._sources = windows, tuple(sources)

    @property
    def reads(self) -> ClocksRead:
        """The event times of the sources."""
        return ClocksRead(frozenset(self._sources))

    def at(self, context: Context, partition: int) -> int:
        """The frontier of a partition."""
        times = context.event_time
        return mark_of(self._windows, min(times.get((source, partition), -1) for source in self._sources))

    def passes(self, firsts: Mapping[int, int]) -> Watermark:
        """The moment at which all sources have passed an end."""
        lag = self._windows.lag_ms
        return Watermark(self._sources, {partition: end + lag for partition, end in firsts.items()})

    def each(self, context: Context, partition: int) -> Iterable[tuple[tuple[str, int], int]]:
        """The same partition of each source, with its frontier."""
        places = [(source, partition) for source in self._sources]
        return [(place, mark_of(self._windows, context.event_time.get(place, -1))) for place in places]

    def slowest(self, context: Context, partition: int) -> tuple[str, int]:
        """The same partition, of the source with the least event time."""
        times = context.event_time
        return min(self._sources, key=lambda source: times.get((source, partition), -1)), partition


class Marked:
    """Frontiers of rows that came through an exchange. `sources` are the partitions of all sources."""

    reads = ClocksRead()

    def __init__(self, marks: PartitionedMap[Any, int], sources: Sequence[tuple[str, int]]) -> None:
        self._marks, self._sources = marks, sources

    def at(self, context: Context, partition: int) -> int:
        """The frontier of a partition."""
        value = self._marks.partition(partition).value
        least = -1
        for number, source in enumerate(self._sources):
            mark = value((partition, *source))
            if mark is None:
                return -1
            least = mark if number == 0 else min(least, mark)
        return least

    def passes(self, firsts: Mapping[int, int]) -> Wake | None:
        """At once, if marks have passed an end."""
        context = Context()
        return Wake.AT_ONCE if any(self.at(context, p) >= end for p, end in firsts.items()) else None

    def each(self, context: Context, partition: int) -> Iterable[tuple[tuple[str, int], int]]:
        """All partitions of all sources, with their marks."""
        value = self._marks.partition(partition).value
        marks = ((source, value((partition, *source))) for source in self._sources)
        return ((source, -1 if mark is None else mark) for source, mark in marks)

    def slowest(self, context: Context, partition: int) -> tuple[str, int]:
        """The one with the least mark."""
        value = self._marks.partition(partition).value
        return min(self._sources, key=lambda source: value((partition, *source)) or -1)


class Slower:
    """The lesser one of two frontiers, in each partition."""

    def __init__(self, one: Frontier, other: Frontier) -> None:
        self._both = one, other

    @property
    def reads(self) -> ClocksRead:
        """The clocks of both."""
        one, other = (frontier.reads for frontier in self._both)
        return ClocksRead(one.sources | other.sources)

    def at(self, context: Context, partition: int) -> int:
        """The frontier of a partition."""
        return min(frontier.at(context, partition) for frontier in self._both)

    def passes(self, firsts: Mapping[int, int]) -> FirstOf | None:
        """The moment at which both frontiers of a partition reach the end that is given for it."""
        moments: list[Moment] = []
        for partition, end in firsts.items():
            both = [moment for each in self._both if (moment := each.passes({partition: end})) is not None]
            if len(both) == len(self._both):
                moments.append(AllOf(both))
        return FirstOf(moments) if moments else None

    def slowest(self, context: Context, partition: int) -> tuple[str, int]:
        """The one for which the lesser frontier waits."""
        return min(self._both, key=lambda frontier: frontier.at(context, partition)).slowest(context, partition)


class _Mark(msgspec.Struct, array_like=True):
    """To a partition of an exchange: a partition of a source has passed the end of a window."""

    source: str
    partition: int
    to: int
    end_ms: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Mark).decode


class Marks(Operator):
    """What an exchange has received in; nothing out. Sends and keeps the marks of all partitions of all sources.

    `gate` is a gate of the exchange's topic, whose outbox follows that of the exchange itself.

    Invariant: the marks of a partition have the latest end that was sent to it, by its number, the source, and the
    partition of the source.
    """

    def __init__(
        self, name: str, gate: Gate, windows: Windows, sources: Sequence[str], marks: PartitionedMap[Any, int]
    ) -> None:
        self.name, self.gate, self.marks = name, gate, marks
        self._windows, self._sources = windows, frozenset(sources)

    def states(self) -> Sequence[State]:
        """The marks."""
        return (self.marks,)

    @property
    def reads(self) -> ClocksRead:
        """The event times of the sources."""
        return ClocksRead(self._sources)

    def wakes_at(self) -> Moment:
        """With each record of a source, also if no row of it arrives here."""
        return Arrivals(self._sources)

    def end_epoch(self) -> None:
        """The marks are sent, or not to be sent."""
        self.gate.outbox = []

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Take the marks that were received; send those of the records read."""
        for mark in _opened(inputs[0]):
            self._keep(mark)
        owned, draining = set(self.gate.owned), self.gate.draining
        for (source, partition), read in context.read.items():
            if source not in self._sources:
                continue
            end = mark_of(self._windows, max(read.before, *read.timestamps, -1))
            if end <= mark_of(self._windows, read.before):
                continue
            for to in range(self.gate.partitions):
                mark = _Mark(source, partition, to, end)
                if to in owned and to not in draining:
                    self._keep(mark)
                else:
                    self._send(mark)
        return EMPTY

    def _keep(self, mark: _Mark) -> None:
        there, key = self.marks.partition(mark.to), (mark.to, mark.source, mark.partition)
        there.put(key, max(mark.end_ms, there.value(key) or 0))

    def _send(self, mark: _Mark) -> None:
        batch = Batch([(None, None)], [1], headers=[((_NOTE, _encode(mark)),)])
        self.gate.outbox.append(Outgoing(batch, [mark.to], _ITERATION))


def _opened(received: Batch) -> list[_Mark]:
    if not isinstance(received, Received) or received.headers is None:
        return []
    headers = zip(received.iterations, received.headers, strict=True)
    return [_decode(dict(noted)[_NOTE]) for iteration, noted in headers if iteration == _ITERATION]
