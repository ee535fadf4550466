"""Batches: consolidation is addition by row; everything else keeps columns in step."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.errors import DataError
from eddy.operators.batch import EMPTY, Batch, concat, consolidate, keys_of, merge_into
from tests import oracle
from tests.operators.bench import contents, deltas


def test_consolidate_adds_the_weights_of_equal_rows_and_drops_zeros() -> None:
    rows = [("a", 1), ("b", 1), ("a", 1), ("b", 1)]
    assert consolidate(rows, [1, 1, 2, -1], "here") == {("a", 1): 3}


def test_consolidate_counts_when_all_weights_are_equal() -> None:
    assert consolidate([("a", 1), ("a", 1)], [1, 1], "here") == {("a", 1): 2}
    assert consolidate([("a", 1), ("a", 1)], [-2, -2], "here") == {("a", 1): -4}
    assert consolidate([("a", 1)] * 20, [0] * 20, "here") == {}
    assert consolidate([], [], "here") == {}


def test_consolidate_names_the_place_and_the_row_when_a_row_cannot_be_hashed() -> None:
    with pytest.raises(DataError, match=r"step 'x': row \('b', \[1\]\) cannot be hashed; .*frozen=True"):
        consolidate([("a", 1), ("b", [1])], [1, 1], "step 'x'")
    with pytest.raises(DataError, match="cannot be hashed"):
        Batch([("a", {}), ("b", 1)], [1, -1]).zset("step 'x'")


keys = st.one_of(st.integers(-3, 3), st.sampled_from(["a", 1.0, 2.0, None, (1, "x")]))


@given(st.lists(keys, min_size=1, max_size=8), st.sampled_from([1, "one", None, (1, 2)]), st.sampled_from([1, -2, 0]))
def test_rows_of_one_value_are_merged_by_key(few: list[object], value: object, weight: int) -> None:
    rows = [(few[n % len(few)], value) for n in range(10_000)]
    made = Batch(list(rows), [weight] * 10_000, 7).consolidated("here")
    expected = {row: weight * count for row, count in Counter(rows).items() if weight}
    assert dict(zip(made.rows, made.weights, strict=True)) == expected
    assert [(type(key), key) for key, _ in made.rows] == [(type(key), key) for key, _ in expected]
    assert not weight or made.time == 7


@pytest.mark.parametrize(
    ("other", "weight"), [(("a", 2), 1), (("a", 1.0), 1), (("a", 1), 3), (("b", True), 1), (("a", 1), 0)]
)
def test_one_row_that_differs_among_many_equal_ones_is_merged_as_a_row(other: tuple[str, float], weight: int) -> None:
    made = Batch([("a", 1)] * 10_000 + [other], [1] * 10_000 + [weight]).consolidated("here")
    merged = other == ("a", 1)
    assert dict(zip(made.rows, made.weights, strict=True)) == (
        {("a", 1): 10_000 + weight} if merged else {("a", 1): 10_000, other: weight}
    )


@pytest.mark.parametrize("row", [("b", [1]), ([1], "b"), ["b", 1]])
def test_many_equal_rows_that_cannot_be_hashed_are_refused(row: tuple[object, object]) -> None:
    with pytest.raises(DataError, match=r"step 'x': row .* cannot be hashed"):
        Batch([row] * 10_000, [1] * 10_000).consolidated("step 'x'")


many_rows = st.lists(st.tuples(st.one_of(st.integers(0, 10_000), keys), st.just(())), min_size=14, max_size=60)


@given(many_rows, st.lists(st.tuples(st.integers(0, 99), st.integers(-2, 2)), max_size=3), st.data())
def test_many_rows_of_any_weights_are_merged_as_few_are(
    some: list[tuple[object, object]], again: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Also where they are all different, where the first sixteen are, and where a weight is 0."""
    rows = some + [some[at % len(some)] for at, _ in again]
    weights = data.draw(st.lists(st.integers(-2, 2), min_size=len(some), max_size=len(some))) + [w for _, w in again]
    total: dict[object, int] = {}
    for row, weight in zip(rows, weights, strict=True):
        total[row] = total.get(row, 0) + weight
    expected = {row: weight for row, weight in total.items() if weight}
    assert Batch(rows, weights).zset("here") == expected
    assert consolidate(rows, weights, "here") == expected


