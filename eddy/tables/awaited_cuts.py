"""Keeps the cuts that were read from the topic of cuts until the records up to them were read."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set

from eddy.connectors.log import TopicPartition
from eddy.runtime.quiescence import Cut

__all__ = ["AwaitedCuts"]

_MOST = 10_000


class AwaitedCuts:
    """The cuts that wait, in their order, each with the time at which it was read.

    `partitions` are the tables' partitions; `sources` are the topics whose offsets are among a cut's inputs. A cut
    counts if it is not before `floor`. These are the ends of the log when the reader last caught up.
    """

    def __init__(self, partitions: Iterable[TopicPartition], sources: Set[str], clock: Callable[[], float]) -> None:
        self._partitions, self._sources, self._clock = tuple(partitions), sources, clock
        self._cuts: deque[tuple[float, Cut]] = deque(maxlen=_MOST)
        self.floor: dict[TopicPartition, int] = {}
        self.read_at = float("-inf")
        """The time of the latest cut."""

    def add(self, cuts: Iterable[Cut]) -> None:
        """Add cuts that were read now."""
        self.read_at = self._clock()
        self._cuts += [(self.read_at, cut) for cut in cuts]

    def renew(self) -> None:
        """Set the time at which each cut was read to the present time."""
        self._cuts = deque(((self._clock(), cut) for _, cut in self._cuts), maxlen=_MOST)

    def latest(
        self, fetched: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]
    ) -> tuple[float, Cut] | None:
        """Remove the cuts whose records were all read, and the cuts that do not count.

        Returns the latest cut whose records were all read, with the time at which this cut was read; None if there is
        none.
        """
        found = None
        self._drop(positions)
        while self._cuts:
            at = self.offsets_of(self._cuts[0][1])
            if at is None or any(fetched[tp] < offset for tp, offset in at.items()):
                break
            found = self._cuts.popleft()
            self._drop(positions)
        return found

    def ahead(self, last: bool) -> dict[TopicPartition, int] | None:
        """Return the offsets of the next cut that waits or, with `last`, of the last one; None if no cut waits."""
        return self.offsets_of(self._cuts[-1 if last else 0][1]) if self._cuts else None

    def offsets_of(self, cut: Cut) -> dict[TopicPartition, int] | None:
        """Return the offsets that a cut has for the tables' partitions; None if the cut belongs to another plan."""
        found = {}
        for tp in self._partitions:
            offsets = (cut.inputs if tp.topic in self._sources else cut.outputs).get(tp.topic, [])
            if len(offsets) <= tp.partition:
                return None
            found[tp] = offsets[tp.partition]
        return found

    def _drop(self, positions: Mapping[TopicPartition, int]) -> None:
        while self._cuts and not self._counts(self._cuts[0][1], positions):
            self._cuts.popleft()

    def _counts(self, cut: Cut, positions: Mapping[TopicPartition, int]) -> bool:
        at = self.offsets_of(cut)
        return at is not None and all(
            offset >= positions[tp] and offset >= self.floor.get(tp, 0) for tp, offset in at.items()
        )
