"""What a function of the author's gets to decide about: a record, or a row after an exchange, that failed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from eddy.errors import TopologyError
from eddy.topology.arguments import check_number

__all__ = ["DECISIONS", "LONGEST_S", "FailedRecord", "OnError", "Retry"]

DECISIONS = ("fail", "skip", "dead-letter", "retry")
LONGEST_S = 60
"""A worker that waits takes no part in a rebalance, for which a group waits five minutes."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The decision to process a record again, `after` so many seconds, from 0 to 60. `"retry"` is `Retry(after=0.5)`.

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


OnError = Literal["fail", "skip", "dead-letter"] | Callable[[FailedRecord], str | Retry]
"""One policy for all records, or a function that returns one of `DECISIONS`, or a `Retry`, for each record."""
