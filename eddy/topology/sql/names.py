"""The names of stateful steps: the author's names, in characters that are allowed in a topic's name.

Steps are named after the author's words and places in the text. So two steps of a statement, or a step of it and
another step of the topology, may get the same name. The later step then gets a number: `reach-join-2`. Every name is
used once.
"""

import hashlib
import re
from collections.abc import Callable
from typing import TypeVar

from eddy.topology.plan.plan import NameTakenError, Plan

__all__ = ["StepNames", "built", "step_name"]

T = TypeVar("T")
_OTHERS = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST, _KEPT = 140, 120
"""The most characters of a name, and the characters that are kept of a longer name. They leave room for the suffixes of
states and topics.
"""
_TRIES = 100
"""The most names of other steps that a statement avoids; a further conflict raises an error."""


def step_name(*parts: str) -> str:
    """Join the non-empty parts by dashes. The end of a long name is replaced by its digest.

    >>> step_name("reach-edges", "join")
    'reach-edges-join'
    """
    name = "-".join(part for part in parts if part)
    found = _OTHERS.sub("_", name)
    if len(found) <= _LONGEST:
        return found
    return f"{found[:_KEPT]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


class StepNames:
    """Chooses the names of steps, each name once. `reset` forgets the names of removed steps, chosen after `mark`."""

    def __init__(self, avoided: frozenset[str] = frozenset()) -> None:
        self._avoided = avoided
        self._given: set[str] = set()

    def take(self, *parts: str) -> str:
        """Return a name made from these parts that no other step has."""
        base = name = step_name(*parts)
        number = 1
        while name in self._given or name in self._avoided:
            number += 1
            name = f"{base}-{number}"
        self._given.add(name)
        return name

    def mark(self) -> frozenset[str]:
        """Return the names chosen so far."""
        return frozenset(self._given)

    def reset(self, mark: frozenset[str]) -> None:
        """Forget all names that were chosen after a mark."""
        self._given = set(mark)

    def of(self, taken: str) -> str | None:
        """Return the step from whose name the name `taken` of a state or topic is made; None if there is no step."""
        fitting = [name for name in self._given if taken == name or taken.startswith(f"{name}-")]
        return max(fitting, key=len, default=None)


def built(plan: Plan, make: Callable[[StepNames], T]) -> T:
    """Return the result of `make`. If another step has one of its names, `make` is called again with other names.

    Raises: NameTakenError if `make` has used a name that was not chosen here.
    """
    length = len(plan.nodes)
    avoided: frozenset[str] = frozenset()
    while True:
        names = StepNames(avoided)
        try:
            return make(names)
        except NameTakenError as error:
            name = names.of(error.step)
            if name is None or len(avoided) == _TRIES:
                raise
            plan.rewind(length)
            avoided |= {name}
