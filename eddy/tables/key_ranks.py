"""Finds the rank of a table's key, which is the number of keys before it, and the key that has a rank.

The ordered keys are divided into *runs*, of which only the first key and the number of keys are in memory:

    rank(key)   = the keys of the runs before its own + the keys of its own run before it, which are read
    key_at(n)   = the n-th key, read from the run in which it is

So an answer reads one run, never the rows before it. The runs are made by one pass over the keys, in slices, the first
time that a rank is wanted; from then on `take` updates them. During the pass only the ranks of the keys that it has
passed are known. All methods are called with the lock of the rows held.

Invariant: the runs before `_end` have all keys of the table before `_end`, each key in one run.
"""

from bisect import bisect_right
from itertools import accumulate

from eddy.state.store import Store

__all__ = ["RUN", "KeyRanks"]

RUN = 1_000
"""The number of keys of a new run, and of a slice of the pass. A run with more than twice as many keys is split; two
neighbours that together have fewer than half as many are joined.
"""


class KeyRanks:
    """The ranks of the keys from `start` to before `stop` in a store."""

    def __init__(self, store: Store, start: bytes, stop: bytes) -> None:
        self._store, self._stop = store, stop
        self._firsts = [start]
        self._counts = [0]
        self._end = start

    @property
    def counted(self) -> int:
        """The number of keys that have a rank by now."""
        return sum(self._counts)

    @property
    def whole(self) -> bool:
        """Whether all keys have ranks."""
        return self._end == self._stop

    def covers(self, key: bytes) -> bool:
        """Whether the rank of a key is known."""
        return key <= self._end

    def extend(self) -> None:
        """Do the next slice of the pass. Cost: one run of rows is read."""
        if self.whole:
            return
        keys = self._keys(self._end, self._stop, RUN)
        if self._counts[-1] >= RUN:
            self._firsts.append(self._end)
            self._counts.append(0)
        self._counts[-1] += len(keys)
        self._end = self._stop if len(keys) < RUN else keys[-1] + b"\x00"

    def take(self, added: list[bytes], removed: list[bytes]) -> None:
        """Count keys that were added to the store or removed from it.

        Cost: a search for each key; a run that has become long is read and split.
        """
        changed = set()
        for keys, step in ((added, 1), (removed, -1)):
            for key in keys:
                if key < self._end:
                    at = bisect_right(self._firsts, key) - 1
                    self._counts[at] += step
                    changed.add(at)
        is_sparse = any(self._counts[at] < RUN // 4 for at in changed)
        for at in sorted(changed, reverse=True):  # from the end, since a split changes the indexes of later runs
            if self._counts[at] > 2 * RUN:
                self._split(at)
        if is_sparse:
            self._join()

    def rank(self, key: bytes) -> int:
        """Return the number of keys before `key`. Its rank must be known, see `covers`."""
        at = bisect_right(self._firsts, key) - 1
        return sum(self._counts[:at]) + len(self._keys(self._firsts[at], key, self._counts[at]))

    def key_at(self, rank: int) -> bytes | None:
        """Return the key that has a rank; None if the pass has not reached it, or if there are fewer keys."""
        ends = list(accumulate(self._counts))
        at = bisect_right(ends, rank)
        if at == len(ends):
            return None
        within = rank - (ends[at - 1] if at else 0)
        return self._keys(self._firsts[at], self._stop, within + 1)[within]

    def _split(self, at: int) -> None:
        stop = self._end if at + 1 == len(self._firsts) else self._firsts[at + 1]
        keys = self._keys(self._firsts[at], stop, self._counts[at])
        runs = [keys[begin : begin + RUN] for begin in range(0, len(keys), RUN)]
        self._firsts[at + 1 : at + 1] = [run[0] for run in runs[1:]]
        self._counts[at : at + 1] = map(len, runs)

    def _join(self) -> None:
        """Join neighbouring runs that have few keys."""
        firsts, counts = self._firsts[:1], self._counts[:1]
        for first, count in zip(self._firsts[1:], self._counts[1:], strict=True):
            if counts[-1] + count < RUN // 2:
                counts[-1] += count
            else:
                firsts.append(first)
                counts.append(count)
        self._firsts, self._counts = firsts, counts

    def _keys(self, start: bytes, stop: bytes, limit: int) -> list[bytes]:
        return [key for key, _ in self._store.scan_between(start, stop, limit)] if limit and start < stop else []
