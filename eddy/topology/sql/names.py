"""The names of stateful steps: the author's names, in characters that a topic name allows."""

import re

__all__ = ["step_name"]

_OTHERS = re.compile(r"[^A-Za-z0-9._-]")


def step_name(*parts: str) -> str:
    """The non-empty parts, joined by dashes.

    >>> step_name("reach-edges", "join")
    'reach-edges-join'
    """
    return _OTHERS.sub("_", "-".join(part for part in parts if part))
