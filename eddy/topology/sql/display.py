"""Values as text, in PostgreSQL's output format."""

from typing import Any

from eddy.topology.sql.casts import cast_function
from eddy.topology.sql.types import TEXT, parse_type

__all__ = ["shown"]


def shown(value: Any, type: str) -> str | None:
    """Return a value as text, by its type in SQL's words; None for null.

    >>> shown(1.0, "double"), shown(True, "boolean"), shown(None, "text")
    ('1', 'true', None)
    """
    if value is None:
        return None
    known = parse_type(type)
    text = None if known is None else cast_function(known, TEXT)
    return str(text(value) if text is not None else value)
