"""Links: the graph of rows (node, edge), indexed in both directions, and its changes.

    edges   node -> the input rows, with their weights; a row is an edge while its weight is above 0
    ties    (node, child) -> the (cost, order) of each edge between them
    out     node -> its children        inn   child -> its parents

All edges from a node to a child make one *link*. A link's cost is the least cost of its ties, and its order the least
order of the ties with this cost. If an edge is the child itself and costs 1, the rows are the links. Then `out` has the
rows, and there are no `edges` and no `ties`.

Invariant: while an edge links a node to a child, the child is in `out` with a weight above 0, and the node in `inn`.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from eddy.errors import DataError
from eddy.operators.batch import Batch, Row, ZSet, consolidate, merge_into
from eddy.operators.graph.reached import Child, least
from eddy.operators.operator import State
from eddy.state.adjacency import Adjacency
from eddy.state.arrangement import Arrangement, pairs_of

__all__ = ["Link", "LinkChanges", "Links", "PlainLinks", "TiedLinks"]

Link = tuple[Any, Any, Any]
"""A node, its child, and the cost of the link from the node to the child."""


class LinkChanges(msgspec.Struct):
    """The changes of links in an epoch. A changed cost is a loss of the link at the old cost and a gain at the new one.

    `retied`: the (node, child) of links of the same cost as before, but in another order among links of equal cost.
    """

    lost: list[Link]
    gained: list[Link]
    retied: list[Row]


class Links:
    """The part that `PlainLinks` and `TiedLinks` share. `cost` is None if every link costs 1."""

    cost: Callable[[Any, Any], Any] | None = None
    tied = False
    """Whether children have an order of their own."""

    def __init__(self, out: Adjacency, inn: Adjacency) -> None:
        self.out, self.inn = out, inn

    def states(self) -> list[State]:
        """The states of the links, in both directions."""
        return [self.out, self.inn]

    @property
    def complete(self) -> bool:
        """Whether all links are in memory."""
        return self.out.complete and self.inn.complete

    def change(self, batch: Batch) -> LinkChanges:
        """Apply a delta of rows (node, edge)."""
        raise NotImplementedError

    def check(self, node: Any, edge: Any) -> None:
        """Call the author's functions for an edge. Raises: the error of a function, or of its result."""

    def children(self, node: Any) -> list[Any]:
        """The children of a node."""
        return [child for child, weight in pairs_of(self.out.get(node)) if weight > 0]

    def parents(self, node: Any) -> list[Any]:
        """The parents of a node."""
        return [parent for parent, _ in pairs_of(self.inn.get(node))]

    def load(self, links: Iterable[Row]) -> None:
        """Load the data for `cost` and `order` into memory."""

    def order(self, node: Any, child: Any) -> Any:
        """Return the sort key of a child among the children of `node`; None if children are sorted by themselves."""
        return None


class PlainLinks(Links):
    """Links of rows (node, child), each of cost 1."""

    def __init__(self, name: str, out: Adjacency, inn: Adjacency) -> None:
        super().__init__(out, inn)
        self._name = name

    def change(self, batch: Batch) -> LinkChanges:
        """Apply a delta of rows (node, child). A row is a link while its weight is above 0."""
        delta = consolidate(batch.rows, batch.weights, self._name)
        lost: list[Link] = []
        gained: list[Link] = []
        back = {}
        for ((node, child), move), old in zip(delta.items(), self.out.shift(delta), strict=True):
            if old <= 0 < old + move:
                gained.append((node, child, 1))
                back[child, node] = 1
            elif old > 0 >= old + move:
                lost.append((node, child, 1))
                back[child, node] = -1
        if back:
            self.inn.integrate(back)
        return LinkChanges(lost, gained, [])


