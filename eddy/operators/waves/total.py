"""The sum of the frontiers of a recursion."""

from eddy.operators.batch import Batch, Row, ZSet, merge_into

__all__ = ["Total"]

_BUFFERED = 1_000


class Total:
    """The sum of the frontiers. If X is stored by depth, there is also a sum by each row's iteration.

    `has_received`: some rows had passed through the loop before the epoch. Many frontiers are merged at a time, because
    most of them are small.
    """

    def __init__(self, by_depth: bool = False, has_received: bool = False) -> None:
        self.has_received = has_received
        self.by_depth: ZSet | None = {} if by_depth else None
        self.waves = self.count = 0
        self._sum: ZSet = {}
        self._rows: list[Row] = []
        self._weights: list[int] = []

    def add(self, iteration: int, frontier: Batch) -> None:
        """Add a consolidated frontier."""
        self.waves += 1
        self.count += len(frontier.rows)
        if len(frontier.rows) > _BUFFERED:
            self._merge(frontier.rows, frontier.weights)
        else:
            self._rows += frontier.rows
            self._weights += frontier.weights
            if len(self._rows) > _BUFFERED:
                self.sum()
        if self.by_depth is not None:
            by_depth = [(key, (iteration, value)) for key, value in frontier.rows]
            merge_into(self.by_depth, by_depth, frontier.weights)

    def sum(self) -> ZSet:
        """The sum so far."""
        self._merge(self._rows, self._weights)
        self._rows, self._weights = [], []
        return self._sum

    def _merge(self, rows: list[Row], weights: list[int]) -> None:
        if self._sum or self.waves > 1:
            merge_into(self._sum, rows, weights)
        else:
            self._sum = dict(zip(rows, weights, strict=True))
