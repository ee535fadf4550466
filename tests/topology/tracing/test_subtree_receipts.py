"""Receipts of subtrees: tree_totals and recursive_fixpoint, against walks in plain Python."""

import random
from typing import Any

import pytest

import eddy
from eddy.errors import QueryError
from eddy.topology.tracing.derivation import derive
from eddy.topology.tracing.evaluation import Evaluation
from eddy.topology.tracing.text import text_of
from eddy.topology.tracing.ways import Ways
from tests.topology.tracing.traced import NAMES, Traced, Tree, below, check, step_of

S = eddy.String


def totals(include_self: bool) -> eddy.Topology:
    topology = eddy.Topology("totals")
    nodes = topology.table("nodes", key=S, value=eddy.Native)
    nodes.tree_totals("totals", own=lambda _, row: row[1], parent=lambda _, row: row[0], include_self=include_self)
    return topology


def in_topic(tree: Tree) -> dict[str, Any]:
    return {node: None if row is None else (row["of"], row["own"]) for node, row in tree.items()}


def on_cycle(tree: Tree, node: str) -> bool:
    """Whether the way up from a node comes back to it."""
    above, steps = node, 0
    while steps <= len(tree) and above in tree:
        above, steps = tree[above]["of"], steps + 1
        if above == node:
            return True
    return False


def total(tree: Tree, node: str) -> int:
    own = tree[node]["own"] if node in tree else 0
    return own + sum(total(tree, child) for child in below(tree, node))


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_tree_totals_are_the_own_number_and_the_subtrees_after_moves_and_cycles(seed: int, include_self: bool) -> None:
    draw = random.Random(f"{seed} {include_self}")
    tree: Tree = {}
    with eddy.TopologyTestDriver(totals(include_self), partitions=1 + seed % 3) as driver:
        for _ in range(6):
            epoch: Tree = {}
            for _ in range(draw.randrange(1, 7)):
                row = {"of": draw.choice(["root", None, *NAMES]), "own": draw.randrange(-3, 9)}
                epoch[draw.choice(NAMES)] = None if draw.random() < 0.2 else row
            driver.input("nodes").pipe_all(list(in_topic(epoch).items()))
            tree.update(epoch)
        made = driver.store("totals").all()
    tree = {node: row for node, row in tree.items() if row is not None}
    nodes = {*tree, *(row["of"] for row in tree.values() if row["of"] is not None)}
    well = {node for node in nodes if not on_cycle(tree, node)}
    left_out = 0 if include_self else 1
    assert made.keys() == {node for node in well if include_self or below(tree, node)}
    traced = Traced(totals(include_self), "totals", {"nodes": in_topic(tree)})
    for node, number in made.items():
        path: list[str] = []
        while True:
            at = [node, *path][-1]
            own = tree[at]["own"] if at in tree and not (left_out and not path) else 0
            parts = {child: total(tree, child) for child in below(tree, at)}
            receipt = traced.receipt(node, *path)
            assert (receipt.key, receipt.number) == (at, own + sum(parts.values()))
            assert path or receipt.number == number
            check(receipt, parts, own)
            opens = [child for child, each in parts.items() if each and below(tree, child)]
            assert {part.key for part in receipt.parts if part.opens} <= set(opens)
            if not opens:
                break
            path.append(draw.choice(opens))


def test_own_number_is_no_sum_and_the_text_says_which_it_is() -> None:
    tree = {"a": {"of": None, "own": 4}, "b": {"of": "a", "own": 2}, "c": {"of": "b", "own": 1}}
    traced = Traced(totals(True), "totals", {"nodes": in_topic(tree)})
    made, _ = traced.trace("a", "b")
    assert (
        text_of(made)
        == """\
"a" = 7   totals (upsert)
  a 7 = 4 own + b 3
    b 3 = 2 own + c 1
"""
    )
    with pytest.raises(QueryError, match="the part own is a row of step 'totals-nodes'"):
        traced.receipt("a", "own")


def test_table_that_was_a_stream_of_changes_has_the_receipt_of_its_sum() -> None:
    table = eddy.Topology("copied")
    nodes = table.table("nodes", key=S, value=S).to_relation()
    counted = nodes.map(lambda node, parent: (parent, node)).group_by_key().count("counted")
    counted.to_stream().to_table("copy")
    traced = Traced(table, "copy", {"nodes": {"a": "r", "b": "r", "c": "a"}})
    check(traced.receipt("r"), {"a": 1, "b": 1}, 0)


