"""The join of a stream with the values that another one had at each record's time.

    left at t          is joined with the last right record of its key at u ≤ t
    late               the source partition's time is more than history after t;
                       of the right side, more than grace after u
    left at t waits    until no right record up to t can arrive that is not late

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

    That is the value of the last record of its key whose timestamp is not after its own; a record without a value
    deletes the value before it. It is known once the other stream's partition has a timestamp of more than `grace`
    after it, and until then the record waits.

    Args:
        history: how far back a value can be asked for. A record of the left stream is late, and not joined, if its
            source partition already has a timestamp of more than `history` after its own.
        grace: how late a record of the other stream may be; a later one is left out.

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
        """The records of the left stream, which wait for the right one."""
        return JoinSide(0, 0, self.history // _MILLISECOND)

    @property
    def versions(self) -> JoinSide:
        """The records of the right stream."""
        return JoinSide(0, 0, self.grace // _MILLISECOND)
