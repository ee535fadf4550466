"""Decides when the waves of a recursion are checked for rows that grow, and when a search ahead begins.

each eighth wave      some rows are encoded, to measure them; once rows are wide, some of every wave
iteration 64, 128, …  a search ahead, over at most a share of the rows that the waves have processed
at many rows          a search over a few rows: where paths fork, endless rows fill the memory within few waves
rows that are put off a search over some of the rows that are sent to a later epoch
"""

import math
from typing import NamedTuple, Protocol

from eddy.operators.batch import Batch
from eddy.operators.endless import FIRST_LOOK
from eddy.operators.errors.row_sizes import GLANCE, RowSizes
from eddy.operators.waves.total import Total

__all__ = ["Wave", "WaveWatch"]

_SHARE = 16
"""A search during waves explores at most one row for this number of rows of the waves."""
_CROWD, _GROWN, _FEW = 32_768, 16, 1_024
"""A few rows are explored when the waves have had this number of rows and this multiple of their first rows, and
whenever the number of rows has doubled.
"""
_SPILLED = 16_384
"""The most rows that are explored before rows are sent for a later epoch."""


class Wave(NamedTuple):
    """A wave during a run: op of `frontier` is `made`; other rows wait for their iteration."""

    iteration: int
    frontier: Batch
    made: Batch
    waiting: dict[int, Batch]


class Held(Protocol):
    """What decides where waves end: `Quarantine`."""

    @property
    def limit(self) -> int:
        """The number of stale steps that a path may have."""

    def without_heavy(self, wave: Wave, total: Total) -> Batch:
        """The rows that continue, without rows of unusual weight."""

    def hold_whole(self, wave: Wave, total: Total) -> Batch:
        """Stop at every row."""

    def search(self, wave: Wave, budget: int | None, total: Total) -> tuple[bool, Batch]:
        """Search ahead. Returns whether the waves will end, and the rows that continue."""


class WaveWatch:
    """The checks during a run of waves: the next one is at iteration `next`, or once the waves have had `crowd` rows.

    The waves begin with `rows`.
    Each check encodes some rows, to notice rows that grow. From iteration `searched` on, some checks search ahead.
    `always`: each wave is checked, since there are several workers.
    """

    def __init__(self, quarantine: Held, sizes: RowSizes, total: Total, rows: int, searched: int, always: bool) -> None:
        self._quarantine, self._sizes, self._total, self._always = quarantine, sizes, total, always
        self._searched: float = searched
        self._sized = -1 if sizes.careful else GLANCE
        self.next: float = -1 if always else min(self._sized, searched)
        self.crowd: float = max(_CROWD, _GROWN * rows)

    def look(self, frontier: Batch, made: Batch, iteration: int, waiting: dict[int, Batch]) -> Batch:
        """Check a wave in which op of `frontier` is `made`; other rows wait. Returns the rows that continue."""
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
        elif total.count >= self.crowd and made.rows:
            ends, made = quarantine.search(Wave(iteration, frontier, made, waiting), _FEW, total)
            self.crowd = math.inf if ends else 2 * total.count
        self.next = iteration + 1 if self._always else min(self._sized, self._searched)
        return made

    def spilling(self, frontier: Batch, rest: Batch, iteration: int, waiting: dict[int, Batch]) -> Batch:
        """The rows that may continue in a later epoch, so that no weight on a cycle grows epoch by epoch."""
        if self._always or not rest.rows:
            return rest
        budget = max(FIRST_LOOK, min(self._total.count, _SPILLED))
        return self._quarantine.search(Wave(iteration, frontier, rest, waiting), budget, self._total)[1]
