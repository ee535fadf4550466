"""Windows of time, and keys with a window.

    tumbling    [n · size, (n + 1) · size)
    hopping     [n · advance, n · advance + size)
    calendar    days, weeks from Monday, or months in a time zone
    session     from the first to the last of records whose timestamps follow one another by at most `gap`
    sliding     [t - difference, t] and [t + 1, t + 1 + difference] for each record at t; both ends are included

All moments are milliseconds since 1970 in event time. A window is over once the event time is `grace` after its end.
"""

import calendar
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from operator import add, itemgetter
from struct import Struct
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, cast, get_args
from zoneinfo import ZoneInfo

from eddy.errors import DataError, TopologyError
from eddy.serde import Part, Serde, String

__all__ = [
    "MOST_WINDOWS",
    "CalendarWindows",
    "SessionWindowed",
    "SessionWindows",
    "SlidingWindows",
    "Span",
    "TimeWindowed",
    "TimeWindows",
    "Unit",
    "Windowed",
    "Windows",
    "check_span",
    "windowed",
]

K = TypeVar("K")

Span = tuple[int, int]
"""The start and the end of a window; the end is not in it."""
Unit = Literal["day", "week", "month"]
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST = timedelta(days=36_525)
MOST_WINDOWS = 10_000
"""The most hopping windows that a row may be in, because each of them counts the row."""
LATEST_MS = 253_370_764_800_000
"""The first moment of the year 9999: later ones have no calendar windows."""
_START, _END_START = Struct(">q"), Struct(">qq")
_key_of, _start_of, _end_of = itemgetter(0), itemgetter(1), itemgetter(2)


class Windowed(NamedTuple, Generic[K]):
    """A key with its window, from `start_ms` to `end_ms`. `end_ms` is the first moment after the window.

    Of a session, these are the first and last record's timestamps; of a sliding window, its first and last moment.
    """

    key: K
    start_ms: int
    end_ms: int

    @property
    def start(self) -> datetime:
        """`start_ms`, in UTC."""
        return datetime.fromtimestamp(self.start_ms / 1000, UTC)

    @property
    def end(self) -> datetime:
        """`end_ms`, in UTC; for a window without an end, the beginning of the year 9999."""
        return datetime.fromtimestamp(min(self.end_ms, LATEST_MS) / 1000, UTC)


class Windows(Protocol):
    """The interface of windows: how moments are divided into windows.

    A record of a window is late at the event time `end + lag_ms`: the window is over. The window closes, and gets no
    more records, at `closes_at(end) + lag_ms`.
    """

    @property
    def lag_ms(self) -> int:
        """The milliseconds of event time from the end of a window until it is over."""

    def of(self, time_ms: int) -> Sequence[Span]:
        """Return the windows that contain `time_ms`, by rising start."""

    def closes_at(self, end_ms: int) -> int:
        """Return the moment to which `lag_ms` is added for the event time at which a window has all its records."""

    def final_ms(self, end_ms: int) -> int:
        """Return the last moment of the window that ends at `end_ms`."""

    def last_end(self, time_ms: int) -> int:
        """Return the latest end of any window up to `time_ms`; -1 if no window ends so early."""

    def next_end(self, time_ms: int) -> int:
        """Return the earliest end of any window at or after `time_ms`."""

    def serde(self, key: Serde[Any]) -> Serde[Any]:
        """Return the serde of keys with a window, given the serde of keys."""


class _Fixed:
    """Windows that do not depend on records."""

    grace: timedelta

    @property
    def lag_ms(self) -> int:
        """The grace, in milliseconds."""
        return self.grace // _MILLISECOND

    def closes_at(self, end_ms: int) -> int:
        """Return the window's end: it gets no records after it is over."""
        return end_ms

    def final_ms(self, end_ms: int) -> int:
        """Return the moment before the window's end."""
        return end_ms - 1


