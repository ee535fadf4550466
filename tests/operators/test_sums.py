"""Sum: exact sums and means of a key's numbers, whatever the order of rows and the cut into epochs."""

import math
import random
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eddy.errors import DataError
from eddy.operators.context import OUTSIDE
from eddy.operators.sums import ExactTotal, Sum, Summation
from eddy.serde import Serde
from eddy.state.table_state import Table
from tests import oracle
from tests.operators.bench import MEMORIES, Bench, Build, Wiring, batch, built, facts, live, spec, stories


def read_number(data: bytes) -> int | float:
    if data.strip(b"-").isdigit():
        return int(data)
    return math.nan if data == b"nan" else float(data)


ANY_NUMBER: Serde[Any] = Serde("number", lambda number: repr(number).encode(), read_number)
"""Native has ints of 64 bits, and JSON no infinity."""
SUM, MEAN = Summation("s", False, None), Summation("s", True, None)
HUGE = 2**80


def summing(summation: Summation) -> Build:
    def build(wiring: Wiring) -> int:
        table = Table[Any, Any](replace(spec("s", "table"), value=ANY_NUMBER), wiring.store)
        return wiring.add(Sum("s", table, wiring.table("s-totals"), summation), wiring.source("in"))

    return build


def sum_of(*values: Any, by: Summation = SUM) -> Any:
    """The sum of some values, each in an epoch of its own."""
    bench = Bench(built(summing(by)))
    for value in values:
        bench.epoch(**{"in": facts([("a", value)])})
    return bench.states()["s"].get("a")


def test_numbers_come_and_go() -> None:
    bench = Bench(built(summing(SUM)))
    assert bench.epoch(**{"in": facts([("a", 1), ("a", 2), ("b", 5)])}) == {("a", 3): 1, ("b", 5): 1}
    assert bench.epoch(**{"in": batch([(("a", 2), -1), (("a", 7), 3)])}) == {("a", 3): -1, ("a", 22): 1}
    assert bench.epoch(**{"in": batch([(("b", 5), -1)])}) == {("b", 5): -1}
    assert bench.states() == {"s": {"a": 22}, "s-totals": {"a": "4 0 0 0 0 0 16 1"}}


def test_a_mean_is_the_nearest_float() -> None:
    assert sum_of(1, 2, by=MEAN) == 1.5
    assert sum_of(2**53, 2**53 + 2, by=MEAN) == 2.0**53
    assert sum_of(HUGE, by=MEAN) == 2.0**80
    assert sum_of(Decimal("0.1"), Decimal("0.2"), by=MEAN) == 0.15
    assert sum_of(None, by=MEAN) is None


def test_a_group_is_there_while_it_has_numbers_though_they_add_up_to_nothing() -> None:
    bench = Bench(built(summing(SUM)))
    bench.epoch(**{"in": facts([("a", 5), ("a", -5), ("b", None)])})
    assert bench.states()["s"] == {"a": 0}
    bench.epoch(**{"in": batch([(("a", 5), -1), (("a", -5), -1)])})
    assert bench.states() == {"s": {}, "s-totals": {}}


def test_floats_are_added_exactly_and_rounded_once() -> None:
    assert sum_of(0.1, 0.2, 0.3) == 0.6
    assert 0.1 + 0.2 + 0.3 != 0.6
    assert sum_of(1e300, 0.5, -1e300) == 0.5
    assert sum_of(1e308, 1e308, -1e308) == 1e308
    assert sum_of(1.7e308, 1.7e308) == math.inf
    assert sum_of(-1.7e308, -1.7e308, by=MEAN) == -1.7e308
    assert sum_of(5e-324, 5e-324) == 1e-323


def test_ints_are_of_any_size() -> None:
    assert ExactTotal().text() is None
    bench = Bench(built(summing(Summation("s", False, lambda text: int(text)))))
    bench.epoch(**{"in": batch([(("a", str(HUGE)), 2), (("a", "1"), 1), (("a", str(HUGE)), -2)])})
    assert bench.states()["s"] == {"a": 1}
    total = ExactTotal()
    total.add(HUGE, HUGE)
    assert total.result(False, None) == HUGE * HUGE
    assert ExactTotal(total.text()).result(False, None) == HUGE * HUGE


