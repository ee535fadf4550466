"""The cells of the table of limits in docs/recursion.md: what each recursion does at its limit."""

import re
from collections.abc import Callable
from typing import Any

import pytest

import eddy

DEEP = [(node, node + 1) for node in range(7)]
AROUND = [*DEEP, (7, 0)]


def edges(topology: eddy.Topology) -> eddy.KTable[int, int]:
    return topology.table("edges", key=eddy.Int64, value=eddy.Int64)


def roots(topology: eddy.Topology) -> eddy.Relation[int, int]:
    seeds = topology.table("roots", key=eddy.Int64, value=eddy.Int64).to_relation()
    return seeds.map(lambda _, root: (root, 0), key=eddy.Int64, value=eddy.Int64)


def shown(relation: eddy.Relation[int, int]) -> None:
    relation.map(lambda node, _: (node, None), key=eddy.Int64).group_by_key().count("nodes")


def stream(topology: eddy.Topology, **bound: Any) -> None:
    links = edges(topology)
    started = topology.stream("roots", key=eddy.Int64, value=eddy.Int64).map(lambda _, root: (root, 0))
    found = started.recursively(
        lambda at: at.join(links, lambda _, to: to).map(lambda _, to: (to, 0)), "reach", **bound
    )
    found.group_by_key().count("nodes")


def waves(topology: eddy.Topology, **bound: Any) -> None:
    links = edges(topology)
    shown(roots(topology).recursively(lambda at: at.join(links, lambda _, __, to: (to, 0)), "reach", **bound))


def nested(topology: eddy.Topology, **bound: Any) -> None:
    links = edges(topology)

    def op(at: eddy.Relation[int, int]) -> eddy.Relation[int, int]:
        return at.join(links, lambda _, steps, to: (to, steps + 1)).distinct("once")

    shown(roots(topology).recursively(op, "reach", **bound))


def block(topology: eddy.Topology, **bound: Any) -> None:
    links, seeds = edges(topology), roots(topology)

    def step(at: eddy.Relation[int, int]) -> tuple[eddy.Relation[int, int], ...]:
        return (seeds.union(at.join(links, lambda _, steps, to: (to, steps + 1), "step")).distinct("once"),)

    shown(topology.mutually_recursive(step, name="reach", **bound).at)


def fixpoint(topology: eddy.Topology, **bound: Any) -> None:
    found = topology.recursive_fixpoint(
        roots=roots(topology).map(lambda root, _: (0, root)), edges=edges(topology), name="reach", **bound
    )
    shown(found.map(lambda _, row: (row.node, 0)))


def paths(topology: eddy.Topology, **bound: Any) -> None:
    fixpoint(topology, cycle_policy="allow-paths", **bound)


Build = Callable[..., None]
ALL = list(range(8))


class Outcome:
    """Nodes that were found, what is held, records that were rejected or cut."""

    def __init__(self, build: Build, links: list[tuple[int, int]], **bound: Any) -> None:
        topology = eddy.Topology("limits")
        build(topology, **bound)
        config = eddy.Config(on_error="dead-letter") if build is stream else eddy.Config()
        with eddy.TopologyTestDriver(topology, config) as driver:
            driver.input("edges").pipe_all(links)
            driver.input("roots").pipe(0, 0)
            self.nodes = sorted(driver.store("nodes").all())
            self.held = " ".join(driver.held().values())
            self.letters = [
                dict(record.headers)["eddy.error"].decode()
                for record in driver.output("limits-dead-letter", key=eddy.Bytes, value=eddy.Bytes).read_records()
            ]


@pytest.mark.parametrize("build", [waves, paths])
def test_no_limit_of_steps_counts_the_depth_of_a_tree(build: Build) -> None:
    assert Outcome(build, DEEP, limit=2).nodes == ALL


@pytest.mark.parametrize(
    ("build", "links", "limit", "nodes", "why"),
    [
        (waves, AROUND, 2, [], "came around, so that"),
        (nested, DEEP, 2, [], "after 2 iterations it still changed"),
        (nested, AROUND, 100, [], "after 100 iterations it still changed"),
        (block, DEEP, 2, [], "still changed in its last iteration"),
        (fixpoint, DEEP, 2, [], "lie beyond limit 2"),
        (fixpoint, AROUND, 7, ALL, ""),
        (paths, AROUND, 2, ALL, ""),
    ],
)
def test_relations_hold_by_default(
    build: Build, links: list[tuple[int, int]], limit: int, nodes: list[int], why: str
) -> None:
    by_default, asked = Outcome(build, links, limit=limit), Outcome(build, links, limit=limit, on_limit="hold")
    assert (by_default.nodes, bool(by_default.held)) == (nodes, bool(why))
    assert why in by_default.held
    assert vars(by_default) == vars(asked)


