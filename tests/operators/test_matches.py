"""The matches of rows in a state: each pair of equal keys once, with the product of the weights."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.operators.batch import Batch
from eddy.operators.matches import matches, merged_matches
from tests.operators.bench import Wiring

weights = st.integers(-2, 3).filter(bool)
rows = st.dictionaries(st.tuples(st.integers(0, 40), st.integers(0, 2)), weights, max_size=60)
singles = st.dictionaries(st.integers(0, 40), st.tuples(st.just(0), weights), min_size=10)


def merge(key: int, left: int, right: int) -> tuple[int, tuple[int, int]]:
    return key, (left, right)


def expected(batch: Batch, others: dict[tuple[int, int], int], from_right: bool) -> list[Any]:
    """The pairs, found by comparing each row with each other one."""
    found = []
    for (key, value), weight in zip(batch.rows, batch.weights, strict=True):
        for (other_key, other), factor in others.items():
            if key == other_key:
                found.append(((key, (other, value) if from_right else (value, other)), weight * factor))
    return sorted(found)


@pytest.mark.parametrize("from_right", [False, True])
@given(ours=rows, theirs=st.one_of(rows, singles.map(lambda found: {(k, v): w for k, (v, w) in found.items()})))
def test_each_row_meets_each_row_of_its_key(from_right: bool, ours: Any, theirs: dict[tuple[int, int], int]) -> None:
    state = Wiring().arrangement("s")
    state.integrate(theirs)
    batch = Batch([*ours, *ours], [*ours.values(), *ours.values()], 7)
    made = matches(batch, state, merge, from_right)
    assert sorted(zip(made.rows, made.weights, strict=True)) == expected(batch, theirs, from_right)


@pytest.mark.parametrize("from_right", [False, True])
@given(ours=rows, theirs=st.dictionaries(st.integers(0, 40), st.integers(0, 2)))
def test_each_row_meets_the_value_of_its_key(from_right: bool, ours: Any, theirs: dict[int, int]) -> None:
    table = Wiring().table("t")
    table.put_many(theirs, table.get_many(list(theirs)))
    batch = Batch(list(ours), list(ours.values()), 7)
    made = matches(batch, table, merge, from_right)
    assert sorted(zip(made.rows, made.weights, strict=True)) == expected(
        batch, dict.fromkeys(theirs.items(), 1), from_right
    )


@pytest.mark.parametrize("values", [1, 3])
def test_pairs_that_cannot_be_merged_make_no_row(values: int) -> None:
    state = Wiring().arrangement("s")
    state.integrate({(key, value): 1 for key in range(20) for value in range(values)})

    def failing(key: int, left: int, right: int) -> Any:
        return (key, left // right) if key % 5 else key // 0

    found = merged_matches(Batch([(key, 6) for key in range(20)], [1] * 20), state, failing, "here")
    kept = [key for key in range(20) if key % 5]
    assert sorted(found.rows) == sorted((key, 6 // value) for key in kept for value in range(1, values))
