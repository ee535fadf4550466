"""Joins: the integral of what comes out is the join of the integrals, whatever changes together."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eddy.errors import DataError
from eddy.operators.batch import Batch
from eddy.operators.context import OUTSIDE
from eddy.operators.join import Arrange, Join, Materialize, StreamTableJoin, TableJoin
from eddy.operators.stateless import MapValues
from eddy.operators.upsert import Upsert
from tests import oracle
from tests.operators.bench import MEMORIES, Bench, Wiring, batch, built, deltas, facts, live, records, stories


def merge(key: str, left: int, right: int) -> tuple[int, tuple[str, int]]:
    """Re-keys, and makes equal rows of different matches."""
    return left, (key, left * right)


def relations(wiring: Wiring) -> int:
    """A join of two relations, both arranged."""
    left, right = wiring.arrangement("l"), wiring.arrangement("r")
    one = wiring.add(Arrange("l", left), wiring.source("left"))
    other = wiring.add(Arrange("r", right), wiring.source("right"))
    return wiring.add(Join("j", left, right, merge), one, other)


def relation_and_table(wiring: Wiring) -> int:
    left, right = wiring.arrangement("l"), wiring.table("r")
    one = wiring.add(Arrange("l", left), wiring.source("left"))
    other = wiring.add(Upsert("r", right), wiring.source("right"))
    return wiring.add(Join("j", left, right, merge), one, other)


def with_itself(wiring: Wiring) -> int:
    both = wiring.arrangement("b")
    slot = wiring.add(Arrange("b", both), wiring.source("left"))
    return wiring.add(Join("j", both, both, merge), slot, slot)


def tables(kind: Any, joiner: Any = lambda left, right: (left, right)) -> Any:
    def build(wiring: Wiring) -> int:
        left, right = wiring.table("l"), wiring.table("r")
        one = wiring.add(Upsert("l", left), wiring.source("left"))
        other = wiring.add(Upsert("r", right), wiring.source("right"))
        return wiring.add(TableJoin("j", left, right, joiner, kind), one, other)

    return build


def test_a_join_of_many_rows_with_a_table_finds_each_match() -> None:
    bench = Bench(built(relation_and_table))
    bench.epoch(right=facts([(f"k{n}", n) for n in range(0, 5000, 3)]))
    rows = [((f"k{n % 5000}", 1 + n // 5000), 1 + n % 2) for n in range(7000)]
    expected = {(left, (key, left * int(key[1:]))): weight for (key, left), weight in rows if int(key[1:]) % 3 == 0}
    assert bench.epoch(left=batch(rows)) == expected


def test_a_join_makes_a_row_for_each_match_and_takes_it_back_with_either_side() -> None:
    bench = Bench(built(relations))
    assert bench.epoch(left=batch([(("a", 2), 1)])) == {}
    assert bench.epoch(right=batch([(("a", 5), 1), (("b", 5), 1)])) == {(2, ("a", 10)): 1}
    assert bench.epoch(left=batch([(("a", 2), -1)])) == {(2, ("a", 10)): -1}


def test_a_join_counts_a_match_once_when_both_sides_come_together() -> None:
    bench = Bench(built(relations))
    assert bench.epoch(left=batch([(("a", 2), 1)]), right=batch([(("a", 5), 1)])) == {(2, ("a", 10)): 1}


def test_a_join_multiplies_weights() -> None:
    bench = Bench(built(relations))
    assert bench.epoch(left=batch([(("a", 2), 2)]), right=batch([(("a", 5), 3)])) == {(2, ("a", 10)): 6}


def test_a_join_sees_the_table_move_when_it_looks_into_one() -> None:
    bench = Bench(built(relation_and_table))
    bench.epoch(left=batch([(("a", 2), 1)]), right=facts([("a", 5)]))
    assert bench.epoch(right=facts([("a", 6)])) == {(2, ("a", 10)): -1, (2, ("a", 12)): 1}


def test_a_join_refuses_a_merge_that_returns_no_pair() -> None:
    wiring = Wiring()
    left, right = wiring.arrangement("l"), wiring.arrangement("r")
    left.integrate({("a", 1): 1})
    right.integrate({("a", 1): 1})
    join = Join("j", left, right, lambda key, one, other: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(DataError, match="j: the function returned None; a pair"):
        join.step(OUTSIDE, batch([(("a", 1), 1)]), batch([]))


def test_materialize_keeps_the_table_of_a_delta() -> None:
    wiring = Wiring()
    operator = Materialize("m", wiring.table("m"))
    operator.step(OUTSIDE, batch([(("a", 1), 1), (("b", 1), 1)]))
    delta = batch([(("a", 1), -1), (("b", 1), -1), (("a", 2), 1)])
    assert operator.step(OUTSIDE, delta) is delta
    assert dict(operator.table.items()) == {"a": 2}


class TestStreamTableJoin:
    def join(self, left: bool) -> StreamTableJoin:
        table = Wiring().table("t")
        Upsert("t", table).step(OUTSIDE, facts([("a", 10)]))
        return StreamTableJoin("j", table, lambda value, other: (value, other), left)

    def test_inner_drops_records_without_a_match(self) -> None:
        out = self.join(left=False).step(
            OUTSIDE, Batch([("a", 1), ("b", 2)], [1, 1], 2, [1, 2], [(("h", b""),), ()]), batch([])
        )
        assert (out.rows, out.times, out.headers) == ([("a", (1, 10))], [1], [(("h", b""),)])

    def test_left_gives_none_to_records_without_a_match(self) -> None:
        out = self.join(left=True).step(OUTSIDE, facts([("a", 1), ("b", 2)]), batch([]))
        assert out.rows == [("a", (1, 10)), ("b", (2, None))]

    def test_a_change_of_the_table_alone_makes_no_record(self) -> None:
        assert not self.join(left=True).step(OUTSIDE, batch([]), batch([(("a", 11), 1)])).rows

    @pytest.mark.parametrize("memory", MEMORIES)
    def test_a_record_without_a_key_matches_nothing(self, memory: str) -> None:
        """Also where the table is not all in memory: it used to be looked up in the store, and no serde has a None."""

        def build(wiring: Wiring) -> int:
            table = wiring.table("t")
            changed = wiring.add(Upsert("t", table), wiring.source("table"))
            return wiring.add(StreamTableJoin("j", table, lambda v, w: w, left=True), wiring.source("in"), changed)

        bench = Bench(built(build), MEMORIES[memory])
        bench.epoch(table=facts([("a", 1), ("b", 2), ("c", 3)]))
        assert bench.epoch(**{"in": facts([(None, 7), ("b", 7)])}) == {(None, None): 1, ("b", 2): 1}


@pytest.mark.parametrize(
    ("kind", "after_left", "after_both", "after_left_goes"),
    [
        ("inner", {}, {("a", (1, 2)): 1}, {("a", (1, 2)): -1}),
        ("left", {("a", (1, None)): 1}, {("a", (1, None)): -1, ("a", (1, 2)): 1}, {("a", (1, 2)): -1}),
        (
            "outer",
            {("a", (1, None)): 1},
            {("a", (1, None)): -1, ("a", (1, 2)): 1},
            {("a", (1, 2)): -1, ("a", (None, 2)): 1},
        ),
    ],
)
def test_a_table_join_follows_both_sides(kind: str, after_left: Any, after_both: Any, after_left_goes: Any) -> None:
    bench = Bench(built(tables(kind)))
    assert bench.epoch(left=facts([("a", 1)])) == after_left
    assert bench.epoch(right=facts([("a", 2)])) == after_both
    assert bench.epoch(left=facts([("a", None)])) == after_left_goes


def test_a_table_join_says_nothing_when_the_joined_value_stays() -> None:
    bench = Bench(built(tables("inner", lambda left, right: left + right)))
    bench.epoch(left=facts([("a", 1)]), right=facts([("a", 2)]))
    assert bench.epoch(left=facts([("a", 2)]), right=facts([("a", 1)])) == {}


@pytest.mark.parametrize("memory", MEMORIES)
@given(story=stories(left=deltas, right=deltas))
@example(story=[("commit", {"left": [(("a", 1), 1), (("a", 1), -1)], "right": [(("a", 1), 1)]})])
def test_the_integral_is_the_join_of_the_integrals(memory: str, story: Any) -> None:
    sides = {"left": Counter[oracle.Row](), "right": Counter[oracle.Row]()}

    def check(bench: Bench, inputs: Any) -> None:
        for side, one in inputs.items():
            sides[side] = oracle.plus(sides[side], oracle.bag(zip(one.rows, one.weights, strict=True)))
        assert bench.integral == oracle.joined(sides["left"], sides["right"], merge)

    live(
        relations,
        MEMORIES[memory],
        [(what, {side: batch(delta) for side, delta in each.items()}) for what, each in story],
        check,
    )


@pytest.mark.parametrize("memory", MEMORIES)
@given(story=stories(left=deltas, right=records))
def test_the_integral_is_the_join_of_a_relation_and_a_table(memory: str, story: Any) -> None:
    relation: oracle.Bag = Counter()
    table: dict[str, int] = {}

    def check(bench: Bench, inputs: Any) -> None:
        nonlocal relation, table
        relation = oracle.plus(relation, oracle.bag(zip(inputs["left"].rows, inputs["left"].weights, strict=True)))
        table = oracle.latest(inputs["right"].rows, table)
        assert bench.integral == oracle.joined(relation, oracle.rows_of(table), merge)

    story = [(what, {"left": batch(each["left"]), "right": facts(each["right"])}) for what, each in story]
    live(relation_and_table, MEMORIES[memory], story, check)


@given(story=stories(left=deltas))
def test_a_relation_can_be_joined_with_itself(story: Any) -> None:
    total: oracle.Bag = Counter()

    def check(bench: Bench, inputs: Any) -> None:
        nonlocal total
        total = oracle.plus(total, oracle.bag(zip(inputs["left"].rows, inputs["left"].weights, strict=True)))
        assert bench.integral == oracle.joined(total, total, merge)

    live(with_itself, None, [(what, {"left": batch(each["left"])}) for what, each in story], check)


@pytest.mark.parametrize("memory", MEMORIES)
@given(kind=st.sampled_from(["inner", "left", "outer"]), story=stories(left=records, right=records))
def test_the_integral_is_the_join_of_the_tables(memory: str, kind: str, story: Any) -> None:
    sides: dict[str, dict[str, int]] = {"left": {}, "right": {}}

    def joiner(left: int | None, right: int | None) -> int:
        return (left or 0) + (right or 0)

    def check(bench: Bench, inputs: Any) -> None:
        for side, one in inputs.items():
            sides[side] = oracle.latest(one.rows, sides[side])
        wanted = oracle.table_joined(sides["left"], sides["right"], joiner, kind)
        assert bench.integral == oracle.rows_of(wanted)

    live(
        tables(kind, joiner),
        MEMORIES[memory],
        [(what, {side: facts(rows) for side, rows in each.items()}) for what, each in story],
        check,
    )


@given(story=stories(left=records))
def test_a_materialized_table_is_the_table_of_its_delta(story: Any) -> None:
    table: dict[str, int] = {}

    def build(wiring: Wiring) -> int:
        source = wiring.add(Upsert("t", wiring.table("t")), wiring.source("in"))
        halved = wiring.add(MapValues("h", lambda value: value // 2), source)
        return wiring.add(Materialize("m", wiring.table("m")), halved)

    def check(bench: Bench, inputs: Any) -> None:
        nonlocal table
        table = oracle.latest(inputs["in"].rows, table)
        assert bench.states()["m"] == {key: value // 2 for key, value in table.items()}

    live(build, 2, [(what, {"in": facts(each["left"])}) for what, each in story], check)
