"""Steps over graphs, from their definitions: plain Python over all rows, in one task that holds the graph.

    Reaching    depths from each root by rising distance (Dijkstra); of several nearest parents the least is the parent
    Totalling   sums of subtrees from the leaves up; the nodes that are not reached in this way are on cycles

Reaching and totalling also return the states of a worker. They compute from scratch, so they check the worker's
operators, which are incremental.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from heapq import heappop, heappush
from typing import Any

import msgspec

from eddy.connectors.spark.arrow_functions import RowsEntry, encode_rows
from eddy.connectors.spark.decoded_rows import Row, calling
from eddy.connectors.spark.made import batches_of, rows_where
from eddy.errors import DataError
from eddy.operators.graph.reached import Child, Reached
from eddy.serde import Int64, Native, Serde, Tuple

__all__ = ["GraphFunction", "Reaching", "Totalling"]

Weighted = Mapping[Row, int]
_LENGTH_BYTES, _WEIGHT_BYTES = 4, 8


@dataclass
class GraphResults:
    """Collects the results of a step: its rows, and the rows of each of its states' changelogs."""

    rows: list[Row] = field(default_factory=list)
    states: dict[str, list[tuple[bytes, bytes]]] = field(default_factory=dict)

    def table(self, name: str, key: Serde[Any], value: Serde[Any], rows: Iterable[Row]) -> None:
        """Add a state with one value for each key."""
        self.states[name] = [(key.identify_many([k])[0], value.encode(v)) for k, v in rows]

    def bag(self, name: str, key: Serde[Any], value: Serde[Any], rows: Weighted) -> None:
        """Add a state of rows with weights."""
        kept = self.states[name] = []
        for (k, v), weight in rows.items():
            identity, original = value.identify_many([v])[0], value.encode(v)
            weighed = weight.to_bytes(_WEIGHT_BYTES, "big", signed=True)
            kept.append((_pair_key(key, k, value, v), weighed + (original if original != identity else b"")))


def _pair_key(key: Serde[Any], k: Any, value: Serde[Any], v: Any) -> bytes:
    first, second = key.identify_many([k])[0], value.identify_many([v])[0]
    return len(first).to_bytes(_LENGTH_BYTES, "big") + first + second


