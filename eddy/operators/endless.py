"""What recursions without an end have in common: their errors, a state that recurs, and the text of a path."""

from collections.abc import Iterable, Sequence

from eddy.errors import LoopLimitError
from eddy.operators.batch import Batch, Row, ZSet, merge_into

__all__ = ["FIRST_LOOK", "EndlessError", "Repetition", "path_text"]

FIRST_LOOK = 64
"""The iteration of the first search."""


class EndlessError(LoopLimitError):
    """Nested time met a bound. `rows` were new in the last iteration; `of_work`: a larger budget might suffice.

    `is_sure`: of the same input alone it would meet it again, however quick the machine.
    """

    def __init__(self, message: str, rows: Sequence[Row], of_work: bool = False, is_sure: bool = False) -> None:
        super().__init__(message)
        self.rows, self.of_work, self.is_sure = rows, of_work, is_sure
        self.others: Sequence[EndlessError] = ()


class Repetition:
    """Tells that the bindings of a loop have the same rows as some iterations before, so that it repeats for ever.

    Differences of this epoch tell how the bindings move only in iterations of which earlier epochs have no difference:
    those after `quiet_from`. The iterations compared are a power of two and those after it.

    Source: Brent, "An improved Monte Carlo factorization algorithm", BIT 20 (1980).
    """

    def __init__(self, bindings: int, quiet_from: int) -> None:
        self._quiet_from = quiet_from
        self._since: list[ZSet] | None = None
        self._bindings = bindings

    def met(self, iteration: int, made: Sequence[Batch]) -> bool:
        """Take in by what an iteration has changed the bindings, at least one of them."""
        if iteration <= self._quiet_from:
            return False
        if self._since is None or iteration & (iteration - 1) == 0:
            self._since = [{} for _ in range(self._bindings)]
            return False
        for since, batch in zip(self._since, made, strict=True):
            merge_into(since, batch.rows, batch.weights)
        return not any(self._since)


def path_text(path: Iterable[object]) -> str:
    """A path as text, shortened in the middle if it is long.

    >>> path_text("abc")
    'a → b → c'
    """
    parts = list(path)
    return " → ".join(map(str, parts if len(parts) <= 12 else [*parts[:6], "…", *parts[-5:]]))
