"""Mistakes in documented calls that a seed draws, other ones each day: each is told by its argument, value and fix."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.bad_input.drawn_mistakes import KINDS, PLACES, drawn
from tests.bad_input.test_mutated_calls import Place
from tests.seeds import DAY

COUNT = 200


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(stack)


@pytest.mark.parametrize("seed", [2, DAY])
def test_mistakes_that_a_seed_draws_are_told(place: Place, seed: int) -> None:
    tried: Counter[str] = Counter()
    wrong = []
    for mistake in drawn(seed):
        said = mistake.answer(place)
        if said != "fits":
            tried[mistake.kind] += 1
            wrong += [f"{mistake.kind}: {mistake.what}: {said}"] if said else []
        if tried.total() == COUNT:
            break
    assert wrong == []
    assert tried.keys() == KINDS.keys()


@pytest.mark.parametrize("name", [name for name, _, _ in PLACES])
def test_each_call_that_fits_elsewhere_is_told(place: Place, name: str) -> None:
    made = next(mistake for mistake in drawn(0) if mistake.what == name)
    assert made.answer(place) == ""
