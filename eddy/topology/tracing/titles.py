"""Short texts of keys, and the names that rows give to their keys."""

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["cut", "key_text", "label", "title_of"]

_FIELDS = ("name", "title", "label")
_MAX_CHARS = 60


def key_text(key: Any) -> str:
    """Return a key as text: strings and bytes are unchanged, all other keys are JSON.

    >>> key_text("a"), key_text(("a", 1))
    ('a', '["a", 1]')
    """
    if isinstance(key, bytes):
        return key.decode(errors="replace")
    return key if isinstance(key, str) else json.dumps(key, ensure_ascii=False, default=repr)


def label(key: Any) -> str:
    """Return the text of a key. A long text is cut."""
    return cut(key_text(key), _MAX_CHARS)


def title_of(value: Any) -> str:
    """Return the name of a row: its field `name`, `title` or `label`, if this is text; else empty."""
    for field in _FIELDS:
        found = value.get(field) if isinstance(value, Mapping) else getattr(value, field, None)
        if isinstance(found, str) and found:
            return cut(found, _MAX_CHARS)
    return ""


def cut(text: str, chars: int) -> str:
    """Return a text, cut to at most `chars` characters."""
    return text if len(text) <= chars else f"{text[: chars - 1]}…"