def test_equal_numbers_give_equal_sums_whatever_their_types() -> None:
    for ones in [(2**60, 1), (2**60, 1.0), (2**60, True), (float(2**60), 1)]:
        found = sum_of(*ones)
        assert (found, type(found)) == (2**60 + 1, int)


def test_a_sum_has_the_type_of_its_serde() -> None:
    def typed(type: Any, *values: Any) -> Any:
        total = ExactTotal()
        for value in values:
            total.add(value, 1)
        return total.result(False, type)

    assert [repr(typed(type, 1, 2)) for type in (None, int, float, Decimal)] == ["3", "3", "3.0", "Decimal('3')"]
    assert [repr(typed(type, 0.5, 2)) for type in (None, float, Decimal)] == ["2.5", "2.5", "Decimal('2.5')"]
    assert repr(typed(None, 0.5, Decimal("0.10"))) == "Decimal('0.6')"
    assert repr(typed(None, 2.0**70, -(2.0**70), 3)) == "3.0"
    assert repr(typed(int, Decimal(3), 2.0)) == "5"
    digits = Decimal("1" * 60 + "." + "7" * 60)
    assert typed(None, digits, digits.copy_negate(), digits, Decimal("1E+50")) == Decimal(
        "1" * 9 + "2" + "1" * 50 + "." + "7" * 60
    )


def test_infinities_and_nan_come_and_go() -> None:
    bench = Bench(built(summing(SUM)))
    seen = []
    for value, weight in [(1.5, 1), (math.inf, 1), (-math.inf, 1), (math.inf, -1), (math.nan, 1), (-math.inf, -1)]:
        bench.epoch(**{"in": batch([(("a", value), weight)])})
        seen.append(repr(bench.states()["s"]["a"]))
    assert seen == ["1.5", "inf", "nan", "-inf", "nan", "nan"]
    bench.epoch(**{"in": batch([(("a", math.nan), -1)])})
    assert bench.states()["s"]["a"] == 1.5


def test_weights_are_factors() -> None:
    """The ways through forty diamonds in a row, say."""
    bench = Bench(built(summing(SUM)))
    assert bench.epoch(**{"in": batch([(("a", 3), 2**40)])}) == {("a", 3 * 2**40): 1}
    mean = Bench(built(summing(MEAN)))
    assert mean.epoch(**{"in": batch([(("a", 3), 2**70), (("a", 5), 2**70)])}) == {("a", 4.0): 1}


def test_values_need_not_be_hashable() -> None:
    bench = Bench(built(summing(Summation("s", False, lambda value: value["n"]))))
    assert bench.epoch(**{"in": facts([("a", {"n": 1}), ("a", {"n": 2}), ("b", {"n": None})])}) == {("a", 3): 1}


@pytest.mark.parametrize(
    ("summation", "value", "told"),
    [
        (
            SUM,
            "seven",
            r"sum 's': 'seven' in the group 'a' is not a number; an int, a float, a Decimal or None is needed",
        ),
        (MEAN, [1], r"avg 's': \[1\] in the group 'a' is not a number"),
        (Summation("s", False, len), "", None),
        (Summation("s", False, lambda v: v[0]), "x", r"sum 's': 'x' of the value 'x' in the group 'a' is not a number"),
        (SUM, Decimal("NaN"), r"Decimal\('NaN'\) in the group 'a' is not finite, or has more than 6176 digits"),
        (SUM, Decimal("1E+999999"), r"is not finite, or has more than 6176 digits; a shorter Decimal is needed"),
        (Summation("s", False, None, int), 0.5, r"0.5 in the group 'a' is not a whole number, .*\(value=\)\. Name the"),
        (Summation("s", False, None, int), math.inf, r"inf in the group 'a' is not a whole number"),
    ],
)
def test_another_value_than_a_number_is_named_with_its_group(summation: Summation, value: Any, told: Any) -> None:
    operator = Sum("s", Wiring().table("s"), Wiring().table("s-totals"), summation)
    rows = facts([("a", value), ("b", None)])
    if told is None:
        assert operator.step(OUTSIDE, rows).rows == [("a", 0)]
        assert operator.failures(rows) == {}
        return
    with pytest.raises(DataError, match=told):
        operator.step(OUTSIDE, rows)
    assert operator.tells_failures
    assert operator.failures(rows).keys() == {0}