@pytest.mark.parametrize(("build", "limit"), [(waves, 2), (nested, 2), (block, 2), (fixpoint, 2)])
def test_stop_ends_the_worker_where_it_is_held_at_the_end_of_the_input(build: Build, limit: int) -> None:
    with pytest.raises(eddy.NoFiniteAnswerError):
        Outcome(build, AROUND, limit=limit, on_limit="stop")


def test_a_stream_rejects_the_record_by_default() -> None:
    for bound in ({}, {"on_limit": "error"}):
        found = Outcome(stream, AROUND, limit=20, **bound)
        assert found.nodes == []
        (letter,) = found.letters
        assert re.search("the path . → .* came around", letter)


@pytest.mark.parametrize("build", [stream, waves, nested])
def test_with_return_a_limit_is_a_depth(build: Build) -> None:
    found = Outcome(build, AROUND, limit=2, on_limit="return")
    assert (found.nodes, found.held, found.letters) == ([0, 1, 2], "", [])


def test_with_return_a_block_has_the_rows_after_so_many_iterations() -> None:
    found = Outcome(block, AROUND, limit=3, on_limit="return")
    assert (found.nodes, found.held) == ([0, 1, 2], "")


@pytest.mark.parametrize("build", [stream, waves])
def test_with_dead_letter_the_rows_beyond_are_letters(build: Build) -> None:
    found = Outcome(build, DEEP, limit=2, on_limit="dead-letter")
    assert (found.nodes, found.letters) == ([0, 1, 2], ["recursively 'reach': beyond limit 2"])


@pytest.mark.parametrize(
    ("build", "on_limit"),
    [
        (stream, "hold"),
        (stream, "stop"),
        (nested, "dead-letter"),
        (block, "dead-letter"),
        (fixpoint, "return"),
        (fixpoint, "dead-letter"),
    ],
)
def test_other_choices_are_refused(build: Build, on_limit: str) -> None:
    with pytest.raises(eddy.TopologyError, match="on_limit="):
        build(eddy.Topology("limits"), limit=2, on_limit=on_limit)


@pytest.mark.parametrize("build", [waves, nested, block, fixpoint, paths])
def test_error_is_an_old_name_of_hold(build: Build) -> None:
    with pytest.warns(DeprecationWarning, match="on_limit='error' is called 'hold' now") as warned:
        old = Outcome(build, AROUND, limit=2, on_limit="error")
    assert {warning.filename for warning in warned} == {__file__}
    assert vars(old) == vars(Outcome(build, AROUND, limit=2))


def test_a_sum_over_a_tree_holds_the_nodes_on_a_cycle() -> None:
    topology = eddy.Topology("limits")
    totals = edges(topology).tree_totals("sums", own=lambda node, parent: 1, parent=lambda node, parent: parent)
    totals.errors.group_by_key().count("errors")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("edges").pipe_all([(1, 2), (2, 1), (3, 1), (4, 3)])
        assert driver.store("sums").all().keys() == {3, 4}
        assert driver.store("errors").all() == {1: 1}


@pytest.mark.parametrize(
    ("words", "nodes", "errors"),
    [
        ("RECURSIVE", ALL, {}),
        ("RECURSIVE, UNION ALL", [], {}),
        ("MUTUALLY RECURSIVE", ALL, {}),
        ("MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 3)", [0, 1, 2], {}),
        ("MUTUALLY RECURSIVE (ERROR AT RECURSION LIMIT 3)", [], {"at": 1}),
    ],
)
def test_sql_has_words_of_its_own(words: str, nodes: list[int], errors: dict[str, int]) -> None:
    heading, _, many = words.partition(", ")
    columns = "(node bigint)" if "MUTUALLY" in heading else "(node)"
    text = f"""
        WITH {heading} at {columns} AS (
            SELECT value FROM roots {many or "UNION"} SELECT edges.value FROM at JOIN edges ON edges.key = at.node
        ) SELECT node FROM at"""
    topology = eddy.Topology("limits")
    seeds = topology.table("roots", key=eddy.Int64, value=eddy.Int64)
    view = topology.sql(text, {"roots": seeds, "edges": edges(topology)}, key="node")
    view.map(lambda node, _: (node, None), key=eddy.Int64).group_by_key().count("nodes")
    if view.errors is not None:
        view.errors.group_by_key().count("errors")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("edges").pipe_all(AROUND)
        driver.input("roots").pipe(0, 0)
        assert sorted(driver.store("nodes").all()) == nodes
        assert (driver.store("errors").all() if errors else {}) == errors
        assert bool(driver.held()) is (nodes == [])
