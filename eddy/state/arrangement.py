"""An arrangement: the rows (key, value) of a collection with their weights, indexed by key.

The values of a key, with their weights, are the key's *bag*. In memory a bag is a pair (value, weight) while the key
has one row, and a dict {value: weight} from the second row on. In the store every row has its own key
(`row_layout.py`), so that one new row of a key with a million rows writes one row. Rows that are equal in Python, such
as 1 and 1.0, are one row.

Invariant: `_undo` holds the deltas of the current epoch, each with the weights before it, so the state before the epoch
is the current state minus the deltas.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import add, itemgetter
from typing import Any, Generic, TypeVar

from eddy.state.cache import Cache
from eddy.state.row_layout import split, stored_rows, weighted, weighted_rows
from eddy.state.spec import UNCHANGED, Changes, StateSpec
from eddy.state.store import Store

__all__ = ["Arrangement", "Bag", "pairs_of", "weight_in"]

_KEY, _VALUE = itemgetter(0), itemgetter(1)
_MANY = 256
"""A delta of at least this many rows is added to an empty arrangement in one step, if all its keys differ."""

K = TypeVar("K")
V = TypeVar("V")

Bag = tuple[Any, int] | dict[Any, int]
"""The values of one key: a pair (value, weight), or a dict {value: weight}. A bag is never empty, no weight is 0."""


class Arrangement(Cache[K, Bag], Generic[K, V]):
    """Bags of values by key. Without a store all rows remain in memory."""

    def __init__(self, spec: StateSpec, store: Store | None = None) -> None:
        self._undo: list[tuple[Mapping[tuple[K, V], int], list[int]]] = []
        self._touched: set[K] = set()
        super().__init__(spec, store)

    def integrate(self, delta: Mapping[tuple[K, V], int]) -> None:
        """Add the weights of `delta`, a consolidated Z-set. The caller must not change `delta` until the epoch ends."""
        self.shift(delta)

    def shift(self, delta: Mapping[tuple[K, V], int]) -> list[int]:
        """Add the weights of `delta`, as `integrate` does. Returns the weight that each row had before.

        Cost: a few dict operations a row of `delta`; the size of a bag does not matter.
        """
        if not self._complete:
            self.get_many([key for key, _ in delta])
            self._touched.update(key for key, _ in delta)
        olds: list[int] = []
        self._undo.append((delta, olds))
        fresh = self._fresh
        if not fresh and self._complete and len(delta) >= _MANY:
            bags = dict(zip(map(_KEY, delta), zip(map(_VALUE, delta), delta.values(), strict=True), strict=True))
            if len(bags) == len(delta):  # the first rows, one for each key
                fresh.update(bags)
                olds += [0] * len(delta)
                return olds
        pair: tuple[Any, int] = _NO_PAIR
        for (key, value), weight in delta.items():
            bag = fresh.get(key)
            old = 0
            if bag is None:
                if value is not pair[0] or weight != pair[1]:
                    pair = (value, weight)
                fresh[key] = pair  # successive keys with the same value and weight share one pair
            elif type(bag) is dict:
                old = bag.get(value, 0)
                if total := old + weight:
                    bag[value] = total
                elif len(bag) > 2:
                    del bag[value]
                else:
                    self._set(key, value, 0)
            elif bag[0] is not value and bag[0] != value:  # NaN is a row of its own object
                fresh[key] = {bag[0]: bag[1], value: weight}
            else:
                old = bag[1]
                if total := old + weight:
                    fresh[key] = (value, total)
                else:
                    del fresh[key]
            olds.append(old)
        return olds

    def weights(self, rows: Sequence[tuple[K, V]]) -> list[int]:
        """The weight of each row, 0 for an absent one."""
        bags = self.get_many([key for key, _ in rows])
        return [weight_in(bag, row[1]) for bag, row in zip(bags, rows, strict=True)]

    def changes(self) -> Changes:
        """The changes of the current epoch, as rows for the store and the changelog."""
        if not self._undo:
            return UNCHANGED
        rows, news = self._new_weights()
        return weighted_rows(self.spec, list(map(_KEY, rows)), list(map(_VALUE, rows)), news)

    def _new_weights(self) -> tuple[list[tuple[K, V]], list[int]]:
        """Return the rows that the current epoch has changed, and their weights now."""
        if len(self._undo) == 1:
            ((delta, olds),) = self._undo
            return list(delta), list(map(add, olds, delta.values()))
        rows = [row for row, weight in self._changed().items() if weight]
        return rows, [weight_in(self._fresh.get(key), value) for key, value in rows]

    def commit(self) -> None:
        """End the current epoch; its changes are in the store."""
        self._undo = []
        if not self._complete:
            for key in self._touched:
                self._aged.pop(key, None)
            self._touched = set()

    def rollback(self) -> None:
        """Return to the last commit."""
        for delta, olds in reversed(self._undo):
            for (key, value), old in zip(delta, olds, strict=False):  # `olds` is shorter if `shift` failed midway
                self._set(key, value, old)
        self._undo, self._touched = [], set()

    def items(self) -> Iterator[tuple[tuple[K, V], int]]:
        """Yield every ((key, value), weight), with the changes of the current epoch, in no particular order."""
        if self._complete:
            for key, bag in list(self._fresh.items()):
                for value, weight in pairs_of(bag):
                    yield (key, value), weight
            return
        changed = self._changed()
        for row in changed:
            if weight := weight_in(self._fresh.get(row[0]), row[1]):
                yield row, weight
        for row_key, data in self._rows():
            key_data, rest = split(row_key)
            value, weight = self._decode(rest, data)
            row = (self.spec.key.decode(key_data), value)
            if row not in changed:
                yield row, weight

    def _changed(self) -> Mapping[tuple[K, V], int]:
        """Return the rows that the current epoch has changed, with the change of each weight."""
        if len(self._undo) == 1:
            return self._undo[0][0]
        total: dict[tuple[K, V], int] = {}
        for delta, _ in self._undo:
            for row, weight in delta.items():
                total[row] = total.get(row, 0) + weight
        return total

    def _set(self, key: K, value: V, weight: int) -> None:
        bag = self._fresh.get(key)
        if bag is None or (type(bag) is tuple and (bag[0] is value or bag[0] == value)):
            if weight:
                self._fresh[key] = (value, weight)
            else:
                self._fresh.pop(key, None)
            return
        if type(bag) is tuple:
            bag = self._fresh[key] = {bag[0]: bag[1]}
        assert type(bag) is dict
        if weight:
            bag[value] = weight
            return
        bag.pop(value, None)
        if len(bag) == 1:
            self._fresh[key] = next(iter(bag.items()))
        elif not bag:
            del self._fresh[key]

    def _decode(self, value: bytes, data: bytes) -> tuple[V, int]:
        """Return the value and the weight of a stored row.

        `value` is the identity of the value, from the row key; `data` is the rest of the row.
        """
        original, weight = weighted(value, data)
        return self.spec.value.decode(original), weight

    def _load(self, keys: list[K]) -> dict[K, Bag]:
        assert self._store is not None
        loaded: dict[K, Bag] = {}
        for key, rows in stored_rows(self.spec, self._store, keys):
            bag = dict(self._decode(value, data) for value, data in rows)
            if bag:
                loaded[key] = bag if len(bag) > 1 else next(iter(bag.items()))
        return loaded

    def _changed_keys(self) -> set[K]:
        return self._touched


_NO_PAIR = (object(), 0)


def pairs_of(bag: Bag | None) -> Collection[tuple[Any, int]]:
    """The (value, weight) pairs of a bag.

    >>> pairs_of(("x", 2)), list(pairs_of({"x": 2, "y": 1})), pairs_of(None)
    ((('x', 2),), [('x', 2), ('y', 1)], ())
    """
    if bag is None:
        return ()
    return (bag,) if type(bag) is tuple else bag.items()  # type: ignore[union-attr]


def weight_in(bag: Bag | None, value: Any) -> int:
    """The weight of `value` in a bag, 0 if it is absent."""
    if bag is None:
        return 0
    if type(bag) is tuple:
        return bag[1] if bag[0] is value or bag[0] == value else 0
    return bag.get(value, 0)  # type: ignore[union-attr]
