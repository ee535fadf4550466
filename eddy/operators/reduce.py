"""Applies any function to all values of a key. The output's delta is the function's new result minus its old one."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from eddy.operators.batch import Batch, ZSet, repeated, retracted
from eddy.operators.context import Context
from eddy.operators.errors.set_aside import Aside, only_written
from eddy.operators.keyed import Keyed
from eddy.operators.operator import State
from eddy.state.arrangement import Arrangement, Bag

__all__ = ["Function", "Reduce", "adding_up", "counting", "folding", "making"]

Function = Callable[[Any, Mapping[Any, int]], dict[Any, int]]
"""A function of a key and its values with weights, at least one. It returns a new dict of values with weights."""


class Reduce(Keyed):
    """Input: rows of (K, V). Output: the rows that `function` returns for each key's values.

    Cost: all rows of the keys in a batch.
    """

    def __init__(self, name: str, arrangement: Arrangement[Any, Any], function: Function) -> None:
        self.name, self.arrangement, self._function = name, arrangement, function

    def states(self) -> Sequence[State]:
        """The input rows."""
        return (self.arrangement,)

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Return each key's result after the batch, minus its result before."""
        return self._step(self.with_keys(inputs[0]), self._made, self._made)

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Withhold the keys on whose values the function fails, so that they have no row in the output."""

        def made_before(key: Any, bag: Bag | None) -> dict[Any, int]:
            return {} if aside.withheld(key) else self._made(key, bag)

        def made(key: Any, bag: Bag | None) -> dict[Any, int]:
            try:
                values = self._made(key, bag)
            except Exception as error:
                aside.withhold(key, bag, error)
                return {}
            aside.release(key)
            return values

        return self._step(only_written(aside, self.with_keys(inputs[0]), self.arrangement.spec), made_before, made)

    def _step(self, batch: Batch, made_before: "_Make", made: "_Make") -> Batch:
        delta = batch.zset(self.name)
        keys = list(dict.fromkeys(key for key, _ in delta))
        return self._difference(delta, batch.time, keys, lambda: self.arrangement.get_many(keys), made_before, made)

    def _difference(
        self,
        delta: ZSet,
        time: int,
        keys: Sequence[Any],
        bags: "Callable[[], Sequence[Bag | None]]",
        made_before: "_Make",
        made: "_Make",
    ) -> Batch:
        """Add the delta to the arrangement. Returns the keys' results after that, minus their results before it.

        `bags` returns the present values of each of `keys`. `made_before` and `made` compute a key's result from its
        values.
        """
        before = [made_before(key, bag) for key, bag in zip(keys, bags(), strict=True)]
        self.arrangement.integrate(delta)
        rows, weights = [], []
        for key, bag, old in zip(keys, bags(), before, strict=True):
            difference = made(key, bag)
            for value, weight in old.items():
                difference[value] = difference.get(value, 0) - weight
            for value, weight in difference.items():
                if weight:
                    rows.append((key, value))
                    weights.append(weight)
        return Batch(rows, weights, time)

    def _made(self, key: Any, bag: Bag | None) -> dict[Any, int]:
        if bag is None:
            return {}
        values: dict[Any, int] = {bag[0]: bag[1]} if isinstance(bag, tuple) else bag
        if min(values.values()) < 0:
            value, weight = min(values.items(), key=lambda item: item[1])
            raise retracted((key, value), weight, f"'{self.name}'")
        return self._function(key, values)


_Make = Callable[[Any, Bag | None], dict[Any, int]]


def making(function: Callable[[Any, Mapping[Any, int]], Iterable[Any]]) -> Function:
    """Return a `Function` for the author's function, which returns any number of values, possibly with repetitions."""

    def make(key: Any, values: Mapping[Any, int]) -> dict[Any, int]:
        made: dict[Any, int] = {}
        for value in function(key, values):
            made[value] = made.get(value, 0) + 1
        return made

    return make


def adding_up(f: Callable[[int], int]) -> Function:
    """Return a `Function` that keeps each value and replaces its weight by f(weight), such as for `distinct`."""
    return lambda key, values: {value: f(weight) for value, weight in values.items()}


def counting(key: Any, values: Mapping[Any, int]) -> dict[Any, int]:
    """Return the number of rows as the only value."""
    return {sum(values.values()): 1}


def folding(name: str, initial: Callable[[], Any], adder: Callable[[Any, Any, Any], Any]) -> Function:
    """Return a `Function` that folds all rows of a key with `initial` and `adder`. Errors name the step by `name`."""

    def fold(key: Any, values: Mapping[Any, int]) -> dict[Any, int]:
        aggregate = initial()
        for value, weight in values.items():
            for _ in repeated((key, value), weight, f"aggregate '{name}'"):
                aggregate = adder(key, value, initial() if aggregate is None else aggregate)
        return {} if aggregate is None else {aggregate: 1}

    return fold
