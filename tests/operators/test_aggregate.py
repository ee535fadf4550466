"""Count and aggregate: groups are there while they have rows, and a retraction undoes an insertion."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given

from eddy.errors import DataError
from eddy.operators.aggregate import Aggregate, Count
from eddy.operators.context import OUTSIDE
from eddy.operators.reduce import folding
from tests import oracle
from tests.operators.bench import MEMORIES, Bench, Wiring, batch, built, deltas, facts, live, stories


def count(wiring: Wiring) -> int:
    return wiring.add(Count("c", wiring.table("c")), wiring.source("in"))


def total_of(wiring: Wiring) -> int:
    """The sum of a group's values, which can be taken back."""
    return wiring.add(
        Aggregate(
            "s",
            wiring.table("s"),
            lambda: 0,
            lambda key, value, total: total + value,
            lambda key, value, total: total - value,
            wiring.table("s-rows"),
        ),
        wiring.source("in"),
    )


def history(wiring: Wiring) -> int:
    """The values of a group in the order of their coming: of facts, so nothing is taken back."""
    operator = Aggregate("h", wiring.table("h"), tuple, lambda key, value, seen: (*seen, value))
    return wiring.add(operator, wiring.source("in"))


def test_count_replaces_the_count_of_a_key_and_drops_groups_without_rows() -> None:
    bench = Bench(built(count))
    assert bench.epoch(**{"in": batch([(("a", 1), 1), (("a", 2), 2), (("b", 1), 1)])}) == {("a", 3): 1, ("b", 1): 1}
    assert bench.epoch(**{"in": batch([(("a", 2), -1), (("b", 1), -1)])}) == {
        ("a", 3): -1,
        ("a", 2): 1,
        ("b", 1): -1,
    }


def test_count_adds_weights_of_a_key_that_comes_back_after_many_others() -> None:
    bench = Bench(built(count))
    rows = [((n, "x"), 1 + n % 3) for n in range(200)]
    expected = {(n, 1 + n % 3): 1 for n in range(200)}
    assert bench.epoch(**{"in": batch(rows)}) == expected
    back = [((n, "y"), -(n % 3) - 1) for n in range(200)] + [((199, "z"), 5)]
    gone = dict.fromkeys(expected, -1) | {(199, 5): 1}
    assert bench.epoch(**{"in": batch(back)}) == gone


def test_count_names_the_row_when_its_key_cannot_be_hashed() -> None:
    with pytest.raises(DataError, match=r"count 'c': row \(\[\], 1\) cannot be hashed"):
        Count("c", Wiring().table("c")).step(OUTSIDE, batch([(([], 1), 1)]))


def test_aggregate_of_facts_folds_in_the_order_of_the_records() -> None:
    bench = Bench(built(history))
    bench.epoch(**{"in": facts([("a", 3), ("b", 9), ("a", 1)])})
    bench.epoch(**{"in": batch([(("a", 2), 2)])})
    assert bench.states()["h"] == {"a": (3, 1, 2, 2), "b": (9,)}


def test_aggregate_takes_back_before_it_adds() -> None:
    seen: list[str] = []

    def note(sign: str, function: Any) -> Any:
        def noted(key: str, value: int, total: int) -> int:
            seen.append(f"{sign}{value}")
            return int(function(total, value))

        return noted

    wiring = Wiring()
    operator = Aggregate("s", wiring.table("s"), int, note("+", int.__add__), note("-", int.__sub__), wiring.table("n"))
    operator.step(OUTSIDE, batch([(("a", 1), 1)]))
    operator.step(OUTSIDE, batch([(("a", 2), 1), (("a", 1), -1)]))
    assert seen == ["+1", "-1", "+2"]


def test_aggregate_drops_a_group_when_its_last_row_goes_even_if_the_sum_is_not_zero() -> None:
    bench = Bench(built(total_of))
    bench.epoch(**{"in": batch([(("a", 0), 1), (("b", 5), 1)])})
    assert bench.states()["s"] == {"a": 0, "b": 5}
    bench.epoch(**{"in": batch([(("a", 0), -1)])})
    assert bench.states()["s"] == {"b": 5}


