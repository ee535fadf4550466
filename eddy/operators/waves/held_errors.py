"""Makes rows of errors for a recursion: (its name, message about held rows). They are retracted when no row is held.

    held()    the messages of the recursion, by partition
    state     partition → the message whose row is downstream

The difference between the messages and the state is emitted. The state has a partition's message in that partition, so
that the message moves to another worker together with the held rows.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter

from eddy.operators.batch import EMPTY, Batch, ZSet, merge_into
from eddy.operators.context import Context, Wake
from eddy.operators.exchange import Ownership
from eddy.operators.operator import Operator, State
from eddy.operators.waves.withheld import Stops

__all__ = ["HeldErrors", "shortened"]

_TIME = attrgetter("time")
_LONGEST = 10_000


class HeldErrors(Operator):
    """Emits an error row (the recursion's name, message) for each message about held rows, while rows are held.

    Input: the deltas of the recursion and of its inputs, so that this step runs after the recursion in each epoch.
    Output: the delta of the error rows. The state `told` has the rows (partition, message) that are downstream.
    """

    def __init__(self, name: str, recursion: Operator, told: Stops, ownership: Ownership) -> None:
        self.name, self._recursion, self._state, self._ownership = name, recursion, told, ownership
        self._cached: Mapping[int, str] = {}
        self._times_changed = -1

    def wakes_at(self) -> Wake | None:
        """Return `AT_ONCE` if the recursion's messages differ from the rows downstream, else None."""
        held = self._held()
        return Wake.AT_ONCE if held is not None and held != self._stored_messages() else None

    def states(self) -> Sequence[State]:
        """The messages whose rows are downstream."""
        return (self._state,)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Return the difference between the recursion's messages and the rows downstream."""
        held, told = self._held(), self._stored_messages()
        if held is None or held == told:
            return EMPTY
        delta: ZSet = dict.fromkeys(sorted(told.items() - held.items()), -1)
        delta |= dict.fromkeys(sorted(held.items() - told.items()), 1)
        self._state.integrate(delta)
        self._cached = held
        rows: ZSet = {}
        merge_into(rows, [(self._recursion.name, why) for _, why in delta], delta.values())
        return Batch.of(rows, max(map(_TIME, inputs)))

    def _held(self) -> Mapping[int, str] | None:
        held = self._recursion.held()
        return {place: shortened(why) for place, why in held.items() if self._owns(place)} if held else held

    def _stored_messages(self) -> Mapping[int, str]:
        if self._times_changed != self._state.times_changed:
            self._cached = {place: why for (place, why), _ in self._state.items() if self._owns(place)}
            self._times_changed = self._state.times_changed
        return self._cached

    def _owns(self, partition: int) -> bool:
        return self._ownership.owns(partition, self._state.spec.partitions)


def shortened(why: str) -> str:
    """Return a message that is short enough for a record, even if the message quotes long keys."""
    text = why.encode(errors="backslashreplace").decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
