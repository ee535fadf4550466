"""What the naive evaluator says of the programs is what other algorithms say: a definition may be wrong, too."""

import heapq
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from tests.naive import Bag, Naive
from tests.recursion.programs import PROGRAMS
from tests.recursion.rig import draw, taken, watch

Edges = list[tuple[int, int, int]]
SEEDS = range(40)


def graph(name: str, seed: int) -> tuple[dict[str, Bag], Edges, list[int]]:
    """What the naive evaluator makes of a random graph, its edges, and its roots."""
    program = PROGRAMS[name]
    topology, watched = program.topology()
    watch(topology, watched)
    tables = taken({}, draw(program, random.Random(seed)).edits())
    answer = {topic.removeprefix("watch-"): rows for topic, rows in Naive(topology.plan, tables).sinks().items()}
    return answer, [*tables.get("edges", {}).values()], [*tables.get("roots", {}).values()]


def nodes_of(edges: Edges) -> set[int]:
    return {node for a, b, _ in edges for node in (a, b)}


def distances(edges: Edges, roots: Iterable[int], hops: bool = False) -> dict[int, int]:
    """Dijkstra's."""
    found: dict[int, int] = {}
    heap = [(0, root) for root in roots]
    while heap:
        distance, node = heapq.heappop(heap)
        if node not in found:
            found[node] = distance
            for a, b, weight in edges:
                if a == node:
                    heapq.heappush(heap, (distance + (1 if hops else weight), b))
    return found


def below(edges: Edges, root: int) -> set[int]:
    """What is reached from a node by one edge or more."""
    return set(distances(edges, [b for a, b, _ in edges if a == root]))


@pytest.mark.parametrize("seed", SEEDS)
class TestNaive:
    def test_reachability(self, seed: int) -> None:
        answer, edges, roots = graph("reachability", seed)
        again = Counter({(node, 0): 1 for root in roots for node in below(edges, root)})
        assert answer["reach"] == again + Counter((root, 0) for root in roots)
        left, edges, roots = graph("what-is-not-reached", seed)
        assert {node for node, _ in left["left"]} == nodes_of(edges) - distances(edges, roots).keys()

    def test_transitive_closure(self, seed: int) -> None:
        answer, edges, _ = graph("transitive-closure-as-x-joined-with-itself", seed)
        assert set(answer["closure"]) == {(a, b) for a in nodes_of(edges) for b in below(edges, a)}

    def test_shortest_ways(self, seed: int) -> None:
        answer, edges, roots = graph("shortest-ways", seed)
        assert answer["shortest"] == Counter(distances(edges, roots).items())
        depths, edges, roots = graph("least-depth", seed)
        least = {node: min(d for n, d in depths["depth"] if n == node) for node, _ in depths["depth"]}
        assert least == distances(edges, roots, hops=True)

    def test_strongly_connected_components(self, seed: int) -> None:
        answer, edges, _ = graph("strongly-connected-components", seed)
        inner = {(a, b) for a, b, _ in edges if a in below(edges, b) or a == b}
        assert set(answer["inner"]) == inner
        assert set(answer["cut"]) == {(a, b) for a, b, _ in edges} - inner

    def test_a_bill_of_materials(self, seed: int) -> None:
        answer, edges, _ = graph("bill-of-materials-with-sums", seed)

        def cost(node: int) -> int:
            return 1 + sum(weight * cost(b) for a, b, weight in edges if a == node)

        total: Counter[int] = Counter()
        for (node, part), weight in answer["cost"].items():
            total[node] += part * weight
        assert total == {node: cost(node) for node in nodes_of(edges)}

    def test_win_move(self, seed: int) -> None:
        """In iteration n a position is taken for won of which one move leads to none that was in iteration n - 1."""
        answer, edges, _ = graph("win-move-in-an-odd-number-of-rounds", seed)
        moves, won = {(a, b) for a, b, _ in edges}, set[int]()
        for _ in range(7):
            won = {a for a, b in moves if b not in won}
        assert {node for node, _ in answer["won"]} == won

    def test_new_roots_reach_everything(self, seed: int) -> None:
        answer, edges, roots = graph("a-new-root-while-a-node-is-not-reached", seed)
        all_roots = {node for node, _ in answer["roots"]}
        assert distances(edges, all_roots).keys() >= nodes_of(edges)
        chosen = set(roots)
        while left := nodes_of(edges) - distances(edges, chosen).keys():
            chosen.add(min(left))
        assert all_roots == chosen

    def test_reached_by_two(self, seed: int) -> None:
        answer, edges, roots = graph("reached-by-two", seed)
        found: set[Any] = set()
        while True:
            links = Counter(b for a, b in {(a, b) for a, b, _ in edges} if a in found)
            after = set(roots) | {node for node, count in links.items() if count > 1}
            if after == found:
                break
            found = after
        assert {node for node, _ in answer["reached"]} == found
