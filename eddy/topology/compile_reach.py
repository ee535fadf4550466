"""From the plan's reachability and tree totals to operators. Their states have a single partition."""

from dataclasses import replace
from typing import Any

from eddy.operators.exchange import Ownership
from eddy.operators.graph.beyond import Beyond
from eddy.operators.graph.cycles import Cycles
from eddy.operators.graph.depths import Depths
from eddy.operators.graph.links import Links, PlainLinks, TiedLinks
from eddy.operators.graph.ranked import Ranked
from eddy.operators.graph.reached import cell_serde
from eddy.operators.graph.totals import TreeTotals
from eddy.serde import Int64, Native, Serde, Tuple
from eddy.state.adjacency import Adjacency
from eddy.state.arrangement import Arrangement
from eddy.state.ranks import Ranks
from eddy.state.spec import StateSpec
from eddy.state.store import Store
from eddy.state.table import Table
from eddy.topology import plan as nodes

__all__ = ["reachable", "tree_totals"]


def _home(key: bytes, count: int) -> int:
    return 0


def _spec(application: str, name: str, kind: str, key: Serde[Any], value: Serde[Any]) -> StateSpec:
    return StateSpec(name, kind, key, value, 1, _home, f"{application}-{name}-changelog")


def reachable(
    node: nodes.Reachable, application: str, store: Store | None, ownership: Ownership | None = None
) -> Ranked:
    """The operator of a fixpoint: plain links where an edge is the child, links with ties else."""
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


def tree_totals(node: nodes.TreeTotals, application: str, store: Store | None) -> TreeTotals:
    """The operator of tree totals."""
    (parents,) = node.inputs
    of = parents.key or Native
    kept = Tuple(Native, of, Native, Native, Native, Native)
    table: Table[Any, Any] = Table(_spec(application, node.name, "table", of, kept), store)
    return TreeTotals(node.name, table, node.parent, node.own, node.include_self)
