"""Keeps the tables of queries that clients send as texts apart from the tables of the application's own queries."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["RowsApart"]


@dataclass(frozen=True)
class RowsApart:
    """Selects the rows of a table that a caller may read, for queries that use these names of the table's columns.

    All queries over one loaded table use the same names for its columns. So queries as texts read tables of their own,
    one for each choice of names. Otherwise the first such query would decide which names the application's queries may
    use. Equal objects share one table. `allowed` is None if the caller may read all rows.
    """

    key: tuple[str, ...]
    value: str | None
    allowed: Callable[[Any, Any], Any] | None

    def __call__(self, key: Any, value: Any) -> Any:
        """Return whether the caller may read the row."""
        return self.allowed is None or self.allowed(key, value)
