"""Stores sorted positions in runs, so that an insertion or a removal moves only the rest of one run.

    runs[i]    positions p with ends[i − 1] < p ≤ ends[i], sorted; the first run begins anywhere, the last has no end

A run with more than 2 · `RUN` positions is split, and a run with few positions is joined with the one beside it. A
single run is stored without the lists of runs, since most buckets are small. Cost: `add` and `remove` take O(log n +
length of a run); `rank`, `at` and `between` beyond the first run take one step for each run after a change, and O(log
n) until the next change.
"""

from bisect import bisect_left, bisect_right, insort
from itertools import accumulate
from typing import Any

from eddy.live.dataflow.values import Flat

__all__ = ["RUN", "SHORT_RUN", "RowPositions"]

RUN, SHORT_RUN = 1_024, 256
"""The positions in a new run; with more than twice as many it is split, with fewer than `SHORT_RUN` it is joined."""
_UNUSED: list[Any] = []
"""The value of `_runs` and `_ends` if there is one run, and of `_starts` if they are not known. It is never changed."""


class RowPositions:
    """Positions in their order, without duplicates."""

    __slots__ = ("_ends", "_runs", "_single", "_starts")

    def __init__(self, positions: list[Flat]) -> None:
        """`positions` are sorted. The object owns the list from now on, and may change it."""
        self._single: list[Flat] | None = None
        self._runs: list[list[Flat]] = _UNUSED
        self._ends: list[Flat] = _UNUSED
        self._starts: list[int] = _UNUSED
        if len(positions) <= 2 * RUN:
            self._single = positions
        else:
            self._runs = [positions[begin : begin + RUN] for begin in range(0, len(positions), RUN)]
            self._ends = [run[-1] for run in self._runs[:-1]]

    def __len__(self) -> int:
        return sum(map(len, self._runs)) if self._single is None else len(self._single)

    def __bool__(self) -> bool:
        return self._single is None or bool(self._single)

    def first(self, count: int) -> list[Flat]:
        """Return up to `count` of the first positions, but only as many as the first run has."""
        return (self._runs[0] if self._single is None else self._single)[:count]

    def add(self, position: Flat) -> None:
        """Insert a position that is not there."""
        run, at = self._single, 0
        if run is None:
            self._starts = _UNUSED
            at = bisect_left(self._ends, position)
            run = self._runs[at]
        insort(run, position)
        if len(run) > 2 * RUN:
            self._split(at)

    def remove(self, position: Flat) -> None:
        """Remove a position that is there."""
        run = self._single
        if run is not None:
            del run[bisect_left(run, position)]
            return
        self._starts = _UNUSED
        at = bisect_left(self._ends, position)
        run = self._runs[at]
        del run[bisect_left(run, position)]
        if len(run) < SHORT_RUN:
            self._join(at)

    def _split(self, at: int) -> None:
        if self._single is not None:
            self._runs, self._ends, self._single = [self._single], [], None
        run = self._runs[at]
        self._runs[at : at + 1] = [run[:RUN], run[RUN:]]
        self._ends.insert(at, run[RUN - 1])

    def _join(self, at: int) -> None:
        """Join a run with the next one, or the last run with the one before it."""
        at = min(at, len(self._ends) - 1)
        del self._ends[at]
        run = self._runs[at] + self._runs[at + 1]
        self._runs[at : at + 2] = [run]
        if len(run) > 2 * RUN:
            self._split(at)
        elif not self._ends:
            self._runs, self._ends, self._single = _UNUSED, _UNUSED, run

    def run_with(self, begin: int, end: int) -> tuple[list[Flat], int] | None:
        """Return the run with the positions from index `begin` to before `end`, and the index of its first position.

        The caller must not change the run. Returns None if the positions are in several runs.
        """
        if self._single is not None:
            return self._single, 0
        run = self._runs[0]
        if end <= len(run):
            return run, 0
        starts = self._starts or self._counted()
        at = bisect_right(starts, begin) - 1
        run = self._runs[at]
        return (run, starts[at]) if end <= starts[at] + len(run) or at == len(starts) - 1 else None

    def rank(self, position: Flat) -> int:
        """Return the number of positions before this one."""
        if self._single is not None:
            return bisect_left(self._single, position)
        at = bisect_left(self._ends, position)
        rank = bisect_left(self._runs[at], position)
        return rank + (self._starts or self._counted())[at] if at else rank

    def _counted(self) -> list[int]:
        """Return the index at which each run begins."""
        self._starts = [0, *accumulate(map(len, self._runs[:-1]))]
        return self._starts

    def at(self, index: int) -> Flat | None:
        """Return the position at an index, None beyond the last one."""
        run = self._runs[0] if self._single is None else self._single
        if index >= len(run) and self._single is None:
            starts = self._starts or self._counted()
            at = bisect_right(starts, index) - 1
            run, index = self._runs[at], index - starts[at]
        return run[index] if index < len(run) else None

    def between(self, begin: int, end: int) -> list[Flat]:
        """Return the positions from index `begin` to before `end`, as far as there are any."""
        if self._single is not None:
            return self._single[begin:end]
        if end <= len(self._runs[0]):
            return self._runs[0][begin:end]
        starts = self._starts or self._counted()
        found: list[Flat] = []
        for at in range(bisect_right(starts, begin) - 1, bisect_left(starts, end)):
            found += self._runs[at][max(0, begin - starts[at]) : end - starts[at]]
        return found
