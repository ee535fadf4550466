"""Stateless operators: functions row by row, linear in the weights."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.errors import DataError
from eddy.operators import stateless
from eddy.operators.batch import Batch
from eddy.operators.context import OUTSIDE
from eddy.operators.operator import Operator
from tests import oracle
from tests.operators.bench import batch, contents, deltas

AB = Batch([("a", 1), ("b", 2)], [1, -2], 9, [5, 9], [(("h", b"x"),), ()])


def test_filter_keeps_rows_with_their_weights_times_and_headers() -> None:
    kept = stateless.Filter("f", lambda key, value: value > 1).step(OUTSIDE, AB)
    assert (kept.rows, kept.weights, kept.time, kept.times, kept.headers) == ([("b", 2)], [-2], 9, [9], [()])


def test_filter_not_keeps_the_others() -> None:
    kept = stateless.Filter("f", lambda key, value: value > 1, keep=False).step(OUTSIDE, AB)
    assert (kept.rows, kept.headers) == ([("a", 1)], [(("h", b"x"),)])


def test_map_replaces_rows_and_lets_headers_pass() -> None:
    out = stateless.Map("m", lambda key, value: (value, key)).step(OUTSIDE, AB)
    assert (out.rows, out.weights, out.times, out.headers) == ([(1, "a"), (2, "b")], [1, -2], AB.times, AB.headers)


@pytest.mark.parametrize("wrong", [None, "word", ("k",), ("k", "v", "w"), 7, {"k": "v"}])
def test_map_refuses_what_is_no_pair_when_a_function_returns_it(wrong: Any) -> None:
    with pytest.raises(DataError, match=r"m: the function of \S+ returned .*; a pair \(key, value\) is needed"):
        stateless.Map("m", lambda key, value: wrong).step(OUTSIDE, AB)
    with pytest.raises(DataError, match=r"fm: the function of \S+ returned"):
        stateless.FlatMap("fm", lambda key, value: [wrong]).step(OUTSIDE, AB)


def test_map_values_keeps_the_key() -> None:
    assert stateless.MapValues("m", lambda value: value * 10).step(OUTSIDE, AB).rows == [("a", 10), ("b", 20)]


def test_select_key_keeps_the_value() -> None:
    assert stateless.SelectKey("s", lambda key, value: (key, value)).step(OUTSIDE, AB).rows == [
        (("a", 1), 1),
        (("b", 2), 2),
    ]


def test_flat_map_gives_each_row_the_weight_time_and_headers_of_its_origin() -> None:
    out = stateless.FlatMap("f", lambda key, value: ((key, n) for n in range(value))).step(OUTSIDE, AB)
    assert out.rows == [("a", 0), ("b", 0), ("b", 1)]
    assert (out.weights, out.times, out.headers) == ([1, -2, -2], [5, 9, 9], [(("h", b"x"),), (), ()])


def test_flat_map_values_keeps_the_key() -> None:
    assert stateless.FlatMapValues("f", lambda value: range(value)).step(OUTSIDE, AB).rows == [
        ("a", 0),
        ("b", 0),
        ("b", 1),
    ]


def test_peek_calls_the_function_and_changes_nothing() -> None:
    seen: list[tuple[str, int]] = []
    assert stateless.Peek("p", lambda key, value: seen.append((key, value))).step(OUTSIDE, AB) is AB
    assert seen == [("a", 1), ("b", 2)]


def test_union_puts_its_inputs_one_after_the_other() -> None:
    out = stateless.Union("u").step(OUTSIDE, AB, batch([(("c", 3), 1)], time=11))
    assert (out.rows, out.weights, out.time) == ([("a", 1), ("b", 2), ("c", 3)], [1, -2, 1], 11)


def test_negate_turns_the_sign() -> None:
    assert stateless.Negate("n").step(OUTSIDE, AB).weights == [-1, 2]


def test_latest_shows_the_new_value_of_each_key_and_none_where_it_went() -> None:
    delta = Batch([("a", 1), ("b", 1), ("a", 2), ("c", 5)], [-1, -1, 1, 1], 3, [1, 2, 1, 3])
    out = stateless.Latest("l").step(OUTSIDE, delta)
    assert out.rows == [("b", None), ("a", 2), ("c", 5)]
    assert (out.weights, out.times) == ([1, 1, 1], [2, 1, 3])


LINEAR: list[tuple[Callable[[], Operator], Callable[[oracle.Bag], oracle.Bag]]] = [
    (lambda: stateless.Filter("f", lambda k, v: v > 1), lambda x: oracle.selected(x, lambda k, v: v > 1)),
    (lambda: stateless.Filter("f", lambda k, v: v > 1, False), lambda x: oracle.selected(x, lambda k, v: v <= 1)),
    (lambda: stateless.Map("m", lambda k, v: (v, k)), lambda x: oracle.mapped(x, lambda k, v: (v, k))),
    (lambda: stateless.Map("m", lambda k, v: ("one", v)), lambda x: oracle.mapped(x, lambda k, v: ("one", v))),
    (lambda: stateless.MapValues("m", lambda v: v % 2), lambda x: oracle.mapped(x, lambda k, v: (k, v % 2))),
    (lambda: stateless.SelectKey("s", lambda k, v: v), lambda x: oracle.mapped(x, lambda k, v: (v, v))),
    (
        lambda: stateless.FlatMap("f", lambda k, v: [(n, k) for n in range(v)]),
        lambda x: oracle.flat_mapped(x, lambda k, v: [(n, k) for n in range(v)]),
    ),
    (
        lambda: stateless.FlatMapValues("f", lambda v: [v % 2, 0]),
        lambda x: oracle.flat_mapped(x, lambda k, v: [(k, v % 2), (k, 0)]),
    ),
    (lambda: stateless.Negate("n"), oracle.negative),
]


@given(st.sampled_from(LINEAR), deltas, deltas)
def test_the_output_of_a_sum_is_the_sum_of_the_outputs(law: Any, one: Any, other: Any) -> None:
    make, wanted = law
    operator = make()
    parts = oracle.plus(contents(operator.step(OUTSIDE, batch(one))), contents(operator.step(OUTSIDE, batch(other))))
    assert parts == contents(operator.step(OUTSIDE, batch([*one, *other]))) == wanted(oracle.bag([*one, *other]))


@given(deltas, deltas)
def test_union_adds(one: Any, other: Any) -> None:
    assert contents(stateless.Union("u").step(OUTSIDE, batch(one), batch(other))) == oracle.bag([*one, *other])


@given(
    gone=st.dictionaries(st.integers(0, 4), st.integers(0, 2)),
    come=st.dictionaries(st.integers(0, 4), st.integers(0, 2)),
)
def test_the_latest_of_a_replacement_is_that_of_its_rows_in_any_order(gone: Any, come: Any) -> None:
    rows, weights = [*gone.items(), *come.items()], [-1] * len(gone) + [1] * len(come)
    latest_of = stateless.latest_of
    in_order, timed = latest_of(Batch(rows, weights, 7)), latest_of(Batch(rows, weights, 7, [7] * len(rows)))
    assert sorted(in_order.rows, key=str) == sorted(timed.rows, key=str)
    assert dict(in_order.rows) == {
        key: come.get(key) for key in gone.keys() | come.keys() if come.get(key) != gone.get(key)
    }
