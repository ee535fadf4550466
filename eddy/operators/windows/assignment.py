"""The windows of records, by their timestamps and the event times of their source partitions.

    row (k, v) at t  →  (Windowed(k, start, end), v)  for each window with t that is not over

A window is over for a record if its source partition had a timestamp of `lag_ms` after the window's end, up to this
record. So whether a record is late is a function of its partition's records alone, however the input was cut into
epochs, whichever worker reads it and at whatever pace partitions are read: a record that was sent through an exchange
before carries that time (`source_times.py`). A record of sessions has a session of its
own here, which is merged with others where its group is.
"""

from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from eddy.errors import DataError
from eddy.join_windows import JoinSide
from eddy.operators.batch import Batch, Row, keys_of
from eddy.operators.context import Context
from eddy.operators.keyed import Keyed
from eddy.operators.operator import ClocksRead
from eddy.operators.windows.source_times import event_times, timestamps
from eddy.windows import SlidingWindows, Span, TimeWindows, Windowed, Windows

__all__ = ["AssignWindows", "check_time", "sliding_records", "windows_of_rows"]


_value_of = itemgetter(1)


class AssignWindows(Keyed):
    """Records (K, V) in, records (Windowed K, V) out; a record without a key or a value is dropped."""

    def __init__(self, name: str, windows: Windows, sources: Sequence[str]) -> None:
        self.name, self._windows, self._sources = name, windows, frozenset(sources)

    @property
    def reads(self) -> ClocksRead:
        """The event times of the sources."""
        return ClocksRead(self._sources)

    def end_epoch(self) -> None:
        """Count anew."""
        super().end_epoch()
        self.late = 0

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Assign windows. Raises: DataError for a record without a timestamp."""
        batch = self.with_both(inputs[0])
        windows, stamps, times = self._windows, timestamps(context, batch), event_times(context, batch)
        if isinstance(windows, TimeWindows) and windows.tumbling and batch.rows and min(stamps) >= 0:
            return self._tumbling(windows, batch, stamps, times)
        if isinstance(windows, JoinSide) and batch.rows and min(stamps) >= 0:
            return self._moments(windows, batch, stamps, times)
        if isinstance(windows, SlidingWindows):
            rows, late = sliding_records(self.name, windows, batch.rows, stamps, times)
        else:
            rows, late = windows_of_rows(self.name, windows, batch.rows, stamps, times)
        self.late += late
        return batch.spread(rows).without_places()

    def _tumbling(self, windows: TimeWindows, batch: Batch, stamps: Sequence[int], event_times: Sequence[int]) -> Batch:
        """As `windows_of_rows`, where each row has one window. Cost: loops in C, but for one."""
        size, lag, rows = windows.size_ms, windows.lag_ms, batch.rows
        starts = [stamp - stamp % size for stamp in stamps]
        ends = list(map(size.__add__, starts))
        keys: map[Windowed[Any]] = map(partial(tuple.__new__, Windowed), zip(keys_of(rows), starts, ends, strict=True))
        made = batch.with_rows(list(zip(keys, map(_value_of, rows), strict=True))).without_places()
        if min(ends) > max(event_times) - lag:
            return made
        kept = [end > time - lag for end, time in zip(ends, event_times, strict=True)]
        self.late += kept.count(False)
        return made.select(kept)

    def _moments(self, windows: JoinSide, batch: Batch, stamps: Sequence[int], event_times: Sequence[int]) -> Batch:
        """As `windows_of_rows`, where each row has its moment. Cost: loops in C, but for late ones."""
        rows, lag = batch.rows, windows.lag_ms
        keys: map[Windowed[Any]] = map(
            partial(tuple.__new__, Windowed), zip(keys_of(rows), stamps, stamps, strict=True)
        )
        made = batch.with_rows(list(zip(keys, map(_value_of, rows), strict=True))).without_places()
        if min(stamps) > max(event_times) - lag:
            return made
        kept = [stamp > time - lag for stamp, time in zip(stamps, event_times, strict=True)]
        self.late += kept.count(False)
        return made.select(kept)


def windows_of_rows(
    name: str, windows: Windows, rows: Sequence[Row], stamps: Sequence[int], event_times: Sequence[int]
) -> tuple[list[list[Row]], int]:
    """The rows with each of their windows that is not over, and the number of windows that are."""
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
    """The rows with their moments and the first ends for which they are not late, and the number of late ones."""
    made: list[list[Row]] = []
    for (key, value), stamp, time in zip(rows, stamps, event_times, strict=True):
        check_time(name, key, stamp)
        end = windows.first_end(stamp, time)
        made.append([(Windowed(key, stamp, end), value)] if end <= stamp + windows.difference_ms else [])
    return made, made.count([])


def check_time(name: str, key: Any, stamp: int) -> None:
    """Raises: DataError for a timestamp before 1970."""
    if stamp < 0:
        raise DataError(
            f"windows '{name}': the record of key {key!r} has timestamp {stamp}; milliseconds since 1970 are "
            "needed. Write records with timestamps, or filter these out before"
        )
