"""Recursive programs on the test driver: KIP-857's own, the family, and what may not make a difference."""

import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import eddy
from eddy import TopologyTestDriver
from examples.family import topology as family_of_the_examples
from tests import oracle
from tests.topology.programs import S, family, kip, rows_of, shown

TREE = [("b", "a"), ("c", "b"), ("d", "b"), ("e", "d"), ("f", "a")]
COUNTS = {"a": 5, "b": 3, "d": 1}


class TestKip857:
    """<NodeId, ParentId> in, <NodeId, number of descendants> out, as the KIP writes it."""

    def counts(self, records: list[tuple[str, str]], include_seeds: bool = True) -> dict[str, int]:
        with TopologyTestDriver(kip(include_seeds)) as driver:
            for node, parent in records:
                driver.input("nodes").pipe(node, parent)
            return dict(driver.store("counts").all())

    def test_counts_descendants_when_parents_come_first(self) -> None:
        assert self.counts(TREE) == COUNTS

    def test_loses_the_direct_children_when_it_is_taken_to_the_letter(self) -> None:
        assert self.counts(TREE, include_seeds=False) == {"a": 3, "b": 1}

    def test_miscounts_out_of_order_as_the_kip_says_it_does(self) -> None:
        assert self.counts([("c", "b"), ("b", "a")]) == {"b": 1, "a": 1}

    def test_sees_an_epoch_at_once_so_that_order_within_it_does_not_matter(self) -> None:
        with TopologyTestDriver(kip()) as driver:
            driver.input("nodes").pipe_all(reversed(TREE))
            assert driver.store("counts").all() == COUNTS


class TestFamily:
    @pytest.mark.parametrize("seed", range(5))
    def test_counts_are_right_in_any_order(self, seed: int) -> None:
        records = TREE.copy()
        random.Random(seed).shuffle(records)
        with TopologyTestDriver(family_of_the_examples) as driver:
            for node, parent in records:
                driver.input("nodes").pipe(node, parent)
            assert driver.store("descendants").all() == COUNTS
            assert driver.output("descendants").read_map() == COUNTS

    def test_counts_follow_a_move(self) -> None:
        with TopologyTestDriver(family_of_the_examples) as driver:
            driver.input("nodes").pipe_all(TREE)
            driver.output("descendants").read_map()
            driver.input("nodes").pipe("d", "f")
            assert dict(driver.output("descendants").read_key_values()) == {"b": 1, "f": 2}
            assert driver.store("descendants").all() == {"a": 5, "b": 1, "d": 1, "f": 2}

    def test_counts_follow_a_delete_in_the_middle(self) -> None:
        with TopologyTestDriver(family_of_the_examples) as driver:
            driver.input("nodes").pipe_all(TREE)
            driver.input("nodes").pipe("b", None)
            assert driver.store("descendants").all() == {"a": 1, "b": 3, "d": 1}
            assert driver.output("descendants").read_key_values()[-1] == ("a", 1)

    def test_a_node_without_descendants_leaves_a_tombstone(self) -> None:
        with TopologyTestDriver(family_of_the_examples) as driver:
            driver.input("nodes").pipe("b", "a")
            driver.input("nodes").pipe("b", None)
            assert driver.output("descendants").read_key_values() == [("a", 1), ("a", None)]

    def test_a_duplicate_record_changes_nothing(self) -> None:
        with TopologyTestDriver(family_of_the_examples) as driver:
            driver.input("nodes").pipe_all([*TREE, *TREE])
            driver.input("nodes").pipe_all(TREE)
            assert driver.store("descendants").all() == COUNTS


class TestCycle:
    """A cycle in the data has no finite answer: what it reaches is held, and mending the data mends all."""

    @pytest.mark.parametrize("alone", [True, False], ids=["alone", "in a batch"])
    @pytest.mark.parametrize("on_error", ["fail", "skip", "dead-letter"])
    def test_nothing_is_left_out_and_a_mending_record_mends_all(self, alone: bool, on_error: Any) -> None:
        with TopologyTestDriver(family(limit=100), eddy.Config(on_error=on_error)) as driver:
            nodes = driver.input("nodes")
            nodes.pipe_all([("a", "b"), ("b", "c")])
            nodes.pipe_all([("c", "a")] if alone else [("x", "y"), ("c", "a"), ("y", "z")])
            assert driver.store("descendants").all() == ({} if alone else {"y": 1, "z": 2})
            ((name, partition), message), *more = driver.held().items()
            assert (name, partition, more) == ("ancestors", 0, [])
            assert "the path a → b → c → a came around" in message
            nodes.pipe("b", "d")
            mended = {"a": "b", "b": "d", "c": "a"} | ({} if alone else {"x": "y", "y": "z"})
            assert driver.store("descendants").all() == oracle.descendants(mended)
            assert driver.held() == {}
            assert driver.worker.statistics.skipped == 0

    def test_what_leads_into_a_cycle_is_exact_where_the_cycle_does_not_reach(self) -> None:
        with TopologyTestDriver(family(), partitions=4) as driver:
            driver.input("nodes").pipe_all([("a", "b"), ("b", "a"), ("l", "k"), ("k", "a"), ("m", "k")])
            assert driver.store("descendants").all() == {"k": 2}

    def test_rows_beyond_a_limit_become_dead_letters_where_that_is_asked(self) -> None:
        with TopologyTestDriver(family(limit=2, on_limit="dead-letter")) as driver:
            driver.input("nodes").pipe_all([("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")])
            assert driver.store("descendants").all() == {"b": 1, "c": 2, "d": 3, "e": 3}
            (letter,) = driver.output("family-dead-letter", key=S, value=eddy.Native).read_records()
            assert (letter.key, dict(letter.headers)["eddy.loop"]) == ("e", b"ancestors")
            assert dict(letter.headers)["eddy.error"] == b"recursively 'ancestors': beyond limit 2"
            assert driver.worker.statistics.cut_rows == 1


