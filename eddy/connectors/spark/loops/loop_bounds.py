"""The bounds of recursions, from their definitions."""

from typing import Any

__all__ = ["last_depth"]


def last_depth(bound: Any) -> int | None:
    """The depth of rows at which a recursion ends as a part of its answer; None if it ends by itself, see `Bound`."""
    if bound.max_depth is not None:
        return int(bound.max_depth)
    return None if bound.on_limit in {"hold", "error"} else int(bound.limit)
