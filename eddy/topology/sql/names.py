"""The names of steps with state: what the author wrote, in the letters that a topic's name can have."""

import re

__all__ = ["step_name"]

_OTHERS = re.compile(r"[^A-Za-z0-9._-]")


def step_name(*parts: str) -> str:
    """The parts that are not empty, with dashes between them.

    >>> step_name("reach-edges", "join")
    'reach-edges-join'
    """
    return _OTHERS.sub("_", "-".join(part for part in parts if part))
