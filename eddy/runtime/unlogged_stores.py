"""State stores without a changelog: rows on disk are used only if they are from the last committed epoch.

    number of an epoch    greater than all numbers in the metadata of the owned partitions' positions; the epoch commits
                          it with its positions
    mark of partition p   the number of the last epoch that wrote rows of p into the store, written with these rows

Every epoch of the owner of p raises the number in the metadata of p. So the store has the effects of all epochs if mark
and number are equal. If they differ, the rows of p are deleted, and p begins empty.
"""

from collections.abc import Collection, Iterable, Mapping

from eddy.operators.operator import State
from eddy.runtime.positions import EpochEntry, Positions
from eddy.state.offsets import decode_offset, encode_offset, mark_key
from eddy.state.partitioned_map import PartitionedMap
from eddy.state.store import Store

__all__ = ["UnloggedStores"]


class UnloggedStores:
    """The states of a worker that have no changelog. Their rows on disk are in `store`."""

    def __init__(self, states: Iterable[State], store: Store, positions: Positions) -> None:
        self._store, self._positions = store, positions
        self._states = [state for state in states if isinstance(state, PartitionedMap) and not state.spec.changelog]
        self._owned: Mapping[int, Collection[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._states)

    def begin(self, owned: Mapping[int, Collection[int]]) -> None:
        """Take over partitions: delete rows of other partitions, and rows that are not from the last epoch.

        `owned` has the owned partition numbers by number of partitions.
        """
        self._owned = owned
        for state in self._states:
            spec, store = state.spec, state.own or self._store
            keys = [mark_key(spec.name, partition) for partition in range(spec.partitions)]
            marks = [-1 if data is None else decode_offset(data) for data in store.get_many(keys)]
            for partition, (key, mark) in enumerate(zip(keys, marks, strict=True)):
                mine = partition in owned.get(spec.partitions, range(spec.partitions))
                if not mine or mark != self._number(self._positions.entry, spec.partitions, partition):
                    store.write([(key, None)])  # before the rows, so that no state seems complete after half a deletion
                    store.delete_prefix(spec.prefix(partition))

    def marks(self, entry: EpochEntry, memory: bool) -> list[tuple[bytes, bytes | None]]:
        """Return the marks to write after an epoch, as keys and values.

        With `memory` they are the marks of the stores in memory, otherwise of the stores on disk.
        """
        return [
            (mark_key(state.spec.name, partition), encode_offset(number))
            for state in self._states
            if state.spec.memory is memory
            for partition in self._owned.get(state.spec.partitions, range(state.spec.partitions))
            if (number := self._number(entry, state.spec.partitions, partition)) >= 0
        ]

    def commit(self) -> None:
        """Mark the stores in memory, which have the rows of the epoch now."""
        for state in self._states:
            if state.own is not None:
                state.own.write(self.marks(self._positions.entry, memory=True))

    def _number(self, entry: EpochEntry, count: int, partition: int) -> int:
        return max(
            (
                counters.epoch
                for tp, counters in entry.counters.items()
                if tp.partition == partition and self._positions.partitions_of(tp.topic) == count
            ),
            default=-1,
        )
