"""Functions that return the moments at which a row's conditions on the present time become true, and end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eddy.operators.valid_rows import LATEST_MS

__all__ = ["MomentOfRow"]


@dataclass(frozen=True)
class MomentOfRow:
    """Returns the earliest of the moments in `values(row, value)` if `first`, else the latest.

    If a moment is null, the row is never true. Moments are limited to the years from 1970 to 9999.
    """

    values: Callable[[Any, Any], tuple[int | None, ...]]
    first: bool

    def __call__(self, row: Any, value: Any) -> int | None:
        """Return the moment; None for no bound."""
        moments = self.values(row, value)
        if None in moments:
            return 0 if self.first else LATEST_MS
        moment: int = min(moments) if self.first else max(moments)  # type: ignore[type-var,assignment]
        if self.first:
            return None if moment > LATEST_MS else max(moment, 0)
        return None if moment <= 0 else min(moment, LATEST_MS)
