"""TopK: the first values of each key in an order, from a sorted arrangement."""

import datetime
import math
import random
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eddy.errors import DataError
from eddy.operators.stateless import Map
from eddy.operators.top_k import Selection, TopK, order_of
from eddy.operators.upsert import Upsert
from eddy.serde import Native
from eddy.state.ordered_arrangement import OrderedArrangement
from tests.operators.bench import MEMORIES, Bench, Build, Wiring, batch, built, facts, live, spec, stories

PEOPLE = st.lists(st.tuples(st.sampled_from("abcdef"), st.one_of(st.none(), st.integers(1, 6))), max_size=8)


def top(selection: Selection, by_team: bool = False) -> Build:
    """The operator over rows, or over the rows (n % 2, n // 2) of a table of numbers n."""

    def build(wiring: Wiring) -> int:
        slot = wiring.source("in")
        if by_team:
            table = wiring.add(Upsert("t", wiring.table("t")), slot)
            slot = wiring.add(Map("m", lambda key, n: (n % 2, n // 2)), table)
        rows = OrderedArrangement[Any, Any](spec("k-rows", "arrangement"), wiring.store, selection.position)
        return wiring.add(TopK("k", wiring.table("k"), rows, selection), slot)

    return build


TWO = Selection("k", 2, True, None, Native)
WHOLE = Selection("k", 2, False, None, Native, whole=True)
LEAST = Selection("k", None, False, lambda value: -value, Native)


def test_the_greatest_values_come_and_go() -> None:
    bench = Bench(built(top(TWO)))
    assert bench.epoch(**{"in": facts([("a", 1), ("a", 5), ("a", 3)])}) == {("a", (5, 3)): 1}
    assert bench.epoch(**{"in": facts([("a", 2)])}) == {}
    assert bench.epoch(**{"in": batch([(("a", 5), -1)])}) == {("a", (5, 3)): -1, ("a", (3, 2)): 1}
    assert bench.epoch(**{"in": batch([(("a", n), -1) for n in (1, 2, 3)])}) == {("a", (3, 2)): -1}


def test_a_value_that_is_there_twice_is_named_twice_and_none_never() -> None:
    bench = Bench(built(top(TWO)))
    assert bench.epoch(**{"in": facts([("a", 5), ("a", 5), ("a", None), ("b", None)])}) == {("a", (5, 5)): 1}


def test_whole_groups_are_there_unless_they_have_too_many_values() -> None:
    bench = Bench(built(top(WHOLE)))
    assert bench.epoch(**{"in": facts([("a", 5), ("a", 3), ("b", 1), ("a", None)])}) == {
        ("a", (3, 5)): 1,
        ("b", (1,)): 1,
    }
    assert bench.epoch(**{"in": batch([(("a", 4), 1), (("b", 1), 2**40)])}) == {("a", (3, 5)): -1, ("b", (1,)): -1}
    assert bench.epoch(**{"in": batch([(("a", 3), -1), (("a", 4), -1), (("a", 5), 1)])}) == {("a", (5, 5)): 1}
    assert WHOLE("a", {3: 1, None: 2, 1: 1}) == {(1, 3): 1}
    assert WHOLE("a", {3: 1, 1: 2}) == WHOLE("a", {None: 1}) == {}


def test_a_row_that_is_not_there_cannot_go() -> None:
    with pytest.raises(DataError, match=r"'k': row \('a', 2\) is there -1 times; only present rows"):
        Bench(built(top(TWO))).epoch(**{"in": batch([(("a", 2), -1)])})


def test_a_value_may_go_as_an_equal_one_that_has_another_position() -> None:
    bench = Bench(built(top(Selection("k", 2, True, str, Native))))
    assert bench.epoch(**{"in": facts([("a", 1), ("a", 5), ("a", 7)])}) == {("a", (7, 5)): 1}
    assert bench.epoch(**{"in": batch([(("a", 5.0), -1), (("a", 3), 1)])}) == {("a", (7, 5)): -1, ("a", (7, 3)): 1}
    assert bench.epoch(**{"in": batch([(("a", 7), -1), (("a", True), -1)])}) == {("a", (7, 3)): -1, ("a", (3,)): 1}


def test_a_value_without_an_order_fails_alone_too() -> None:
    with pytest.raises(DataError, match=r"step 'k': the function raised .* has no order; a number, text"):
        Bench(built(top(TWO))).epoch(**{"in": facts([("a", frozenset())])})


def test_values_of_all_kinds_have_an_order() -> None:
    class Point(msgspec.Struct, frozen=True):
        x: int

    day, noon = datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, 12)
    zoned = noon.replace(tzinfo=datetime.UTC)
    ordered = [None, math.nan, -math.inf, False, Decimal("0.5"), 1, "", "a", b"", day, noon, zoned, (1, "b"), (1, "c")]
    ordered += [Point(2), Point(3)]
    shuffled = random.Random(1).sample(ordered, len(ordered))
    assert sorted(shuffled, key=order_of) == ordered


def test_a_change_of_a_large_group_asks_for_few_positions() -> None:
    asked = [0]

    def by(value: int) -> int:
        asked[0] += 1
        return value

    bench = Bench(built(top(Selection("k", 2, True, by, Native))))
    bench.epoch(**{"in": facts([("a", n) for n in range(2_000)])})
    asked[0] = 0
    assert bench.epoch(**{"in": batch([(("a", 1_999), -1)])}) == {("a", (1_999, 1_998)): -1, ("a", (1_998, 1_997)): 1}
    assert asked[0] == 1


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("selection", [TWO, LEAST, WHOLE], ids=["two-greatest", "least-by-negative", "all-of-two"])
@given(story=stories(people=PEOPLE))
@example(story=[("commit", {"people": [(p, 2) for p in "abc"]}), ("undo", {"people": [("a", 4), ("b", None)]})])
def test_the_integral_is_the_first_of_all_values_sorted(selection: Selection, memory: str, story: Any) -> None:
    people: dict[str, int | None] = {}

    def check(bench: Bench, inputs: Any) -> None:
        people.update(inputs["in"].rows)
        teams: dict[int, list[int]] = {}
        for n in people.values():
            if n is not None:
                teams.setdefault(n % 2, []).append(n // 2)
        tops = {team: tuple(sorted(found, reverse=True)[:2]) for team, found in teams.items()}
        expected: dict[int, Any] = tops if selection is TWO else {team: best[0] for team, best in tops.items()}
        if selection is WHOLE:
            expected = {team: tuple(sorted(found)) for team, found in teams.items() if len(found) <= 2}
        assert bench.integral == dict.fromkeys(expected.items(), 1)

    build = top(selection, by_team=True)
    live(build, MEMORIES[memory], [(w, {"in": facts(each["people"])}) for w, each in story], check)
