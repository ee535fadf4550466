"""The moments of a row that conditions on the present time read, as functions for a step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eddy.operators.valid_rows import LATEST_MS

__all__ = ["MomentOfRow"]


@dataclass(frozen=True)
class MomentOfRow:
    """The earliest or the latest of the moments that `values` has for a row in the keys of a relation, ignoring nulls.

    A row without the moment is never there. A moment before 1970 or after the year 9999 is the nearest one.
    """

    values: Callable[[Any, Any], tuple[int | None, ...]]
    first: bool

    def __call__(self, row: Any, value: Any) -> int | None:
        """The moment; None for no bound."""
        moments = self.values(row, value)
        if None in moments:
            return 0 if self.first else LATEST_MS
        moment: int = min(moments) if self.first else max(moments)  # type: ignore[type-var,assignment]
        if self.first:
            return None if moment > LATEST_MS else max(moment, 0)
        return None if moment <= 0 else min(moment, LATEST_MS)
