"""A function of chains of values: the delta is that of all values of each key, and only the chains near it are read."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.errors import DataError
from eddy.operators.batch import Batch
from eddy.operators.chained_reduce import ChainedReduce, order_by_place
from eddy.operators.chains import Chains
from eddy.operators.context import OUTSIDE
from eddy.serde import Native
from eddy.state.ordered_arrangement import OrderedArrangement
from eddy.state.spec import StateSpec

Value = tuple[int | None, str]
Bag = Counter[tuple[Any, Value]]


class Spans:
    """From a place and a text to these and the ends of the chain; notes how many values each call gets."""

    def __init__(self, gap: int) -> None:
        self.gap, self.sizes = gap, list[int]()

    def __call__(self, key: Any, values: Mapping[Value, int]) -> dict[Any, int]:
        self.sizes.append(len(values))
        return dict(plainly(self.gap, Counter({(key, value): weight for value, weight in values.items()}))[key])


def plainly(gap: int, rows: Bag) -> dict[Any, Counter[Any]]:
    """Each value with the least and the greatest place that steps below the gap reach from it, by key."""
    found: dict[Any, Counter[Any]] = {key: Counter() for key, _ in rows}
    for (key, (place, text)), weight in rows.items():
        if place is None:
            continue
        reached = {place}
        while (
            more := {
                other
                for (of, (other, _)), n in rows.items()
                if n and of == key and other is not None and any(abs(other - one) < gap for one in reached)
            }
            - reached
        ):
            reached |= more
        found[key][place, text, min(reached), max(reached)] += weight
    return found


def made_by(function: Spans) -> ChainedReduce:
    chains = Chains(lambda value: value[0], function.gap)
    spec = StateSpec("s", "arrangement", Native, Native, 1, lambda data, count: 0)
    return ChainedReduce("s", OrderedArrangement(spec, None, order_by_place(chains, Native)), function, chains)


value = st.tuples(st.integers(-12, 12) | st.none(), st.sampled_from("xy"))
steps = st.lists(st.lists(st.tuples(st.sampled_from("ab"), value, st.sampled_from([1, 1, 2, -1])), max_size=6))


@given(steps, st.integers(1, 5))
def test_the_delta_is_that_of_all_values(steps: list[list[tuple[str, Value, int]]], gap: int) -> None:
    operator, rows, made = made_by(Spans(gap)), Counter[Any](), Counter[Any]()
    for step in steps:
        delta = Counter[Any]()
        for key, one, weight in step:
            if rows[key, one] + delta[key, one] + weight >= 0:
                delta[key, one] += weight
        rows.update(delta)
        out = operator.step(OUTSIDE, Batch(list(delta), list(delta.values()), 0))
        for row, weight in zip(out.rows, out.weights, strict=True):
            made[row] += weight
        operator.arrangement.commit()
        expected = {(key, one): n for key, bag in plainly(gap, +rows).items() for one, n in bag.items() if n}
        assert {row: n for row, n in made.items() if n} == expected


def test_values_of_other_chains_are_not_read() -> None:
    function = Spans(5)
    operator = made_by(function)
    rows = [("k", (100 * n + m, "")) for n in range(300) for m in (0, 3)]
    operator.step(OUTSIDE, Batch(rows, [1] * len(rows), 0))
    function.sizes.clear()
    out = operator.step(OUTSIDE, Batch([("k", (5_006, "")), ("k", (9_103, ""))], [1, -1], 0))
    assert function.sizes == [2, 2, 3, 1]
    assert len(out) == 2 + 3 + 2 + 1


@pytest.mark.parametrize("place", [None, 3])
def test_a_value_that_is_not_there_cannot_be_retracted(place: int | None) -> None:
    operator = made_by(Spans(5))
    operator.step(OUTSIDE, Batch([("k", (4, ""))], [1], 0))
    with pytest.raises(DataError, match="is there -1 times"):
        operator.step(OUTSIDE, Batch([("k", (place, ""))], [-1], 0))
