"""The least depth of each node from a root, maintained while links are inserted and deleted, also in cyclic graphs.

A *support* of v is a link u -> v with depth(u) + cost = depth(v). Depths rise along supports, so no node supports
itself through a cycle, and a node without supports has lost its depth. Two passes go over the affected nodes in the
order of rising depth:

    trim    a node that lost its parent takes the least remaining support, or loses its depth
    relax   nodes without a depth, and nodes that new links bring nearer, get the least offered depth

A node's parent is the least of its supports. The loss of a support that is not the parent costs nothing. With
`counted` the number of supports is stored, too, so that a node without supports is found without a search.

Invariant: when a depth is processed, all lesser depths are settled, because every cost is above 0.

Source: Ramalingam and Reps, "An incremental algorithm for a generalization of the shortest-path
problem", J. Algorithms 21 (1996), in batches.
"""

from collections.abc import Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from eddy.errors import DataError
from eddy.operators.batch import Row
from eddy.operators.graph.links import Link, LinkChanges, Links
from eddy.operators.graph.reached import least
from eddy.state.arrangement import pairs_of
from eddy.state.ranks import Cell, Ranks
from eddy.state.table_state import Table

__all__ = ["Depths"]

Suspects = dict[Any, dict[Any, None]]
"""Nodes that have lost their parent, by their depth."""
Offers = dict[Any, dict[Any, tuple[Any, int]]]
"""Nodes by the depth offered to them, each with the least parent that offers it and the number of such parents."""
_EVERYWHERE = float("inf")
_NO_CELLS: dict[Any, Any] = {}


