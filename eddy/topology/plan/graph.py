"""Steps over graphs, for reachability and for totals over trees, with their operators. States have one partition."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from eddy.operators.exchange import Ownership
from eddy.operators.graph.beyond import Beyond
from eddy.operators.graph.cycles import Cycles
from eddy.operators.graph.depths import Depths
from eddy.operators.graph.links import Links, PlainLinks, TiedLinks
from eddy.operators.graph.ranked import Ranked
from eddy.operators.graph.reached import Reached, cell_serde
from eddy.operators.graph.totals import CYCLE, TOTAL
from eddy.operators.graph.totals import TreeTotals as TreeTotalsOperator
from eddy.operators.operator import Operator
from eddy.operators.path_text import path_text
from eddy.serde import Int64, Native, Serde, Tuple
from eddy.state.adjacency import Adjacency
from eddy.state.arrangement import Arrangement
from eddy.state.ranks import Ranks
from eddy.state.spec import Refusals, StateSpec, refuses_none
from eddy.state.store import Store
from eddy.state.table_state import Table
from eddy.topology.plan.bags import Bag, Row, Way, Weighted, identity
from eddy.topology.plan.compilers import Spark, States
from eddy.topology.plan.graph_bags import Forest, arcs_of, cycles_of, first_cycle, reached_rows, tree_of
from eddy.topology.plan.missing import UNKNOWN, by_key
from eddy.topology.plan.node import DropReason, Missing, Node
from eddy.topology.plan.states_kept import StateKept

__all__ = ["Reachable", "TreeTotals", "reachable", "tree_totals"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Reachable(Node):
    """Finds the nodes that are reachable from roots over edges, by ranked supports, in a single partition.

    `inputs` are the roots and the edges.
    """

    drawn_as = "recursion"

    node: Serde[Any]
    expand: Callable[[Any, Any], Any] | None = None
    weight: Callable[[Any, Any], Any] | None = None
    max_depth: Any = None
    max_nodes: int | None = None
    limit: int | None = None
    cycles: bool = False
    counted: bool = False
    stops: bool = False
    linear = False

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """The states: ranks, roots and links, and also sizes, cycles and bounds if the step needs them."""
        tied = self.expand is not None or self.weight is not None
        bounded = self.max_nodes is not None
        suffixes = {
            "out": True,
            "in": True,
            "edges": tied,
            "ties": tied,
            "sizes": bounded,
            "cycles": self.cycles,
            "beyond": bounded or (self.limit is not None and self.max_depth is None),
        }
        states = ["", "roots", *(suffix for suffix, kept in suffixes.items() if kept)]
        return tuple(StateKept(suffix, "encoded", "others") for suffix in states)

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """No collections have to be co-partitioned, because all inputs are in a single partition."""
        return ()

    @property
    def title(self) -> str:
        """Its name, after an arrow."""
        return f"↻ {self.name}"

    def operator(self, states: States) -> Operator:
        """Return the operator by ranked supports."""
        return reachable(self, states.application, states.store, states.ownership, states.refusals)

    def on_spark(self, spark: Spark) -> None:
        """Compute the nodes by rising distance."""
        spark.reached(self)

    @property
    def strategy(self) -> str:
        """By ranked supports."""
        how = "their number kept" if self.counted else "found again where the parent goes"
        why = "shortest paths over weights above 0" if self.weight else "least depths"
        return f"ranked supports (F1), {how}, at one owner, since {why} fall along supports, through cycles too"

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Return the rows of each root that exceeds no bound, by a search from scratch."""
        return ((row, 1) for row, _ in self.ways(*inputs))

    def ways(self, *inputs: Bag) -> Iterator[tuple[Row, Way]]:
        """Yield each row with the root, or the parent's row and the edge, from which it is made; errors have none."""
        roots, edges = inputs
        arcs = arcs_of(edges, self.expand, self.weight)
        keys: defaultdict[Any, list[Row]] = defaultdict(list)
        for row, weight in roots:
            if weight > 0:
                keys[row[1]].append(row)
        for root, rows in keys.items():
            found: dict[Any, tuple[Reached, Row | None]] = {}
            for node, depth, parent in reached_rows(root, arcs, self.max_depth):
                arc = None if parent is None else arcs[parent][node]
                order = node if arc is None else arc.order
                found[node] = Reached(root, node, depth, parent, order), None if arc is None else arc.edge
            depths = {node: reached.depth for node, (reached, _) in found.items()}
            if self._is_beyond(depths):
                continue
            for key, _ in rows:
                for reached, edge in found.values():
                    way: Way = [(0, (key, root))]
                    if edge is not None:
                        way = [(-1, (key, found[reached.parent][0])), (1, edge)]
                    yield (key, reached), way
                if self.cycles and (cycle := first_cycle(root, depths, arcs, self.max_depth)):
                    yield (key, Reached(root, cycle[0], -1, cycle=cycle)), []

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterator[Missing]:
        """Yield the rows of roots that exceed a bound, and of missing roots."""
        arcs = arcs_of(inputs[1], self.expand, self.weight)
        for row, weight in inputs[0]:
            depths = {node: depth for node, depth, _ in reached_rows(row[1], arcs, self.max_depth)}
            if weight > 0 and self._is_beyond(depths):
                reason = f"holds it: the root reaches {len(depths):,} nodes, down to depth {max(depths.values()):,}"
                drop = DropReason(self, f"{reason}, which is beyond a bound", row, held=True)
                yield Missing(row[0], UNKNOWN, drop)
        there = (row[0] for row, _ in inputs[0])
        yield from (row._replace(value=UNKNOWN) for row in by_key(missing[0], there))

    def _is_beyond(self, depths: dict[Any, Any]) -> bool:
        """Return whether a root exceeds a bound on the number or the depth of its nodes. Then it has no rows."""
        if self.max_nodes is not None and len(depths) > self.max_nodes:
            return True
        return self.limit is not None and self.max_depth is None and max(depths.values()) > self.limit

    def forest(self, rows: Bag) -> Forest:
        """Return the rows as a forest, each row below the row of its parent."""
        places = {(identity(key), at.root, at.node): (key, at) for (key, at), _ in rows if not at.cycle}
        above = {
            identity(row): identity(places[place, row[1].root, row[1].parent]) if row[1].parent is not None else None
            for (place, _, _), row in places.items()
        }
        return Forest(above, {identity(row): row[1].node for row in places.values()}, {})


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeTotals(Node):
    """Computes totals over subtrees from a table of parents, by deltas, in a single partition.

    The value of a row begins with its kind, which is a total or a cycle.
    """

    parent: Callable[[Any, Any], Any]
    own: Callable[[Any, Any], Any]
    include_self: bool = True
    folds = True
    linear = False
    drawn_as = "recursion"
    keeps = (StateKept("", "table", "others"),)

    @property
    def title(self) -> str:
        """Its name, after an arrow."""
        return f"↻ {self.name}"

    def operator(self, states: States) -> Operator:
        """Return the operator in which nodes report sums to their parents."""
        return tree_totals(self, states.application, states.store, states.refusals)

    def on_spark(self, spark: Spark) -> None:
        """Compute the sums from the leaves up."""
        spark.totalled(self)

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """No collections have to be co-partitioned, because the input is in a single partition."""
        return ()

    @property
    def strategy(self) -> str:
        """By deltas."""
        return "tree totals by deltas (F2), at one owner, since a node has one parent and sums can be subtracted"

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Return the totals, computed from the leaves up; nodes on a cycle have no total."""
        tree = tree_of(inputs[0], self.parent, self.own)
        for node, total in tree.sums.items():
            if node not in tree.held and (self.include_self or node in tree.below):
                below = total if self.include_self or node not in tree.owns else total - tree.owns[node]
                yield (node, (TOTAL, below)), 1
        for cycle in cycles_of(tree):
            yield (cycle[0], (CYCLE, cycle)), 1

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Yield each cycle with the rows of its nodes, in their order. `subtree_sums` explains totals instead."""
        tree, rows = tree_of(inputs[0], self.parent, self.own), {row[0]: row for row, _ in inputs[0]}
        return (((cycle[0], (CYCLE, cycle)), [(0, rows[node]) for node in cycle[:-1]]) for cycle in cycles_of(tree))

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterator[Missing]:
        """Yield the nodes of cycles, missing nodes and, if totals sum only descendants, the leaves."""
        tree, rows = tree_of(inputs[0], self.parent, self.own), {row[0]: row for row, _ in inputs[0]}
        for cycle in cycles_of(tree):
            reason = f"holds it: the path {path_text(cycle)} is a cycle. Mend the data"
            for node in cycle[:-1]:
                yield Missing(node, UNKNOWN, DropReason(self, reason, rows[node], held=True))
        yield from (row._replace(value=UNKNOWN) for row in by_key(missing[0], tree.sums))
        if not self.include_self:
            for node in tree.sums.keys() - tree.below.keys():
                yield Missing(node, UNKNOWN, DropReason(self, "has no total for it: no node is below it", rows[node]))

    def subtree_sums(self, *inputs: Bag) -> tuple[Forest, bool]:
        """Return a forest of the nodes with their own numbers, and whether a node's total includes its own number."""
        tree = tree_of(inputs[0], self.parent, self.own)
        nodes = [node for node in tree.sums if node not in tree.held]
        above = {node: parent if (parent := tree.parents.get(node)) not in tree.held else None for node in nodes}
        keys = {node: node for node in nodes}
        return Forest(above, keys, {node: tree.owns.get(node, 0) for node in nodes}), self.include_self


