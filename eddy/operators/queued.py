"""A loop's input that waits because the loop has met a bound, with the reasons.

A *unit* is the smallest part of a loop that can wait alone: a key, in a loop that keeps all keys; else the whole loop,
unit None.
A unit is *queued* while there is a note of it. Its rows are summed up, so they are bounded by the data.

    (number of the input, key)   (number, value)                  ->  weight
    (number of inputs, unit)     (number of inputs, the note)     ->  1
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from eddy.operators.batch import ZSet
from eddy.operators.operator import State
from eddy.state.arrangement import Arrangement, pairs_of

__all__ = ["Note", "Queue"]

Unit = Any


class Note(NamedTuple):
    """Why a unit is withheld, whether it is to be tried again without further input, and the latest time of its rows.

    `queued`: a bound was met, so that rows wait; else the loop's own limit has made rows of an error.
    """

    why: str
    owed: bool
    time: int
    queued: bool = True


class Queue:
    """Rows and notes in one arrangement. `inputs` is the number of inputs; `keyed`: units are keys."""

    def __init__(self, arrangement: Arrangement[Any, Any], inputs: int, keyed: bool) -> None:
        self._arrangement, self.inputs, self.keyed = arrangement, inputs, keyed
        self._notes: dict[Unit, Note] | None = None
        self._homes: dict[Unit, int] = {}
        self.moved = 0

    @property
    def state(self) -> State:
        """The arrangement."""
        return self._arrangement

    def forget(self) -> None:
        """The state has changed otherwise."""
        self._notes, self._homes = None, {}
        self.moved = 0

    def notes(self) -> Mapping[Unit, Note]:
        """The note of each unit that is withheld. Cost: constant where there is none."""
        if self._notes is None:
            self._notes = dict(self._stored_notes())
        return self._notes

    def _stored_notes(self) -> Iterator[tuple[Unit, Note]]:
        if not self.keyed:
            for (_, note), _weight in pairs_of(self._arrangement.get((self.inputs, None))):
                yield None, Note(*note)
            return
        for ((index, unit), (_, note)), _ in self._arrangement.items():
            if index == self.inputs:
                yield unit, Note(*note)

    def note(self, notes: Mapping[Unit, Note | None]) -> None:
        """Write notes, and forget those of units that are None."""
        known, delta = dict(self.notes()), {}
        for unit, note in notes.items():
            old = known.pop(unit, None)
            if old == note:
                if note is not None:
                    known[unit] = note
                continue
            self.moved += (note is not None and note.owed) - (old is not None and old.owed)
            if old is not None:
                delta[(self.inputs, unit), (self.inputs, tuple(old))] = -1
            if note is not None:
                delta[(self.inputs, unit), (self.inputs, tuple(note))] = 1
                known[unit] = note
            else:
                self._homes.pop(unit, None)
        if delta:
            self._arrangement.integrate(delta)
        self._notes = known

    def rows(self, units: Iterable[Unit]) -> ZSet:
        """The rows of units that wait, numbered."""
        if not self.keyed:
            return {row: weight for row, weight in self._arrangement.items() if row[0][0] != self.inputs}
        keys = [(index, unit) for unit in units for index in range(self.inputs)]
        bags = self._arrangement.get_many(keys)
        return {(key, value): weight for key, bag in zip(keys, bags, strict=True) for value, weight in pairs_of(bag)}

    def add(self, delta: ZSet, sign: int = 1) -> None:
        """Let numbered rows wait, or, with sign -1, wait no longer."""
        if delta:
            self._arrangement.integrate(delta if sign == 1 else {row: -weight for row, weight in delta.items()})

    def partitions(self, units: Sequence[Unit]) -> list[int]:
        """The partition of each unit."""
        spec = self._arrangement.spec
        if spec.partitions == 1:
            return [0] * len(units)
        homes = self._homes
        if new := [unit for unit in units if unit not in homes]:
            found = spec.partitions_of(spec.key.identify_many([(self.inputs, unit) for unit in new]))
            homes.update(zip(new, found, strict=True))
        return [homes[unit] for unit in units]