class TiedLinks(Links):
    """Links whose edges may have costs, `weight(node, edge)`, and several children, `expand(node, edge)`."""

    tied = True

    def __init__(
        self,
        name: str,
        out: Adjacency,
        inn: Adjacency,
        edges: Adjacency,
        ties: Arrangement[Any, Any],
        expand: Callable[[Any, Any], Iterable[Any]] | None,
        weight: Callable[[Any, Any], Any] | None,
    ) -> None:
        super().__init__(out, inn)
        self._name, self._edges, self._ties = name, edges, ties
        self._expand = expand or (lambda node, edge: (edge,))
        self._weight = weight
        self.cost = None if weight is None else self._cost

    def states(self) -> list[State]:
        """The states of the links, the edges and the ties."""
        return [self.out, self.inn, self._edges, self._ties]

    @property
    def complete(self) -> bool:
        """Whether all links are in memory, with their ties."""
        return super().complete and self._ties.complete

    def change(self, batch: Batch) -> LinkChanges:
        """Apply a delta of rows (node, edge): each edge adds or removes a tie to each of its children."""
        appeared, vanished = presence(self._edges, batch.zset(self._name))
        tied = [tie for row in appeared for tie in self._ties_of(*row)]
        untied = [tie for row in vanished for tie in self._ties_of(*row)]
        delta: ZSet = {}
        merge_into(delta, tied + untied, [1] * len(tied) + [-1] * len(untied))
        pairs = list(dict.fromkeys(pair for pair, _ in delta))
        olds = list(map(best_tie, pairs, self._ties.get_many(pairs)))
        self._ties.integrate(delta)
        news = list(map(best_tie, pairs, self._ties.get_many(pairs)))
        return self._relink(pairs, olds, news)

    def check(self, node: Any, edge: Any) -> None:
        """Find the ties of an edge. Raises: as `expand` and `weight` do; TypeError for a child that is not hashable."""
        for tie in self._ties_of(node, edge):
            hash(tie)

    def _relink(self, pairs: list[Row], olds: Sequence[Any], news: Sequence[Any]) -> LinkChanges:
        changes = LinkChanges([], [], [])
        forth: ZSet = {}
        for pair, old, new in zip(pairs, olds, news, strict=True):
            if old == new:
                continue
            if old is not None and new is not None and old[0] == new[0]:
                changes.retied.append(pair)
                continue
            if old is not None:
                changes.lost.append((*pair, old[0]))
            if new is not None:
                changes.gained.append((*pair, new[0]))
            if (old is None) is not (new is None):
                forth[pair] = 1 if old is None else -1
        if forth:
            self.out.integrate(forth)
            self.inn.integrate({(child, node): weight for (node, child), weight in forth.items()})
        return changes

    def _ties_of(self, node: Any, edge: Any) -> list[tuple[Row, tuple[Any, Any]]]:
        cost = 1 if self._weight is None else self._checked(node, edge)
        found: list[tuple[Row, tuple[Any, Any]]] = []
        for child in self._expand(node, edge):
            if type(child) is Child:
                order = None if child.order == child.node else child.order
                found.append(((node, child.node), (cost, order)))
            else:
                found.append(((node, child), (cost, None)))
        return found

    def _checked(self, node: Any, edge: Any) -> Any:
        assert self._weight is not None
        cost = self._weight(node, edge)
        if isinstance(cost, int | float) and 0 < cost < float("inf"):
            return cost
        raise DataError(
            f"{self._name}: edge {edge!r} of node {node!r} has weight {cost!r}; a number above 0 is needed, "
            "or a cycle would make every path shorter. Leave such edges out: edges.filter(...)"
        )

    def load(self, links: Iterable[Row]) -> None:
        """Load the ties of these links into memory."""
        if not self._ties.complete:
            self._ties.get_many(list(links))

    def _cost(self, node: Any, child: Any) -> Any:
        tie = best_tie((node, child), self._ties.get((node, child)))
        assert tie is not None
        return tie[0]

    def order(self, node: Any, child: Any) -> Any:
        """Return the least order among the ties with the least cost; None if children are sorted by themselves."""
        tie = best_tie((node, child), self._ties.get((node, child)))
        return None if tie is None else tie[1]


def presence(rows: Adjacency, delta: ZSet) -> tuple[list[Row], list[Row]]:
    """Apply `delta` to `rows`. Returns two lists: the rows that became present, and the rows that became absent."""
    appeared, vanished = [], []
    for (row, move), old in zip(delta.items(), rows.shift(delta), strict=True):
        if old <= 0 < old + move:
            appeared.append(row)
        elif old > 0 >= old + move:
            vanished.append(row)
    return appeared, vanished


def best_tie(link: Row, bag: Any) -> tuple[Any, Any] | None:
    """Return the least cost of a link's ties, and the least order at that cost. Returns None if there are no ties.

    The order None means that the child is sorted by itself.
    """
    if bag is None:
        return None
    if type(bag) is tuple:
        return bag[0]  # type: ignore[no-any-return]
    ties: Collection[tuple[Any, Any]] = bag.keys()
    cheapest = min(cost for cost, _ in ties)
    child, found = link[1], None
    for cost, order in ties:
        if cost == cheapest:
            place = child if order is None else order
            found = place if found is None else least(found, place)
    return cheapest, None if found == child else found
