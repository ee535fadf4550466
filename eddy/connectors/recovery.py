"""Recovery: what stands between owning partitions and working on them.

After every change of ownership, and after every end of an epoch that is not known, the store is brought
up to what the log says is committed, a slice at a time, so that polls go on between slices.
Nothing is processed before all of it is there.
"""

import logging
from collections.abc import Callable, Iterable

from eddy.connectors.log import Log
from eddy.connectors.planlog import read_memory
from eddy.connectors.restore import Restore, restores
from eddy.errors import StateError
from eddy.operators.operator import State
from eddy.state.offsets import Stamp, read_stamp
from eddy.state.store import Store

__all__ = ["Recovery"]

_log = logging.getLogger("eddy.worker")


class Recovery:
    """The restores of one worker's store. `life` is the application's, `wall` the seconds since 1970."""

    def __init__(
        self, log: Log, store: Store, application: str, memory: str, life: str, wall: Callable[[], float]
    ) -> None:
        self._log, self._store, self._application, self._memory = log, store, application, memory
        self._wall = wall
        self._todo: list[Restore] = []
        self.life = life
        self.held_back = ""

    @property
    def left(self) -> int:
        """How many offsets are still to be restored."""
        return sum(restore.end - restore.position for restore in self._todo)

    @property
    def done(self) -> bool:
        """Whether the store has it all."""
        return not self._todo

    def begin(self, states: Iterable[State], owned: dict[int, frozenset[int]]) -> None:
        """Find out what the store lacks for the partitions owned, by number of partitions.

        Raises: StateError where the store cannot be of this application as it is now.
        """
        memory = read_memory(self._log, self._memory)
        age_s = self._check_life(memory.lives)
        self._todo = restores(self._log, self._store, self._application, states, owned, memory.left_out, age_s)

    def step(self, max_records: int) -> int:
        """Bring one slice into the store. Returns the number of records in it."""
        if not self._todo:
            return 0
        current = self._todo[0]
        before = current.position
        taken = current.step(self._log, self._store, max_records)
        self._note(current, current.position == before)
        if current.done:
            self._todo.pop(0)
        return taken

    def stamp(self) -> tuple[bytes, bytes]:
        """What goes into the store with every batch."""
        return Stamp(self.life, int(self._wall())).row()

    def _check_life(self, lives: set[str]) -> float:
        """Refuse states of another life of the application. Returns how many seconds ago they were written."""
        self.life = min(lives, default=self.life)
        stamp = read_stamp(self._store)
        if stamp is None:
            return 0.0
        if stamp.life not in {*lives, self.life}:
            raise StateError(
                f"application '{self._application}': the states here are of another life of it, before a reset or on "
                "another log; they would be wrong for this one. Remove the state directory, or name another: "
                "--state DIR"
            )
        return self._wall() - stamp.written_s

    def _note(self, restore: Restore, held: bool) -> None:
        """Say, once, why a restore does not get on."""
        if not held:
            self.held_back = ""
        elif not self.held_back:
            self.held_back = (
                f"state '{restore.spec.name}' waits at offset {restore.position} of '{restore.partition.topic}' "
                f"partition {restore.partition.partition}, of {restore.end}: a transaction there has not ended"
            )
            _log.warning("restoring: %s; its producer ends it, or its time limit does", self.held_back)
