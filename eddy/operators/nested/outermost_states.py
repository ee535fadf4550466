"""The states of an outermost loop besides the states of its body: queued input, and the rows of its bindings.

While the loop meets a bound, its input is queued, with the reason. A *unit* is the smallest part of a loop that can be
queued alone: a key, if no step of the loop changes keys; otherwise the whole loop, as unit None. A unit is *queued*
while the queue has a note for it. Equal rows are merged, so the queue is no larger than the data.

    queue     (number of the input, key)   (number, value)                  ->  weight
              (number of inputs, unit)     (number of inputs, the note)     ->  1
    given     the bindings' rows as of the last input that was processed, summed over all iterations

Most bindings' rows are in a trace inside the loop: the trace of the reduction that makes the binding, or of a step that
reads it. The rows of other bindings are stored in an arrangement of the loop, with the number of the binding.
In an application that first ran on a version of eddy without this arrangement, the arrangement has only later rows. If
the loop then meets a bound, the older rows remain downstream; they are correct again when the data is mended.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from eddy.errors import DataError
from eddy.operators.batch import Batch, Row, ZSet
from eddy.operators.errors.row_sizes import RowSizes
from eddy.operators.operator import State
from eddy.state.arrangement import Arrangement, pairs_of, weight_in
from eddy.state.iteration_trace import Trace
from eddy.state.row_layout import changelog_refusals

__all__ = ["Given", "Note", "Queue"]


Unit = Any


class Note(NamedTuple):
    """Says in `why` for what reason a unit is withheld.

    `owed`: the unit is tried again without further input. `time`: the latest event time of its rows. `queued`: the unit
    met a bound, so its input is queued; if it is false, the loop's own limit has made rows of errors.
    """

    why: str
    owed: bool
    time: int
    queued: bool = True


class Queue:
    """The queued rows, and the notes of units, in one arrangement. `keyed`: units are keys.

    `sizes` checks the rows of each input.
    """

    def __init__(self, arrangement: Arrangement[Any, Any], sizes: Sequence[RowSizes], keyed: bool) -> None:
        self._arrangement, self._sizes, self.keyed = arrangement, sizes, keyed
        self.inputs = len(sizes)
        self._notes: dict[Unit, Note] | None = None
        self._homes: dict[Unit, int] = {}
        self.owed_change = 0

    @property
    def state(self) -> State:
        """The arrangement."""
        return self._arrangement

    def forget(self) -> None:
        """Drop the notes in memory, because the state was rolled back or replaced."""
        self._notes, self._homes = None, {}
        self.owed_change = 0

    def notes(self) -> Mapping[Unit, Note]:
        """Return the note of each unit that is withheld. Cost: constant if no unit is."""
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
        """Write the notes by unit; a note of None removes the unit's note."""
        known, delta = dict(self.notes()), {}
        for unit, note in notes.items():
            old = known.pop(unit, None)
            if old == note:
                if note is not None:
                    known[unit] = note
                continue
            self.owed_change += (note is not None and note.owed) - (old is not None and old.owed)
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
        """Return the queued rows of these units. Each key and each value is in a pair with the number of the input."""
        if not self.keyed:
            return {row: weight for row, weight in self._arrangement.items() if row[0][0] != self.inputs}
        keys = [(index, unit) for unit in units for index in range(self.inputs)]
        bags = self._arrangement.get_many(keys)
        return {(key, value): weight for key, bag in zip(keys, bags, strict=True) for value, weight in pairs_of(bag)}

    def add(self, delta: ZSet, sign: int = 1) -> None:
        """Add rows, numbered by their input, to the queue. With `sign` -1, remove them."""
        if delta:
            self._arrangement.integrate(delta if sign == 1 else {row: -weight for row, weight in delta.items()})

    def refused(self, index: int, batch: Batch) -> dict[int, Exception]:
        """Return the errors of the rows of input `index` that no state of the loop can write, by the row's index.

        A row that is retracted more often than inserted has no error, because the states have stored it before.
        """
        sizes, name = self._sizes[index], self._arrangement.spec.name
        found: dict[int, Exception] = {}
        for place, row in enumerate(batch.rows):
            try:
                hash(row)
                reason = sizes.refused(row)
            except TypeError as error:
                reason = f"it cannot be hashed ({error})"
            if reason and batch.weights[place] > 0:
                found[place] = DataError(f"state '{name}': the row of key {row[0]!r:.80} cannot be written: {reason}")
        kept = [place for place, weight in enumerate(batch.weights) if place not in found and weight > 0]
        rows = [((index, key), (index, value)) for key, value in map(batch.rows.__getitem__, kept)]
        refused = changelog_refusals(self._arrangement.spec, rows)
        return found | {kept[place]: error for place, error in refused.items()}

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


class Given:
    """The rows of the bindings. `traces` has the trace with a binding's rows; None if the arrangement has them."""

    def __init__(self, traces: Sequence[Trace[Any, Any] | None], arrangement: Arrangement[Any, Any] | None) -> None:
        self._traces, self._arrangement = traces, arrangement
        self.kept = [index for index, trace in enumerate(traces) if trace is None]

    def states(self) -> list[State]:
        """The loop's own state, if it needs one."""
        return [] if self._arrangement is None else [self._arrangement]

    def take(self, totals: Sequence[ZSet]) -> None:
        """Add the deltas of the bindings without a trace to the arrangement."""
        if self._arrangement is not None:
            delta = {
                ((index, key), (index, value)): weight
                for index in self.kept
                for (key, value), weight in totals[index].items()
            }
            if delta:
                self._arrangement.integrate(delta)

    def known(self, index: int, rows: Sequence[Row]) -> list[bool]:
        """Return for each row whether the binding of this number has it.

        A binding without a trace is read as it was before the current epoch.
        """
        trace = self._traces[index]
        if trace is not None:
            cells = trace.get_many([key for key, _ in rows])
            histories = [(cell or {}).get(row[1], ()) for row, cell in zip(rows, cells, strict=True)]
            return [sum(weight for _, weight in history) > 0 for history in histories]
        if self._arrangement is None:
            return [False] * len(rows)
        bags = self._arrangement.get_many([(index, key) for key, _ in rows])
        return [weight_in(bag, (index, value)) > 0 for (_, value), bag in zip(rows, bags, strict=True)]

    def rows(self, keys: Iterable[Any] | None) -> list[ZSet]:
        """Return the rows of each binding with these keys; all rows if `keys` is None.

        Cost: proportional to these rows.
        """
        chosen = None if keys is None else list(keys)
        made = [self._traced(trace, chosen) if trace is not None else {} for trace in self._traces]
        if self._arrangement is not None:
            if chosen is None:
                for ((index, key), (_, value)), weight in self._arrangement.items():
                    made[index][key, value] = weight
            else:
                for index in self.kept:
                    bags = self._arrangement.get_many([(index, key) for key in chosen])
                    for key, bag in zip(chosen, bags, strict=True):
                        made[index].update({(key, value): weight for (_, value), weight in pairs_of(bag)})
        return made

    def _traced(self, trace: Trace[Any, Any], keys: list[Any] | None) -> ZSet:
        zset: ZSet = {}
        if keys is None:
            for (key, _, value), weight in trace.items():
                zset[key, value] = zset.get((key, value), 0) + weight
        else:
            for key, cell in zip(keys, trace.get_many(keys), strict=True):
                for value, history in (cell or {}).items():
                    zset[key, value] = sum(weight for _, weight in history)
        return {row: weight for row, weight in zset.items() if weight}
