"""The frontier of a partition: the latest end of a window for which no record can arrive any more.

    rows still in their source's partition    by the least event time of this partition in all sources
    rows sent through an exchange             the least mark of all partitions from which the exchange sends rows

A *mark* says that a partition has passed the end of a window and the grace. It is sent to all partitions of the
exchange, after all earlier rows of the partition, so each row that arrives after it is late. A source partition passes
an end when its event time passes the end and the grace. A partition of an earlier exchange passes an end when its
frontier reaches the end. A mark has the end of the window, not an event time, so that marks are a function of the
input.

Partitions of topics that a pattern selects can also pass an end without a record: when a topic for which they waited is
deleted. So their marks are sent again at a start, and whenever their owner or their topics change.
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
"""The iteration that distinguishes marks. Rows have 0 or more, messages about held rows another negative number."""
_NOTE = "eddy.mark"
_PATTERN = "pattern "


class Frontier(Protocol):
    """Finds the frontier of each partition of a step's rows."""

    @property
    def reads(self) -> ClocksRead:
        """The clocks that the frontiers need."""

    def at(self, context: Context, partition: int) -> int:
        """Return the frontier of a partition; -1 if no window has closed."""

    def passes(self, firsts: Mapping[int, int]) -> Moment | None:
        """Return the moment at which a frontier reaches the end that `firsts` gives for its partition."""

    def slowest(self, context: Context, partition: int) -> tuple[str, int]:
        """Return the topic, and the partition of this topic, for which the frontier of a partition waits."""


class SourceFrontier(Frontier, Protocol):
    """The frontiers of the records of a stream, with the partitions that they depend on."""

    def each(self, context: Context, partition: int) -> Iterable[tuple[tuple[str, int], int]]:
        """Yield the partitions from which a partition gets rows, each with its own frontier.

        An item is ((topic, partition), frontier); the frontier is -1 if there is none yet.
        """


def mark_of(windows: Windows, event_time: int) -> int:
    """Return the latest end of a window that an event time has passed, with the grace; -1 if there is none."""
    return windows.last_end(event_time - windows.lag_ms)


class OwnPartition:
    """The frontiers of rows that are still in the partitions of their sources.

    `sources` has the topics of each label. A label stands for the topics of a pattern, or is the topic's own name.
    """

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
        """Return the moment at which, in one of these partitions, all sources have passed the end in `firsts`."""
        lag = self._windows.lag_ms
        return Watermark(self._sources, {partition: end + lag for partition, end in firsts.items()})

    def each(self, context: Context, partition: int) -> Iterable[tuple[tuple[str, int], int]]:
        """Return, for each source, its partition of this number, with its frontier."""
        times = ((label, _least(context, topics, partition)) for label, topics in self._labels.items())
        return [((label, partition), mark_of(self._windows, time)) for label, time in times]

    def slowest(self, context: Context, partition: int) -> tuple[str, int]:
        """Return the source with the least event time in this partition, and the partition."""
        times = context.event_time
        return min(self._sources, key=lambda source: times.get((source, partition), -1)), partition


class Marked:
    """The frontiers of rows that an exchange has sent. `sources` are the partitions from which it sends rows.

    `topics` has the topics of patterns, by label. `before` has the marks of earlier exchanges whose rows this exchange
    sends on, by topic. `topics` and `before` let `slowest` name the partition of a source, if this worker knows it.
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
        """Return `AT_ONCE` if the marks of a partition in `firsts` have passed the end given there, else None."""
        context = Context()
        return Wake.AT_ONCE if any(self.at(context, p) >= end for p, end in firsts.items()) else None

    def each(self, context: Context, partition: int) -> Iterable[tuple[tuple[str, int], int]]:
        """Return the partitions from which the exchange sends rows, with their marks; -1 before the first mark."""
        value = self._marks.partition(partition).value
        marks = ((source, value((partition, *source))) for source in self._sources)
        return ((source, -1 if mark is None else mark) for source, mark in marks)

    def slowest(self, context: Context, partition: int) -> tuple[str, int]:
        """Return the topic and partition with the least mark.

        If they are an earlier exchange's, return the topic and partition for which its frontier waits.

        All partitions of an exchange get the same marks, so the marks of any owned partition suffice.
        """
        label, of = min(self.each(context, partition), key=itemgetter(1))[0]
        if (marks := self._before.get(label)) is not None and (owned := marks.gate.owned):
            return marks.frontier.slowest(context, of if of in owned else min(owned))
        known = [topic for topic in self._topics.get(label, ()) if (topic, of) in context.event_time]
        return min(known, key=lambda topic: context.event_time[topic, of], default=label), of


class Slowest:
    """The least of several frontiers, in each partition."""

    def __init__(self, *frontiers: SourceFrontier) -> None:
        self._frontiers = frontiers

    @property
    def reads(self) -> ClocksRead:
        """The clocks of all frontiers."""
        return ClocksRead(frozenset().union(*(frontier.reads.sources for frontier in self._frontiers)))

    def at(self, context: Context, partition: int) -> int:
        """The frontier of a partition."""
        return min(frontier.at(context, partition) for frontier in self._frontiers)

    def passes(self, firsts: Mapping[int, int]) -> FirstOf | None:
        """Return the moment at which, in one of these partitions, all frontiers have reached the end in `firsts`."""
        moments: list[Moment] = []
        for partition, end in firsts.items():
            found = [moment for each in self._frontiers if (moment := each.passes({partition: end})) is not None]
            if len(found) == len(self._frontiers):
                moments.append(AllOf(found))
        return FirstOf(moments) if moments else None

    def slowest(self, context: Context, partition: int) -> tuple[str, int]:
        """Return the topic and partition for which the least frontier waits."""
        return min(self._frontiers, key=lambda frontier: frontier.at(context, partition)).slowest(context, partition)

    def each(self, context: Context, partition: int) -> Iterable[tuple[tuple[str, int], int]]:
        """Return the partitions of all frontiers, each with its own frontier."""
        return chain.from_iterable(frontier.each(context, partition) for frontier in self._frontiers)


class _Mark(msgspec.Struct, array_like=True):
    """A message to the partition `to` of an exchange: the partition of a topic has passed the end of a window.

    Several steps may read an exchange, so `state` names the state that the mark is for. It is empty in a mark of an
    early release, in which only one step could read an exchange.
    """

    source: str
    partition: int
    to: int
    end_ms: int
    state: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Mark).decode


def pattern_label(pattern: str) -> str:
    """Return the label for the topics of a pattern. The label has a space, so no topic has this name."""
    return f"{_PATTERN}{pattern}"


def is_pattern(label: str) -> bool:
    """Whether a label stands for the topics of a pattern."""
    return label.startswith(_PATTERN)


def _least(context: Context, topics: Iterable[str], partition: int) -> int:
    """Return the least event time of this partition among some topics."""
    return min(context.event_time.get((topic, partition), -1) for topic in topics)


def _least_before(context: Context, topics: Iterable[str], partition: int) -> int:
    """Return the least event time of this partition among some topics, before the epoch's records."""
    places = [(topic, partition) for topic in topics]
    read, times = context.read, context.event_time
    return min(read[place].before if place in read else times.get(place, -1) for place in places)


