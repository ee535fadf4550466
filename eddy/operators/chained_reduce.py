"""Applies a function to all values of a key that can be applied separately to each chain, as SQL's SESSION.

    place          a whole number for each value, such as its timestamp
    chain          values whose places follow one another at distances below `gap`
    f(A + B)  =    f(A) + f(B)        if A and B have no chain in common

So after a change of a value only the chains near this value are computed again, not all values of its key.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

from eddy.operators.batch import Batch, ZSet, retracted
from eddy.operators.chains import Chains
from eddy.operators.context import Context
from eddy.operators.reduce import Function, Reduce
from eddy.serde import Serde
from eddy.state.ordered_arrangement import OrderedArrangement

__all__ = ["ChainedReduce", "order_by_place"]

_Stretch = tuple[Any, int, int]
"""A key, and the first and the last place of a chain of its values, before and after a delta taken together."""


def order_by_place(chains: Chains, serde: Serde[Any]) -> Callable[[Any], tuple[float, bytes]]:
    """Return the function that makes the sort key of an arrangement's values: the place, then the bytes.

    Values in no chain come first.
    """

    def position(value: Any) -> tuple[float, bytes]:
        place = chains.place(value)
        return -math.inf if place is None else place, (serde.identify or serde.encode)(value)

    return position


class ChainedReduce(Reduce):
    """Input: rows of (K, V). Output: the rows that `function` returns for each key's values that are in chains.

    `arrangement` is sorted by `order_by_place`. Cost: the values of the chains of changed rows, and O(log n) for each
    changed row of a key with n values. An epoch that sets rows aside costs as much as with `Reduce`.
    """

    arrangement: OrderedArrangement[Any, Any]

    def __init__(
        self, name: str, arrangement: OrderedArrangement[Any, Any], function: Function, chains: Chains
    ) -> None:
        super().__init__(name, arrangement, function)
        self._chains = chains

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Return the result of the chains near the changed rows, minus their result before."""
        batch = self.with_keys(inputs[0])
        delta = batch.zset(self.name)
        stretches = list(self._stretches(delta))
        keys = [key for key, _, _ in stretches]
        made = self._difference(
            delta, batch.time, keys, lambda: [self._values(*one) for one in stretches], self._made, self._made
        )
        for row, weight in zip(delta, self.arrangement.weights(list(delta)), strict=True):
            if weight < 0:  # `_difference` has not checked values in no chain
                raise retracted(row, weight, f"'{self.name}'")
        return made

    def _values(self, key: Any, first: int, last: int) -> dict[Any, int] | None:
        """Return the values of a key from place `first` to `last`, with their weights; None if there are none."""
        return dict(self.arrangement.between(key, (first,), (last + 1,))) or None

    def _stretches(self, delta: ZSet) -> Iterator[_Stretch]:
        """Yield (key, first place, last place) of each chain that contains a changed value.

        The chains are found among the values before the delta and the values after it, taken together.
        """
        places: dict[Any, set[int]] = {}
        for key, value in delta:
            place = self._chains.place(value)
            if place is not None:
                places.setdefault(key, set()).add(place)
        for key, changed in places.items():
            left = sorted(changed, reverse=True)
            while left:
                last = left.pop()
                first = self._reached(last, self._places(key, last, descending=True))
                last = self._reached(last, self._places(key, last), left)
                yield key, first, last

    def _reached(self, place: int, there: Iterator[int], changed: list[int] | None = None) -> int:
        """Return the end of the chain of `place` in the direction of `there`; places less than `gap` apart are a chain.

        `there` yields the stored places from `place` on. `changed` has the changed places in the opposite order, so
        that `pop()` returns the next one. The places of the chain are removed from `changed`.
        """
        gap, found = self._chains.gap, next(there, None)
        while True:
            if changed and (found is None or changed[-1] <= found):
                near = changed[-1]
            elif found is not None:
                near = found
            else:
                return place
            if abs(near - place) >= gap:
                return place
            place = near
            if changed and changed[-1] == near:
                changed.pop()
            if found == near:
                found = next(there, None)

    def _places(self, key: Any, place: int, descending: bool = False) -> Iterator[int]:
        """Yield the places of the stored values of a key from `place` on, upwards or, if `descending`, downwards."""
        first, last = (-math.inf, place + 1) if descending else (place, math.inf)
        for value, _ in self.arrangement.between(key, (first,), (last,), descending):
            found = self._chains.place(value)
            if found is None:
                return
            yield found
