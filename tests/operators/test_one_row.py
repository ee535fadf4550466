"""OneRow: a table of the keys that have exactly one row."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given

from eddy.errors import DataError
from eddy.operators.one_row import OneRow
from eddy.operators.stateless import Map
from eddy.operators.upsert import Upsert
from tests.operators.bench import MEMORIES, Bench, Wiring, batch, built, facts, live, records, stories


def one_row(wiring: Wiring) -> int:
    return wiring.add(OneRow("o", wiring.table("o"), wiring.arrangement("o-several")), wiring.source("in"))


def one_row_by_value(wiring: Wiring) -> int:
    """Rows (value, key) of a table, so that several keys can have one row's key, and rows equal ones."""
    table = wiring.add(Upsert("t", wiring.table("t")), wiring.source("in"))
    swapped = wiring.add(Map("m", lambda key, value: (value, "a" if key == "b" else key)), table)
    return wiring.add(OneRow("o", wiring.table("o"), wiring.arrangement("o-several")), swapped)


def test_a_key_has_a_row_while_there_is_one() -> None:
    bench = Bench(built(one_row))
    assert bench.epoch(**{"in": facts([("a", 1), ("b", 2)])}) == {("a", 1): 1, ("b", 2): 1}
    assert bench.epoch(**{"in": facts([("a", 3), ("a", 4)])}) == {("a", 1): -1}
    assert bench.epoch(**{"in": batch([(("a", 1), -1)])}) == {}
    assert bench.epoch(**{"in": batch([(("a", 4), -1)])}) == {("a", 3): 1}


def test_equal_rows_are_several_and_none_is_no_value() -> None:
    bench = Bench(built(one_row))
    assert bench.epoch(**{"in": facts([("a", 1), ("a", 1), ("b", None), (None, 3)])}) == {}
    assert bench.epoch(**{"in": batch([(("a", 1), -1)])}) == {("a", 1): 1}


def test_a_row_that_is_not_there_cannot_go() -> None:
    bench = Bench(built(one_row))
    with pytest.raises(DataError, match=r"to_table 'o': row \('a', 2\) is there -1 times; only present rows"):
        bench.epoch(**{"in": batch([(("a", 1), 1), (("a", 2), -1)])})


def test_rows_that_replace_one_another_leave_before_others_come() -> None:
    bench = Bench(built(one_row))
    bench.epoch(**{"in": facts([("a", 1), ("b", 2), ("c", 3)])})
    moved = batch([(("d", 4), 1), (("a", 9), 1), (("b", 2), -1), (("a", 1), -1)])
    assert bench.epoch(**{"in": moved}) == {("d", 4): 1, ("a", 9): 1, ("b", 2): -1, ("a", 1): -1}
    assert bench.states()["o"] == {"a": 9, "c": 3, "d": 4}


def test_a_row_that_cannot_be_hashed_is_refused_also_where_each_key_has_one() -> None:
    bench = Bench(built(one_row))
    with pytest.raises(DataError, match=r"o: row \('b', \[2\]\) cannot be hashed"):
        bench.epoch(**{"in": facts([("a", 1), ("b", [2])])})


@pytest.mark.parametrize("memory", MEMORIES)
@given(story=stories(records=records))
@example(story=[("commit", {"records": [("a", 1), ("b", 1), ("c", 1)]}), ("undo", {"records": [("a", None)]})])
def test_the_integral_is_the_rows_that_are_alone(memory: str, story: Any) -> None:
    table: dict[str, int | None] = {}

    def check(bench: Bench, inputs: Any) -> None:
        table.update(inputs["in"].rows)
        keys = Counter(value for value in table.values() if value is not None)
        alone = {value: "a" if key == "b" else key for key, value in table.items() if keys.get(value) == 1}
        assert bench.integral == dict.fromkeys(alone.items(), 1)
        assert bench.states()["o"] == alone

    live(one_row_by_value, MEMORIES[memory], [(w, {"in": facts(each["records"])}) for w, each in story], check)
