"""Assigns windows to records, by their timestamps and the event times of their source partitions.

    row (k, v) at t  →  (Windowed(k, start, end), v)  for each window with t that is not over

`lateness.py` decides which windows are over. With session windows each record gets its own session here, and the owner
of the record's key merges sessions.
"""

from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from eddy.join_windows import JoinSide
from eddy.operators.batch import Batch, keys_of
from eddy.operators.context import Context
from eddy.operators.keyed import Keyed
from eddy.operators.operator import ClocksRead
from eddy.operators.windows.lateness import open_windows, sliding_records, windows_of_rows
from eddy.operators.windows.source_times import event_times, timestamps
from eddy.windows import SlidingWindows, TimeWindows, Windowed, Windows

__all__ = ["AssignWindows"]


_value_of = itemgetter(1)


class AssignWindows(Keyed):
    """Input: records (K, V). Output: records (Windowed K, V); a record without a key or a value is dropped."""

    def __init__(self, name: str, windows: Windows, sources: Sequence[str]) -> None:
        self.name, self._windows, self._sources = name, windows, frozenset(sources)

    @property
    def reads(self) -> ClocksRead:
        """The event times of the sources."""
        return ClocksRead(self._sources)

    def end_epoch(self) -> None:
        """Set the counts to 0."""
        super().end_epoch()
        self.late = 0

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Assign windows. Raises: DataError for a record without a timestamp."""
        batch = self.with_both(inputs[0])
        windows, stamps, times = self._windows, timestamps(context, batch), event_times(context, batch)
        if isinstance(windows, TimeWindows) and windows.tumbling and batch.rows and min(stamps) >= 0:
            size = windows.size_ms
            starts = [stamp - stamp % size for stamp in stamps]
            return self._spans(batch, starts, list(map(size.__add__, starts)), times)
        if isinstance(windows, JoinSide) and batch.rows and min(stamps) >= 0:
            return self._spans(batch, stamps, stamps, times)
        if isinstance(windows, SlidingWindows):
            rows, late = sliding_records(self.name, windows, batch.rows, stamps, times)
        else:
            rows, late = windows_of_rows(self.name, windows, batch.rows, stamps, times)
        self.late += late
        return batch.spread(rows).without_places()

    def _spans(self, batch: Batch, starts: Sequence[int], ends: Sequence[int], event_times: Sequence[int]) -> Batch:
        """Assign one window to each row, from `starts` and `ends`. Cost: loops in C, except if rows are late."""
        rows = batch.rows
        keys: map[Windowed[Any]] = map(partial(tuple.__new__, Windowed), zip(keys_of(rows), starts, ends, strict=True))
        made = batch.with_rows(list(zip(keys, map(_value_of, rows), strict=True))).without_places()
        kept = open_windows(ends, event_times, self._windows.lag_ms)
        if kept is None:
            return made
        self.late += kept.count(False)
        return made.select(kept)
