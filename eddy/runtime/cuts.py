"""Cuts in a worker's transactions: input offsets, and the output offsets at which the outputs are exact.

A worker that owns all partitions writes a cut with each epoch after which no loop has rows. Among several workers the
owner of the sources' first partition looks for quiescent moments, at most once in an interval. A worker that takes over
all partitions owes a cut, because an earlier owner may have ended without writing one.
"""

from collections.abc import Callable, Mapping

from eddy.connectors.log import TopicPartition
from eddy.operators.circuit import Circuit
from eddy.runtime.positions import EpochEntry, Positions
from eddy.runtime.quiescence import Cut

__all__ = ["Cuts"]


class Cuts:
    """Decides when a worker writes a cut, and makes the cut.

    If several workers share the partitions, it looks for a quiescent moment at most once in `interval_s` seconds.
    """

    def __init__(self, positions: Positions, circuit: Circuit, interval_s: float, clock: Callable[[], float]) -> None:
        self._positions, self._circuit, self._interval_s, self._clock = positions, circuit, interval_s, clock
        self._last = clock()
        self._cut: Cut | None = None
        self._owed = False

    @property
    def owns_all(self) -> bool:
        """Whether this worker owns all partitions."""
        return all(map(self._circuit.ownership.all_of, self._circuit.ownership.partitions))

    def leads(self) -> bool:
        """Whether this worker does the tasks that one worker does for the group, such as reports of global tables."""
        return self.owns_all or self._positions.leads()

    def after(self, entry: EpochEntry, ends: Mapping[TopicPartition, int]) -> Cut | None:
        """Return the cut to write in the transaction of `entry`; None if its outputs may not be exact.

        They are exact if this worker owns all partitions and no loop has rows or other unfinished work. `ends` are the
        offsets at which the records of the transaction end.
        """
        exact = self.owns_all and not entry.in_loops and not self._circuit.unsettled
        return self._positions.cut(entry, ends) if exact else None

    def quiescent(self) -> Cut | None:
        """Return a new cut of a quiescent moment among several workers, or None.

        It is None if this worker does not lead, if the interval has not passed, or if something is not processed yet.
        """
        due = self._clock() - self._last >= self._interval_s and not self._circuit.unsettled
        if not due or self.owns_all or not self._positions.leads():
            return None
        self._last = self._clock()
        cut = self._positions.quiescent_cut()
        return None if cut == self._cut else cut

    def owed(self, entry: EpochEntry) -> bool:
        """Whether a cut is possible now, and the last transaction is not known to have one."""
        return self._owed and self.owns_all and not entry.in_loops and not self._circuit.unsettled

    def commit(self, cut: Cut | None) -> None:
        """Note that a transaction has committed, with `cut`, or without a cut if it is None."""
        self._owed = cut is None
        if cut is not None:
            self._last, self._cut = self._clock(), cut

    def lose(self) -> None:
        """Note that the last transaction may have no cut, because it is unknown or may not have committed."""
        self._owed = True
