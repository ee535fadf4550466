"""The bounds of recursions, from their definitions."""

from typing import Any

__all__ = ["last_depth"]


def last_depth(bound: Any) -> int | None:
    """Return the depth of rows at which a bound ends a recursion; None if the recursion ends by itself, see `Bound`."""
    if bound.max_depth is not None:
        return int(bound.max_depth)
    return None if bound.on_limit in {"hold", "error"} else int(bound.limit)