def test_a_key_that_cannot_be_hashed_is_named() -> None:
    operator = Sum("s", Wiring().table("s"), Wiring().table("s-totals"), SUM)
    with pytest.raises(DataError, match=r"sum 's': row \(\[\], None\) cannot be hashed"):
        operator.step(OUTSIDE, facts([([], 1)]))


def test_facts_without_a_value_are_dropped_and_counted() -> None:
    operator = Sum("s", Wiring().table("s"), Wiring().table("s-totals"), SUM, facts=True)
    assert operator.step(OUTSIDE, facts([("a", 1), ("a", None), (None, 2)])).rows == [("a", 1)]
    assert operator.dropped == 2


FINITE = st.one_of(
    st.integers(-3, 3),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.1, 0.2, 1e16, 1.0, -1e300, 1e300, 5e-324]),
)
NUMBERS = st.one_of(st.none(), FINITE, st.sampled_from([math.inf, -math.inf, math.nan]))
DELTAS = st.lists(st.tuples(st.tuples(st.sampled_from("ab"), NUMBERS), st.integers(-2, 3).filter(bool)), max_size=6)


def plain(values: list[float], mean: bool) -> Any:
    """The sum or the mean, as Python has it."""
    if not all(map(math.isfinite, values)):
        return sum(value for value in values if not math.isfinite(value))
    exact = sum(map(Fraction, values), Fraction(0))
    try:
        if mean:
            return float(exact / len(values))
        whole = all(float(v).is_integer() and -(2**63) <= v < 2**64 for v in values)
        return int(exact) if whole else float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def repr_of(table: dict[Any, Any]) -> dict[Any, str]:
    """NaN differs from itself."""
    return {key: repr(value + 0.0 if value == 0 else value) for key, value in table.items()}


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("summation", [SUM, MEAN], ids=["sum", "mean"])
@given(story=stories(delta=DELTAS))
@example(story=[("commit", {"delta": [(("a", 0.1), 3), (("a", math.inf), 1)]}), ("undo", {"delta": [(("a", 0.1), 1)]})])
@example(story=[("commit", {"delta": [(("a", 1e300), 2), (("a", 5e-324), -1)]}), ("restart", {"delta": []})])
def test_the_integral_is_the_sum_of_the_integral(summation: Summation, memory: str, story: Any) -> None:
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
        groups: dict[str, list[float]] = {}
        for (key, value), weight in total.items():
            if value is not None:
                groups.setdefault(key, []).extend([value] * weight)
        expected = {key: plain(values, summation.mean) for key, values in groups.items()}
        assert repr_of(bench.states()["s"]) == repr_of(expected)

    live(summing(summation), MEMORIES[memory], [(what, {"in": batch(delta)}) for what, delta in whole], check)


@given(rows=st.lists(st.tuples(st.just("a"), FINITE), min_size=1, max_size=8), seed=st.integers(0, 1 << 30))
def test_what_is_kept_is_the_same_in_any_order_and_after_detours(rows: Any, seed: int) -> None:
    """Its text, too, which a verification compares."""
    one, other = Bench(built(summing(SUM))), Bench(built(summing(SUM)))
    one.epoch(**{"in": facts(rows)})
    rng = random.Random(seed)
    for row in rng.sample(rows, len(rows)):
        other.epoch(**{"in": facts([row, row])})
    for row in rng.sample(rows, len(rows)):
        other.epoch(**{"in": batch([(row, -1)])})
    assert one.states() == other.states()


@pytest.mark.parametrize("of", [None, lambda value: value], ids=["the value", "of="])
def test_a_record_of_a_session_without_a_number_is_to_be_filtered_out(of: Any) -> None:
    with pytest.raises(DataError, match=r"needs one\. Filter the others out before windowed_by$"):
        Summation("s", False, of, required=True).number("a", None)