class Depths:
    """Maintains `ranks` from `links` and the roots.

    Nodes deeper than `max_depth` have no depth. Roots that reach nodes deeper than `limit` are reported in `over`.
    """

    def __init__(
        self,
        name: str,
        links: Links,
        ranks: Ranks,
        max_depth: Any = None,
        limit: int | None = None,
        counted: bool = False,
        max_nodes: int | None = None,
        sizes: Table[Any, int] | None = None,
    ) -> None:
        self._name, self._links, self._ranks, self._counted = name, links, ranks, counted
        self._most, self._sizes, self._size = _EVERYWHERE if max_nodes is None else max_nodes, sizes, 0
        self._max_depth = _EVERYWHERE if max_depth is None else max_depth
        self._limit = _EVERYWHERE if limit is None or max_depth is not None else limit
        self.limit, self.most = self._limit, self._most
        self.over: set[Any] = set()
        self._cost_of = links.cost
        self._all_there = True
        self._at: dict[Any, dict[Any, Cell]] = {}
        self._out: dict[Any, dict[Any, int]] = {}
        self._inn: dict[Any, dict[Any, int]] = {}

    def update(self, changes: LinkChanges, begun: Collection[Any], ended: Collection[Any]) -> None:
        """Apply changes of links and roots. Previous cells are recorded in the ranks.

        Afterwards `over` has the roots that reach a node beyond the limit, or too many nodes.
        """
        self.over = set()
        ranks, links = self._ranks, self._links
        self._all_there = ranks.complete and links.complete
        self._at = ranks.resident()
        self._out, self._inn = links.out.neighbours(), links.inn.neighbours()
        if not self._all_there:
            moved = (*changes.lost, *changes.gained, *changes.retied)
            ranks.resident({*begun, *ended, *(node for link in moved for node in link[:2])})
        suspects = self._lose(changes.lost) if changes.lost else {}
        offers = self._gain(changes.gained) if changes.gained else {}
        for root in ended:
            suspects.setdefault(root, {})[0] = {root: None}
        for root in begun:
            offers.setdefault(root, [])
        for root, nodes in suspects.items():
            self._relax(root, self._trim(root, nodes), offers.pop(root, ()), root in begun)
        for root, gained in offers.items():
            self._relax(root, _NO_CELLS, gained, root in begun)
        if self._links.tied:
            self._place(changes.retied)

    def _lose(self, links: list[Link]) -> dict[Any, Suspects]:
        """Apply removed links: each child loses a support.

        Returns, by root and by depth, the children that have lost their parent.
        """
        suspects: dict[Any, Suspects] = {}
        get, counted = self._at.get, self._counted
        for u, v, cost in links:
            above, below = get(u), get(v)
            if not above or not below:
                continue
            for root, cell in above.items():
                old = below.get(root)
                if old is None or old[0] != cell[0] + cost:
                    continue
                if counted:
                    self._ranks.notes(root).setdefault(v, old)
                    below[root] = (old[0], old[1], old[2], old[3] - 1)
                if old[1] == u:
                    suspects.setdefault(root, {}).setdefault(old[0], {})[v] = None
        return suspects

    def _gain(self, links: list[Link]) -> dict[Any, list[Link]]:
        """Apply added links: each adds a support if it leads to the child's present depth.

        Returns, by root, the links that offer their child a lesser depth.
        """
        offers: dict[Any, list[Link]] = {}
        get = self._at.get
        for link in links:
            u, v, cost = link
            above, below = get(u), get(v)
            if not above:
                continue
            for root, cell in above.items():
                old = below.get(root) if below else None
                depth = cell[0] + cost
                if old is None or depth < old[0]:
                    offers.setdefault(root, []).append(link)
                elif depth == old[0]:
                    self._support(root, u, v, old, self._ranks.notes(root))
        return offers

    def _trim(self, root: Any, suspects: Suspects) -> dict[Any, Any]:
        """Give each of `suspects`, nodes that have lost their parent, the least of its other supports as its parent.

        A node without another support loses its depth. Returns the depths that were removed, by node.
        """
        at, notes, counted = self._at, self._ranks.notes(root), self._counted
        lost: dict[Any, Any] = {}
        depths = list(suspects)
        heapify(depths)
        while depths:
            depth = heappop(depths)
            nodes = suspects.pop(depth)
            if not self._all_there:
                self._load_around(nodes)
            for v in nodes:
                cells = at[v]
                old = cells[root]
                if v not in notes:
                    notes[v] = old
                if not counted or old[3]:
                    nearest, parent, _ = self._nearest(root, v)
                    if nearest == depth:
                        cells[root] = (depth, parent, old[2], old[3])
                        continue
                lost[v] = depth
                del cells[root]
                if not cells:
                    self._ranks.emptied.append(v)
                if (children := self._out.get(v)) is None:
                    continue
                for w, below in self._orphans(root, v, depth, children, notes):
                    if below not in suspects:
                        suspects[below] = {}
                        heappush(depths, below)
                    suspects[below][w] = None
        return lost

    def _orphans(
        self, root: Any, lost: Any, depth: Any, children: dict[Any, int], notes: dict[Any, Cell | None]
    ) -> Iterator[tuple[Any, Any]]:
        """Remove a node as a support of its children, because the node has lost its depth, which was `depth`.

        Yields the children whose parent was this node, with their depths.
        """
        at, cost_of, counted = self._at, self._cost_of, self._counted
        for w, weight in children.items():
            if weight <= 0 or not (cells := at.get(w, _NO_CELLS)) or (cell := cells.get(root)) is None:
                continue
            if cell[0] != depth + (1 if cost_of is None else cost_of(lost, w)):
                continue
            if counted:
                notes.setdefault(w, cell)
                cells[root] = (cell[0], cell[1], cell[2], cell[3] - 1)
            if cell[1] == lost:
                yield w, cell[0]

    def _nearest(self, root: Any, node: Any) -> tuple[Any, Any, int]:
        """Return the least depth that a node's parents offer, the least such parent, and the number of such parents."""
        at, cost_of = self._at, self._cost_of
        nearest, parent, supports = _EVERYWHERE, None, 0
        if (bag := self._inn.get(node)) is not None:
            for u in bag:
                if (above := at.get(u)) and (cell := above.get(root)) is not None:
                    depth = cell[0] + (1 if cost_of is None else cost_of(u, node))
                    if depth < nearest:
                        nearest, parent, supports = depth, u, 1
                    elif depth == nearest:
                        parent, supports = least(parent, u), supports + 1
        return nearest, parent, supports

    def _relax(self, root: Any, lost: dict[Any, Any], links: Iterable[Link], begins: bool) -> None:
        """Give depths to the nodes `lost`, which have none, and to nodes that new links bring nearer.

        The least depth is given first.

        `begins`: the root is new, so it is offered depth 0.
        """
        at, max_depth = self._at, self._max_depth
        offers: Offers = {0: {root: (None, 0)}} if begins else {}
        for u, v, cost in links:
            if v not in lost and (cell := at[u].get(root)) is not None:
                depth = cell[0] + cost
                if depth <= max_depth:
                    offer(offers, depth, v, u, 1)
        if lost and not self._all_there:
            self._load_around(lost)
        for v in lost:
            depth, parent, supports = self._nearest(root, v)
            if supports and depth <= max_depth:
                offer(offers, depth, v, parent, supports)
        size = None if self._sizes is None else self._sizes.get(root)
        self._size = (size or 0) - len(lost)
        if offers:
            self._spread(root, offers)
        if self._sizes is not None:
            self._sizes.put_many({root: self._size or None}, [size])

    def _spread(self, root: Any, offers: Offers) -> None:
        """Give nodes the depths that they are offered, and offer depths to their children, until no offer is left."""
        at, out, counted = self._at, self._out, self._counted
        notes, size = self._ranks.notes(root), self._size
        limit, most = self._limit, self._most
        depths = list(offers)
        heapify(depths)
        while depths:
            depth = heappop(depths)
            nodes = offers.pop(depth)
            if not self._all_there:
                self._load_around(nodes)
            for v, (parent, supports) in nodes.items():
                if (cells := at.get(v)) is None:
                    old, at[v] = None, (cells := {})
                elif (old := cells.get(root)) is not None and old[0] <= depth:
                    continue
                if v not in notes:
                    notes[v] = old
                cells[root] = (depth, parent, None, supports if counted else 0)
                if old is None:
                    size += 1
                    if depth > limit or size > most:
                        self.over.add(root)
                if (children := out.get(v)) is not None:
                    self._offer(root, v, depth, children, offers, depths, notes)
        self._size = size

    def _offer(
        self,
        root: Any,
        node: Any,
        depth: Any,
        children: dict[Any, int],
        offers: Offers,
        depths: list[Any],
        notes: dict[Any, Cell | None],
    ) -> None:
        """Offer depths to the children of a node that has got its depth.

        For a child whose own depth is greater, the offer is recorded. For a child that has the offered depth already,
        the node is added as a support. `depths` is the heap of the depths in `offers`.
        """
        at, cost_of, max_depth, below = self._at, self._cost_of, self._max_depth, depth + 1
        for w, weight in children.items():
            if weight <= 0:
                continue
            if cost_of is not None:
                below = self._further(depth, node, w)
            cell = at.get(w, _NO_CELLS).get(root)
            if cell is not None and below >= cell[0]:
                if below == cell[0]:
                    self._support(root, node, w, cell, notes)
            elif below <= max_depth:
                if (offered := offers.get(below)) is None:
                    offers[below] = {w: (node, 1)}
                    heappush(depths, below)
                elif w in offered:
                    offer(offers, below, w, node, 1)
                else:
                    offered[w] = (node, 1)

    def _support(self, root: Any, node: Any, child: Any, cell: Cell, notes: dict[Any, Cell | None]) -> None:
        """Add `node` as a support of `child`."""
        parent = least(cell[1], node)
        if self._counted or parent != cell[1]:
            notes.setdefault(child, cell)
            self._at[child][root] = (cell[0], parent, cell[2], cell[3] + self._counted)

    def _further(self, depth: Any, node: Any, child: Any) -> Any:
        assert self._cost_of is not None
        further = depth + self._cost_of(node, child)
        if further > depth:
            return further
        raise DataError(
            f"recursive_fixpoint '{self._name}': the weight of edge {node!r} → {child!r} is lost beside the "
            f"distance {depth!r} in floating point; weights of like size are needed. Take integers"
        )

    def _place(self, retied: list[Row]) -> None:
        """Store the order among siblings, for every node that has a new parent or whose link is in `retied`."""
        ranks = self._at
        for u, v in retied:
            for root, cell in (ranks.get(v) or {}).items():
                if cell[1] == u:
                    self._ranks.notes(root).setdefault(v, cell)
        for root, notes in self._ranks.noted().items():
            placed = [(v, ranks[v], new) for v in notes if (new := ranks[v].get(root)) is not None]
            self._links.load((new[1], v) for v, _, new in placed if v != root)
            for v, at, (depth, parent, _, supports) in placed:
                at[root] = (depth, parent, None if v == root else self._links.order(parent, v), supports)

    def _load_around(self, nodes: Collection[Any]) -> None:
        """Load the parents and children of `nodes`, and all their cells."""
        inn, out = self._links.inn.resident(nodes), self._links.out.resident(nodes)
        links = [(u, v) for v in nodes for u, _ in pairs_of(inn.get(v))]
        links += [(v, w) for v in nodes for w, weight in pairs_of(out.get(v)) if weight > 0]
        self._links.load(links)
        self._ranks.resident([node for link in links for node in link])
        self._ranks.resident(nodes)


def offer(offers: Offers, depth: Any, node: Any, parent: Any, supports: int) -> None:
    """Record that `supports` nodes offer `node` this depth; `parent` is the least of them."""
    nodes = offers.get(depth)
    if nodes is None:
        offers[depth] = {node: (parent, supports)}
    elif node in nodes:
        other, others = nodes[node]
        nodes[node] = (least(other, parent), others + supports)
    else:
        nodes[node] = (parent, supports)
