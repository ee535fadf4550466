"""A record as a processor sees it, and the topic, partition and offset from which it was read."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

__all__ = ["Headers", "Record", "RecordContext", "RecordMetadata", "new_record"]

K = TypeVar("K")
V = TypeVar("V")
Headers = tuple[tuple[str, bytes], ...]
_SAME: Any = object()
new_record: Callable[[type[Any], tuple[Any, Any, int | None, Headers, int]], Any] = tuple.__new__
"""Makes a record from a tuple of its parts. A call of the class takes three times as long."""


class Record(NamedTuple, Generic[K, V]):
    """A key, a value, a timestamp in milliseconds since 1970, headers.

    A record that is forwarded without a timestamp has the time of the current record or punctuation. `weight` is 1,
    except in a processor with `weights=True`, where a weight below 0 retracts the row. A forwarded record has weight 1.

    >>> Record("ann", 1).replace(value=2)
    Record(key='ann', value=2, timestamp_ms=None, headers=(), weight=1)
    """

    key: K
    value: V
    timestamp_ms: int | None = None
    headers: Headers = ()
    weight: int = 1

    def replace(
        self, *, key: Any = _SAME, value: Any = _SAME, timestamp_ms: Any = _SAME, headers: Any = _SAME
    ) -> "Record[Any, Any]":
        """Return the record with some parts replaced."""
        made: Record[Any, Any] = new_record(
            Record,
            (
                self.key if key is _SAME else key,
                self.value if value is _SAME else value,
                self.timestamp_ms if timestamp_ms is _SAME else timestamp_ms,
                self.headers if headers is _SAME else headers,
                self.weight,
            ),
        )
        return made


class RecordMetadata(NamedTuple):
    """The topic, partition and offset of a record."""

    topic: str
    partition: int
    offset: int


class RecordContext(NamedTuple):
    """A record of a source topic without its key and value: topic, partition, offset, timestamp and headers.

    `timestamp_ms` is in milliseconds since 1970: the record's event time.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    headers: Headers = ()
