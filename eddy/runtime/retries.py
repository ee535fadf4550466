"""A worker's failed attempts: their times and errors, and the errors after which the next step may retry."""

import time
from dataclasses import dataclass
from typing import Self

from eddy.errors import ConnectorError, FencedError, IndeterminateCommitError, SlotTakenError

__all__ = ["Retries", "TopicMadeAnewError", "is_unknown", "may_retry"]

_SLICE_S = 0.1


class TopicMadeAnewError(ConnectorError):
    """A topic was deleted and created again while it was read: the worker takes over its partitions and tables
    again.
    """


@dataclass(frozen=True, slots=True)
class Retries:
    """Consecutive failed attempts that are retried.

    Args:
        since: the clock's time of the first attempt.
        error: the last attempt's error as text.
        fenced: whether another worker had taken over at one of them.
        owing: whether records were computed and not committed, so that only their commit ends the series of failures.
        until: the clock's time before which there is no next attempt.
    """

    since: float
    error: str = ""
    fenced: bool = False
    owing: bool = False
    until: float = 0.0

    def after(self, error: ConnectorError, computed: bool, now: float, retry_s: float) -> Self:
        """The attempts after one more has failed; `computed`: it had computed its records.

        The last attempt is made `retry_s` after the first one, even if the error asks to wait for longer.
        """
        fenced = isinstance(error, FencedError)
        until = min(now + error.after_s, self.since + retry_s)
        return type(self)(self.since, str(error), self.fenced or fenced, self.owing or computed, until)

    def waited(self, now: float) -> bool:
        """Wait for a tenth of a second at most, so that a stop is obeyed. Returns False if the next attempt is due."""
        if now >= self.until:
            return False
        time.sleep(min(_SLICE_S, self.until - now))
        return True


def is_unknown(error: ConnectorError) -> bool:
    """Whether the log's state is unknown after this error: it may have this transaction, or one of another worker.
    Memory may differ from it.
    """
    return isinstance(error, FencedError | IndeterminateCommitError)


def may_retry(error: ConnectorError) -> bool:
    """Whether a later attempt may succeed."""
    return not isinstance(error, SlotTakenError) and (is_unknown(error) or error.retriable)
