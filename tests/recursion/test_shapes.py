"""Large shapes: deep, wide, moved, cyclic, churned. What is expected is found by a search, not by iterations."""

import random
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

import eddy
from tests.recursion.programs import PROGRAMS, Edit, least
from tests.recursion.rig import Rig, watch

Edge = tuple[int, int]


def rig(name: str) -> Rig:
    topology, watched = PROGRAMS[name].topology()
    watch(topology, watched)
    return Rig(topology)


def edges(pairs: Iterable[Edge]) -> list[Edit]:
    """Edges under the key of their end: each node has one parent."""
    return [("edges", b, (a, b, 1)) for a, b in pairs]


def search(pairs: Iterable[Edge], roots: Iterable[int]) -> dict[int, int]:
    """The least depth of each node."""
    out: dict[int, list[int]] = {}
    for a, b in pairs:
        out.setdefault(a, []).append(b)
    depth = dict.fromkeys(roots, 0)
    queue = deque(depth)
    while queue:
        node = queue.popleft()
        for b in out.get(node, ()):
            if b not in depth:
                depth[b] = depth[node] + 1
                queue.append(b)
    return depth


ROOT: list[Edit] = [("roots", 0, 0)]


def test_a_chain_of_5000_is_cut_in_the_middle_and_mended() -> None:
    deep = rig("least-depth")
    chain = [(n, n + 1) for n in range(5_000)]
    deep.epoch(ROOT + edges(chain))
    assert deep.left["watch-depth"] == Counter({(n, n): 1 for n in range(5_001)})
    deep.epoch([("edges", 2_500, None)])
    assert deep.left["watch-depth"] == Counter({(n, n): 1 for n in range(2_500)})
    deep.restart()
    deep.epoch([("edges", 2_500, (1, 2_500, 1))])
    assert dict(deep.left["watch-depth"]) == {(n, n if n < 2_500 else n - 2_498): 1 for n in range(5_001)}
    deep.epoch([("roots", 0, None), *((topic, b, None) for topic, b, _ in edges(chain))])
    assert not deep.stored()


def test_a_tree_of_50000_loses_a_branch_and_gets_it_back() -> None:
    wide = rig("reachability")
    tree = [(n // 10 if n <= 10 else n // 5_000 + 1, n) for n in range(1, 50_001)]
    wide.epoch(ROOT + edges(tree))
    assert len(wide.left["watch-reach"]) == 50_001
    branch = {n for n, depth in search(tree, [5]).items()}
    out = wide.epoch([("edges", 5, None)])["watch-reach"]
    assert Counter(out.weights) == {-1: len(branch)}
    assert {node for node, _ in wide.left["watch-reach"]} == set(range(50_001)) - branch
    wide.epoch(edges([(9, 5)]))
    assert {node for node, _ in wide.left["watch-reach"]} == set(range(50_001))


def test_a_subtree_moves_up_and_down() -> None:
    moved = rig("least-depth")
    tree = {n: (n - 1) // 3 for n in range(1, 3_000)}
    moved.epoch(ROOT + edges((a, b) for b, a in tree.items()))
    for node, parent in ((13, 2_900), (13, 0), (2, 1_000), (2, 0), (4, 2_999)):
        tree[node] = parent
        moved.epoch(edges([(parent, node)]))
        answer = search([(a, b) for b, a in tree.items()], [0])
        assert dict(moved.left["watch-depth"]) == dict.fromkeys(answer.items(), 1)


def bounded(depth: int) -> Rig:
    """Nodes by the least number of steps, up to `depth`."""
    topology = eddy.Topology("bounded")
    pairs = topology.table("edges", eddy.Native, eddy.Native).to_relation().map(lambda _, e: (e[0], e[1]))
    roots = topology.table("roots", eddy.Native, eddy.Native).to_relation().map(lambda _, n: (n, 0))
    found = roots.recursively(
        lambda x: x.join(pairs, lambda a, d, b: (b, d + 1), "step").reduce(least, "least"), "found", max_depth=depth
    )
    watch(topology, {"found": found.reduce(least, "nearest")})
    return Rig(topology)


def test_a_cycle_under_a_bound_ends_there() -> None:
    ring = bounded(6)
    pairs = {n: ((n - 1) % 10, n) for n in range(10)}
    ring.epoch(ROOT + edges(pairs.values()))
    assert set(ring.left["watch-found"]) == {(n, n) for n in range(7)}
    ring.epoch([("edges", 100, (2, 7, 1))])
    assert set(ring.left["watch-found"]) == {*((n, n) for n in range(7)), (7, 3), (8, 4), (9, 5)}
    ring.epoch([("edges", 3, None)])
    assert set(ring.left["watch-found"]) == {*((n, n) for n in range(3)), (7, 3), (8, 4), (9, 5)}
    ring.epoch([("edges", 100, None), ("edges", 3, (2, 3, 1)), ("roots", 1, 8)])
    assert set(ring.left["watch-found"]) == {*((n, n) for n in range(7)), (8, 0), (9, 1)}


def test_a_graph_that_changes_and_changes_keeps_up() -> None:
    rng = random.Random(7)
    churned = rig("least-depth")
    there: dict[int, Edge] = {}
    for _ in range(150):
        edits: list[Edit] = list(ROOT)
        for _ in range(20):
            key = rng.randrange(600)
            value: Any = (rng.randrange(300), rng.randrange(300), 1)
            if rng.random() < 0.3:
                value = None
                there.pop(key, None)
            else:
                there[key] = value[:2]
            edits.append(("edges", key, value))
        churned.epoch(edits)
        found: dict[int, int] = {}
        for node, depth in churned.left["watch-depth"]:
            found[node] = min(depth, found.get(node, depth))
        assert found == search(there.values(), [0])
