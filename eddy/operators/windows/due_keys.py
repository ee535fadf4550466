"""Finds the keys of a calendar that are due: the frontiers of the owned partitions have reached their moments."""

from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

from eddy.operators.context import Context, Moment
from eddy.operators.windows.frontier import Frontier
from eddy.state.calendar import Calendar

__all__ = ["MOST_A_STEP", "DueKeys"]

K = TypeVar("K")

MOST_A_STEP = 20_000


class DueKeys(Generic[K]):
    """Finds the entries of a calendar whose moments the frontiers have reached, at most `most` of them in each step.

    A moment is the end of a window, or a time.
    """

    def __init__(
        self, calendar: Calendar[K], frontier: Frontier, owned: Callable[[], Collection[int]], most: int = MOST_A_STEP
    ) -> None:
        self._calendar, self._frontier, self._owned, self.most = calendar, frontier, owned, most

    def wakes_at(self) -> Moment | None:
        """Return the moment at which a frontier reaches the first entry of its partition; None if there is no entry."""
        firsts = {partition: self._calendar.first(partition) for partition in self._owned()}
        moments = {partition: end for partition, end in firsts.items() if end is not None}
        return self._frontier.passes(moments) if moments else None

    def first(self) -> tuple[int, int] | None:
        """Return the first moment in the owned partitions, and the partition that has it; None if there is no entry."""
        firsts = ((self._calendar.first(partition), partition) for partition in self._owned())
        return min(((end, partition) for end, partition in firsts if end is not None), default=None)

    def frontiers(self, context: Context) -> dict[int, int]:
        """The frontier of each owned partition."""
        return {partition: self._frontier.at(context, partition) for partition in self._owned()}

    def due(self, frontiers: Mapping[int, int]) -> tuple[list[tuple[int, K]], list[int]]:
        """Return the first due entries that earlier epochs have made, and the partitions that have more due entries."""
        found: list[tuple[int, K]] = []
        left_due = []
        for partition, frontier in frontiers.items():
            first = self._calendar.first(partition)
            if first is None or first > frontier:
                continue
            left = self.most - len(found)
            due = self._calendar.due(partition, frontier, left + 1)
            found += due[:left]
            if len(due) > left:
                left_due.append(partition)
        return found, left_due
