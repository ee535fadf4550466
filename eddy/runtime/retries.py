"""A worker's failed attempts: their times and errors, and the errors after which the next step may retry."""

from dataclasses import dataclass
from typing import Self

from eddy.errors import ConnectorError, FencedError, IndeterminateCommitError, SlotTakenError

__all__ = ["Retries", "is_unknown", "may_retry"]


@dataclass(frozen=True, slots=True)
class Retries:
    """Consecutive failed attempts that are retried.

    Args:
        since: the clock's time of the first attempt.
        error: the last attempt's error as text.
        fenced: whether another worker had taken over at one of them.
        owing: whether records were computed and not committed, so that only their commit ends the series of failures.
    """

    since: float
    error: str = ""
    fenced: bool = False
    owing: bool = False

    def after(self, error: ConnectorError, computed: bool) -> Self:
        """The attempts after one more has failed; `computed`: it had computed its records."""
        fenced = isinstance(error, FencedError)
        return type(self)(self.since, str(error), self.fenced or fenced, self.owing or computed)


def is_unknown(error: ConnectorError) -> bool:
    """Whether it is unknown, after this error, if the log has the transaction, or another worker's: memory may differ
    from it.
    """
    return isinstance(error, FencedError | IndeterminateCommitError)


def may_retry(error: ConnectorError) -> bool:
    """Whether a later attempt may succeed."""
    return not isinstance(error, SlotTakenError) and (is_unknown(error) or error.retriable)
