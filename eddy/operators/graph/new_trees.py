"""Computes the totals of trees that are new as a whole: a node is summed once all its children are.

A node with a parent is in one of these trees, or on a cycle, or below one. A node on a cycle always waits for a child,
so the nodes that are never summed are those on cycles.
"""

from collections.abc import Callable, Mapping
from itertools import compress, repeat
from typing import Any

from eddy.operators.graph.reached import least

__all__ = ["cycle_of", "new_trees"]


def new_trees(parents: Mapping[Any, Any], owns: Mapping[Any, Any]) -> tuple[dict[Any, tuple[Any, ...]], list[Any]]:
    """Compute the totals of new trees. Returns the cell of each node and parent, and the cycles.

    The cells are as `TreeTotals` stores them.

    `parents` and `owns` have the parent and the own value of each node. Nodes are numbered, so that most of the work is
    on lists of numbers. Cost: a few operations a node.
    """
    absent = [node for node in dict.fromkeys(parents.values()) if node is not None and node not in parents]
    nodes, more = [*parents, *absent], len(absent)
    numbers = dict(zip(nodes, range(len(nodes)), strict=True))
    aboves = [*(None if parent is None else numbers[parent] for parent in parents.values()), *repeat(None, more)]
    owned = [*(own or 0 for own in owns.values()), *repeat(0, more)]  # an own value of 0.0 or False is kept as 0
    children = [0] * len(nodes)
    for above in aboves:
        if above is not None:
            children[above] += 1
    sums, waiting = [0 + own for own in owned], children.copy()
    ready = [node for node, count in enumerate(waiting) if not count]
    for node in ready:  # the list grows in the loop, so each node is taken after all its children
        above = aboves[node]
        if above is not None:
            if total := sums[node]:
                sums[above] += total
            waiting[above] -= 1
            if not waiting[above]:
                ready.append(above)
    present, known = [*repeat(True, len(parents)), *repeat(False, more)], [*parents.values(), *repeat(None, more)]
    held = list(map(bool, waiting))
    cells = dict(zip(nodes, zip(present, known, owned, sums, children, held, strict=True), strict=True))
    left, cycles = dict.fromkeys(compress(nodes, held)), []
    while left:
        cycles.append(cycle_of(next(iter(left)), parents.__getitem__))
        for node in cycles[-1][:-1]:
            del left[node]
    return cells, cycles


def cycle_of(node: Any, parent_of: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return the cycle that `node` is on, from its least node back to this least node."""
    cycle = [node]
    while (after := parent_of(cycle[-1])) != node:
        cycle.append(after)
    first = node
    for other in cycle[1:]:
        first = least(first, other)
    at = cycle.index(first)
    return (*cycle[at:], *cycle[:at], first)