def _home(key: bytes, count: int) -> int:
    return 0


class _Specs(NamedTuple):
    """Makes the specs of an application's states in a single partition."""

    application: str
    refusals: Refusals

    def spec(self, name: str, kind: str, key: Serde[Any], value: Serde[Any]) -> StateSpec:
        changelog = f"{self.application}-{name}-changelog"
        return StateSpec(name, kind, key, value, 1, _home, changelog, refusals=self.refusals)


def reachable(
    node: "Reachable",
    application: str,
    store: Store | None,
    ownership: Ownership | None = None,
    refusals: Refusals = refuses_none,
) -> Ranked:
    """Return the operator of reachability.

    Its links are `PlainLinks` if a row of edges has only the child; `TiedLinks` if `expand` or a weight makes them.
    """
    name, of = node.name, node.node
    roots, edges = node.inputs
    spec = _Specs(application, refusals).spec

    def adjacency(suffix: str, value: Serde[Any]) -> Adjacency:
        return Adjacency(spec(f"{name}-{suffix}", "arrangement", of, value), store)

    def table(suffix: str, value: Serde[Any]) -> Table[Any, Any]:
        return Table(spec(f"{name}-{suffix}", "table", of, value), store)

    out, inn = adjacency("out", of), adjacency("in", of)
    links: Links
    if node.expand is None and node.weight is None:
        links = PlainLinks(name, out, inn)
    else:
        rows = adjacency("edges", edges.value or Native)
        ties: Arrangement[Any, Any] = Arrangement(spec(f"{name}-ties", "arrangement", Tuple(of, of), Native), store)
        links = TiedLinks(name, out, inn, rows, ties, node.expand, node.weight)
    ranks = Ranks(spec(name, "ranks", of, cell_serde(of)), of, store)
    sizes = None if node.max_nodes is None else table("sizes", Int64)
    depths = Depths(name, links, ranks, node.max_depth, node.limit, node.counted, node.max_nodes, sizes)
    cycles = Cycles(table("cycles", Tuple(of, ...)), links, ranks, node.max_depth) if node.cycles else None
    beyond = None
    if sizes is not None or (node.limit is not None and node.max_depth is None):
        bounds = replace(spec(f"{name}-beyond", "table", of, Tuple(Int64, Int64)), optional=True)
        beyond = Beyond(Table(bounds, store), depths, sizes, ownership or Ownership())
    return Ranked(name, adjacency("roots", roots.key or Native), links, ranks, depths, cycles, sizes, beyond)


def tree_totals(
    node: "TreeTotals", application: str, store: Store | None, refusals: Refusals = refuses_none
) -> TreeTotalsOperator:
    """Return the operator of tree totals."""
    (parents,) = node.inputs
    of = parents.key or Native
    kept = Tuple(Native, of, Native, Native, Native, Native)
    table: Table[Any, Any] = Table(_Specs(application, refusals).spec(node.name, "table", of, kept), store)
    return TreeTotalsOperator(node.name, table, node.parent, node.own, node.include_self)
