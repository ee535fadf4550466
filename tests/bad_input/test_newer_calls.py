"""The newer calls with one mistake in each, as those of `test_mutated_calls.py`."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.bad_input.newer_calls import NEWER, NEWER_POOL
from tests.bad_input.test_mutated_calls import Mutation, Place, mutations, told

LEAST = 3_000
"""So many mistakes are tried, at least."""

pytestmark = pytest.mark.filterwarnings("ignore:coroutine")


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(stack)


def test_newer_calls_that_fit_are_accepted(place: Place) -> None:
    for call in NEWER:
        result = told(place, Mutation(call, "", {}))
        assert result.startswith("no error"), f"{call.of}: {result}"


def test_mistakes_in_newer_calls_are_told(place: Place) -> None:
    tried, wrong = 0, []
    for mutation in mutations(NEWER, NEWER_POOL):
        if mutation.is_one(place):
            tried += 1
            if said := told(place, mutation):
                wrong.append(f"{mutation}: {said}")
    assert wrong == []
    assert tried >= LEAST
