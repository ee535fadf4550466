"""Any function of all values of a key: what its rows make now, less what they made before."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from eddy.errors import DataError
from eddy.operators.batch import Batch
from eddy.operators.operator import Operator, State
from eddy.operators.timed import Function
from eddy.state.arrangement import Arrangement, Bag

__all__ = ["Reduce", "adding_up", "counting", "folding", "making"]


class Reduce(Operator):
    """Rows of (K, V) in, the rows that `function` makes of each key's values out.

    Cost: all rows of the keys that a batch touches.
    """

    def __init__(self, name: str, arrangement: Arrangement[Any, Any], function: Function) -> None:
        self.name, self.arrangement, self._function = name, arrangement, function

    def states(self) -> Sequence[State]:
        """The rows that came in."""
        return (self.arrangement,)

    def step(self, *inputs: Batch) -> Batch:
        """Return what each key makes after the batch, less what it made before."""
        (batch,) = inputs
        delta = batch.zset(self.name)
        keys = list(dict.fromkeys(key for key, _ in delta))
        before = [self._made(key, bag) for key, bag in zip(keys, self.arrangement.get_many(keys), strict=True)]
        self.arrangement.integrate(delta)
        rows, weights = [], []
        for key, bag, old in zip(keys, self.arrangement.get_many(keys), before, strict=True):
            difference = self._made(key, bag)
            for value, weight in old.items():
                difference[value] = difference.get(value, 0) - weight
            for value, weight in difference.items():
                if weight:
                    rows.append((key, value))
                    weights.append(weight)
        return Batch(rows, weights, batch.time)

    def _made(self, key: Any, bag: Bag | None) -> dict[Any, int]:
        if bag is None:
            return {}
        values: dict[Any, int] = {bag[0]: bag[1]} if isinstance(bag, tuple) else bag
        if min(values.values()) < 0:
            value, weight = min(values.items(), key=lambda item: item[1])
            raise DataError(
                f"'{self.name}': row {(key, value)!r} is there {weight} times; only what is there can be taken back. "
                "Use minus() for a difference"
            )
        return self._function(key, values)


def making(function: Callable[[Any, Mapping[Any, int]], Iterable[Any]]) -> Function:
    """The author's function, which returns values, any number of times each."""

    def make(key: Any, values: Mapping[Any, int]) -> dict[Any, int]:
        made: dict[Any, int] = {}
        for value in function(key, values):
            made[value] = made.get(value, 0) + 1
        return made

    return make


def adding_up(f: Callable[[int], int]) -> Function:
    """Each value with weight f(its weight): distinct, minus."""
    return lambda key, values: {value: f(weight) for value, weight in values.items()}


def counting(key: Any, values: Mapping[Any, int]) -> dict[Any, int]:
    """The number of rows."""
    return {sum(values.values()): 1}


def folding(initial: Callable[[], Any], adder: Callable[[Any, Any, Any], Any]) -> Function:
    """The fold of all rows."""

    def fold(key: Any, values: Mapping[Any, int]) -> dict[Any, int]:
        aggregate = initial()
        for value, weight in values.items():
            for _ in range(weight):
                aggregate = adder(key, value, aggregate)
        return {} if aggregate is None else {aggregate: 1}

    return fold