def test_many_different_rows_that_cannot_be_hashed_are_refused() -> None:
    for unhashable in (3, 40):
        rows: list[tuple[object, object]] = [(n, [] if n == unhashable else ()) for n in range(50)]
        with pytest.raises(DataError, match=rf"step 'x': row \({unhashable}, \[\]\) cannot be hashed"):
            Batch(rows, [1 + n % 2 for n in range(50)]).zset("step 'x'")


def test_merge_into_adds_in_place_and_drops_zeros() -> None:
    zset = {("a", 1): 1, ("b", 1): 2}
    merge_into(zset, [("a", 1), ("c", 1), ("b", 1)], [-1, 1, 1])
    assert zset == {("c", 1): 1, ("b", 1): 3}


def test_select_and_spread_keep_times_and_headers_with_their_rows() -> None:
    batch = Batch([("a", 1), ("b", 2)], [1, 3], 20, [10, 20], [(("h", b"x"),), ()])
    selected = batch.select([False, True])
    assert (selected.rows, selected.weights, selected.times, selected.headers) == ([("b", 2)], [3], [20], [()])
    spread = batch.spread([[("x", 1), ("y", 1)], []])
    assert (spread.rows, spread.weights, spread.times) == ([("x", 1), ("y", 1)], [1, 1], [10, 10])
    assert spread.headers == [(("h", b"x"),)] * 2


def test_concat_gives_rows_without_a_time_of_their_own_that_of_their_batch() -> None:
    both = concat([Batch([("a", 1)], [1], 5), EMPTY, Batch([("b", 1)], [-1], 9, [7], [(("h", b""),)])])
    assert (both.rows, both.weights, both.time) == ([("a", 1), ("b", 1)], [1, -1], 9)
    assert both.times == [5, 7]
    assert both.headers == [(), (("h", b""),)]


def test_concat_of_one_batch_is_that_batch() -> None:
    one = Batch([("a", 1)], [1])
    assert concat([EMPTY, one]) is one
    assert concat([]) is EMPTY


def test_rows_without_times_have_the_time_of_the_batch() -> None:
    batch = Batch([("a", 1), ("b", 1)], [1, 1], 7)
    assert batch.times_of_rows() == [7, 7]
    assert batch.headers_of_rows() == [(), ()]
    assert list(keys_of(batch.rows)) == ["a", "b"]


def test_a_batch_shows_its_rows() -> None:
    assert repr(Batch([("a", 1)], [2], 3)) == "Batch({('a', 1): 2}, time=3)"


@given(deltas)
def test_consolidation_is_the_sum_by_row(items: list[tuple[tuple[str, int], int]]) -> None:
    rows, weights = [row for row, _ in items], [weight for _, weight in items]
    assert Counter(consolidate(rows, weights, "here")) == oracle.bag(items)


@given(deltas, deltas)
def test_merging_is_addition(one: list[tuple[tuple[str, int], int]], other: list[tuple[tuple[str, int], int]]) -> None:
    zset = dict(oracle.bag(one))
    merge_into(zset, [row for row, _ in other], [weight for _, weight in other])
    assert zset == oracle.bag([*one, *other])


@given(st.lists(deltas, max_size=4))
def test_concatenation_says_what_its_parts_say(parts: list[list[tuple[tuple[str, int], int]]]) -> None:
    batches = [Batch([row for row, _ in part], [weight for _, weight in part]) for part in parts]
    assert contents(concat(batches)) == oracle.plus(*map(contents, batches))
