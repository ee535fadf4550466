"""Describes the join of a stream with the values that another stream had at the time of each record.

    left at t          is joined with the last right record of its key at u ≤ t
    left late          its source partition's time is more than history after t
    right late         its source partition's time is more than grace after u
    left at t waits    until every right record at u ≤ t that can still arrive is late

All moments are milliseconds since 1970 in event time.
"""

from dataclasses import dataclass
from datetime import timedelta

from eddy.join_windows import JoinSide
from eddy.windows import check_span

__all__ = ["AsOf"]

_NONE = timedelta(0)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class AsOf:
    """Joins each record with the value that the other stream had for its key at the record's timestamp.

    This is the value of the last record of the key whose timestamp is at most the record's own; a record without a
    value deletes the value before it. The record waits until the other stream's partition has a timestamp of more than
    `grace` after the record's, because the value is known only then.

    Args:
        history: how far back a value can be asked for. A record of the left stream is late, and is not joined, if its
            source partition already has a timestamp of more than `history` after the record's own.
        grace: how late a record of the other stream may be; later records are left out.

    >>> AsOf(timedelta(hours=1), grace=timedelta(seconds=5)).versions.lag_ms
    5001
    """

    history: timedelta
    grace: timedelta = _NONE

    def __post_init__(self) -> None:
        check_span("AsOf: history", self.history, _NONE, "timedelta(hours=1)")
        check_span("AsOf: grace", self.grace, _NONE, "timedelta(minutes=1)")

    @property
    def waiting(self) -> JoinSide:
        """How the records of the left stream are kept while they wait for the right stream."""
        return JoinSide(0, 0, self.history // _MILLISECOND)

    @property
    def versions(self) -> JoinSide:
        """How the records of the right stream, the versions of the values, are kept."""
        return JoinSide(0, 0, self.grace // _MILLISECOND)
