"""Steps over graphs, reachability and totals over trees, with their operators. Their states have a single partition."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from eddy.operators.exchange import Ownership
from eddy.operators.graph.beyond import Beyond
from eddy.operators.graph.cycles import Cycles
from eddy.operators.graph.depths import Depths
from eddy.operators.graph.links import Links, PlainLinks, TiedLinks
from eddy.operators.graph.ranked import Ranked
from eddy.operators.graph.reached import cell_serde
from eddy.operators.graph.totals import TreeTotals as TreeTotalsOperator
from eddy.operators.operator import Operator
from eddy.serde import Int64, Native, Serde, Tuple
from eddy.state.adjacency import Adjacency
from eddy.state.arrangement import Arrangement
from eddy.state.ranks import Ranks
from eddy.state.spec import StateSpec
from eddy.state.store import Store
from eddy.state.table_state import Table
from eddy.topology.plan.compilers import Spark, States
from eddy.topology.plan.node import Node, StateKept

__all__ = ["Reachable", "TreeTotals", "reachable", "tree_totals"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Reachable(Node):
    """The nodes reachable from roots over edges, by ranked supports, in a single partition.

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
        """The states: ranks, roots and links; sizes, cycles and bounds if the step needs them."""
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
        """Its inputs are at one owner already."""
        return ()

    @property
    def title(self) -> str:
        """Its name, after an arrow."""
        return f"↻ {self.name}"

    def operator(self, states: States) -> Operator:
        """Ranked supports."""
        return reachable(self, states.application, states.store, states.ownership)

    def on_spark(self, spark: Spark) -> None:
        """Depths by rising distance."""
        spark.reached(self)

    @property
    def strategy(self) -> str:
        """By ranked supports."""
        how = "their number kept" if self.counted else "found again where the parent goes"
        why = "shortest paths over weights above 0" if self.weight else "least depths"
        return f"ranked supports (F1), {how}, at one owner, since {why} fall along supports, through cycles too"


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeTotals(Node):
    """Totals over subtrees from a table of parents, by deltas, in a single partition.

    The value of a row begins with its kind: a total or a cycle.
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
        """Sums that nodes report to their parents."""
        return tree_totals(self, states.application, states.store)

    def on_spark(self, spark: Spark) -> None:
        """Sums from the leaves up."""
        spark.totalled(self)

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """Its input is at one owner already."""
        return ()

    @property
    def strategy(self) -> str:
        """By deltas."""
        return "tree totals by deltas (F2), at one owner, since a node has one parent and sums can be subtracted"


def _home(key: bytes, count: int) -> int:
    return 0


def _spec(application: str, name: str, kind: str, key: Serde[Any], value: Serde[Any]) -> StateSpec:
    return StateSpec(name, kind, key, value, 1, _home, f"{application}-{name}-changelog")


def reachable(node: "Reachable", application: str, store: Store | None, ownership: Ownership | None = None) -> Ranked:
    """The operator of a fixpoint. Its links are plain if each edge is itself the child; otherwise they have ties."""
    name, of = node.name, node.node
    roots, edges = node.inputs

    def adjacency(suffix: str, value: Serde[Any]) -> Adjacency:
        return Adjacency(_spec(application, f"{name}-{suffix}", "arrangement", of, value), store)

    def table(suffix: str, value: Serde[Any]) -> Table[Any, Any]:
        return Table(_spec(application, f"{name}-{suffix}", "table", of, value), store)

    out, inn = adjacency("out", of), adjacency("in", of)
    links: Links
    if node.expand is None and node.weight is None:
        links = PlainLinks(name, out, inn)
    else:
        rows = adjacency("edges", edges.value or Native)
        ties: Arrangement[Any, Any] = Arrangement(
            _spec(application, f"{name}-ties", "arrangement", Tuple(of, of), Native), store
        )
        links = TiedLinks(name, out, inn, rows, ties, node.expand, node.weight)
    ranks = Ranks(_spec(application, name, "ranks", of, cell_serde(of)), of, store)
    sizes = None if node.max_nodes is None else table("sizes", Int64)
    depths = Depths(name, links, ranks, node.max_depth, node.limit, node.counted, node.max_nodes, sizes)
    cycles = Cycles(table("cycles", Tuple(of, ...)), links, ranks, node.max_depth) if node.cycles else None
    beyond = None
    if sizes is not None or (node.limit is not None and node.max_depth is None):
        spec = replace(_spec(application, f"{name}-beyond", "table", of, Tuple(Int64, Int64)), optional=True)
        beyond = Beyond(Table(spec, store), depths, sizes, ownership or Ownership())
    return Ranked(name, adjacency("roots", roots.key or Native), links, ranks, depths, cycles, sizes, beyond)


def tree_totals(node: "TreeTotals", application: str, store: Store | None) -> TreeTotalsOperator:
    """The operator of tree totals."""
    (parents,) = node.inputs
    of = parents.key or Native
    kept = Tuple(Native, of, Native, Native, Native, Native)
    table: Table[Any, Any] = Table(_spec(application, node.name, "table", of, kept), store)
    return TreeTotalsOperator(node.name, table, node.parent, node.own, node.include_self)
