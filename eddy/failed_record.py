"""The arguments and the answer of an author's `on_error` function: a failed record or row, and `Retry`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from eddy.errors import TopologyError
from eddy.topology.arguments import check_number

__all__ = ["DECISIONS", "LONGEST_S", "FailedRecord", "OnError", "Retry"]

DECISIONS = ("fail", "skip", "dead-letter", "retry")
LONGEST_S = 60
"""The longest wait of a retry. A worker that waits takes no part in a rebalance; a group waits five minutes for it."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The decision to process a record again after `after` seconds, from 0 to 60.

    The answer `"retry"` is `Retry(after=0.5)`.

    Raises: TopologyError for any other number.
    """

    after: float = 0.5

    def __post_init__(self) -> None:
        check_number("retry", 0, optional=False, after=self.after)
        if self.after > LONGEST_S:
            raise TopologyError(
                f"retry: after={self.after!r}; at most {LONGEST_S} seconds are possible. The function is asked again "
                "after each of them, until Config.retry_s is over"
            )


class FailedRecord(NamedTuple):
    """A record that cannot be processed.

    Args:
        kind: `decode`: its bytes are no key, value or time that the source can read; `process`: a step or a sink failed
            on it; `row`: a step failed on a row after an exchange, which may be made from many records.
        topic: the topic of the record; None for a row that is made from several records.
        partition: its partition of the topic; None as for `topic`.
        offset: its offset in the partition; None as for `topic`.
        key: the bytes of its key; for a row, its key's bytes by the step's serde, or None if the serde fails.
        value: the bytes of its value; for a row as with `key`.
        error: the reason for the failure.
        timestamp_ms: the timestamp of the record, or the time of the row.
        headers: the headers of the record; a row has none.
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


OnError = Literal["fail", "skip", "dead-letter"] | Callable[[FailedRecord], str | Retry]
"""One policy for all records, or a function from a record to one of `DECISIONS` or to a `Retry`."""