def reaching(**question: Any) -> eddy.Topology:
    """The number of nodes that each root reaches, and their rows."""
    topology = eddy.Topology("reaching")
    roots = topology.table("roots", key=S, value=S).to_relation()
    edges = topology.table("edges", key=S, value=eddy.Json()).to_relation().map(lambda _, row: (row["from"], row["to"]))
    found = topology.recursive_fixpoint(roots=roots, edges=edges, name="reached", node=S, **question)
    found.group_by_key().count("sizes")
    return topology


def nearest(edges: list[tuple[str, str]], root: str, most: int) -> dict[str, tuple[int, str | None]]:
    """By node its depth and the least of its parents at the depth before."""
    found: dict[str, tuple[int, str | None]] = {root: (0, None)}
    for depth in range(1, most + 1):
        for node in sorted({end for start, end in edges if start in found} - found.keys()):
            parents = [start for start, end in edges if end == node and start in found and found[start][0] == depth - 1]
            if parents:
                found[node] = depth, min(parents)
    return found


@pytest.mark.parametrize("max_depth", [None, 2])
@pytest.mark.parametrize("seed", range(8))
def test_reached_rows_are_the_workers_and_their_number_is_that_of_the_subtrees(
    seed: int, max_depth: int | None
) -> None:
    draw = random.Random(f"{seed} {max_depth}")
    edges = {str(n): {"from": draw.choice(NAMES), "to": draw.choice(NAMES)} for n in range(16)}
    roots = {"one": "n0", "two": "n1", "again": "n0"}
    topology = reaching(max_depth=max_depth)
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("roots").pipe_all(list(roots.items()))
        driver.input("edges").pipe_all([(key, edges[draw.choice([*edges])]) for key in edges])  # wrong at first
        driver.input("edges").pipe_all(draw.sample([*edges.items()], len(edges)))
        sizes = driver.store("sizes").all()
    traced = Traced(topology, "sizes", {"roots": roots, "edges": edges})
    links = [(row["from"], row["to"]) for row in edges.values()]
    for key, root in roots.items():
        tree = nearest(links, root, max_depth or 99)

        def under(node: str, tree: Any = tree) -> int:
            return 1 + sum(under(child) for child, (_, parent) in tree.items() if parent == node)

        assert sizes[key] == under(root)
        path, at = [], root
        while True:
            children = [child for child, (_, parent) in tree.items() if parent == at]
            receipt = traced.receipt(key, *path)
            check(receipt, {child: under(child) for child in children}, 1)
            opens = [child for child in children if under(child) > 1]
            if not opens:
                break
            at = draw.choice(opens)
            path.append(at)


def test_reached_row_is_made_of_the_row_of_its_parent_and_an_edge() -> None:
    edges = {"1": {"from": "a", "to": "b"}, "2": {"from": "b", "to": "c"}, "3": {"from": "c", "to": "a"}}
    traced = Traced(reaching(), "reached", {"roots": {"r": "a"}, "edges": edges})
    rows = {source.topic: list(traced.tables[source.topic].items()) for source in traced.topology.plan.sources()}
    node = step_of(traced.topology, "reached")
    evaluation = Evaluation(traced.topology.plan, node, rows)
    (row,) = (row for row, _ in evaluation.bags[node] if row[1].node == "c")
    text = text_of(derive(evaluation, Ways(traced.topology.plan, evaluation), node, row))
    assert text.count("row of topic edges") == 2
    assert text.count("row of topic roots") == 1


@pytest.mark.parametrize("question", [{"max_nodes": 2}, {"limit": 1}])
def test_roots_beyond_a_bound_have_no_rows(question: Any) -> None:
    edges = {"1": {"from": "a", "to": "b"}, "2": {"from": "b", "to": "c"}, "3": {"from": "x", "to": "y"}}
    roots = {"r": "a", "s": "x"}
    topology = reaching(**question)
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("edges").pipe_all(list(edges.items()))
        driver.input("roots").pipe_all(list(roots.items()))
        sizes = driver.store("sizes").all()
    rows = {"roots": list(roots.items()), "edges": list(edges.items())}
    node = step_of(topology, "sizes")
    assert dict(row for row, _ in Evaluation(topology.plan, node, rows).bags[node]) == sizes == {"s": 2}
