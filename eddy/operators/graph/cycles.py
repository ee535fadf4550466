"""Finds a cycle of a graph and names it, for the error of `recursive_fixpoint`; no rows are held here.

For each root that reaches cycles, one of these cycles is named. Which one depends only on the current links. A link
counts if its start is reached and, with a bound on depth, has a depth below the bound. A new cycle has a link that did
not count before. There are two cases:

- All nodes of the cycle are newly reached.
- It has a new link between nodes that were reached already, and the link's end leads back to its start. Such cycles are
  searched from both ends at once.

If a root had no cycle, only these two cases are searched. If it had one, all nodes that it reaches are searched again,
until no cycle is found. With a bound, a node whose depth sinks below the bound counts as new although it was reached
before, so everything downstream of it is searched.

The named cycle is the first one that a depth-first search finds, with children in rising order.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import reduce
from typing import Any

from eddy.operators.graph.links import Link, LinkChanges, Links
from eddy.operators.graph.reached import least, ordered
from eddy.operators.operator import State
from eddy.state.ranks import Cell, Ranks
from eddy.state.table_state import Table

__all__ = ["Cycles", "first_cycle"]

Cycle = tuple[Any, ...]


class Cycles:
    """Maintains `table`, which has one cycle of each root that reaches cycles. The inputs are links and ranks."""

    def __init__(self, table: Table[Any, Cycle], links: Links, ranks: Ranks, max_depth: Any = None) -> None:
        self._table, self._links, self._ranks = table, links, ranks
        self._max_depth = float("inf") if max_depth is None else max_depth

    def states(self) -> list[State]:
        """The cycles."""
        return [self._table]

    def of(self, root: Any) -> Cycle | None:
        """The cycle of a root, or None."""
        return self._table.get(root)

    def least(self) -> tuple[Any, Cycle] | None:
        """Return the least root that has a cycle, and the cycle. Cost: proportional to the roots that have cycles."""
        cycles = dict(self._table.items())
        if not cycles:
            return None
        root = reduce(least, cycles)
        return root, cycles[root]

    def update(self, changes: LinkChanges, ended: Collection[Any]) -> dict[Any, tuple[Cycle | None, Cycle | None]]:
        """Apply the epoch's changes of links and ranks to the cycles.

        Returns, by root, the pair of its old cycle and its new cycle, each None for no cycle.
        """
        gained = self._by_root(changes.gained)
        touched = {**self._ranks.noted(), **gained, **self._by_root(changes.lost)}
        moved: dict[Any, tuple[Cycle | None, Cycle | None]] = {}
        for root, old in zip(touched, self._table.get_many(list(touched)), strict=True):
            new = None
            if root not in ended and (old is not None or self._closes(root, gained.get(root, ()))):
                new = first_cycle([root], lambda node, root=root: self._children(root, node))  # type: ignore[misc]
            if old is not None or new is not None:
                moved[root] = (old, new)
        if moved:
            self._table.put_many({root: new for root, (_, new) in moved.items()}, [old for old, _ in moved.values()])
        return moved

    def _by_root(self, links: Iterable[Link]) -> dict[Any, list[Link]]:
        """Group links by the roots that reach their starts."""
        found: dict[Any, list[Link]] = {}
        for link in links:
            for root in self._ranks.get(link[0]) or ():
                found.setdefault(root, []).append(link)
        return found

    def _counts(self, cell: Cell | None) -> bool:
        """Return whether links from a node count; `cell` is the node's cell, None if the node is not reached."""
        return cell is not None and cell[0] < self._max_depth

    def _cell(self, root: Any, node: Any) -> Cell | None:
        cells = self._ranks.get(node)
        return None if cells is None else cells.get(root)

    def _children(self, root: Any, node: Any) -> list[Any]:
        return self._links.children(node) if self._counts(self._cell(root, node)) else []

    def _parents(self, root: Any, node: Any) -> list[Any]:
        return [parent for parent in self._links.parents(node) if self._counts(self._cell(root, parent))]

    def _closes(self, root: Any, gained: Iterable[Link]) -> bool:
        """Return whether the epoch has closed a cycle that `root` reaches. Before the epoch the root had none."""
        notes = self._ranks.notes(root)
        fresh = {node for node, old in notes.items() if not self._counts(old) and self._counts(self._cell(root, node))}
        bounded = self._max_depth < float("inf")
        inside = first_cycle(fresh, lambda node: [c for c in self._children(root, node) if bounded or c in fresh])
        return inside is not None or any(
            self._leads(root, child, node)
            for node, child, _ in gained
            if node not in fresh and self._counts(self._cell(root, node))
        )

    def _leads(self, root: Any, start: Any, end: Any) -> bool:
        """Return whether a path leads from `start` to `end`.

        The search goes forwards from `start` and backwards from `end`, in turns.
        """
        if start == end:
            return True
        down, up = {start}, {end}
        searches = [(down, up, [start], self._children), (up, down, [end], self._parents)]
        while searches[0][2]:
            seen, others, frontier, nexts = searches[0]
            node = frontier.pop()
            for other in nexts(root, node):
                if other in others:
                    return True
                if other not in seen:
                    seen.add(other)
                    frontier.append(other)
            searches.reverse()
        return False


def first_cycle(starts: Iterable[Any], children: Callable[[Any], Iterable[Any]]) -> Cycle | None:
    """Return the first cycle that a depth-first search from `starts` finds, with its first node again at the end.

    >>> first_cycle("a", {"a": "bc", "b": "c", "c": "db", "d": ""}.get)
    ('b', 'c', 'b')
    """
    done: set[Any] = set()
    for start in starts:
        if start in done:
            continue
        path: dict[Any, Iterator[Any]] = {start: iter(ordered(children(start)))}
        while path:
            node = next(reversed(path))
            child = next(path[node], done)
            if child is done:
                path.popitem()
                done.add(node)
            elif child in path:
                nodes = list(path)
                return (*nodes[nodes.index(child) :], child)
            elif child not in done:
                path[child] = iter(ordered(children(child)))
    return None
