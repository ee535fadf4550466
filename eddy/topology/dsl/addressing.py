"""Records for topics that a function names."""

from collections.abc import Callable, Sequence
from typing import Any

from eddy.errors import DataError

__all__ = ["addressed", "of_topic"]


def addressed(topic: Callable[[Any, Any], str], names: Sequence[str]) -> Callable[[Any, Any], tuple[str, Any]]:
    """A function from a record to its topic, by the author's function, and its value. It raises DataError."""

    def pair(key: Any, value: Any) -> tuple[str, Any]:
        name = topic(key, value)
        if name not in names:
            raise DataError(f"to: the function names topic {name!r}; one of topics={[*names]} is needed")
        return name, value

    return pair


def of_topic(name: str) -> Callable[[tuple[str, Any]], list[Any]]:
    """A function from such a pair to its value, if it is for a topic."""
    return lambda pair: [pair[1]] if pair[0] == name else []
