"""Steps over graphs, evaluated from scratch for traces: rows by their definitions, without deltas or states.

reached_rows    the nodes of each root by rising distance, with the parent and the edge of each node
first_cycle     the first cycle that a depth-first search finds
tree_of         the sums of subtrees, computed from the leaves up; nodes that remain are on cycles
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Any, NamedTuple

from eddy.operators.graph.reached import Child, least, ordered
from eddy.topology.plan.bags import Bag, Row

__all__ = ["Arc", "Forest", "Tree", "arcs_of", "cycles_of", "first_cycle", "reached_rows", "tree_of"]


class Forest(NamedTuple):
    """Maps the identity of each item to its parent (None at the top), to the key that names it, and to its number."""

    above: dict[Any, Any]
    keys: dict[Any, Any]
    numbers: dict[Any, Any]


class Arc(NamedTuple):
    """A link to a child: the least cost of its edges, the least order at this cost, and the row of such an edge."""

    cost: Any
    order: Any
    edge: Row


Arcs = Mapping[Any, Mapping[Any, Arc]]
"""The links by node and child: node -> child -> link."""


def arcs_of(
    edges: Bag, expand: Callable[[Any, Any], Iterable[Any]] | None, weight: Callable[[Any, Any], Any] | None
) -> Arcs:
    """Return the links of the rows (node, edge) whose weight is above 0."""
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
    """Yield (node, depth, parent) of all nodes that a root reaches, the root first. Of equal parents take the least."""
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
                number += 1  # orders entries of one distance, because nodes need not be comparable
                heappush(offers, (depth + arc.cost, number, child))
    for node, depth in depths.items():
        for child, arc in arcs.get(node, {}).items():
            if child in depths and depths[child] == depth + arc.cost:
                parents[child].append(node)
    for node, depth in depths.items():
        yield node, depth, None if node == root else ordered(parents[node])[0]


def first_cycle(root: Any, depths: Mapping[Any, Any], arcs: Arcs, max_depth: Any) -> tuple[Any, ...] | None:
    """Return the first cycle that a depth-first search meets, taking children in order. It ends with its first node."""

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
    """A table of parents, with sums of subtrees.

    `parents` and `owns` have the parent and the own number of each node with a row. `sums` has the sums of all nodes
    that are not on a cycle; nodes on a cycle are in `held`.
    """

    parents: dict[Any, Any]
    owns: dict[Any, Any]
    sums: dict[Any, Any]
    below: dict[Any, list[Any]]
    held: set[Any]


def tree_of(rows: Bag, parent: Callable[[Any, Any], Any], own: Callable[[Any, Any], Any]) -> Tree:
    """Return the tree of rows (node, value), with each node's sum over itself and all nodes below it."""
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
    for node in ready:  # the list grows in the loop, so each node is taken after all its children
        above = parents.get(node)
        if above is not None:
            sums[above] += sums[node]
            waiting[above] -= 1
            if not waiting[above]:
                ready.append(above)
    held = sums.keys() - set(ready)
    return Tree(parents, owns, sums, dict(below), held)


def cycles_of(tree: Tree) -> Iterator[tuple[Any, ...]]:
    """Yield the cycles among a tree's held nodes. Each begins and ends with its least node."""
    left = set(tree.held)
    while left:
        cycle = [first := next(iter(left))]
        while (above := tree.parents[cycle[-1]]) != first:
            cycle.append(above)
        left -= set(cycle)
        at = cycle.index(ordered(cycle)[0])
        yield (*cycle[at:], *cycle[: at + 1])
