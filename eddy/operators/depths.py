"""Least depths from a root, maintained under inserts and deletes of links, right through cycles.

A *support* of v is a link u -> v with depth(u) + cost = depth(v). Depths fall along supports, so no
node supports itself round a cycle, and one without supports has truly lost its depth. Two passes by
rising depth, each over what is affected alone:

    trim    a node whose parent has gone takes the least support that is left, or loses its depth
    relax   what has lost it, and what new links bring nearer, settles at the least depth offered

A node's parent is the least of its supports. Losing a support that is not the parent costs nothing;
`counted` keeps the number of supports as well, so that a node with none is told without looking.

Invariant: when a depth is taken up, all lesser ones are settled, since every cost is above 0.

Source: Ramalingam and Reps, "An incremental algorithm for a generalization of the shortest-path
problem", J. Algorithms 21 (1996), in batches.
"""

from collections.abc import Collection, Iterable
from heapq import heapify, heappop, heappush
from typing import Any

from eddy.errors import DataError, LoopLimitError
from eddy.operators.batch import Row
from eddy.operators.links import Link, LinkChanges, Links
from eddy.operators.reached import least
from eddy.state.arrangement import pairs_of
from eddy.state.ranks import Cell, Ranks
from eddy.state.table import Table

__all__ = ["Depths"]

Suspects = dict[Any, dict[Any, None]]
"""Nodes whose parent has gone, by depth."""
Offers = dict[Any, dict[Any, tuple[Any, int]]]
"""Nodes by the depth that they are offered, each with the least parent that offers it, and how many do."""
_EVERYWHERE = float("inf")
_NO_CELLS: dict[Any, Any] = {}


class Depths:
    """Keeps `ranks` what `links` and the roots make them. Depths go up to `max_depth`; beyond `limit` is an error."""

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
        self._cost_of = links.cost
        self._all_there = True
        self._at: dict[Any, dict[Any, Cell]] = {}
        self._out: dict[Any, dict[Any, int]] = {}
        self._inn: dict[Any, dict[Any, int]] = {}

    def update(self, changes: LinkChanges, begun: Collection[Any], ended: Collection[Any]) -> None:
        """Follow a change of the links, and roots that begin and end. What changes is noted in the ranks.

        Raises: LoopLimitError where a node lies beyond the limit, or a root reaches too many.
        """
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
        """Links that go: their children lose a support, and are suspects, by root, where it was the parent."""
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
        """Links that come: one more support where it is as near as before, an offer, by root, where it is nearer."""
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
        """Give suspects the least of their other supports for a parent; take the depth of those that have none.

        Returns the depths that were taken.
        """
        at, out, emptied = self._at, self._out, self._ranks.emptied
        notes, cost_of, counted = self._ranks.notes(root), self._cost_of, self._counted
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
                    emptied.append(v)
                if (bag := out.get(v)) is None:
                    continue
                for w, weight in bag.items():
                    if weight <= 0 or not (cells := at.get(w, _NO_CELLS)) or (cell := cells.get(root)) is None:
                        continue
                    if cell[0] != depth + (1 if cost_of is None else cost_of(v, w)):
                        continue
                    if counted:
                        notes.setdefault(w, cell)
                        cells[root] = (cell[0], cell[1], cell[2], cell[3] - 1)
                    if cell[1] == v:
                        if cell[0] not in suspects:
                            suspects[cell[0]] = {}
                            heappush(depths, cell[0])
                        suspects[cell[0]][w] = None
        return lost

    def _nearest(self, root: Any, node: Any) -> tuple[Any, Any, int]:
        """The least depth that the parents of a node offer it, the least of those that do, and how many do."""
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
        """Settle nodes by rising depth: those that were lost, those that new links bring nearer."""
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
        """Settle nodes at the depths that they are offered, and offer to their children, until nothing is left."""
        at, out, cost_of, counted = self._at, self._out, self._cost_of, self._counted
        notes, max_depth, size = self._ranks.notes(root), self._max_depth, self._size
        limit, most = self._limit, self._most
        depths = list(offers)
        heapify(depths)
        while depths:
            depth = heappop(depths)
            nodes, further = offers.pop(depth), depth + 1
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
                        raise self._beyond(root, v, depth)
                if (bag := out.get(v)) is None:
                    continue
                for w, weight in bag.items():
                    if weight <= 0:
                        continue
                    if cost_of is not None:
                        further = self._further(depth, v, w)
                    cell = at.get(w, _NO_CELLS).get(root)
                    if cell is None or further < cell[0]:
                        if further > max_depth:
                            continue
                        if (others := offers.get(further)) is None:
                            offers[further] = {w: (v, 1)}
                            heappush(depths, further)
                        elif w in others:
                            offer(offers, further, w, v, 1)
                        else:
                            others[w] = (v, 1)
                    elif further == cell[0]:
                        self._support(root, v, w, cell, notes)
        self._size = size

    def _support(self, root: Any, node: Any, child: Any, cell: Cell, notes: dict[Any, Cell | None]) -> None:
        """`node` is one more support of `child`."""
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
        """Write down the order of every node that has another parent, or whose order among siblings changed."""
        ranks = self._at
        for u, v in retied:
            for root, cell in (ranks.get(v) or {}).items():
                if cell[1] == u:
                    self._ranks.notes(root).setdefault(v, cell)
        for root, notes in self._ranks.noted().items():
            placed = [(v, ranks[v], new) for v in notes if (new := ranks[v].get(root)) is not None]
            self._links.load((new[1], v) for v, _, new in placed if new[1] is not None)
            for v, at, (depth, parent, _, supports) in placed:
                at[root] = (depth, parent, None if parent is None else self._links.order(parent, v), supports)

    def _load_around(self, nodes: Collection[Any]) -> None:
        """Have the parents and the children of `nodes` in memory, and all their cells."""
        inn, out = self._links.inn.resident(nodes), self._links.out.resident(nodes)
        links = [(u, v) for v in nodes for u, _ in pairs_of(inn.get(v))]
        links += [(v, w) for v in nodes for w, weight in pairs_of(out.get(v)) if weight > 0]
        self._links.load(links)
        self._ranks.resident([node for link in links for node in link])
        self._ranks.resident(nodes)

    def way(self, root: Any, node: Any) -> list[Any]:
        """The nodes from `root` to `node`, over parents."""
        found = [node]
        while (cells := self._ranks.get(found[-1])) and (cell := cells.get(root)) and cell[1] is not None:
            found.append(cell[1])
        return found[::-1]

    def _beyond(self, root: Any, node: Any, depth: Any) -> LoopLimitError:
        if depth > self._limit:
            what, bound = f"lies beyond limit {self._limit}", "limit"
        else:
            what, bound = f"is one of more than max_nodes={self._most} that it reaches", "max_nodes"
        way = self.way(root, node)
        shown = " → ".join(map(str, way if len(way) <= 12 else [*way[:6], "…", *way[-5:]]))
        return LoopLimitError(
            f"recursive_fixpoint '{self._name}': from root {root!r} node {node!r} {what}: {shown}; an answer within "
            f"the bound is needed. Mend the data, bound the depth: max_depth=16, or raise {bound}="
        )


def offer(offers: Offers, depth: Any, node: Any, parent: Any, supports: int) -> None:
    """`parent`, and as many as `supports`, offer `node` a depth."""
    nodes = offers.get(depth)
    if nodes is None:
        offers[depth] = {node: (parent, supports)}
    elif node in nodes:
        other, others = nodes[node]
        nodes[node] = (least(other, parent), others + supports)
    else:
        nodes[node] = (parent, supports)
