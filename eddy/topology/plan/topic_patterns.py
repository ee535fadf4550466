"""Patterns of topics: all topics of a log whose whole names match are read as one source.

A plan has only the pattern, since the topics that match depend on the log and change. A program that uses the plan on a
log first finds them (`eddy.runtime.matching_topics`); then they are the inputs of the pattern's step.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from eddy.errors import TopologyError
from eddy.topology.plan.topic_steps import Source
from eddy.topology.plan.transforms import Merge

__all__ = ["TopicPattern", "check_pattern", "is_internal", "pattern_name"]

_LONGEST = 100
_ENDS = ("-changelog", "-repartition", "-loop")
_WHOLE = ("-cuts", "-plan", "-dead-letter")


def is_internal(application: str, topic: str) -> bool:
    """Return whether a topic has the name of an internal topic of the application."""
    rest = topic.removeprefix(application)
    return rest != topic and (rest in _WHOLE or (rest.startswith("-") and rest.endswith(_ENDS)))


def check_pattern(where: str, application: str, pattern: Any) -> re.Pattern[str]:
    """Compile a pattern or its text. Raises: TopologyError if it is no pattern, or matches internal topics only."""
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError, ValueError) as error:
        raise TopologyError(
            f"{where}: {error}; a regular expression of names of topics is needed. Write pattern='orders-.*'"
        ) from error
    if not isinstance(compiled.pattern, str) or not compiled.pattern:
        raise TopologyError(f"{where}: a regular expression, as text, is needed. Write pattern='orders-.*'")
    plain = compiled.pattern.replace("\\", "")
    begins = plain.startswith((f"{application}-", f"^{application}-"))
    if "|" not in plain and begins and plain.removesuffix("$").endswith((*_ENDS, *_WHOLE)):
        raise TopologyError(
            f"{where} matches only topics that eddy makes for application '{application}', which no source reads; a "
            "pattern of your own topics is needed"
        )
    return compiled


def pattern_name(pattern: re.Pattern[str]) -> str:
    """Return the name of a pattern's step: the pattern's text in letters and digits."""
    words = re.findall(r"[A-Za-z0-9_]+", pattern.pattern)
    return "-".join([*words, "topics"])[-_LONGEST:].lstrip("-")


@dataclass(frozen=True, eq=False, kw_only=True)
class TopicPattern(Merge):
    """The records of all topics that match. `inputs` are the sources of these topics, made like the source `each`.

    Invariant: the step and its sources have no state, so that a topic may be added or left out at any time.
    """

    role = "pattern"

    pattern: re.Pattern[str]
    each: Source

    @property
    def does(self) -> str:  # type: ignore[override]
        """The records of its topics."""
        return f"record of topics {self.pattern.pattern}"

    @property
    def title(self) -> str:
        """Its pattern."""
        return self.pattern.pattern

    def headline(self, application: str, stores: Sequence[str]) -> str:
        """Return the pattern, for `describe()`."""
        return f"Source: {self.name} (topics: {self.pattern.pattern})"

    def find(self, topics: Iterable[str]) -> tuple[Source, ...]:
        """Make these topics the inputs, and return their sources. A topic that was an input keeps its source."""
        known = {source.topic: source for source in cast("tuple[Source, ...]", self.inputs)}
        found = tuple(known.get(topic) or self._source(topic) for topic in topics)
        object.__setattr__(self, "inputs", found)
        return found

    def _source(self, topic: str) -> Source:
        return replace(self.each, topic=topic, name=f"{self.name}-{topic}", label=self.label)