def test_aggregate_adds_first_where_a_group_is_empty_when_a_delta_holds_both_signs() -> None:
    """A join whose two sides change in one epoch says +row +row -row."""

    def first(key: str, value: int, total: int | None) -> int:
        return value if total is None else total + value

    def less(key: str, value: int, total: int | None) -> int:
        assert total is not None, "nothing can be taken from an empty group"
        return total - value

    wiring = Wiring()
    operator = Aggregate("s", wiring.table("s"), lambda: None, first, less, wiring.table("n"))
    out = operator.step(OUTSIDE, batch([(("a", 9), 1), (("a", 9), -1), (("a", 9), 1)]))
    assert (out.rows, out.weights) == ([("a", 9)], [1])


def test_aggregate_takes_a_group_off_the_table_when_the_function_returns_none() -> None:
    operator = Aggregate("x", Wiring().table("x"), lambda: 0, lambda key, value, total: total + value or None)
    steps = [operator.step(OUTSIDE, facts([("a", n)])) for n in (1, -1, 0, 5)]
    assert [(out.rows, out.weights) for out in steps] == [
        ([("a", 1)], [1]), ([("a", 1)], [-1]), ([], []), ([("a", 5)], [1])
    ]  # fmt: skip


def test_aggregate_takes_back_first_where_a_group_has_rows_though_its_aggregate_is_none() -> None:
    seen = []

    def noted(sign: int) -> Any:
        def step(key: str, value: int, total: int) -> int | None:
            seen.append(sign * value)
            return total + sign * value or None

        return step

    wiring = Wiring()
    operator = Aggregate("s", wiring.table("s"), int, noted(1), noted(-1), wiring.table("n"))
    operator.step(OUTSIDE, batch([(("a", 2), 1), (("a", -2), 1)]))
    out = operator.step(OUTSIDE, batch([(("a", 7), 1), (("a", -2), -1)]))
    assert seen == [2, -2, 2, 7]
    assert (out.rows, out.weights) == ([("a", 9)], [1])


def test_aggregate_refuses_a_function_that_changes_its_argument() -> None:
    def append(key: str, value: int, seen: list[int]) -> list[int]:
        seen.append(value)
        return seen

    operator = Aggregate("x", Wiring().table("x"), list, append)
    with pytest.raises(DataError, match=r"aggregate 'x': the function changed its argument in place at key 'a'"):
        operator.step(OUTSIDE, facts([("a", 1)]))


@pytest.mark.parametrize("memory", MEMORIES)
@given(story=stories(delta=deltas))
@example(story=[("commit", {"delta": [(("a", 1), 1)]}), ("restart", {"delta": [(("a", 1), -1)]})])
def test_the_integral_is_the_count_of_the_integral(memory: str, story: Any) -> None:
    _law(count, oracle.counts, memory, story)


@pytest.mark.parametrize("memory", MEMORIES)
@given(story=stories(delta=deltas))
def test_the_integral_is_the_sum_of_the_integral(memory: str, story: Any) -> None:
    _law(total_of, oracle.sums, memory, story)


def _law(build: Any, wanted: Any, memory: str, story: Any) -> None:
    """Whole relations only: at the end of an epoch no row is there less often than not at all."""
    total: oracle.Bag = Counter()
    whole = []
    for what, each in story:
        short = {row: -w for row, w in oracle.plus(total, oracle.bag(each["delta"])).items() if w < 0}
        whole.append((what, [*each["delta"], *short.items()]))
        total = oracle.plus(total, oracle.bag(whole[-1][1]))
    total = Counter()

    def check(bench: Bench, inputs: Any) -> None:
        nonlocal total
        total = oracle.plus(total, oracle.bag(zip(inputs["in"].rows, inputs["in"].weights, strict=True)))
        assert bench.integral == oracle.rows_of(wanted(total))

    live(build, MEMORIES[memory], [(what, {"in": batch(delta)}) for what, delta in whole], check)


def test_so_many_equal_rows_that_a_fold_would_not_end_are_refused() -> None:
    """The ways through forty diamonds in a row, say: a million million."""
    ways, told = 2**40, r"row \('a', 1\) is there 1,099,511,627,776 times.* Use count\(\)"
    with pytest.raises(DataError, match=f"aggregate 's': {told}"):
        Bench(built(total_of)).epoch(**{"in": batch([(("a", 1), ways)])})
    with pytest.raises(DataError, match=f"aggregate 'n': {told}"):
        folding("n", lambda: 0, lambda key, value, total: total + value)("a", {1: ways})
    assert Bench(built(count)).epoch(**{"in": batch([(("a", 1), ways)])}) == {("a", ways): 1}
