"""Distinct and minus: what a row's weight alone decides."""

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given

from eddy.operators.stateless import Negate, Union
from eddy.operators.weight_functions import WeightFunction, one_if_positive, positive_part
from tests import oracle
from tests.operators.bench import MEMORIES, Bench, Wiring, batch, built, deltas, live, stories


def distinct(wiring: Wiring) -> int:
    return wiring.add(WeightFunction("d", wiring.arrangement("d"), one_if_positive), wiring.source("in"))


def minus(wiring: Wiring) -> int:
    left, right = wiring.source("left"), wiring.source("right")
    both = wiring.add(Union("u"), left, wiring.add(Negate("n"), right))
    return wiring.add(WeightFunction("m", wiring.arrangement("m"), positive_part), both)


def test_distinct_shows_a_row_once_until_its_last_copy_goes() -> None:
    bench = Bench(built(distinct))
    row = ("a", 1)
    assert bench.epoch(**{"in": batch([(row, 1), (row, 1)])}) == {row: 1}
    assert bench.epoch(**{"in": batch([(row, 1)])}) == {}
    assert bench.epoch(**{"in": batch([(row, -2)])}) == {}
    assert bench.epoch(**{"in": batch([(row, -1)])}) == {row: -1}


def test_distinct_waits_when_a_row_is_taken_back_before_it_comes() -> None:
    bench = Bench(built(distinct))
    row = ("a", 1)
    assert bench.epoch(**{"in": batch([(row, -1)])}) == {}
    assert bench.epoch(**{"in": batch([(row, 1)])}) == {}
    assert bench.epoch(**{"in": batch([(row, 1)])}) == {row: 1}


@pytest.mark.parametrize("others", [0, 1, 20])
@pytest.mark.parametrize("memory", MEMORIES)
def test_a_row_whose_value_is_nan_goes_with_its_last_copy(memory: str, others: int) -> None:
    bench = Bench(built(distinct), MEMORIES[memory])
    row = ("a", math.nan)
    bench.epoch(**{"in": batch([(("a", n), 1) for n in range(others)] + [((f"k{n}", n), 1) for n in range(9)])})
    assert bench.epoch(**{"in": batch([(row, 2)])}) == {row: 1}
    bench.undone(**{"in": batch([(row, -2), (("b", math.nan), 1)])})
    assert bench.epoch(**{"in": batch([(row, -1)])}) == {}
    bench = bench.restarted()
    assert bench.epoch(**{"in": batch([(row, -1)])}) == {row: -1}
    assert set(bench.states()["d"]) == {("a", n) for n in range(others)} | {(f"k{n}", n) for n in range(9)}


def test_minus_keeps_what_is_more_on_the_left() -> None:
    bench = Bench(built(minus))
    row = ("a", 1)
    assert bench.epoch(left=batch([(row, 3)]), right=batch([(row, 1), (("b", 1), 1)])) == {row: 2}
    assert bench.epoch(right=batch([(row, 4)])) == {row: -2}
    assert bench.epoch(right=batch([(row, -4)])) == {row: 2}


@pytest.mark.parametrize("memory", MEMORIES)
@given(story=stories(delta=deltas))
def test_the_integral_of_distinct_is_distinct_of_the_integral(memory: str, story: Any) -> None:
    total: oracle.Bag = Counter()

    def check(bench: Bench, inputs: Any) -> None:
        nonlocal total
        total = oracle.plus(total, oracle.bag(zip(inputs["in"].rows, inputs["in"].weights, strict=True)))
        assert bench.integral == oracle.distinct(total)

    live(distinct, MEMORIES[memory], [(what, {"in": batch(each["delta"])}) for what, each in story], check)


@pytest.mark.parametrize("memory", MEMORIES)
@given(story=stories(left=deltas, right=deltas))
def test_the_integral_of_minus_is_minus_of_the_integrals(memory: str, story: Any) -> None:
    sides = {"left": Counter[oracle.Row](), "right": Counter[oracle.Row]()}

    def check(bench: Bench, inputs: Any) -> None:
        for side, one in inputs.items():
            sides[side] = oracle.plus(sides[side], oracle.bag(zip(one.rows, one.weights, strict=True)))
        assert bench.integral == oracle.minus(sides["left"], sides["right"])

    live(
        minus,
        MEMORIES[memory],
        [(what, {side: batch(delta) for side, delta in each.items()}) for what, each in story],
        check,
    )