class Marks(Operator):
    """Sends and stores the marks of the partitions from which an exchange sends rows.

    The input has the rows that the exchange has received. There is no output.

    - `gate`: a second gate of the exchange's topic, whose outbox is sent after the exchange's own outbox.
    - `sources`: the topics whose rows the exchange sends directly, by label. The topics of a pattern share a label; in
      each partition the least of their event times counts.
    - `before`: the marks of earlier exchanges whose rows this exchange sends on, by topic.
    - `frontier`: the frontiers by `marks`.
    - `patterns`: the number of partitions of each pattern, by label. Their marks are sent again after each `forget`.

    Invariant: `marks` has, for each partition of the exchange and each partition that sends to it (label or topic, and
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
        self.frontiers_before: dict[int, int] = {}

    def states(self) -> Sequence[State]:
        """The marks."""
        return (self.marks,)

    @property
    def reads(self) -> ClocksRead:
        """The event times of all sources."""
        before = (marks.reads.sources for marks in self._before.values())
        return ClocksRead(frozenset(chain.from_iterable(self._sources.values())).union(*before))

    def wakes_at(self) -> Moment:
        """Return the moment of each epoch that has records of a source, even if none of them reaches this step.

        Two further moments count. After `forget`, it is the first epoch in which a pattern's sources have event times.
        If an earlier exchange has stored marks in this epoch, it is `Wake.AT_ONCE`, because without records none of its
        rows arrives here.
        """
        if any(marks.frontiers_before for marks in self._before.values()):
            return Wake.AT_ONCE
        arrivals = Arrivals(self.reads.sources)
        if self._told or not self._patterns:
            return arrivals
        begun = (Watermark(self._sources[label], dict.fromkeys(range(n), 0)) for label, n in self._patterns.items())
        return FirstOf([arrivals, *begun])

    def end_epoch(self) -> None:
        """Empty the gate's outbox: the marks were sent, or the epoch was undone."""
        self.gate.outbox, self.frontiers_before = [], {}

    def forget(self) -> None:
        """Have the marks of patterns sent again, after a rollback or a change of ownership."""
        self._told = False

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Store the received marks, and send marks for the ends that this worker's partitions have passed."""
        for mark in _opened(inputs[0]):
            if mark.state in ("", self.name):
                self._keep(mark)
        for label, topics in self._sources.items():
            anew = label in self._patterns and not self._told
            for partition in {p for topic, p in (context.event_time if anew else context.read) if topic in topics}:
                end = mark_of(self._windows, _least(context, topics, partition))
                before = -1 if anew else _least_before(context, topics, partition)
                if end > mark_of(self._windows, before):
                    self._distribute(label, partition, end)
        self._told = True
        for topic, marks in self._before.items():
            for partition, before in marks.frontiers_before.items():
                end = marks.frontier.at(context, partition)
                if end > before:
                    self._distribute(topic, partition, end)
        return EMPTY

    def _distribute(self, source: str, partition: int, end: int) -> None:
        """Store the mark of a partition for the exchange's partitions that this worker owns; send it to the others."""
        owned, draining = set(self.gate.owned), self.gate.draining
        for to in range(self.gate.partitions):
            mark = _Mark(source, partition, to, end, self.name)
            if to in owned and to not in draining:
                self._keep(mark)
            else:
                self._send(mark)

    def _keep(self, mark: _Mark) -> None:
        if mark.to not in self.frontiers_before:
            self.frontiers_before[mark.to] = self.frontier.at(Context(), mark.to)
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
