"""The context of a step, with iteration and times, and the moments at which an operator needs a step without input."""

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = [
    "OUTSIDE",
    "AllOf",
    "Arrivals",
    "Context",
    "EventTimes",
    "FirstOf",
    "Moment",
    "Tick",
    "TickOrWatermark",
    "TimesRead",
    "Wake",
    "Watermark",
]

EventTimes = Mapping[tuple[str, int], int]
"""By topic and partition of a source: the greatest timestamp of the records read from it so far, in milliseconds."""


class TimesRead(NamedTuple):
    """The timestamps of the records that an epoch has read from a source partition, without rejected records.

    The timestamps are in the order of offsets. `before` is the partition's event time before these records; -1 if it
    had none. When a partition is idle, the worker itself adds a timestamp with the offset -1, which advances the event
    time.
    """

    before: int
    offsets: Sequence[int]
    timestamps: Sequence[int]


_NOTHING_READ: Mapping[tuple[str, int], TimesRead] = MappingProxyType({})
_NONE: EventTimes = MappingProxyType({})


class Context(NamedTuple):
    """The iteration and the times of one step.

    - `iteration`: the loop's iteration, 0 outside of loops. In nested time a loop inside a loop has a tuple of
      iterations.
    - `divisible`: the caller can repeat the epoch with a part of its input if the whole is too much work.
    - `event_time`: the event times after the epoch's records, for the sources that an operator `reads`. They never
      decrease.
    - `tick`: the epoch's wall-clock time in milliseconds since 1970, if an operator reads it. It never decreases.
    - `read`: the timestamps of the records that the epoch has read, by topic and partition, for partitions whose event
      time changes.
    - `timestamps`: None, except in an epoch whose rows have record numbers (from 1) instead of times. Then it has the
      timestamp of each record.

    Steps inside of loops have neither event times nor a tick.
    """

    iteration: Any = 0
    divisible: bool = False
    event_time: EventTimes = _NONE
    tick: int | None = None
    read: Mapping[tuple[str, int], TimesRead] = _NOTHING_READ
    timestamps: Sequence[int] | None = None


OUTSIDE = Context()
"""The context of a step outside of loops, in an epoch that cannot be divided, where no clock is read."""


class Wake(Enum):
    """A moment at which an operator is stepped without input, if neither clock decides it.

    `AT_ONCE`: in the next epoch. `AT_REST`: when no row is in flight between workers.
    """

    AT_ONCE = "at once"
    AT_REST = "at rest"

    def reached(self, context: Context) -> bool:
        """Whether the moment has come in an epoch with this context, so that the operator is stepped without input."""
        return self is Wake.AT_ONCE


class Tick(NamedTuple):
    """The moment at which the wall clock reaches `at_ms`."""

    at_ms: int

    def reached(self, context: Context) -> bool:
        """Whether the moment has come in an epoch with this context, so that the operator is stepped without input."""
        return context.tick is not None and context.tick >= self.at_ms


class Watermark(NamedTuple):
    """The moment at which, for one of the partitions in `at_ms`, the event times of all sources reach its time."""

    sources: Sequence[str]
    at_ms: Mapping[int, int]

    def reached(self, context: Context) -> bool:
        """Whether the moment has come in an epoch with this context, so that the operator is stepped without input."""
        times, sources = context.event_time, self.sources
        return any(
            all(times.get((source, partition), -1) >= at_ms for source in sources)
            for partition, at_ms in self.at_ms.items()
        )


class Arrivals(NamedTuple):
    """The moment of each epoch that has records of these sources, even if none of the records reaches the operator."""

    sources: frozenset[str]

    def reached(self, context: Context) -> bool:
        """Whether the moment has come in an epoch with this context, so that the operator is stepped without input."""
        return any(topic in self.sources for topic, _ in context.read)


class TickOrWatermark(NamedTuple):
    """The first of two moments: the wall clock reaches `at_ms`, or event time reaches `watermark`."""

    at_ms: int
    watermark: Watermark

    def reached(self, context: Context) -> bool:
        """Whether the moment has come in an epoch with this context, so that the operator is stepped without input."""
        return Tick(self.at_ms).reached(context) or self.watermark.reached(context)


class FirstOf(NamedTuple):
    """The first of several moments. A tick and `AT_REST` cannot be among them."""

    moments: Sequence["Moment"]

    def reached(self, context: Context) -> bool:
        """Whether the moment has come in an epoch with this context, so that the operator is stepped without input."""
        return any(moment.reached(context) for moment in self.moments)


class AllOf(NamedTuple):
    """The last of several moments. A tick and `AT_REST` cannot be among them."""

    moments: Sequence["Moment"]

    def reached(self, context: Context) -> bool:
        """Whether the moment has come in an epoch with this context, so that the operator is stepped without input."""
        return all(moment.reached(context) for moment in self.moments)


Moment = Wake | Tick | Watermark | TickOrWatermark | Arrivals | FirstOf | AllOf
"""The moment at which an operator needs a step without input."""
