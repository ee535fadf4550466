"""Rows of a table for queries that name its columns themselves, apart from those of the application's own queries."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["RowsApart"]


@dataclass(frozen=True)
class RowsApart:
    """The rows of a table that a caller may read, with these names of its columns.

    All queries of one loaded table have the same names for its columns. So queries as texts read tables of their own,
    one for each choice of names: else the first of them would decide how the application's queries may name them. Equal
    ones share one table. `allowed` is None if the caller may read all rows.
    """

    key: tuple[str, ...]
    value: str | None
    allowed: Callable[[Any, Any], Any] | None

    def __call__(self, key: Any, value: Any) -> Any:
        """Whether the row may be read."""
        return self.allowed is None or self.allowed(key, value)
