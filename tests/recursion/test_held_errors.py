"""`errors` of a recursion: one row while it holds something, with the least of the messages, and none otherwise."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import eddy
from eddy.errors import TopologyError
from eddy.runtime.metadata import read_metadata
from tests.recursion.test_held_by_workers import ROUND, Group, edits, fates, has_cycle

Rows = eddy.Relation[str, Any]


def above(parents: eddy.KTable[str, str]) -> eddy.RecursiveRelation[str, Any]:
    """By waves: a cycle of parents has no finite answer."""
    seeds = parents.to_relation().map(lambda node, parent: (parent, 1), key=eddy.String, value=eddy.Int64)
    return seeds.recursively(lambda x: x.join(parents, lambda _, one, parent: (parent, one)), name="above")


def flips(parents: eddy.KTable[str, str]) -> eddy.RecursiveRelation[str, Any]:
    """By nested time, each owner its keys: nodes below `f` go back and forth."""
    rows = parents.to_relation()
    late = rows.filter(lambda _, parent: parent == "f")
    seeds = rows.filter(lambda _, parent: parent != "f")
    return seeds.recursively(lambda x: late.minus(x, "other"), name="flips", limit=70)


def program(recursion: Callable[[eddy.KTable[str, str]], eddy.RecursiveRelation[str, Any]]) -> eddy.Topology:
    topology = eddy.Topology("family")
    found = recursion(topology.table("nodes", key=eddy.String, value=eddy.String))
    found.group_by_key().count("below").to("below", value=eddy.Int64)
    errors = found.errors.group_by_key().reduce(lambda _, new: new, lambda _, old: "", "told")
    errors.to("errors", value=eddy.String)
    return topology


def is_held(name: str, tree: Mapping[str, str]) -> bool:
    return has_cycle(tree) if name == "above" else "f" in tree.values()


def wanted(held: Mapping[tuple[str, int], str]) -> dict[str, str]:
    return {name: min(held.values()) for name, _ in held}


@settings(max_examples=30, deadline=None)
@given(
    recursion=st.sampled_from([above, flips]),
    partitions=st.sampled_from([1, 4]),
    story=st.lists(st.tuples(edits, st.sampled_from(["stay", "restart", "lose the state"])), min_size=1, max_size=4),
)
@example(above, 4, [(ROUND, "restart"), ({"c": None}, "lose the state"), (ROUND, "stay")])
@example(flips, 4, [(dict.fromkeys("abcde", "f"), "lose the state"), ({"a": None, "b": "a"}, "restart")])
def test_errors_are_the_least_message_while_something_is_held(
    recursion: Any, partitions: int, story: list[tuple[dict[str, str | None], str]]
) -> None:
    tree: dict[str, str] = {}
    with eddy.TopologyTestDriver(program(recursion), partitions=partitions) as driver:
        for records, fate in story:
            driver.input("nodes").pipe_all(records.items())
            tree = {key: value for key, value in (tree | records).items() if value is not None}
            assert bool(driver.held()) == is_held(recursion.__name__, tree)
            assert driver.store("told").all() == wanted(driver.held())
            if fate == "stay":
                continue
            driver.restart(lose_state=fate == "lose the state")
            driver.run()
            assert driver.store("told").all() == wanted(driver.held())


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("lose_state", [False, True])
def test_a_restart_tells_nothing_twice(partitions: int, lose_state: bool) -> None:
    with eddy.TopologyTestDriver(program(flips), partitions=partitions) as driver:
        output = driver.output("errors", eddy.String, eddy.String)
        driver.input("nodes").pipe_all([(node, "f") for node in "abcde"], timestamp_ms=7)
        assert len(driver.held()) == min(partitions, 3)
        last = output.read_records()[-1]
        assert (last.key, last.value, last.timestamp_ms) == ("flips", min(driver.held().values()), 7)
        driver.restart(lose_state=lose_state)
        driver.run()
        assert output.read_records() == []
        driver.input("nodes").pipe_all([(node, None) for node in "abcde"])
        assert (output.read_records()[-1].key, driver.store("told").all()) == ("flips", {})


@settings(max_examples=15, phases=[Phase.explicit, Phase.generate], deadline=None)
@given(recursion=st.sampled_from([above, flips]), story=st.lists(st.tuples(edits, fates, st.booleans()), max_size=4))
@example(above, [(ROUND, "stay", True), ({"c": None}, "restart", True), ({"c": "d"}, "leave", True)])
@example(above, [(ROUND, "stay", False), ({}, "lose a store", True), ({}, "leave", True), ({"a": "f"}, "join", True)])
@example(flips, [(dict.fromkeys("abcde", "f"), "stay", True), ({}, "leave", True), ({}, "join", True)])
def test_whoever_owns_what_is_held(recursion: Any, story: list[tuple[dict[str, str | None], str, bool]]) -> None:
    group = Group(program(recursion))
    try:
        for tree in group.play([*story, ({}, "stay", True), (dict.fromkeys("abcdef"), "stay", True)]):
            held = read_metadata(group.log, "family-plan").held
            assert bool(held) == is_held(recursion.__name__, tree)
            assert group.table("errors", eddy.String) == wanted(held)
    finally:
        group.close()


def test_errors_that_are_not_read_add_nothing() -> None:
    def described(reads: int) -> str:
        topology = eddy.Topology("family")
        found = above(topology.table("nodes", key=eddy.String, value=eddy.String))
        for _ in range(reads):
            assert found.errors
        return topology.describe()

    assert "errors" not in described(0)
    assert "above-errors (stores: [above-errors])" in described(1) == described(2)


def test_they_are_refused_inside_a_loop() -> None:
    topology = eddy.Topology("family")
    parents = topology.table("nodes", key=eddy.String, value=eddy.String)
    rows = parents.to_relation()
    inner: list[eddy.RecursiveRelation[str, Any]] = []

    def op(x: Rows, reads: bool) -> Rows:
        inner.append(x.recursively(lambda y: y.join(parents, lambda _, one, up: (up, one)), name="inner"))
        return inner[-1].errors if reads else inner[-1].filter(lambda *_: True)

    with pytest.raises(TopologyError, match=r"the errors of recursively 'inner' are read inside"):
        rows.recursively(lambda x: op(x, True), name="outer")

    topology = eddy.Topology("family")
    parents = topology.table("nodes", key=eddy.String, value=eddy.String)
    outer = parents.to_relation().recursively(lambda x: op(x, False), name="outer")
    outer.group_by_key().count("below")
    _ = inner[-1].errors
    with pytest.raises(TopologyError, match="lies inside recursively 'outer'"):
        eddy.TopologyTestDriver(topology)
