"""A path through rows, such as a cycle, as text for messages."""

from collections.abc import Iterable

__all__ = ["path_text"]


def path_text(path: Iterable[object]) -> str:
    """Return a path as text, shortened in the middle if it is long.

    >>> path_text("abc")
    'a → b → c'
    """
    parts = list(path)
    return " → ".join(map(str, parts if len(parts) <= 12 else [*parts[:6], "…", *parts[-5:]]))
