"""TUMBLE, HOP and SESSION: each row with the windows of its time, whose bounds `start` and `end` are appended.

Times are whole numbers of milliseconds since 1970, or timestamps. A window includes its start but not its end. A row
without a time is in no window. No row is late, because windows depend only on the rows that are present.
"""

import datetime
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eddy.errors import DataError
from eddy.operators.batch import repeated
from eddy.operators.chains import Chains
from eddy.topology.sql.casts import LIMITS

__all__ = ["FixedWindows", "SessionsOfRows", "fixed_windows", "session_windows"]

_ZERO = datetime.datetime(1970, 1, 1)
_TICK = datetime.timedelta(microseconds=1)
_BIGINT = LIMITS["bigint"]


@dataclass(frozen=True, slots=True)
class FixedWindows:
    """Windows of `size` that begin every `advance`, one of them at `offset`; all three in milliseconds.

    `place` is the index of the time in a row; `timestamps`: the time is a timestamp; `where` is the call's place in the
    text.
    """

    place: int
    size: int
    advance: int
    offset: int
    timestamps: bool
    where: str


@dataclass(frozen=True, slots=True)
class SessionsOfRows:
    """Sessions of rows, each less than `gap` milliseconds after the previous row. See FixedWindows for other fields."""

    place: int
    gap: int
    timestamps: bool
    where: str


def fixed_windows(windows: FixedWindows) -> Callable[[Any], Iterator[Any]]:
    """Return a function that yields a row once for each of its windows, earliest first. Its `written` is `windows`.

    Raises: DataError for a window whose start or end cannot be represented as a time.
    """
    number, bounds = _conversions(windows)
    place, unit = windows.place, 1_000 if windows.timestamps else 1
    size, advance, offset = (given * unit for given in (windows.size, windows.advance, windows.offset))

    def in_windows(row: Any) -> Iterator[Any]:
        if row[place] is None:
            return
        at = number(row[place])
        last = at - (at - offset) % advance
        first = last - (size - 1 - (at - last)) // advance * advance
        for start in range(first, last + 1, advance):
            yield (*row, *bounds(start, start + size))

    made: Any = in_windows
    made.written = windows
    return made


def session_windows(sessions: SessionsOfRows) -> Callable[[Any, Mapping[Any, int]], list[Any]]:
    """Return the function for `Relation.reduce` that makes a partition's rows, each with its session.

    Its attribute `written` is `sessions`, `row_of` removes the session from a row, and `chains` says that sessions are
    chains of rows. A session ends a gap after its last row; a row at that moment begins another session.
    Raises: DataError for a session whose start or end cannot be represented as a time.
    """
    number, bounds = _conversions(sessions)
    place, gap = sessions.place, sessions.gap * (1_000 if sessions.timestamps else 1)

    def in_sessions(key: Any, values: Mapping[Any, int]) -> list[Any]:
        rows = [(number(row[place]), row, weight) for row, weight in values.items() if row[place] is not None]
        rows.sort(key=lambda found: found[0])
        made: list[Any] = []
        first = 0
        for place_of_row, (at, _, _) in enumerate(rows):
            if place_of_row + 1 == len(rows) or rows[place_of_row + 1][0] >= at + gap:
                session = bounds(rows[first][0], at + gap)
                for _, row, weight in rows[first : place_of_row + 1]:
                    made += [(*row, *session) for _ in repeated((key, row), weight, "SESSION")]
                first = place_of_row + 1
        return made

    made: Any = in_sessions
    made.written = sessions
    made.row_of = lambda row: row[:-2]
    made.chains = Chains(lambda row: None if row[place] is None else number(row[place]), gap)
    return made


def _conversions(windows: FixedWindows | SessionsOfRows) -> tuple[Callable[[Any], int], Callable[[int, int], Any]]:
    """Return two functions: from a time to a number, and from two numbers to the bounds of a window."""

    def refused(error: Exception | None = None) -> DataError:
        return DataError(
            f"sql {windows.where}: a window is out of range; its bounds have to be times, too. Leave such rows out: "
            "FROM (SELECT * FROM … WHERE …)"
        )

    def milliseconds(start: int, end: int) -> tuple[int, int]:
        if start < -_BIGINT or end >= _BIGINT:
            raise refused()
        return start, end

    def timestamps(start: int, end: int) -> tuple[datetime.datetime, datetime.datetime]:
        try:
            return _ZERO + start * _TICK, _ZERO + end * _TICK
        except OverflowError as error:
            raise refused() from error

    if windows.timestamps:
        return (lambda at: (at - _ZERO) // _TICK), timestamps
    return int, milliseconds
