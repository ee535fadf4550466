"""Lateness: finds the windows of a record that are over, by the event time of its source partition.

    window with end e of a record at event time s    over if e <= s - lag_ms

The event time is the greatest timestamp in the partition up to and including this record. A record that was sent
through an exchange carries this time (`source_times.py`). So whether a record is late depends on its partition's
records alone, not on epochs, workers, or the pace at which partitions are read.
"""

from collections.abc import Sequence
from typing import Any

from eddy.errors import DataError
from eddy.operators.batch import Row
from eddy.windows import SlidingWindows, Span, Windowed, Windows

__all__ = ["check_time", "open_windows", "sliding_records", "windows_of_rows"]


def open_windows(ends: Sequence[int], event_times: Sequence[int], lag_ms: int) -> list[bool] | None:
    """Return for each record whether its window is still open, given the windows' ends; None if all are open."""
    if min(ends) > max(event_times) - lag_ms:
        return None
    return [end > time - lag_ms for end, time in zip(ends, event_times, strict=True)]


def windows_of_rows(
    name: str, windows: Windows, rows: Sequence[Row], stamps: Sequence[int], event_times: Sequence[int]
) -> tuple[list[list[Row]], int]:
    """Assign windows to each row. Returns a list of rows for each row, one for each open window, and a count.

    The count is the number of windows that are over.
    """
    of, lag = windows.of, windows.lag_ms
    made: list[list[Row]] = []
    late = 0
    last: int | None = None
    spans: Sequence[Span] = ()
    for (key, value), stamp, time in zip(rows, stamps, event_times, strict=True):
        if stamp != last:
            check_time(name, key, stamp)
            spans, last = of(stamp), stamp
        over = time - lag
        if not spans or spans[0][1] > over:
            made.append([(Windowed(key, start, end), value) for start, end in spans])
        else:
            made.append([(Windowed(key, start, end), value) for start, end in spans if end > over])
            late += len(spans) - len(made[-1])
    return made, late


def sliding_records(
    name: str, windows: SlidingWindows, rows: Sequence[Row], stamps: Sequence[int], event_times: Sequence[int]
) -> tuple[list[list[Row]], int]:
    """Return for each row a list with (Windowed(key, timestamp, first end), value), and the number of late rows.

    The first end is the earliest end of a window for which the row is not late. The list is empty for a late row.
    """
    made: list[list[Row]] = []
    for (key, value), stamp, time in zip(rows, stamps, event_times, strict=True):
        check_time(name, key, stamp)
        end = windows.first_end(stamp, time)
        made.append([(Windowed(key, stamp, end), value)] if end <= stamp + windows.difference_ms else [])
    return made, made.count([])


def check_time(name: str, key: Any, stamp: int) -> None:
    """Raise DataError for a timestamp before 1970."""
    if stamp < 0:
        raise DataError(
            f"windows '{name}': the record of key {key!r} has timestamp {stamp}; milliseconds since 1970 are "
            "needed. Write records with timestamps, or filter these out before"
        )
