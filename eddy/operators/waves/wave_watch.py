"""Decides when the waves of a recursion are checked for rows that grow, and when a search ahead begins.

each eighth wave      some rows are encoded, to measure them; once rows are wide, some of every wave
iteration 64, 128, …  a search ahead, over at most a share of the rows that the waves have processed
at many rows          a search over a few rows: where paths fork, endless rows fill the memory within few waves
before rows are sent  a search over some of the rows that are to be sent to a later epoch
"""

import math
from typing import NamedTuple, Protocol

from eddy.operators.batch import Batch
from eddy.operators.bound import FIRST_LOOK
from eddy.operators.errors.row_sizes import GLANCE, RowSizes
from eddy.operators.waves.total import Total

__all__ = ["Wave", "WaveWatch"]

_SHARE = 16
"""A search during waves explores at most one row for this number of rows of the waves."""
_CROWD, _GROWN, _FEW = 32_768, 16, 1_024
"""`_FEW` rows are explored once the waves have processed `_CROWD` rows and `_GROWN` times their first rows, and then
whenever the number of rows has doubled.
"""
_SPILLED = 16_384
"""The most rows that are explored before rows are sent to a later epoch."""


class Wave(NamedTuple):
    """A wave: op has made the rows `made` of the rows `frontier`. `waiting` has rows that wait for later iterations."""

    iteration: int
    frontier: Batch
    made: Batch
    waiting: dict[int, Batch]


class Held(Protocol):
    """The methods of `Quarantine` that decide where waves end."""

    @property
    def limit(self) -> int:
        """The number of stale steps that a path may have."""

    def without_heavy(self, wave: Wave, total: Total) -> Batch:
        """Stop at rows of unusual weight. Returns the rows that continue."""

    def hold_whole(self, wave: Wave, total: Total) -> Batch:
        """Stop at every row. Returns the rows that continue."""

    def search(self, wave: Wave, budget: int | None, total: Total) -> tuple[bool, Batch]:
        """Search ahead. Returns whether the waves will end, and the rows that continue."""


class WaveWatch:
    """The checks during a run of waves: the next one is at iteration `next`, or when `next_count` rows were processed.

    A check encodes some rows, to notice rows that grow. From iteration `searched` on, some checks search ahead. `rows`
    is the number of rows with which the waves begin. `always`: each wave is checked, because there are several workers.
    """

    def __init__(self, quarantine: Held, sizes: RowSizes, total: Total, rows: int, searched: int, always: bool) -> None:
        self._quarantine, self._sizes, self._total, self._always = quarantine, sizes, total, always
        self._searched: float = searched
        self._sized = -1 if sizes.careful else GLANCE
        self.next: float = -1 if always else min(self._sized, searched)
        self.next_count: float = max(_CROWD, _GROWN * rows)

    def look(self, frontier: Batch, made: Batch, iteration: int, waiting: dict[int, Batch]) -> Batch:
        """Check a wave in which op has made the rows `made` of `frontier`. Returns the rows that continue."""
        quarantine, sizes, total = self._quarantine, self._sizes, self._total
        if self._always:
            made = quarantine.without_heavy(Wave(iteration, frontier, made, waiting), total)
        if iteration >= self._sized:
            if sizes.refused_rows(made.rows):
                made = quarantine.hold_whole(Wave(iteration, frontier, made, waiting), total)
            self._sized = iteration + 1 if sizes.wide else iteration + GLANCE
        if iteration >= self._searched and (made.rows or frontier.rows):
            limit = quarantine.limit
            budget = None if iteration >= limit else max(FIRST_LOOK, total.count // _SHARE)
            ends, made = quarantine.search(Wave(iteration, frontier, made, waiting), budget, total)
            self._searched = math.inf if ends else 2 * iteration
        elif total.count >= self.next_count and made.rows:
            ends, made = quarantine.search(Wave(iteration, frontier, made, waiting), _FEW, total)
            self.next_count = math.inf if ends else 2 * total.count
        self.next = iteration + 1 if self._always else min(self._sized, self._searched)
        return made

    def spilling(self, frontier: Batch, rest: Batch, iteration: int, waiting: dict[int, Batch]) -> Batch:
        """Search ahead of the rows `rest`, which are to be sent to a later epoch. Returns the rows to send.

        So no weight on a cycle grows from epoch to epoch.
        """
        if self._always or not rest.rows:
            return rest
        budget = max(FIRST_LOOK, min(self._total.count, _SPILLED))
        return self._quarantine.search(Wave(iteration, frontier, rest, waiting), budget, self._total)[1]
