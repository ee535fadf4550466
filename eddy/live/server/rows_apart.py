"""Keeps the tables of queries as texts, which choose the columns' names, apart from the application's own tables."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["RowsApart"]


@dataclass(frozen=True)
class RowsApart:
    """The rows of a table that a caller may read, with these names of its columns.

    All queries over one loaded table use the same names for its columns. So queries as texts read tables of their own,
    one for each choice of names. Otherwise the first such query would decide which names the application's queries may
    use. Equal objects share one table. `allowed` is None if the caller may read all rows.
    """

    key: tuple[str, ...]
    value: str | None
    allowed: Callable[[Any, Any], Any] | None

    def __call__(self, key: Any, value: Any) -> Any:
        """Whether the row may be read."""
        return self.allowed is None or self.allowed(key, value)
