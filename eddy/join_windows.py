"""Describes which records of two streams a join in time joins.

    left at t, right at u     are joined if t - before ≤ u ≤ t + after
    left late                 its source partition's time is more than max(after, 0) + grace after t
    right late                its source partition's time is more than max(before, 0) + grace after u
    left at t is removed      when every right record up to t + after that can still arrive is late

All moments are milliseconds since 1970 in event time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from eddy.errors import TopologyError
from eddy.serde import Serde
from eddy.windows import SessionWindowed, Span, check_span

__all__ = ["EVENT_TIMES", "JoinSide", "JoinWindows"]

_MILLISECOND = timedelta(milliseconds=1)
_NONE = timedelta(0)
_LATEST_MS = (1 << 63) - 1


@dataclass(frozen=True)
class JoinSide:
    """How one side of a join stores its records: each under its key and timestamp, as a window of one moment.

    A record at t is joined with records of the other side from t - `earlier_ms` to t + `later_ms`. The record is late
    if its source partition has reached the event time t + `lag_ms`.
    """

    earlier_ms: int
    later_ms: int
    grace_ms: int

    @cached_property
    def lag_ms(self) -> int:
        """The milliseconds of event time from a record's timestamp until records with this timestamp are late."""
        return max(self.later_ms, 0) + self.grace_ms + 1

    def others(self, time_ms: int) -> Span:
        """Return the first and the last timestamp of the other side's records that join a record at `time_ms`."""
        return max(0, time_ms - self.earlier_ms), min(time_ms + self.later_ms, _LATEST_MS)

    def due_at(self, time_ms: int) -> int:
        """Return the frontier of the other side from which on no new record there can match a record at `time_ms`."""
        return min(max(0, time_ms + self.later_ms), _LATEST_MS)

    def all_due_at(self, times_ms: Sequence[int]) -> Sequence[int]:
        """Return `due_at` for each of `times_ms`."""
        if not self.later_ms:
            return times_ms
        due = [time + self.later_ms for time in times_ms]
        return due if not due or 0 <= min(due) <= max(due) <= _LATEST_MS else list(map(self.due_at, times_ms))

    def of(self, time_ms: int) -> Sequence[Span]:
        """Return the window of a record at `time_ms`: this moment alone."""
        return [(time_ms, time_ms)]

    def closes_at(self, end_ms: int) -> int:
        """Return the window's end: a window of one moment closes at this moment."""
        return end_ms

    def final_ms(self, end_ms: int) -> int:
        """Return the last moment of the window, its only one."""
        return end_ms

    def last_end(self, time_ms: int) -> int:
        """Return `time_ms`, or -1 if it is negative: a record, and so a window's end, may be at any moment."""
        return max(-1, time_ms)

    def next_end(self, time_ms: int) -> int:
        """Return `time_ms`: a record, and so a window's end, may be at any moment."""
        return time_ms

    def serde(self, key: Serde[Any]) -> Serde[Any]:
        """Return the serde of (key, moment), given the serde of the key."""
        return SessionWindowed(key)


EVENT_TIMES = JoinSide(0, 0, -1)
"""Windows of one moment that are over as soon as event time reaches it. So their frontiers are the event times."""


@dataclass(frozen=True)
class JoinWindows:
    """How far apart in time two records may be to be joined.

    A record of the left stream at t is joined with records of the right stream from t - `before` to t + `after`; the
    default of both is `difference`. A negative `before` excludes earlier records: with `before=-timedelta(seconds=1)`
    the right record is at least a second later. A record is late if its source partition already has a timestamp that
    is more than `grace` after the record's own, and more than `grace` after the last moment at which it can be joined.

    >>> JoinWindows(timedelta(seconds=5), after=timedelta(0)).left.others(60_000)
    (55000, 60000)
    >>> JoinWindows(timedelta(seconds=5), after=timedelta(seconds=1)).size
    datetime.timedelta(seconds=6)
    """

    difference: timedelta | None = None
    before: timedelta | None = None
    after: timedelta | None = None
    grace: timedelta = _NONE

    def __post_init__(self) -> None:
        if self.difference is None and (self.before is None or self.after is None):
            raise TopologyError(
                f"JoinWindows: difference=None, before={self.before!r}, after={self.after!r}; the difference, or both "
                "others, are needed. Write JoinWindows(timedelta(minutes=5))"
            )
        if self.difference is not None:
            check_span("JoinWindows: difference", self.difference, _NONE, "timedelta(minutes=5)")
        for what, span in (("before", self.before), ("after", self.after)):
            if span is not None:
                sized = -span if isinstance(span, timedelta) and span < _NONE else span
                check_span(f"JoinWindows: {what}", sized, _NONE, "timedelta(minutes=5)")
        check_span("JoinWindows: grace", self.grace, _NONE, "timedelta(minutes=1)")
        if self.size < _NONE:
            raise TopologyError(
                f"JoinWindows: before={self.before_ms} ms and after={self.after_ms} ms, so that the window ends before "
                "it begins and nothing is joined; a sum of at least 0 is needed"
            )

    @property
    def size(self) -> timedelta:
        """The time from the earliest to the latest right record that can be joined with the same left record."""
        return self._span(self.before) + self._span(self.after)

    @property
    def before_ms(self) -> int:
        """The most milliseconds by which the right record may be earlier than the left record."""
        return self._span(self.before) // _MILLISECOND

    @property
    def after_ms(self) -> int:
        """The most milliseconds by which the right record may be later than the left record."""
        return self._span(self.after) // _MILLISECOND

    @property
    def left(self) -> JoinSide:
        """How the records of the left stream are kept."""
        return JoinSide(self.before_ms, self.after_ms, self.grace // _MILLISECOND)

    @property
    def right(self) -> JoinSide:
        """How the records of the right stream are kept."""
        return JoinSide(self.after_ms, self.before_ms, self.grace // _MILLISECOND)

    def _span(self, span: timedelta | None) -> timedelta:
        return (self.difference or _NONE) if span is None else span
