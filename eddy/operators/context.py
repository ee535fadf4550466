"""The circumstances of a step, and the moments at which an operator asks for one without input."""

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["OUTSIDE", "Context", "EventTimes", "Tick", "TickOrWatermark", "TimesRead", "Wake", "Watermark"]

EventTimes = Mapping[tuple[str, int], int]
"""By topic and partition of a source: the greatest timestamp of the records read from it so far, in milliseconds."""


class TimesRead(NamedTuple):
    """The timestamps of an epoch's records of a source partition, without those rejected, by rising offset.

    `before` is the event time before them, -1 for none.
    """

    before: int
    offsets: Sequence[int]
    timestamps: Sequence[int]


_NOTHING_READ: Mapping[tuple[str, int], TimesRead] = MappingProxyType({})
_NONE: EventTimes = MappingProxyType({})


class Context(NamedTuple):
    """The circumstances of one step.

    `iteration`: the loop's iteration, 0 outside of loops; in nested time a tuple of them in a loop within a loop.
    `divisible`: the caller can try again with a part of the input where the whole is too much work.
    `event_time`: after the epoch's records, for the sources that an operator `reads`; they never decrease.
    `tick`: the epoch's wall-clock time in milliseconds since 1970, if an operator reads it. It never decreases.
    `read`: the timestamps by which the epoch moves event times, by topic and partition; nothing for an idle partition.
    `timestamps`: where times of rows are numbers of records, from 1, the timestamps of these records.

    Steps inside of loops get no times.
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
    """The moment at which an operator wants a step without input.

    `AT_ONCE`: in the next epoch, also without any input. `AT_REST`: when no row is in flight anywhere.
    """

    AT_ONCE = "at once"
    AT_REST = "at rest"

    def reached(self, context: Context) -> bool:
        """Whether an epoch with this context has to step the operator without input."""
        return self is Wake.AT_ONCE


class Tick(NamedTuple):
    """The moment at which the wall clock reaches `at_ms`."""

    at_ms: int

    def reached(self, context: Context) -> bool:
        """Whether an epoch with this context has to step the operator without input."""
        return context.tick is not None and context.tick >= self.at_ms


class Watermark(NamedTuple):
    """The moment at which the event time of one of a source's partitions reaches that partition's milliseconds."""

    source: str
    at_ms: Mapping[int, int]

    def reached(self, context: Context) -> bool:
        """Whether an epoch with this context has to step the operator without input."""
        times, source = context.event_time, self.source
        return any(times.get((source, partition), -1) >= at_ms for partition, at_ms in self.at_ms.items())


class TickOrWatermark(NamedTuple):
    """The first of two moments: the wall clock reaches `at_ms`, or event time reaches `watermark`."""

    at_ms: int
    watermark: Watermark

    def reached(self, context: Context) -> bool:
        """Whether an epoch with this context has to step the operator without input."""
        return Tick(self.at_ms).reached(context) or self.watermark.reached(context)
