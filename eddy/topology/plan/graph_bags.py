"""Steps over graphs, evaluated from scratch for traces: the rows from their definitions, without deltas or states.

reached_rows    depths from each root by rising distance, the parent and the edge of each node
first_cycle     the cycle that a depth-first search meets
tree_of         sums of subtrees, from the leaves up; the nodes that are left over are on cycles
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Any, NamedTuple

from eddy.operators.graph.reached import Child, least, ordered
from eddy.topology.plan.bags import Bag, Row

__all__ = ["Arc", "Forest", "Tree", "arcs_of", "cycles_of", "first_cycle", "reached_rows", "tree_of"]


class Forest(NamedTuple):
    """Items by their identity, each with its parent (None at the top), the key that names it, and its number."""

    above: dict[Any, Any]
    keys: dict[Any, Any]
    numbers: dict[Any, Any]


class Arc(NamedTuple):
    """A link to a child: its least cost, the least order of the edges with this cost, and the row of such an edge."""

    cost: Any
    order: Any
    edge: Row


Arcs = Mapping[Any, Mapping[Any, Arc]]
"""node -> child -> the link between them."""


def arcs_of(
    edges: Bag, expand: Callable[[Any, Any], Iterable[Any]] | None, weight: Callable[[Any, Any], Any] | None
) -> Arcs:
    """The links of rows (node, edge) whose weight is above 0."""
    found: defaultdict[Any, dict[Any, Arc]] = defaultdict(dict)
    for row, times in edges:
        node, edge = row
        if times <= 0 or node is None:
            continue
        cost = 1 if weight is None else weight(node, edge)
        for child in (edge,) if expand is None else expand(node, edge):
            end, order = (child.node, child.order) if isinstance(child, Child) else (child, child)
            one, other = Arc(cost, order, row), found[node].get(end)
            if other is not None:
                if other.cost == cost:
                    one = one if least(order, other.order) == order else other
                elif other.cost < cost:
                    one = other
            found[node][end] = one
    return found


def reached_rows(root: Any, arcs: Arcs, max_depth: Any) -> Iterator[tuple[Any, Any, Any]]:
    """The nodes that a root reaches: (node, depth, parent), the root first; of several nearest parents the least."""
    depths: dict[Any, Any] = {}
    parents: defaultdict[Any, list[Any]] = defaultdict(list)
    offers, number = [(0, 0, root)], 0
    while offers:
        depth, _, node = heappop(offers)
        if node in depths:
            continue
        depths[node] = depth
        for child, arc in arcs.get(node, {}).items():
            if max_depth is None or depth + arc.cost <= max_depth:
                number += 1  # nodes are not compared: they need not have an order
                heappush(offers, (depth + arc.cost, number, child))
    for node, depth in depths.items():
        for child, arc in arcs.get(node, {}).items():
            if child in depths and depths[child] == depth + arc.cost:
                parents[child].append(node)
    for node, depth in depths.items():
        yield node, depth, None if node == root else ordered(parents[node])[0]


def first_cycle(root: Any, depths: Mapping[Any, Any], arcs: Arcs, max_depth: Any) -> tuple[Any, ...] | None:
    """The first cycle that a depth-first search meets, with children in order, its first node again at the end."""

    def children(node: Any) -> Iterator[Any]:
        ends = max_depth is not None and depths[node] >= max_depth
        return iter([] if ends else ordered(arcs.get(node, ())))

    path, done = {root: children(root)}, set()
    while path:
        node = next(reversed(path))
        child = next(path[node], None)
        if child is None:
            done.add(node)
            del path[node]
        elif child in path:
            nodes = list(path)
            return (*nodes[nodes.index(child) :], child)
        elif child not in done:
            path[child] = children(child)
    return None


class Tree(NamedTuple):
    """A table of parents: `parents` of the nodes with a row, `sums` of all nodes but those on cycles, which are `held`.

    `owns`: the numbers of nodes with a row.
    """

    parents: dict[Any, Any]
    owns: dict[Any, Any]
    sums: dict[Any, Any]
    below: dict[Any, list[Any]]
    held: set[Any]


def tree_of(rows: Bag, parent: Callable[[Any, Any], Any], own: Callable[[Any, Any], Any]) -> Tree:
    """The tree of rows (node, value), with the sum of each node and all nodes below it."""
    parents: dict[Any, Any] = {}
    owns: dict[Any, Any] = {}
    below: defaultdict[Any, list[Any]] = defaultdict(list)
    for (node, value), weight in rows:
        if weight > 0 and node is not None:
            parents[node], owns[node] = parent(node, value), own(node, value)
    for node, above in parents.items():
        if above is not None:
            below[above].append(node)
    sums = {node: owns.get(node, 0) for node in {**parents, **below}}
    waiting = {node: len(below.get(node, ())) for node in sums}
    ready = [node for node, count in waiting.items() if not count]
    for node in ready:  # the list grows: each node is taken after all of its children
        above = parents.get(node)
        if above is not None:
            sums[above] += sums[node]
            waiting[above] -= 1
            if not waiting[above]:
                ready.append(above)
    held = sums.keys() - set(ready)
    return Tree(parents, owns, sums, dict(below), held)


def cycles_of(tree: Tree) -> Iterator[tuple[Any, ...]]:
    """The cycles of a tree's held nodes, each from its least node on, which is again at the end."""
    left = set(tree.held)
    while left:
        cycle = [first := next(iter(left))]
        while (above := tree.parents[cycle[-1]]) != first:
            cycle.append(above)
        left -= set(cycle)
        at = cycle.index(ordered(cycle)[0])
        yield (*cycle[at:], *cycle[: at + 1])
