"""An arrangement whose values are sorted within each key.

The rows, in memory and in the store, are the same as in an arrangement. A key with several values also has a sorted
list of their positions. The list is in memory only, and is made when the order of the key is first read.

Invariant: a sorted list has exactly one entry for each value, other than None, of its key's bag.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from sortedcontainers import SortedList

from eddy.state.arrangement import Arrangement, weight_in
from eddy.state.spec import StateSpec
from eddy.state.store import Store

__all__ = ["OrderedArrangement"]

K = TypeVar("K")
V = TypeVar("V")


class OrderedArrangement(Arrangement[K, V], Generic[K, V]):
    """Bags of values by key, sorted by `position(value)`. Different values have different positions."""

    def __init__(self, spec: StateSpec, store: Store | None, position: Callable[[V], Any]) -> None:
        self._position = position
        self._sorted: dict[K, Any] = {}
        super().__init__(spec, store)

    def shift(self, delta: Mapping[tuple[K, V], int]) -> list[int]:
        """Add the weights of `delta`, as an arrangement does.

        Cost: a call of `position` for each row, and O(log n) if its key has n values. Equal values, such as 5 and 5.0,
        may have different positions. If a removed value is not at the position of the inserted value, the order of the
        key is made anew.
        Raises: any exception of `position`, before anything is changed.
        """
        positions = {row: self._position(row[1]) for row in delta if row[1] is not None}
        olds = super().shift(delta)
        for (row, weight), old in zip(delta.items(), olds, strict=True):
            found = self._sorted.get(row[0])
            if found is None or row[1] is None:
                continue
            entry = (positions[row], row[1])
            if not old:
                found.add(entry)
            elif not old + weight and not _removed(found, entry):
                del self._sorted[row[0]]
        return olds

    def in_order(self, key: K, descending: bool) -> Iterator[tuple[V, int]]:
        """Yield the values of a key, other than None, with their weights.

        Cost: O(n log n) the first time for a key of n values; then O(1) for each value taken.
        """
        bag = self.get(key)
        if type(bag) is not dict:
            if bag is not None and bag[0] is not None:
                yield bag  # type: ignore[misc]
            return
        found = self._order_of(key, bag)
        for _, value in reversed(found) if descending else found:
            yield value, weight_in(bag, value)

    def between(self, key: K, first: Any, last: Any, descending: bool = False) -> Iterator[tuple[V, int]]:
        """Yield (value, weight) for the values of a key with `first` ≤ position < `last`.

        With `descending` the last value comes first.

        Cost: as `in_order`, and O(log n) for the first value.
        """
        bag = self.get(key)
        if type(bag) is not dict:
            if bag is not None and bag[0] is not None and first <= self._position(bag[0]) < last:  # type: ignore[arg-type]
                yield bag  # type: ignore[misc]
            return
        for _, value in self._order_of(key, bag).irange((first,), (last,), (True, False), descending):
            yield value, weight_in(bag, value)

    def _order_of(self, key: K, bag: dict[Any, int]) -> Any:
        """Return the sorted list of a key with several values. It is made if it is missing."""
        found = self._sorted.get(key)
        if found is None:
            entries = ((self._position(value), value) for value in bag if value is not None)
            found = self._sorted[key] = SortedList(entries)
        return found

    def rollback(self) -> None:
        """Return to the state of the last commit."""
        for delta, _ in self._undo:
            for key, _ in delta:
                self._sorted.pop(key, None)
        super().rollback()

    def commit(self) -> None:
        """End the current epoch. Drops the sorted lists of keys that have one value left, or none."""
        for key, _ in self._changed():
            if key in self._sorted and type(self._fresh.get(key)) is not dict:
                del self._sorted[key]
        super().commit()

    def age(self) -> int:
        """Drop the older half of the cells, with their orders. Returns the number of cells dropped."""
        dropped = super().age()
        self._sorted = {key: found for key, found in self._sorted.items() if key in self._aged}
        return dropped

    def forget(self) -> None:
        """Empty the memory after another writer has changed the store."""
        super().forget()
        self._sorted = {}


def _removed(found: Any, entry: Any) -> bool:
    try:
        found.remove(entry)
    except ValueError:
        return False
    return True
