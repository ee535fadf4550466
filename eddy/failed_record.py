"""What a function of the author's gets to decide about: a record, or a row after an exchange, that failed."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

__all__ = ["DECISIONS", "FailedRecord", "OnError"]

DECISIONS = ("fail", "skip", "dead-letter", "retry")


class FailedRecord(NamedTuple):
    """A record that cannot be processed.

    Args:
        kind: `decode`: its bytes have no key, value or time of the source; `process`: a step or a sink failed on it;
            `row`: a step failed on a row after an exchange, which may be made of many records.
        topic: where it is; None for a row made of several records.
        partition: of the topic.
        offset: in the partition.
        key: its bytes; of a row those that the step's serde makes, None where it makes none.
        value: as `key`.
        error: the reason.
        timestamp_ms: of the record; of a row its time.
        headers: of the record; a row has none.
        step: the step that failed on a row; None for a record.
    """

    kind: Literal["decode", "process", "row"]
    topic: str | None
    partition: int | None
    offset: int | None
    key: bytes | None
    value: bytes | None
    error: str
    timestamp_ms: int
    headers: tuple[Any, ...] = ()
    step: str | None = None


OnError = Literal["fail", "skip", "dead-letter"] | Callable[[FailedRecord], str]
"""One policy for all records, or a function that makes one of `DECISIONS` about each."""
