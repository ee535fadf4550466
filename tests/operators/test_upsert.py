"""Upsert: records become a table; its delta takes the old row back and puts the new one in."""

from typing import Any

import pytest
from hypothesis import example, given

from eddy.errors import DataError
from eddy.operators.batch import Batch
from eddy.operators.context import OUTSIDE
from eddy.operators.upsert import Upsert
from tests import oracle
from tests.operators.bench import MEMORIES, Bench, Wiring, batch, built, facts, live, records, stories


def upsert(wiring: Wiring) -> int:
    return wiring.add(Upsert("t", wiring.table("t")), wiring.source("in"))


def test_upsert_takes_the_old_row_back_when_a_key_comes_again() -> None:
    bench = Bench(built(upsert))
    assert bench.epoch(**{"in": facts([("a", 1), ("b", 1)])}) == {("a", 1): 1, ("b", 1): 1}
    assert bench.epoch(**{"in": facts([("a", 2)])}) == {("a", 1): -1, ("a", 2): 1}
    assert bench.epoch(**{"in": facts([("a", None)])}) == {("a", 2): -1}


def test_upsert_says_nothing_when_nothing_changes() -> None:
    bench = Bench(built(upsert))
    bench.epoch(**{"in": facts([("a", 1)])})
    assert bench.epoch(**{"in": facts([("a", 1), ("b", None)])}) == {}


def test_upsert_shows_the_last_of_several_records_of_a_key() -> None:
    bench = Bench(built(upsert))
    assert bench.epoch(**{"in": facts([("a", 1), ("a", None), ("a", 3)])}) == {("a", 3): 1}


def test_upsert_gives_both_rows_the_time_of_the_record_that_replaced() -> None:
    wiring = Wiring()
    operator = Upsert("t", wiring.table("t"))
    operator.step(OUTSIDE, Batch([("a", 1), ("b", 1)], [1, 1], 9, [5, 9]))
    out = operator.step(OUTSIDE, Batch([("b", 2), ("a", 2), ("b", 3)], [1, 1, 1], 30, [10, 20, 30]))
    assert dict(zip(zip(out.rows, out.weights, strict=True), out.times_of_rows(), strict=True)) == {
        (("b", 1), -1): 30,
        (("a", 1), -1): 20,
        (("b", 3), 1): 30,
        (("a", 2), 1): 20,
    }


def test_upsert_names_the_table_when_a_key_cannot_be_hashed() -> None:
    with pytest.raises(DataError, match=r"table 't': .*unhashable.*; keys have to be hashable"):
        Upsert("t", Wiring().table("t")).step(OUTSIDE, batch([(({}, 1), 1)]))


@pytest.mark.parametrize("memory", MEMORIES)
@given(story=stories(records=records))
@example(story=[("commit", {"records": [("a", 1)]}), ("undo", {"records": [("a", None)]})])
def test_the_integral_is_the_table_of_the_last_records(memory: str, story: Any) -> None:
    table: dict[str, int] = {}

    def check(bench: Bench, inputs: Any) -> None:
        nonlocal table
        table = oracle.latest(inputs["in"].rows, table)
        assert bench.integral == oracle.rows_of(table)
        assert bench.states()["t"] == table

    live(upsert, MEMORIES[memory], [(what, {"in": facts(each["records"])}) for what, each in story], check)