@dataclass(frozen=True)
class TimeWindows(_Fixed):
    """Windows of a fixed size. Each begins `advance` after the window before it, and the first at the start of 1970.

    Without `advance` they are tumbling: each moment is in one window. With an `advance` smaller than `size` they are
    hopping. A record is late for a window once its source partition has a timestamp `grace` after the window's end.

    >>> TimeWindows(timedelta(minutes=5), advance=timedelta(minutes=1)).of(60_000)
    [(0, 300000), (60000, 360000)]
    """

    size: timedelta
    advance: timedelta | None = None
    grace: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        check_span("TimeWindows: size", self.size, _MILLISECOND, "timedelta(minutes=5)")
        if self.advance is not None:
            check_span("TimeWindows: advance", self.advance, _MILLISECOND, "timedelta(minutes=1)")
            if self.advance > self.size:
                raise TopologyError(
                    f"TimeWindows: advance={self.advance!r} is more than size={self.size!r}, so that moments between "
                    "the windows are in none; at most the size is possible"
                )
            if (many := -(-self.size // self.advance)) > MOST_WINDOWS:
                told = f"TimeWindows: with advance={self.advance!r} and size={self.size!r} each record is in {many:,}"
                raise TopologyError(f"{told} windows; at most {MOST_WINDOWS:,} are possible")
        check_span("TimeWindows: grace", self.grace, timedelta(0), "timedelta(minutes=1)")

    @cached_property
    def size_ms(self) -> int:
        """The size, in milliseconds."""
        return self.size // _MILLISECOND

    @cached_property
    def advance_ms(self) -> int:
        """The milliseconds from the start of a window to the start of the next."""
        return (self.advance or self.size) // _MILLISECOND

    @property
    def tumbling(self) -> bool:
        """Whether each moment is in one window."""
        return self.advance_ms == self.size_ms

    def of(self, time_ms: int) -> Sequence[Span]:
        """Return the windows that contain `time_ms`, by rising start; no window begins before 1970."""
        size, advance = self.size_ms, self.advance_ms
        first = max(0, time_ms - size + advance) // advance * advance
        return [(start, start + size) for start in range(first, time_ms + 1, advance)]

    def last_end(self, time_ms: int) -> int:
        """Return the latest end of any window up to `time_ms`; -1 if no window ends so early."""
        size, advance = self.size_ms, self.advance_ms
        return -1 if time_ms < size else (time_ms - size) // advance * advance + size

    def next_end(self, time_ms: int) -> int:
        """Return the earliest end of any window at or after `time_ms`."""
        size, advance = self.size_ms, self.advance_ms
        return max(0, -((size - time_ms) // advance)) * advance + size

    def serde(self, key: Serde[Any]) -> Serde[Any]:
        """Return the serde of keys with a window, given the serde of keys."""
        return TimeWindowed(key, self.size)


@dataclass(frozen=True)
class CalendarWindows(_Fixed):
    """Days, weeks from Monday on, or months, in a time zone. A day has 23 or 25 hours where clocks change.

    >>> CalendarWindows("day", "Europe/Zurich").of(1_743_292_800_000)  # 30 March 2025 has 23 hours there
    [(1743289200000, 1743372000000)]
    """

    unit: Unit
    zone: str = "UTC"
    grace: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit):
            raise TopologyError(f"CalendarWindows: unit={self.unit!r}; 'day', 'week' or 'month' is needed")
        try:
            ZoneInfo(self.zone)
        except Exception as error:
            raise TopologyError(
                f"CalendarWindows: zone={self.zone!r} is not a time zone that is known here: {error}; a name such as "
                "'Europe/Zurich' is needed"
            ) from error
        check_span("CalendarWindows: grace", self.grace, timedelta(0), "timedelta(hours=1)")

    def of(self, time_ms: int) -> Sequence[Span]:
        """Return the window that contains `time_ms`. Raises: DataError for a moment after the year 9998."""
        begin = self._begin(time_ms)
        return [(self._moment(begin), self._moment(self._next(begin)))]

    def end_of(self, start_ms: int) -> int:
        """Return the end of the window that starts at `start_ms`."""
        return self.of(start_ms)[0][1]

    def last_end(self, time_ms: int) -> int:
        """Return the latest end of any window up to `time_ms`; -1 if no window ends so early."""
        if time_ms < 0:
            return -1
        return max(-1, self._moment(self._begin(min(time_ms, LATEST_MS - 1))))

    def next_end(self, time_ms: int) -> int:
        """Return the earliest end of any window at or after `time_ms`."""
        start, end = self.of(time_ms)[0]
        return start if start == time_ms else end

    def serde(self, key: Serde[Any]) -> Serde[Any]:
        """Return the serde of keys with a window, given the serde of keys."""
        return windowed(f"calendar-windowed({key.name}, {self.unit}, {self.zone})", key, self)

    def _begin(self, time_ms: int) -> date:
        """Return the first day of the window that contains `time_ms`."""
        if time_ms >= LATEST_MS:
            raise DataError(f"the timestamp {time_ms} is in the year 9999 or later; an earlier one is needed")
        day = datetime.fromtimestamp(time_ms // 1000, ZoneInfo(self.zone)).date()
        if self.unit == "week":
            return day - timedelta(days=day.weekday())
        return day.replace(day=1) if self.unit == "month" else day

    def _next(self, begin: date) -> date:
        days = {"day": 1, "week": 7, "month": calendar.monthrange(begin.year, begin.month)[1]}[self.unit]
        return begin + timedelta(days=days)

    def _moment(self, day: date) -> int:
        """Return the first moment of a day, which is after midnight where clocks skip midnight."""
        return int(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(self.zone)).timestamp()) * 1000


@dataclass(frozen=True)
class SessionWindows:
    """Sessions: records of a key, ordered by time, in which each is at most `gap` after the record before it.

    A record is late if its source partition already has a timestamp of more than `gap + grace` after the record's own.

    >>> SessionWindows(timedelta(minutes=5)).of(7)
    [(7, 7)]
    """

    gap: timedelta
    grace: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        check_span("SessionWindows: gap", self.gap, _MILLISECOND, "timedelta(minutes=30)")
        check_span("SessionWindows: grace", self.grace, timedelta(0), "timedelta(minutes=1)")

    @property
    def gap_ms(self) -> int:
        """The gap, in milliseconds."""
        return self.gap // _MILLISECOND

    @property
    def lag_ms(self) -> int:
        """The gap, the grace and one millisecond, because a session includes its end."""
        return (self.gap + self.grace) // _MILLISECOND + 1

    def of(self, time_ms: int) -> Sequence[Span]:
        """Return the session of a record that is alone in it, from `time_ms` to `time_ms`."""
        return [(time_ms, time_ms)]

    def closes_at(self, end_ms: int) -> int:
        """Return the last moment of a record that would still extend the session: the gap after its end."""
        return end_ms + self.gap_ms

    def final_ms(self, end_ms: int) -> int:
        """Return the end, which is the session's last moment."""
        return end_ms

    def last_end(self, time_ms: int) -> int:
        """Return `time_ms`, or -1 if it is negative: a session may end at any moment."""
        return max(-1, time_ms)

    def next_end(self, time_ms: int) -> int:
        """Return `time_ms`: a session may end at any moment."""
        return time_ms

    def serde(self, key: Serde[Any]) -> Serde[Any]:
        """Return the serde of keys with a session, given the serde of keys."""
        return SessionWindowed(key)


@dataclass(frozen=True)
class SlidingWindows:
    """Windows from a first to a last moment, `difference` apart. For each record, one ends at it and one follows it.

    A record at t makes the window from t - difference to t, or the window from 0 if t - difference is before 1970. If
    the window from t + 1 to t + 1 + difference has records, it is made, too. Each window has all records of its key
    between its ends. A record is late for a window if its source partition already has a timestamp of more than `grace`
    after the window's end.

    >>> SlidingWindows(timedelta(minutes=5)).ending_with(400_000), SlidingWindows(timedelta(minutes=5)).after(400_000)
    ((100000, 400000), (400001, 700001))
    """

    difference: timedelta
    grace: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        check_span("SlidingWindows: difference", self.difference, _MILLISECOND, "timedelta(minutes=5)")
        check_span("SlidingWindows: grace", self.grace, timedelta(0), "timedelta(minutes=1)")

    @cached_property
    def difference_ms(self) -> int:
        """The milliseconds from the first moment of a window to its last moment."""
        return self.difference // _MILLISECOND

    @property
    def lag_ms(self) -> int:
        """The grace and one millisecond, because a window includes its end."""
        return self.grace // _MILLISECOND + 1

    def of(self, time_ms: int) -> Sequence[Span]:
        """Return, as a list of one pair, the first and the last end that a window with `time_ms` in it can have."""
        return [(time_ms, time_ms + self.difference_ms)]

    def first_end(self, time_ms: int, event_time: int) -> int:
        """Return the first end of a window that contains `time_ms` and is not over at `event_time`."""
        return max(time_ms, event_time - self.lag_ms + 1)

    def ending_with(self, time_ms: int) -> Span:
        """Return the window that ends with a record at `time_ms`, or the first window if it would begin before 1970."""
        start = max(0, time_ms - self.difference_ms)
        return start, start + self.difference_ms

    def after(self, time_ms: int) -> Span:
        """Return the window that begins one millisecond after a record at `time_ms`."""
        return time_ms + 1, time_ms + 1 + self.difference_ms

    def closes_at(self, end_ms: int) -> int:
        """Return the window's end: it gets no records after it is over."""
        return end_ms

    def final_ms(self, end_ms: int) -> int:
        """Return the end, which is the window's last moment."""
        return end_ms

    def last_end(self, time_ms: int) -> int:
        """Return `time_ms`, or -1 if it is negative: a window may end at any moment."""
        return max(-1, time_ms)

    def next_end(self, time_ms: int) -> int:
        """Return `time_ms`: a window may end at any moment."""
        return time_ms

    def serde(self, key: Serde[Any]) -> Serde[Any]:
        """Return the serde of keys with a window, given the serde of keys."""
        return TimeWindowed(key, self.difference)


def TimeWindowed(key: Serde[Any], size: timedelta) -> Serde[Any]:  # noqa: N802 - a serde reads as a noun
    """Return the serde for keys of `SlidingWindows`, or of `TimeWindows` of a size: the key, then the start in 8 bytes.

    Java's `TimeWindowedSerializer` writes the same bytes. A row is in the partition of its key, whatever its window.
    """
    check_span("TimeWindowed: size", size, _MILLISECOND, "timedelta(minutes=5)")
    windows = TimeWindows(size)
    return windowed(f"time-windowed({key.name}, {windows.size_ms})", key, windows)


def windowed(name: str, key: Serde[Any], windows: Any) -> Serde[Any]:
    """Return the serde for keys of windows that their start identifies. `windows.end_of` or a size gives their end."""
    inner, identity, decode_key, pack = key.encode, key.identify, key.decode, _START.pack

    def encode(made: Windowed[Any]) -> bytes:
        return inner(made[0]) + pack(made[1])

    def identify(made: Windowed[Any]) -> bytes:
        return (identity or inner)(made[0]) + pack(made[1])

    end_of: Callable[[int], int]
    recipe: Any
    if isinstance(windows, TimeWindows):
        end_of, recipe = windows.size_ms.__add__, (TimeWindowed, (key, windows.size))
    else:
        end_of, recipe = windows.end_of, (_serde_of, (windows, key))

    def decode(data: bytes) -> Windowed[Any]:
        start = cast("int", _START.unpack_from(data, len(data) - 8)[0])
        return Windowed(decode_key(data[:-8]), start, end_of(start))

    def in_topic(topic: str, part: Part) -> Serde[Any]:
        return windowed(name, key.in_topic(topic, part), windows)

    return _WindowedSerde(
        name,
        encode,
        decode,
        key.hashable,
        None if identity is None else identify,
        Windowed,
        recipe,
        tail=_START.size,
        topic_form=None if key.topic_form is None else in_topic,
        canonical=key.canonical,
        id_header=key.id_header,
        id_end=key.id_end,
        key=key,
    )


@dataclass(frozen=True, slots=True)
class _WindowedSerde(Serde[Any]):
    """The serde for keys of windows that their start identifies; `key` is the serde of the keys without windows."""

    key: Serde[Any] = field(default=String, compare=False)

    def identify_many(self, values: Sequence[Windowed[Any]]) -> list[bytes]:
        """Return canonical bytes of each value. Cost: loops in C."""
        return self._with_moments(self.key.identify_many(list(map(_key_of, values))), values)

    def encode_many(self, values: Sequence[Windowed[Any]]) -> list[bytes]:
        """Encode each value. Cost: loops in C."""
        return self._with_moments(self.key.encode_many(list(map(_key_of, values))), values)

    def _with_moments(self, keys: list[bytes], values: Sequence[Windowed[Any]]) -> list[bytes]:
        return list(map(add, keys, map(_START.pack, map(_start_of, values))))


@dataclass(frozen=True, slots=True)
class _SessionSerde(_WindowedSerde):
    """The serde for keys of sessions."""

    def _with_moments(self, keys: list[bytes], values: Sequence[Windowed[Any]]) -> list[bytes]:
        return list(map(add, keys, map(_END_START.pack, map(_end_of, values), map(_start_of, values))))


def SessionWindowed(key: Serde[Any]) -> Serde[Any]:  # noqa: N802
    """Return the serde for keys of `SessionWindows`: the key, the end in 8 bytes, the start in 8 bytes.

    Java's `SessionWindowedSerializer` writes the same bytes.
    """
    inner, identity, decode_key, tail = key.encode, key.identify, key.decode, _END_START.size

    def encode(windowed: Windowed[Any]) -> bytes:
        return inner(windowed[0]) + _END_START.pack(windowed[2], windowed[1])

    def identify(windowed: Windowed[Any]) -> bytes:
        return (identity or inner)(windowed[0]) + _END_START.pack(windowed[2], windowed[1])

    def decode(data: bytes) -> Windowed[Any]:
        end, start = _END_START.unpack_from(data, len(data) - tail)
        return Windowed(decode_key(data[:-tail]), start, end)

    name, identified = f"session-windowed({key.name})", None if identity is None else identify
    return _SessionSerde(
        name,
        encode,
        decode,
        key.hashable,
        identified,
        Windowed,
        (SessionWindowed, (key,)),
        tail=tail,
        topic_form=None if key.topic_form is None else lambda topic, part: SessionWindowed(key.in_topic(topic, part)),
        canonical=key.canonical,
        id_header=key.id_header,
        id_end=key.id_end,
        key=key,
    )


def _serde_of(windows: Windows, key: Serde[Any]) -> Serde[Any]:
    return windows.serde(key)


def check_span(where: str, span: Any, least: timedelta, example: str) -> None:
    """Check that an author's span of time is a timedelta of at least `least`. Raises: TopologyError."""
    if not isinstance(span, timedelta) or not least <= span <= _LONGEST or span % _MILLISECOND:
        at_least = "a millisecond" if least else "0"
        raise TopologyError(
            f"{where}={span!r}; a timedelta of whole milliseconds from {at_least} to 100 years is needed, such as "
            f"{example}"
        )
