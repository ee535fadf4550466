"""The frontier of a partition: the latest end of a window for which no record can arrive any more.

    rows of the sources' own partition     the least event time of this partition in all sources
    rows that came through an exchange     the least mark of all partitions from which rows are sent through it

A mark says that a partition has passed the end of a window and the grace. It is sent to all partitions of the exchange,
after all earlier rows of the partition, so each row that arrives after it is late. A partition of a source passes an
end when its event time does; a partition of an earlier exchange does when its frontier does. A mark has the end of the
window, not an event time, so that marks are a function of the input.

The partitions of a pattern also pass ends without a record: when a topic is deleted for which they waited. So their
marks are sent once more whenever their owner is another or their topics are, and at a start.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from eddy.operators.batch import EMPTY, Batch
from eddy.operators.context import AllOf, Arrivals, Context, FirstOf, Moment, Wake, Watermark
from eddy.operators.exchange import Gate, Outgoing, Received
from eddy.operators.operator import ClocksRead, Operator, State
from eddy.state.partitioned_map import PartitionedMap
from eddy.windows import Windows

__all__ = [
    *("Frontier", "Marked", "Marks", "OwnPartition", "Slowest", "SourceFrontier"),
    *("is_pattern", "mark_of", "pattern_label"),
]

_ITERATION = -11
"""The iteration of marks. Rows have 0 or more, messages about held rows another negative number."""
_NOTE = "eddy.mark"
_PATTERN = "pattern "


class Frontier(Protocol):
    """The frontiers of the partitions of a step's rows."""

    @property
    def reads(self) -> ClocksRead:
        """The clocks that they need."""

    def at(self, context: Context, partition: int) -> int:
        """The frontier of a partition; -1 if no window is closed."""

    def passes(self, firsts: Mapping[int, int]) -> Moment | None:
        """The moment at which the frontier of a partition reaches the partition's end in `firsts`."""

    def slowest(self, context: Context, partition: int) -> tuple[str, int]:
        """The topic, and its partition, that a partition's frontier waits for."""


class SourceFrontier(Frontier, Protocol):
    """The frontiers of records of a stream."""

    def each(self, context: Context, partition: int) -> Iterable[tuple[tuple[str, int], int]]:
        """The partitions of topics from which a partition's rows are, each with its own frontier, -1 for none."""


def mark_of(windows: Windows, event_time: int) -> int:
    """The latest end of a window that has passed, with the grace, at an event time; -1 if there is none."""
    return windows.last_end(event_time - windows.lag_ms)


class OwnPartition:
    """Frontiers of rows that are in the partitions of their sources, given as the topics of each label."""

    def __init__(self, windows: Windows, sources: Mapping[str, Sequence[str]]) -> None:
        self._windows, self._labels = windows, sources
        self._sources = tuple(chain.from_iterable(sources.values()))

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
        times = ((label, _least(context, topics, partition)) for label, topics in self._labels.items())
        return [((label, partition), mark_of(self._windows, time)) for label, time in times]

    def slowest(self, context: Context, partition: int) -> tuple[str, int]:
        """The same partition, of the source with the least event time."""
        times = context.event_time
        return min(self._sources, key=lambda source: times.get((source, partition), -1)), partition


class Marked:
    """Frontiers of rows that an exchange has sent. `sources` are the partitions whose rows it has sent.

    `topics` has the topics of patterns, by label; `before` the marks of earlier exchanges whose rows this one sends, by
    their topics. With these `slowest` can name the partition of a source, if this worker knows it.
    """

    reads = ClocksRead()

    def __init__(
        self,
        marks: PartitionedMap[Any, int],
        sources: Sequence[tuple[str, int]],
        topics: Mapping[str, Sequence[str]] = MappingProxyType({}),
        before: Mapping[str, "Marks"] = MappingProxyType({}),
    ) -> None:
        self._marks, self._sources, self._topics, self._before = marks, sources, topics, before

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
        """The source partitions whose rows are sent to a partition, with their marks; -1 before the first mark."""
        value = self._marks.partition(partition).value
        marks = ((source, value((partition, *source))) for source in self._sources)
        return ((source, -1 if mark is None else mark) for source, mark in marks)

    def slowest(self, context: Context, partition: int) -> tuple[str, int]:
        """The partition with the least mark. If it belongs to an earlier exchange, the partition for which that one
        waits.

        All partitions of an exchange get the same marks, so the marks of any owned partition suffice.
        """
        label, of = min(self.each(context, partition), key=itemgetter(1))[0]
        if (marks := self._before.get(label)) is not None and (owned := marks.gate.owned):
            return marks.frontier.slowest(context, of if of in owned else min(owned))
        known = [topic for topic in self._topics.get(label, ()) if (topic, of) in context.event_time]
        return min(known, key=lambda topic: context.event_time[topic, of], default=label), of


class Slowest:
    """The least one of several frontiers, in each partition."""

    def __init__(self, *frontiers: SourceFrontier) -> None:
        self._frontiers = frontiers

    @property
    def reads(self) -> ClocksRead:
        """The clocks of all."""
        return ClocksRead(frozenset().union(*(frontier.reads.sources for frontier in self._frontiers)))

    def at(self, context: Context, partition: int) -> int:
        """The frontier of a partition."""
        return min(frontier.at(context, partition) for frontier in self._frontiers)

    def passes(self, firsts: Mapping[int, int]) -> FirstOf | None:
        """The moment at which all frontiers of a partition reach the end that is given for it."""
        moments: list[Moment] = []
        for partition, end in firsts.items():
            found = [moment for each in self._frontiers if (moment := each.passes({partition: end})) is not None]
            if len(found) == len(self._frontiers):
                moments.append(AllOf(found))
        return FirstOf(moments) if moments else None

    def slowest(self, context: Context, partition: int) -> tuple[str, int]:
        """The partition for which the least frontier waits."""
        return min(self._frontiers, key=lambda frontier: frontier.at(context, partition)).slowest(context, partition)

    def each(self, context: Context, partition: int) -> Iterable[tuple[tuple[str, int], int]]:
        """The partitions of all frontiers."""
        return chain.from_iterable(frontier.each(context, partition) for frontier in self._frontiers)


