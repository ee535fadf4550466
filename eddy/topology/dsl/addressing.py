"""Records whose topic a function of the author's chooses."""

from collections.abc import Callable, Sequence
from typing import Any

from eddy.errors import DataError
from eddy.operators.processors.record import RecordContext
from eddy.topology.arguments import takes_record

__all__ = ["addressed", "of_topic"]


def addressed(topic: Callable[..., str], names: Sequence[str]) -> Callable[..., tuple[str, Any]]:
    """Return a function that makes (topic, value) from a record by the author's function, or raises DataError."""

    def with_record(key: Any, value: Any, record: RecordContext) -> tuple[str, Any]:
        return checked(topic(key, value, record=record), value)

    def pair(key: Any, value: Any) -> tuple[str, Any]:
        return checked(topic(key, value), value)

    def checked(name: str, value: Any) -> tuple[str, Any]:
        if name not in names:
            raise DataError(f"to: the function names topic {name!r}; one of topics={[*names]} is needed")
        return name, value

    return with_record if takes_record(topic, "key", "value") else pair


def of_topic(name: str) -> Callable[[tuple[str, Any]], list[Any]]:
    """Return a function that makes a list from a pair (topic, value): the value if the topic is `name`, else empty."""
    return lambda pair: [pair[1]] if pair[0] == name else []
