"""TUMBLE, HOP and SESSION, computed a second time: window by window, and session by session as rows join them."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from eddy.errors import DataError
from eddy.topology.sql.row_windows import FixedWindows, SessionsOfRows

__all__ = ["OwnSessions", "OwnWindows"]

_MICROSECOND = datetime.timedelta(microseconds=1)


def _ticks(at: Any) -> int:
    """Return a time as a number; a timestamp as the microseconds since 1970."""
    if isinstance(at, datetime.datetime):
        whole = (at.date() - datetime.date(1970, 1, 1)).days * 86_400 + at.hour * 3_600 + at.minute * 60 + at.second
        return whole * 1_000_000 + at.microsecond
    return int(at)


def _moment(ticks: int, timestamps: bool, where: str) -> Any:
    """Return a bound of a window in the form of the times, as a timestamp or as a number."""
    try:
        if timestamps:
            return datetime.datetime.min + (ticks + 62_135_596_800_000_000) * _MICROSECOND
        if -(2**63) <= ticks < 2**63:
            return ticks
    except OverflowError:
        pass
    raise DataError(f"sql {where}: a bound of a window is out of range")


@dataclass(frozen=True)
class OwnWindows:
    """Makes rows from a row: one for each window that contains the row's time."""

    of: FixedWindows

    def __call__(self, row: Any) -> list[Any]:
        """Make the rows, from the last window that begins at the time or before, back to earlier windows."""
        windows, at = self.of, row[self.of.place]
        if at is None:
            return []
        unit = 1_000 if windows.timestamps else 1
        time, size, advance = _ticks(at), windows.size * unit, windows.advance * unit
        start = windows.offset * unit + (time - windows.offset * unit) // advance * advance
        made: list[Any] = []
        while start + size > time:
            bounds = (_moment(bound, windows.timestamps, windows.where) for bound in (start, start + size))
            made.insert(0, (*row, *bounds))
            start -= advance
        return made


@dataclass(frozen=True)
class OwnSessions:
    """Adds to each row of a partition the session that it belongs to, as a function for `reduce`."""

    of: SessionsOfRows

    def __call__(self, key: Any, values: Mapping[Any, int]) -> list[Any]:
        """Join the times into sessions, each with its first and its last time, and find the session of each row."""
        sessions, unit = self.of, 1_000 if self.of.timestamps else 1
        gap = sessions.gap * unit
        times = sorted({_ticks(row[sessions.place]) for row in values if row[sessions.place] is not None})
        first_of: dict[int, int] = {}
        last_of: dict[int, int] = {}
        for before, time in pairwise([-(2**64), *times]):
            first_of[time] = first_of[before] if time - before < gap and before in first_of else time
            last_of[first_of[time]] = time
        made: list[Any] = []
        for row, weight in values.items():
            if row[sessions.place] is not None:
                first = first_of[_ticks(row[sessions.place])]
                bounds = [_moment(t, sessions.timestamps, sessions.where) for t in (first, last_of[first] + gap)]
                made.extend([(*row, *bounds)] * weight)
        return made