@dataclass(frozen=True)
class GraphFunction:
    """Runs a step over all rows of its inputs, as a function over Arrow batches.

    `reads` has the name of each input, and the serdes of its keys and values.
    """

    name: str
    reads: Sequence[tuple[str, Serde[Any], Serde[Any]]]
    makes: tuple[Serde[Any], Serde[Any]]
    compute: "Callable[..., GraphResults]"

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the results for all rows of the inputs, as batches with the columns `MADE`. Raises: DataError."""
        inputs: list[Counter[Row]] = [Counter() for _ in self.reads]
        for arrived in batches:
            for rows, (name, key, value) in zip(inputs, self.reads, strict=True):
                decoded = RowsEntry(key, value).rows(rows_where(arrived, "read", name))
                for row, weight in zip(decoded.rows, decoded.weights, strict=True):
                    rows[row] += weight
        results = self.compute(*inputs)
        k, kc, v, vc = encode_rows(results.rows, *self.makes, f"step '{self.name}'", False)
        yield from batches_of("rows", self.name, len(k), k=k, kc=kc, v=v, vc=vc, w=[1] * len(k))
        for name, kept in results.states.items():
            keys, values = [key for key, _ in kept], [value for _, value in kept]
            yield from batches_of("state", name, len(kept), key=keys, value=values)


@dataclass(frozen=True)
class Reaching:
    """Computes `recursive_fixpoint`. The fields are the fields of its node in the plan."""

    name: str
    node: Serde[Any]
    root_key: Serde[Any]
    edge: Serde[Any]
    expand: Callable[[Any, Any], Iterable[Any]] | None
    weight: Callable[[Any, Any], Any] | None
    max_depth: Any
    max_nodes: int | None
    limit: int | None
    cycles: bool
    counted: bool

    def __call__(self, roots: Weighted, edges: Weighted) -> GraphResults:
        """Turn rows (key, root) and (node, edge) into rows (key, `Reached`), and the states."""
        ties = self._ties(edges)
        links: dict[Any, dict[Any, tuple[Any, Any]]] = defaultdict(dict)
        for (parent, child), costs in ties.items():
            links[parent][child] = self._link(child, costs)
        keys: dict[Any, list[Any]] = defaultdict(list)
        for (key, root), weight in roots.items():
            if weight > 0:
                keys[root].append(key)
        results, graph = GraphResults(), {root: self._depths(root, links) for root in keys}
        beyond = {root: found for root, cells in graph.items() if (found := self._beyond(cells)) is not None}
        cycles = {root: found for root in keys if self.cycles and (found := self._cycle(root, graph[root], links))}
        for root, cells in graph.items():
            rows = (
                []
                if root in beyond
                else [Reached(root, node, *self._shown(node, cell)) for node, cell in cells.items()]
            )
            if root in cycles:
                rows.append(Reached(root, cycles[root][0], -1, cycle=cycles[root]))
            results.rows += [(key, row) for key in keys[root] for row in rows]
        self._keep(results, roots, edges, ties, graph)
        self._keep_bounds(results, graph, beyond, cycles)
        return results

    def _ties(self, edges: Weighted) -> dict[Row, Counter[tuple[Any, Any]]]:
        """Return, by link (parent, child), the (cost, order) of each edge that makes the link, with their numbers.

        An order of None means that the child itself is the order.
        """
        ties: dict[Row, Counter[tuple[Any, Any]]] = defaultdict(Counter)
        for (node, edge), weight in edges.items():
            if weight <= 0:
                continue
            with calling(self.name):
                cost = 1 if self.weight is None else self.weight(node, edge)
                children = [edge] if self.expand is None else list(self.expand(node, edge))
            if not isinstance(cost, int | float) or not 0 < cost < float("inf"):
                raise DataError(f"{self.name}: edge {edge!r} of node {node!r} has weight {cost!r}; above 0 is needed")
            for child in children:
                end, order = (child.node, child.order) if isinstance(child, Child) else (child, None)
                ties[node, end][cost, None if order == end else order] += 1
        return ties

    def _link(self, child: Any, ties: Iterable[tuple[Any, Any]]) -> tuple[Any, Any]:
        """Return the least cost of a link, and the least order at that cost."""
        least = min(cost for cost, _ in ties)
        order = _sorted(child if order is None else order for cost, order in ties if cost == least)[0]
        return least, None if order == child else order

    def _depths(self, root: Any, links: Mapping[Any, Any]) -> dict[Any, tuple[Any, Any, Any, int]]:
        """Return, by node, (depth, parent, order among the parent's children, number of such parents)."""
        depths: dict[Any, Any] = {}
        parents: dict[Any, list[Any]] = defaultdict(list)
        offers, number = [(0, 0, root)], 0
        while offers:
            depth, _, node = heappop(offers)
            if node in depths:
                continue
            depths[node] = depth
            for child, (cost, _) in links.get(node, {}).items():
                further = depth + cost
                if further <= depth:
                    raise DataError(
                        f"recursive_fixpoint '{self.name}': the weight of edge {node!r} → {child!r} is lost beside the "
                        f"distance {depth!r} in floating point; weights of like size are needed. Take integers"
                    )
                if self.max_depth is None or further <= self.max_depth:
                    number += 1  # so that nodes, which may have no order, are not compared
                    heappush(offers, (further, number, child))
        for node, depth in depths.items():
            for child, (cost, _) in links.get(node, {}).items():
                if child in depths and depths[child] == depth + cost:
                    parents[child].append(node)
        cells = {}
        for node, depth in depths.items():
            parent = _sorted(parents[node])[0] if node in parents else None
            order = links[parent][node][1] if node in parents else None
            cells[node] = depth, parent, order, len(parents[node]) if self.counted and node in parents else 0
        return cells

    def _shown(self, node: Any, cell: tuple[Any, Any, Any, int]) -> tuple[Any, Any, Any]:
        depth, parent, order, _ = cell
        return depth, parent, node if order is None else order

    def _beyond(self, cells: Mapping[Any, tuple[Any, Any, Any, int]]) -> tuple[int, int] | None:
        """Return how many nodes are deeper than `limit`, and the number of nodes if it exceeds `max_nodes`, else 0.

        Returns None if no limit is exceeded.
        """
        limited = self.limit is not None and self.max_depth is None
        deep = sum(limited and depth > self.limit for depth, _, _, _ in cells.values())
        many = len(cells) if self.max_nodes is not None and len(cells) > self.max_nodes else 0
        return (deep, many) if deep or many else None

    def _cycle(self, root: Any, cells: Mapping[Any, Any], links: Mapping[Any, Any]) -> tuple[Any, ...] | None:
        """Return the first cycle of a depth-first search, with its first node again at the end; None without one."""

        def children(node: Any) -> Iterator[Any]:
            ends = self.max_depth is not None and cells[node][0] >= self.max_depth
            return iter([] if ends else _sorted(links.get(node, ())))

        path, done = {root: children(root)}, set()
        while path:
            node = next(reversed(path))
            for child in path[node]:
                if child in path:
                    nodes = list(path)
                    return (*nodes[nodes.index(child) :], child)
                if child not in done:
                    path[child] = children(child)
                    break
            else:
                done.add(node)
                del path[node]
        return None

    def _keep(
        self,
        results: GraphResults,
        roots: Weighted,
        edges: Weighted,
        ties: Mapping[Row, Counter[tuple[Any, Any]]],
        graph: Mapping[Any, Mapping[Any, tuple[Any, Any, Any, int]]],
    ) -> None:
        """Add the states of the graph, which are ranks, roots and links, to `results`."""
        name, node = self.name, self.node
        cell_serde = Tuple(Native, node, Native, Native)
        results.states[name] = [
            (_pair_key(node, at, node, root), cell_serde.encode(cell))
            for root, cells in graph.items()
            for at, cell in cells.items()
        ]
        results.bag(f"{name}-roots", node, self.root_key, {(root, key): w for (key, root), w in roots.items() if w})
        tied = self.expand is not None or self.weight is not None
        present = {(row[0], row[1]): weight for row, weight in edges.items() if weight}
        results.bag(f"{name}-out", node, node, dict.fromkeys(ties, 1) if tied else present)
        results.bag(f"{name}-in", node, node, {(child, parent): 1 for parent, child in ties})
        if tied:
            kept = {(link, tie): count for link, found in ties.items() for tie, count in found.items()}
            results.bag(f"{name}-edges", node, self.edge, present)
            results.bag(f"{name}-ties", Tuple(node, node), Native, kept)

    def _keep_bounds(
        self,
        results: GraphResults,
        graph: Mapping[Any, Mapping[Any, Any]],
        beyond: Mapping[Any, tuple[int, int]],
        cycles: Mapping[Any, tuple[Any, ...]],
    ) -> None:
        name, node = self.name, self.node
        if self.max_nodes is not None:
            results.table(f"{name}-sizes", node, Int64, [(root, len(cells)) for root, cells in graph.items()])
        if self.cycles:
            results.table(f"{name}-cycles", node, Tuple(node, ...), cycles.items())
        if self.max_nodes is not None or (self.limit is not None and self.max_depth is None):
            results.table(f"{name}-beyond", node, Tuple(Int64, Int64), beyond.items())


@dataclass(frozen=True)
class Totalling:
    """Computes `tree_totals`: a row (node, ("total", sum)), or for a cycle (its least node, ("cycle", cycle))."""

    name: str
    node: Serde[Any]
    parent: Callable[[Any, Any], Any]
    own: Callable[[Any, Any], Any]
    include_self: bool

    def __call__(self, rows: Weighted) -> GraphResults:
        """Turn rows (node, value) into the totals and cycles, and the state."""
        parents: dict[Any, Any] = {}
        owns: dict[Any, Any] = {}
        children: Counter[Any] = Counter()
        with calling(self.name):
            for node, value in (row for row, weight in rows.items() if weight > 0):
                parents[node], owns[node] = self.parent(node, value), self.own(node, value)
        children.update(parent for parent in parents.values() if parent is not None)
        sums = {node: owns.get(node, 0) for node in {**parents, **children}}
        waiting = Counter(children)
        ready = [node for node in sums if not waiting[node]]
        for node in ready:  # the list grows: each node is appended after all of its children
            parent = parents.get(node)
            if parent is not None:
                sums[parent] += sums[node]
                waiting[parent] -= 1
                if not waiting[parent]:
                    ready.append(parent)
        held = sums.keys() - set(ready)
        results = GraphResults()
        for node, total in sums.items():
            if node not in held and (self.include_self or children[node]):
                below = total if self.include_self or node not in parents else total - owns[node]
                results.rows.append((node, ("total", below)))
        results.rows += [(cycle[0], ("cycle", cycle)) for cycle in _cycles(held, parents)]
        kept = Tuple(Native, self.node, Native, Native, Native, Native)
        cells = (
            (node, (node in parents, parents.get(node), owns.get(node, 0), total, children[node], node in held))
            for node, total in sums.items()
        )
        results.table(self.name, self.node, kept, cells)
        return results


def _cycles(nodes: Iterable[Any], parents: Mapping[Any, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the cycles that nodes are on, each from its least node, which is again at the end."""
    left = set(nodes)
    while left:
        cycle = [next(iter(left))]
        while parents[cycle[-1]] != cycle[0]:
            cycle.append(parents[cycle[-1]])
        left -= set(cycle)
        at = cycle.index(_sorted(cycle)[0])
        yield (*cycle[at:], *cycle[: at + 1])


def _sorted(nodes: Iterable[Any]) -> list[Any]:
    """Sort nodes: as Python compares them, or else None, numbers, text, bytes, tuples, structs, other values."""
    return sorted(nodes, key=cmp_to_key(_compared))


def _compared(one: Any, other: Any) -> int:
    try:
        return int(one > other) - int(one < other)
    except TypeError:
        first, second = _rank(one), _rank(other)
        return (first > second) - (first < second)


def _rank(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    for number, kinds in enumerate(((int, float), (str,), (bytes,)), 1):
        if isinstance(value, kinds):
            return (number, value)
    if isinstance(value, tuple):
        return (4, tuple(map(_rank, value)))
    if isinstance(value, msgspec.Struct):
        return (5, type(value).__qualname__, tuple(_rank(getattr(value, name)) for name in value.__struct_fields__))
    return (6, type(value).__qualname__, repr(value))
