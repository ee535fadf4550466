"""Recovery: restores states between the assignment of partitions and the processing of their records.

After every change of ownership, and after every commit with an unknown result, the store is restored to the committed
positions, a slice at a time, with polls between slices. Nothing is processed before the restore is complete.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set

from eddy.connectors.log import Log
from eddy.errors import StateError
from eddy.operators.errors.set_aside import KeptRow, Located
from eddy.operators.operator import State
from eddy.runtime.changelog_replay import Restore, restores
from eddy.runtime.metadata import read_metadata
from eddy.state.offsets import StoreStamp, read_stamp
from eddy.state.store import Store

__all__ = ["Recovery"]

_log = logging.getLogger("eddy.worker")


class Recovery:
    """The restores of one worker's store. `incarnation` is the application's, `wall` the seconds since 1970.

    At the restore's start the metadata topic is read for:

    - `held`: messages about parts without a finite answer, by recursion and partition
    - `set_aside`: rows and keys that steps have set aside
    - `left_out`: rejected records

    `report` is called after each slice with the name of the state, the number of offsets read, and their total.
    """

    def __init__(
        self,
        log: Log,
        store: Store,
        application: str,
        metadata_topic: str,
        incarnation: str,
        wall: Callable[[], float],
        report: Callable[[str, int, int], None],
    ) -> None:
        self._log, self._store, self._application, self._metadata_topic = log, store, application, metadata_topic
        self._wall, self._report = wall, report
        self._totals: dict[str, int] = {}
        self._todo: list[Restore] = []
        self.incarnation = incarnation
        self.held_back = ""
        self.set_aside: Mapping[Located, KeptRow] = {}
        self.held: dict[tuple[str, int], str] = {}
        self.left_out: Set[tuple[str, int, int]] = frozenset()

    @property
    def left(self) -> int:
        """The number of offsets still to be restored."""
        return sum(restore.end - restore.position for restore in self._todo)

    @property
    def done(self) -> bool:
        """Whether the restore is complete."""
        return not self._todo

    def begin(self, states: Iterable[State], owned: dict[int, frozenset[int]]) -> None:
        """Plan the restores for the owned partitions, by partition count.

        Raises: StateError if the store does not belong to the application's current incarnation.
        """
        metadata = read_metadata(self._log, self._metadata_topic)
        self.set_aside = metadata.set_aside
        self.held, self.left_out = metadata.held, metadata.left_out
        age_s = self._check_incarnation(metadata.incarnations)
        self._todo = restores(self._log, self._store, self._application, states, owned, metadata.left_out, age_s)
        self._totals = self._left_by_state()

    def step(self, max_records: int) -> int:
        """Restore one slice. Returns the number of records in it."""
        if not self._todo:
            return 0
        current = self._todo[0]
        before = current.position
        taken = current.step(self._log, self._store, max_records)
        self._note(current, current.position == before)
        if current.done:
            self._todo.pop(0)
        name = current.spec.name
        total = self._totals.get(name, 0)
        self._report(name, total - self._left_by_state().get(name, 0), total)
        return taken

    def _left_by_state(self) -> dict[str, int]:
        left: Counter[str] = Counter()
        for restore in self._todo:
            left[restore.spec.name] += restore.end - restore.position
        return left

    def stamp(self) -> tuple[bytes, bytes]:
        """Return the row to write with every batch, key and value: the incarnation and the time of the write."""
        return StoreStamp(self.incarnation, int(self._wall())).row()

    def _check_incarnation(self, incarnations: set[str]) -> float:
        """Refuse states of another incarnation. Returns the number of seconds since they were written."""
        self.incarnation = min(incarnations, default=self.incarnation)
        stamp = read_stamp(self._store)
        if stamp is None:
            return 0.0
        if stamp.incarnation not in {*incarnations, self.incarnation}:
            raise StateError(
                f"application '{self._application}': the states here belong to another incarnation, before a "
                f"reset or on another log; they would be wrong for this one. Remove the state directory, or "
                f"name another: "
                "--state DIR"
            )
        return self._wall() - stamp.written_s

    def _note(self, restore: Restore, held: bool) -> None:
        """Log, once, why a restore makes no progress."""
        if not held:
            self.held_back = ""
        elif not self.held_back:
            self.held_back = (
                f"state '{restore.spec.name}' waits at offset {restore.position} of '{restore.partition.topic}' "
                f"partition {restore.partition.partition}, of {restore.end}: a transaction there has not ended"
            )
            _log.warning("restoring: %s; it ends by its producer or by its time limit", self.held_back)