# What may not make a difference

names = st.sampled_from(["a", "b", "c", "d", "e", "f"])


@st.composite
def forests(draw: st.DrawFn) -> list[tuple[str, str | None]]:
    """Records of nodes after each of which the data is a forest: inserts, moves, deletes, duplicates."""
    parents: dict[Any, Any] = {}
    records: list[tuple[str, str | None]] = []
    for node, parent in draw(st.lists(st.tuples(names, st.none() | names), max_size=12)):
        after = oracle.latest([(node, parent)], parents)
        if oracle.is_forest(after):
            parents = after
            records.append((node, parent))
    return records


@st.composite
def cut_up(draw: st.DrawFn, records: st.SearchStrategy[list[Any]]) -> list[list[Any]]:
    """The same records in any epochs."""
    left = draw(records)
    epochs = []
    while left:
        size = draw(st.integers(1, len(left)))
        epochs.append(left[:size])
        left = left[size:]
    return epochs


@given(epochs=cut_up(forests()), partitions=st.sampled_from([1, 4]))
@example(epochs=[[("a", "b"), ("b", "c")], [("a", None), ("b", None), ("a", "c")]], partitions=4)
def test_any_cut_into_epochs_and_any_number_of_partitions_gives_the_same(epochs: Any, partitions: int) -> None:
    wanted = oracle.descendants(oracle.latest(record for epoch in epochs for record in epoch))
    with TopologyTestDriver(family(), partitions=partitions) as driver:
        for epoch in epochs:
            driver.input("nodes").pipe_all(epoch)
        assert driver.store("descendants").all() == wanted
        assert driver.output("descendants").read_map() == wanted


@given(epochs=cut_up(forests()), lose_state=st.booleans(), partitions=st.sampled_from([1, 4]))
def test_a_restart_with_or_without_the_stores_gives_the_same(epochs: Any, lose_state: bool, partitions: int) -> None:
    wanted = oracle.descendants(oracle.latest(record for epoch in epochs for record in epoch))
    with TopologyTestDriver(family(), partitions=partitions) as driver:
        for epoch in epochs:
            driver.input("nodes").pipe_all(epoch)
            driver.restart(lose_state=lose_state)
        assert driver.store("descendants").all() == wanted
        assert driver.output("descendants").read_map() == wanted


@given(epochs=cut_up(forests()), rows=st.integers(1, 4))
def test_a_budget_that_ends_every_epoch_early_gives_the_same(epochs: Any, rows: int) -> None:
    wanted = oracle.descendants(oracle.latest(record for epoch in epochs for record in epoch))
    with TopologyTestDriver(family(), eddy.Config(max_loop_rows=rows), partitions=2) as driver:
        for epoch in epochs:
            driver.input("nodes").pipe_all(epoch)
        assert driver.store("descendants").all() == wanted
        assert driver.worker.quiescent()


def parts() -> eddy.Topology:
    """A bill of materials: what goes into a product in all, quantities multiplied along the way."""
    topology = eddy.Topology("parts")
    uses = topology.table("uses", key=S, value=eddy.Native)  # id -> (product, part, quantity)
    lines = uses.to_relation().map(lambda _, use: (use[0], (use[1], use[2])), key=S)
    needs = lines.map(lambda product, line: (line[0], (product, line[1])), key=S).recursively(
        lambda rows: rows.join(
            lines, lambda part, need, line: (line[0], (need[0], need[1] * line[1])), "explode", key=S
        ),
        name="needs",
    )
    rows_of(needs)
    totals = needs.map(lambda part, need: ((need[0], part), need[1]))
    totals.group_by_key(value=eddy.Int64).reduce(lambda sum, n: sum + n, lambda sum, n: sum - n, "totals")
    return topology


uses = st.lists(
    st.tuples(
        st.sampled_from("pqrst"),
        st.none() | st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(1, 3)).filter(lambda u: u[0] < u[1]),
    ),
    max_size=8,
).map(lambda some: [(id, use and (f"n{use[0]}", f"n{use[1]}", use[2])) for id, use in some])


@given(epochs=cut_up(uses), partitions=st.sampled_from([1, 3]), lose_state=st.booleans())
def test_a_bill_of_materials_is_right_after_every_epoch(epochs: Any, partitions: int, lose_state: bool) -> None:
    table: dict[Any, Any] = {}
    with TopologyTestDriver(parts(), partitions=partitions) as driver:
        for epoch in epochs:
            driver.input("uses").pipe_all(epoch)
            driver.restart(lose_state=lose_state)
            table = oracle.latest(epoch, table)
            lines = oracle.bag(((product, (part, n)), 1) for product, part, n in table.values())
            needs = oracle.recursion(
                oracle.mapped(lines, lambda product, line: (line[0], (product, line[1]))),
                lambda x, lines=lines: oracle.joined(
                    x, lines, lambda _, need, use: (use[0], (need[0], need[1] * use[1]))
                ),
            )
            assert shown(driver) == needs
            totals = oracle.sums(oracle.mapped(needs, lambda part, need: ((need[0], part), need[1])))
            assert driver.store("totals").all() == totals
