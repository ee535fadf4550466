"""Detects that a loop by nested time never ends, because its rows repeat, and defines the error of such a loop."""

from collections.abc import Sequence

from eddy.errors import LoopLimitError
from eddy.operators.batch import Batch, Row, ZSet, merge_into

__all__ = ["EndlessError", "Repetition"]


class EndlessError(LoopLimitError):
    """The error of a recursion by nested time that has met a bound.

    `rows` are the rows that were new in the last iteration. `of_work`: the bound was one of rows or seconds, so with a
    larger budget the recursion might end. `is_sure`: on any machine the same input meets the bound again.
    """

    def __init__(self, message: str, rows: Sequence[Row], of_work: bool = False, is_sure: bool = False) -> None:
        super().__init__(message)
        self.rows, self.of_work, self.is_sure = rows, of_work, is_sure
        self.others: Sequence[EndlessError] = ()


class Repetition:
    """Detects that the bindings of a loop have the same rows as in an earlier iteration, so that the loop never ends.

    Earlier epochs have no differences after iteration `quiet_from`. From there on, the differences of this epoch are
    all changes of the bindings. The rows at an iteration that is a power of two are compared with the rows at each
    later iteration, up to the next power of two.

    Source: Brent, "An improved Monte Carlo factorization algorithm", BIT 20 (1980).
    """

    def __init__(self, bindings: int, quiet_from: int) -> None:
        self._quiet_from = quiet_from
        self._since: list[ZSet] | None = None
        self._bindings = bindings

    def met(self, iteration: int, made: Sequence[Batch]) -> bool:
        """Add an iteration's changes of the bindings. Returns whether the rows repeat those of an earlier iteration.

        At least one binding has changed in the iteration.
        """
        if iteration <= self._quiet_from:
            return False
        if self._since is None or iteration & (iteration - 1) == 0:
            self._since = [{} for _ in range(self._bindings)]
            return False
        for since, batch in zip(self._since, made, strict=True):
            merge_into(since, batch.rows, batch.weights)
        return not any(self._since)