class _Mark(msgspec.Struct, array_like=True):
    """To a partition of an exchange: a partition of a topic has passed the end of a window.

    `state`: the state of marks that it is for, since several steps may read an exchange; empty from a release that let
    one step read it.
    """

    source: str
    partition: int
    to: int
    end_ms: int
    state: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Mark).decode


def pattern_label(pattern: str) -> str:
    """The label of the topics of a pattern. No topic's name has a space."""
    return f"{_PATTERN}{pattern}"


def is_pattern(label: str) -> bool:
    """Whether a label is of the topics of a pattern."""
    return label.startswith(_PATTERN)


def _least(context: Context, topics: Iterable[str], partition: int) -> int:
    """The least event time of a partition in some topics."""
    return min(context.event_time.get((topic, partition), -1) for topic in topics)


def _least_before(context: Context, topics: Iterable[str], partition: int) -> int:
    """The same before the epoch."""
    places = [(topic, partition) for topic in topics]
    read, times = context.read, context.event_time
    return min(read[place].before if place in read else times.get(place, -1) for place in places)


class Marks(Operator):
    """Sends and stores the marks of the partitions from which an exchange sends rows. Its input is the rows that the
    exchange has received; it has no output. Marks of `patterns`, numbers of partitions by label, are sent once more
    after each `forget`.

    `gate` is a second gate of the exchange's topic: its outbox is sent after the exchange's own outbox. `sources` are
    the topics whose rows the exchange sends directly, by label: a pattern has one label, and the least event time of
    its topics in a partition. `before` has the marks of earlier exchanges whose rows this one sends, by their topics;
    the rows received through them are inputs, too. `frontier` is the frontier by `marks`.

    Invariant: `marks` has, for each partition of the exchange and each sending partition (a label or topic, and its
    number), the latest end that was sent.
    """

    def __init__(
        self,
        name: str,
        gate: Gate,
        windows: Windows,
        sources: Mapping[str, Sequence[str]],
        before: Mapping[str, "Marks"],
        marks: PartitionedMap[Any, int],
        frontier: Frontier,
        patterns: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.name, self.gate, self.marks, self.frontier = name, gate, marks, frontier
        self._windows, self._sources, self._before = windows, sources, before
        self._patterns, self._told = patterns, False
        self.moved: dict[int, int] = {}

    def states(self) -> Sequence[State]:
        """The marks."""
        return (self.marks,)

    @property
    def reads(self) -> ClocksRead:
        """The event times of all sources."""
        before = (marks.reads.sources for marks in self._before.values())
        return ClocksRead(frozenset(chain.from_iterable(self._sources.values())).union(*before))

    def wakes_at(self) -> Moment:
        """In each epoch with records of a source, even if none reaches this step; of patterns also after `forget`."""
        arrivals = Arrivals(self.reads.sources)
        if self._told or not self._patterns:
            return arrivals
        begun = (Watermark(self._sources[label], dict.fromkeys(range(n), 0)) for label, n in self._patterns.items())
        return FirstOf([arrivals, *begun])

    def end_epoch(self) -> None:
        """The marks are sent, or not to be sent."""
        self.gate.outbox, self.moved = [], {}

    def forget(self) -> None:
        """After a rollback, or a change of ownership."""
        self._told = False

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Take the marks that were received; send marks of the records read."""
        for mark in _opened(inputs[0]):
            if mark.state in ("", self.name):
                self._keep(mark)
        for label, topics in self._sources.items():
            anew = label in self._patterns and not self._told
            for partition in {p for topic, p in (context.event_time if anew else context.read) if topic in topics}:
                end = mark_of(self._windows, _least(context, topics, partition))
                before = -1 if anew else _least_before(context, topics, partition)
                if end > mark_of(self._windows, before):
                    self._tell(label, partition, end)
        self._told = True
        for topic, marks in self._before.items():
            for partition, before in marks.moved.items():
                end = marks.frontier.at(context, partition)
                if end > before:
                    self._tell(topic, partition, end)
        return EMPTY

    def _tell(self, source: str, partition: int, end: int) -> None:
        """Keep the mark of a partition in the partitions that are owned, and send it to all others."""
        owned, draining = set(self.gate.owned), self.gate.draining
        for to in range(self.gate.partitions):
            mark = _Mark(source, partition, to, end, self.name)
            if to in owned and to not in draining:
                self._keep(mark)
            else:
                self._send(mark)

    def _keep(self, mark: _Mark) -> None:
        if mark.to not in self.moved:
            self.moved[mark.to] = self.frontier.at(Context(), mark.to)
        there, key = self.marks.partition(mark.to), (mark.to, mark.source, mark.partition)
        before = there.value(key)
        if before is None or mark.end_ms > before:
            there.put(key, mark.end_ms)

    def _send(self, mark: _Mark) -> None:
        batch = Batch([(None, None)], [1], headers=[((_NOTE, _encode(mark)),)])
        self.gate.outbox.append(Outgoing(batch, [mark.to], _ITERATION))


def _opened(received: Batch) -> list[_Mark]:
    if not isinstance(received, Received) or received.headers is None:
        return []
    headers = zip(received.iterations, received.headers, strict=True)
    return [_decode(dict(noted)[_NOTE]) for iteration, noted in headers if iteration == _ITERATION]
