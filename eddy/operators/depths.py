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
_EVERYWHERE = float("inf")


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
        self._max_nodes, self._sizes, self._size = max_nodes, sizes, 0
        self._max_depth = _EVERYWHERE if max_depth is None else max_depth
        self._limit = _EVERYWHERE if limit is None or max_depth is not None else limit
        self._all_there = True

    def update(self, changes: LinkChanges, begun: Collection[Any], ended: Collection[Any]) -> None:
        """Follow a change of the links, and roots that begin and end. What changes is noted in the ranks.

        Raises: LoopLimitError where a node lies beyond the limit, or a root reaches too many.
        """
        self._all_there = self._ranks.complete and self._links.complete
        if not self._all_there:
            links = (*changes.lost, *changes.gained, *changes.retied)
            self._ranks.resident({*begun, *ended, *(node for link in links for node in link[:2])})
        suspects = self._lose(changes.lost)
        offers = self._gain(changes.gained)
        for root in ended:
            suspects.setdefault(root, {})[0] = {root: None}
        for root in begun:
            offers.setdefault(root, [])
        for root in {**suspects, **offers}:
            lost = self._trim(root, suspects[root]) if root in suspects else {}
            self._relax(root, lost, offers.get(root, ()), root in begun)
        if self._links.tied:
            self._place(changes.retied)

    def _lose(self, links: list[Link]) -> dict[Any, Suspects]:
        """Links that go: their children lose a support, and are suspects, by root, where it was the parent."""
        suspects: dict[Any, Suspects] = {}
        get, counted = self._ranks.resident().get, self._counted
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
        get, counted = self._ranks.resident().get, self._counted
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
                    parent = least(old[1], u)
                    if counted or parent != old[1]:
                        assert below is not None
                        self._ranks.notes(root).setdefault(v, old)
                        below[root] = (depth, parent, old[2], old[3] + counted)
        return offers

    def _trim(self, root: Any, suspects: Suspects) -> dict[Any, Any]:
        """Take the depth of every node that nothing supports any more. Returns the depths that were taken."""
        ranks, out = self._ranks.resident(), self._links.out.resident()
        notes, cost_of, counted = self._ranks.notes(root), self._links.cost, self._counted
        lost: dict[Any, Any] = {}
        depths = list(suspects)
        heapify(depths)
        while depths:
            depth = heappop(depths)
            gone = self._unsupported(root, depth, suspects.pop(depth), notes)
            if gone and not self._all_there:
                self._load_below(gone)
            for v in gone:
                lost[v] = depth
                bag = out.get(v)
                for w, weight in () if bag is None else (bag,) if type(bag) is tuple else bag.items():  # type: ignore[union-attr]
                    if weight <= 0 or not (cells := ranks.get(w)) or (cell := cells.get(root)) is None:
                        continue
                    if cell[0] != depth + (1 if cost_of is None else cost_of(v, w)):
                        continue
                    if counted:
                        notes.setdefault(w, cell)
                        cells[root] = (cell[0], cell[1], cell[2], cell[3] - 1)
                    if cell[1] == v:
                        more = suspects.get(cell[0])
                        if more is None:
                            more = suspects[cell[0]] = {}
                            heappush(depths, cell[0])
                        more[w] = None
        return lost

    def _unsupported(self, root: Any, depth: Any, nodes: Collection[Any], notes: dict[Any, Cell | None]) -> list[Any]:
        """Give each of `nodes` the least of its supports for a parent; return those that have none."""
        ranks, inn, cost_of, gone = self._ranks.resident(), self._links.inn.resident(), self._links.cost, []
        emptied = self._ranks.emptied
        if not self._all_there:
            self._load_above(nodes)
        for v in nodes:
            cells = ranks[v]
            old = cells[root]
            parent, found = None, False
            if not (self._counted and old[3] == 0):
                bag = inn.get(v)
                for u, _ in () if bag is None else (bag,) if type(bag) is tuple else bag.items():  # type: ignore[union-attr]
                    if (above := ranks.get(u)) and (cell := above.get(root)) is not None:
                        if cell[0] + (1 if cost_of is None else cost_of(u, v)) == depth:
                            parent, found = (least(parent, u) if found else u), True
            notes.setdefault(v, old)
            if found:
                cells[root] = (depth, parent, old[2], old[3])
            else:
                del cells[root]
                if not cells:
                    emptied.append(v)
                gone.append(v)
        return gone

    def _relax(self, root: Any, lost: dict[Any, Any], links: Iterable[Link], begins: bool) -> None:
        """Settle nodes by rising depth: those that were lost, those that are offered a lesser depth."""
        offers = _Offers(self._max_depth, self._counted)
        if begins:
            offers.add(0, root, None)
        ranks, cost_of = self._ranks.resident(), self._links.cost
        for u, v, cost in links:
            if v not in lost and (cell := ranks[u].get(root)) is not None:
                offers.add(cell[0] + cost, v, u)
        if lost:
            if not self._all_there:
                self._load_above(lost)
            inn = self._links.inn.resident()
            for v in lost:
                for u, _ in pairs_of(inn.get(v)):
                    if (above := ranks.get(u)) and (cell := above.get(root)) is not None:
                        offers.add(cell[0] + (1 if cost_of is None else cost_of(u, v)), v, u)
        if self._sizes is not None:
            self._size = (self._sizes.get(root) or 0) - len(lost)
        if offers.depths:
            self._spread(root, offers)
        if self._sizes is not None:
            self._sizes.put_many({root: self._size or None}, [self._sizes.get(root)])

    def _spread(self, root: Any, offers: "_Offers") -> None:
        """Settle what is offered, and offer to its children, until nothing is."""
        ranks, out = self._ranks.resident(), self._links.out.resident()
        notes, cost_of, counted = self._ranks.notes(root), self._links.cost, self._counted
        depths, by_depth, max_depth = offers.depths, offers.by_depth, self._max_depth
        while depths:
            depth = heappop(depths)
            settled = self._settle(root, depth, by_depth.pop(depth), offers, notes)
            if not self._all_there:
                self._load_below(settled)
            further = depth + 1
            for v in settled:
                if (bag := out.get(v)) is None:
                    continue
                for w, weight in (bag,) if type(bag) is tuple else bag.items():  # type: ignore[union-attr]
                    if weight <= 0:
                        continue
                    if cost_of is not None:
                        further = self._further(depth, v, w)
                    cells = ranks.get(w)
                    cell = cells.get(root) if cells else None
                    if cell is None or further < cell[0]:
                        if counted or further > max_depth:
                            offers.add(further, w, v)
                        elif (nodes := by_depth.get(further)) is None:
                            by_depth[further] = {w: v}
                            heappush(depths, further)
                        else:
                            nodes[w] = least(nodes[w], v) if w in nodes else v
                    elif further == cell[0]:
                        parent = least(cell[1], v)
                        if counted or parent != cell[1]:
                            assert cells is not None
                            notes.setdefault(w, cell)
                            cells[root] = (further, parent, cell[2], cell[3] + counted)

    def _settle(
        self, root: Any, depth: Any, nodes: dict[Any, Any], offers: "_Offers", notes: dict[Any, Cell | None]
    ) -> list[Any]:
        """Give nodes the depth that they are offered, where it is less than theirs. Returns which."""
        ranks, votes, limit = self._ranks.resident(), offers.votes, self._limit
        settled = []
        for v, parent in nodes.items():
            cells = ranks.get(v)
            if cells is None:
                cells, old = {}, None
                ranks[v] = cells
            elif (old := cells.get(root)) is not None and old[0] <= depth:
                continue
            if depth > limit:
                raise self._too_deep(root, v, parent)
            notes.setdefault(v, old)
            cells[root] = (depth, parent, None, votes.pop((depth, v), 0) if votes else 0)
            settled.append(v)
            if old is None:
                self._size += 1
        if self._max_nodes is not None and self._size > self._max_nodes:
            raise self._too_many(root, settled[-1])
        return settled

    def _further(self, depth: Any, node: Any, child: Any) -> Any:
        assert self._links.cost is not None
        further = depth + self._links.cost(node, child)
        if further > depth:
            return further
        raise DataError(
            f"recursive_fixpoint '{self._name}': the weight of edge {node!r} → {child!r} is lost beside the "
            f"distance {depth!r} in floating point; weights of like size are needed. Take integers"
        )

    def _place(self, retied: list[Row]) -> None:
        """Write down the order of every node that has another parent, or whose order among siblings changed."""
        ranks = self._ranks.resident()
        for u, v in retied:
            for root, cell in (ranks.get(v) or {}).items():
                if cell[1] == u:
                    self._ranks.notes(root).setdefault(v, cell)
        for root, notes in self._ranks.noted().items():
            placed = [(v, ranks[v], new) for v in notes if (new := ranks[v].get(root)) is not None]
            self._links.load((new[1], v) for v, _, new in placed if new[1] is not None)
            for v, at, (depth, parent, _, supports) in placed:
                at[root] = (depth, parent, None if parent is None else self._links.order(parent, v), supports)

    def _load_above(self, nodes: Collection[Any]) -> None:
        """Have the parents of `nodes` in memory, and their cells."""
        inn = self._links.inn.resident(nodes)
        links = [(u, v) for v in nodes for u, _ in pairs_of(inn.get(v))]
        self._links.load(links)
        self._ranks.resident([*nodes, *(u for u, _ in links)])

    def _load_below(self, nodes: Collection[Any]) -> None:
        """Have the children of `nodes` in memory, and their cells."""
        out = self._links.out.resident(nodes)
        links = [(v, w) for v in nodes for w, weight in pairs_of(out.get(v)) if weight > 0]
        self._links.load(links)
        self._ranks.resident([w for _, w in links])

    def way(self, root: Any, node: Any) -> list[Any]:
        """The nodes from `root` to `node`, over parents."""
        found = [node]
        while (cells := self._ranks.get(found[-1])) and (cell := cells.get(root)) and cell[1] is not None:
            found.append(cell[1])
        return found[::-1]

    def _too_deep(self, root: Any, node: Any, parent: Any) -> LoopLimitError:
        way = [*self.way(root, parent), node]
        shown = " → ".join(map(str, way if len(way) <= 12 else [*way[:6], "…", *way[-5:]]))
        return LoopLimitError(
            f"recursive_fixpoint '{self._name}': from root {root!r} node {node!r} lies beyond limit {self._limit}: "
            f"{shown}; a depth within the limit is needed. Bound the answer: max_depth=16, or raise limit= if the "
            "data is that deep"
        )

    def _too_many(self, root: Any, node: Any) -> LoopLimitError:
        way = self.way(root, node)
        shown = " → ".join(map(str, way if len(way) <= 12 else [*way[:6], "…", *way[-5:]]))
        return LoopLimitError(
            f"recursive_fixpoint '{self._name}': root {root!r} reaches more than max_nodes={self._max_nodes} nodes, "
            f"one of them by {shown}; fewer are needed. Mend the data, bound the depth: max_depth=16, or raise "
            "max_nodes="
        )


class _Offers:
    """Offers of a depth: by depth the nodes, each with the least parent that offered it, and how many did."""

    def __init__(self, max_depth: Any, counted: bool) -> None:
        self._max_depth, self._counted = max_depth, counted
        self.depths: list[Any] = []
        self.by_depth: dict[Any, dict[Any, Any]] = {}
        self.votes: dict[tuple[Any, Any], int] = {}

    def add(self, depth: Any, node: Any, parent: Any) -> None:
        """`parent` offers `node` a depth."""
        if depth > self._max_depth:
            return
        nodes = self.by_depth.get(depth)
        if nodes is None:
            self.by_depth[depth] = {node: parent}
            heappush(self.depths, depth)
        else:
            nodes[node] = least(nodes[node], parent) if node in nodes else parent
        if self._counted and parent is not None:
            self.votes[depth, node] = self.votes.get((depth, node), 0) + 1
