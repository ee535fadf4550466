"""A worker's failed attempts: their times and errors, and the errors after which the next step may retry."""

import time
from dataclasses import dataclass
from typing import Self

from eddy.errors import ConnectorError, FencedError, IndeterminateCommitError, SlotTakenError

__all__ = ["Retries", "TopicMadeAnewError", "is_unknown", "may_retry"]

_SLICE_S = 0.1


class TopicMadeAnewError(ConnectorError):
    """A topic was deleted and created again while it was read, so the worker takes over its partitions anew."""


@dataclass(frozen=True, slots=True)
class Retries:
    """Consecutive failed attempts that are retried.

    Args:
        since: the clock's time of the first attempt.
        error: the last attempt's error as text.
        fenced: whether one of the attempts failed because another worker had taken over.
        owing: whether records were computed and not committed. Then only their commit ends the series of failures.
        until: the clock's time before which there is no next attempt.
    """

    since: float
    error: str = ""
    fenced: bool = False
    owing: bool = False
    until: float = 0.0

    def after(self, error: ConnectorError, computed: bool, now: float, retry_s: float) -> Self:
        """Return these attempts and one more that failed with `error`; `computed`: it had computed its records.

        The last attempt is made `retry_s` after the first one, even if the error asks to wait for longer.
        """
        fenced = isinstance(error, FencedError)
        until = min(now + error.after_s, self.since + retry_s)
        return type(self)(self.since, str(error), self.fenced or fenced, self.owing or computed, until)

    def waited(self, now: float) -> bool:
        """Wait a tenth of a second at most, so that the worker can stop.

        Returns False, at once, if the next attempt is due.
        """
        if now >= self.until:
            return False
        time.sleep(min(_SLICE_S, self.until - now))
        return True


def is_unknown(error: ConnectorError) -> bool:
    """Whether the log's state is unknown after this error, so that memory may differ from the log.

    The log may have committed this transaction, or a transaction of another worker.
    """
    return isinstance(error, FencedError | IndeterminateCommitError)


def may_retry(error: ConnectorError) -> bool:
    """Whether a later attempt may succeed."""
    return not isinstance(error, SlotTakenError) and (is_unknown(error) or error.retriable)
