"""The names of stateful steps: the author's names, in characters that a topic name allows.

A statement's steps are named after the author's words and places in the text, so two of them, or one of them and
another step of the topology, may have the same name. The later step then gets a number: `reach-join-2`. Every name is
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
"""The most characters of a name, which leave room for the suffixes of states and topics; the number of characters kept
of a longer name.
"""
_TRIES = 100
"""The most names of other steps that a statement avoids."""


def step_name(*parts: str) -> str:
    """The non-empty parts, joined by dashes; a long name ends with its digest instead.

    >>> step_name("reach-edges", "join")
    'reach-edges-join'
    """
    name = "-".join(part for part in parts if part)
    found = _OTHERS.sub("_", name)
    if len(found) <= _LONGEST:
        return found
    return f"{found[:_KEPT]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


class StepNames:
    """Chooses names of steps, each once. `mark` and `reset` forget the names of steps that were removed again."""

    def __init__(self, avoided: frozenset[str] = frozenset()) -> None:
        self._avoided = avoided
        self._given: set[str] = set()

    def take(self, *parts: str) -> str:
        """A name made from these parts that no other step has."""
        base = name = step_name(*parts)
        number = 1
        while name in self._given or name in self._avoided:
            number += 1
            name = f"{base}-{number}"
        self._given.add(name)
        return name

    def mark(self) -> frozenset[str]:
        """The names given so far."""
        return frozenset(self._given)

    def reset(self, mark: frozenset[str]) -> None:
        """Forget all names that were chosen after a mark."""
        self._given = set(mark)

    def of(self, taken: str) -> str | None:
        """The name of the step from which `taken`, the name of a state or topic, derives; None if there is no step."""
        fitting = [name for name in self._given if taken == name or taken.startswith(f"{name}-")]
        return max(fitting, key=len, default=None)


def built(plan: Plan, make: Callable[[StepNames], T]) -> T:
    """The result of `make`. It is called again with other names if another step has one of its names.

    Raises: NameTakenError if `make` took a name that was not chosen here.
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
