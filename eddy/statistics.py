"""The counters of a worker: plain numbers, which other threads may read at any time.

The worker increments them in its own thread; each increment takes some ten nanoseconds. A reader in another thread
never sees a number half written, but two numbers may be of different moments.
"""

from bisect import bisect_left
from dataclasses import dataclass, field

__all__ = ["SECONDS", "Histogram", "Statistics"]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper bounds of a histogram's buckets."""


class Histogram:
    """The number of durations in each bucket; the last bucket is for durations above all bounds.

    >>> histogram = Histogram()
    >>> histogram.add(0.001)
    >>> histogram.add(60.0)
    >>> histogram.counts[0], histogram.counts[-1], histogram.sum_s
    (1, 1, 60.001)
    """

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration. A duration equal to a bucket's upper bound belongs to this bucket."""
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.sum_s += seconds


@dataclass(slots=True)
class Statistics:
    """The counters of a worker since it was created.

    `epochs` counts commits, also of epochs without records. `aborts` counts attempts that were undone, and `fences`
    attempts that failed because another worker had taken over. `set_aside` counts rows that a step could not process,
    and keys whose value could not be written; `kept_aside` is the number of these that were still left out at the last
    commit or takeover. `late` counts windows that were already over when one of their records was read, and
    `duplicates` the records that `deduplicate` has left out. `last_commit` is the time of the last commit by the
    worker's clock.
    """

    records: int = 0
    epochs: int = 0
    written: int = 0
    aborts: int = 0
    skipped: int = 0
    set_aside: int = 0
    kept_aside: int = 0
    dropped: int = 0
    late: int = 0
    duplicates: int = 0
    cut_rows: int = 0
    restored: int = 0
    purges: int = 0
    purged_offsets: int = 0
    waves: int = 0
    loop_rows: int = 0
    fences: int = 0
    producers_dropped: int = 0
    rebalances: int = 0
    last_commit: float | None = None
    commit_s: Histogram = field(default_factory=Histogram)
    epoch_s: Histogram = field(default_factory=Histogram)
