"""Adjacency: an arrangement of graph links for algorithms that follow links one by one.

In memory every bag is a dict, even if it has one entry. The rows in the store are the same as an arrangement's.
"""

from collections.abc import Mapping
from typing import Any

from eddy.state.arrangement import Arrangement, Bag, pairs_of

__all__ = ["Adjacency"]


class Adjacency(Arrangement[Any, Any]):
    """Maps each node to its bag {neighbour: weight}."""

    def shift(self, delta: Mapping[tuple[Any, Any], int]) -> list[int]:
        """Add the weights of `delta`, as `integrate` does. Returns the weight that each row had before."""
        if not self._complete:
            self.get_many([key for key, _ in delta])
            self._touched.update(key for key, _ in delta)
        olds: list[int] = []
        self._undo.append((delta, olds))
        fresh: dict[Any, Any] = self._fresh
        for (key, value), weight in delta.items():
            bag = fresh.get(key)
            if bag is None:
                fresh[key] = {value: weight}
                olds.append(0)
                continue
            old = bag.get(value, 0)
            olds.append(old)
            if old + weight:
                bag[value] = old + weight
            else:
                del bag[value]
                if not bag:
                    del fresh[key]
        return olds

    def neighbours(self) -> dict[Any, dict[Any, int]]:
        """Return the bags in memory, by node."""
        return self._fresh  # type: ignore[return-value]

    def _set(self, key: Any, value: Any, weight: int) -> None:
        bag: Any = self._fresh.setdefault(key, {})
        if weight:
            bag[value] = weight
        else:
            bag.pop(value, None)
            if not bag:
                del self._fresh[key]

    def _load(self, keys: list[Any]) -> dict[Any, Bag]:
        return {key: dict(pairs_of(bag)) for key, bag in super()._load(keys).items()}
