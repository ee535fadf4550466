"""Sends records to topics that a function of the author's chooses."""

from collections.abc import Callable, Sequence
from typing import Any

from eddy.errors import DataError
from eddy.operators.processors.record import RecordContext
from eddy.topology.arguments import takes_record

__all__ = ["addressed", "of_topic"]


def addressed(topic: Callable[..., str], names: Sequence[str]) -> Callable[..., tuple[str, Any]]:
    """Return a function from a record to the pair (topic, value). The author's function `topic` chooses the topic.

    The returned function raises DataError for a topic that is not among `names`.
    """

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
    """Return a function of a pair (topic, value).

    It returns a list with the value if the topic is `name`, else an empty list.
    """
    return lambda pair: [pair[1]] if pair[0] == name else []
