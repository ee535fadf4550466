"""Windows without an end: one window for each key, which begins at a fixed moment.

    unlimited    [start, ∞)

No event time is after such a window, so it never closes, and no record is late for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from eddy.errors import TopologyError
from eddy.serde import Serde
from eddy.windows import Span, windowed

__all__ = ["FOREVER_MS", "UnlimitedWindows"]

FOREVER_MS = (1 << 63) - 1
"""The end of a window without an end: the latest moment that can be represented."""
_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class UnlimitedWindows:
    """One window for each key, which begins at `start` and has no end. Earlier records are in no window.

    `start` needs a time zone, and may not be before 1970; without `start` the window begins with 1970.

    >>> UnlimitedWindows(datetime(1970, 1, 1, 0, 1, tzinfo=UTC)).of(60_000)
    [(60000, 9223372036854775807)]
    >>> UnlimitedWindows(datetime(1970, 1, 1, 0, 1, tzinfo=UTC)).of(59_999)
    []
    """

    start: datetime = _EPOCH

    def __post_init__(self) -> None:
        start: Any = self.start
        aware = isinstance(start, datetime) and start.tzinfo is not None
        if not aware or start < _EPOCH or (start - _EPOCH) % _MILLISECOND:
            raise TopologyError(
                f"UnlimitedWindows: start={start!r}; a datetime of 1970 or later with a time zone is needed, in whole "
                "milliseconds, such as datetime(2026, 1, 1, tzinfo=UTC)"
            )

    @cached_property
    def start_ms(self) -> int:
        """The start, in milliseconds since 1970."""
        return (self.start - _EPOCH) // _MILLISECOND

    @property
    def lag_ms(self) -> int:
        """Always 0: the window has no end after which a record could be late."""
        return 0

    def of(self, time_ms: int) -> Sequence[Span]:
        """Return the window, as a list; empty if `time_ms` is before the start of the window."""
        return [] if time_ms < self.start_ms else [(self.start_ms, FOREVER_MS)]

    def end_of(self, start_ms: int) -> int:
        """Return the end of a window, the same for every start."""
        return FOREVER_MS

    def closes_at(self, end_ms: int) -> int:
        """Return the window's end."""
        return end_ms

    def final_ms(self, end_ms: int) -> int:
        """Return the moment before the window's end."""
        return end_ms - 1

    def last_end(self, time_ms: int) -> int:
        """Return -1, because no window ends at or before `time_ms`."""
        return -1

    def next_end(self, time_ms: int) -> int:
        """Return the window's end."""
        return FOREVER_MS

    def serde(self, key: Serde[Any]) -> Serde[Any]:
        """Return the serde of keys with the window: the key, then the start in 8 bytes, as Java's serializer does."""
        return windowed(f"unlimited-windowed({key.name}, {self.start_ms})", key, self)
