"""Adds the steps for reachability and paths over edges, and for totals over trees, and checks their arguments."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

from eddy.errors import TopologyError
from eddy.operators.graph.reached import Child, Reached, reached_serde
from eddy.operators.graph.totals import CYCLE, TOTAL
from eddy.serde import Native, Serde, Tuple
from eddy.topology.arguments import (
    check_choice,
    check_flag,
    check_function,
    check_name,
    check_number,
    check_serdes,
    check_whole,
)
from eddy.topology.dsl.builder import Builder, same_topology
from eddy.topology.dsl.relation import Relation
from eddy.topology.dsl.table import KTable
from eddy.topology.plan import plan

__all__ = ["CyclePolicy", "DeletionMode", "OnLimit", "SubtreeTotals", "recursive_fixpoint", "tree_totals"]

CyclePolicy = Literal["dedupe-node", "allow-paths", "error"]
DeletionMode = Literal["recompute-affected", "support-counts"]
OnLimit = Literal["hold", "stop"]

_LIMIT = 10_000


def recursive_fixpoint(
    builder: Builder,
    roots: Any,
    edges: Any,
    name: str,
    expand: Callable[[Any, Any], Iterable[Any]] | None = None,
    max_depth: Any = None,
    max_nodes: int | None = None,
    limit: int | None = None,
    cycle_policy: CyclePolicy = "dedupe-node",
    deletion_mode: DeletionMode = "recompute-affected",
    weight: Callable[[Any, Any], Any] | None = None,
    node: Serde[Any] | None = None,
    on_limit: OnLimit = "hold",
) -> Relation[Any, Reached]:
    """Add the steps of `Topology.recursive_fixpoint`, which explains the arguments."""
    where = f"recursive_fixpoint '{check_name(name, 'step')}'"
    _check_inputs(builder, where, roots=roots, edges=edges)
    _check_choices(where, cycle_policy, deletion_mode, on_limit)
    _check_functions(where, ("node", "edge"), expand=expand, weight=weight)
    check_number(where, 0, max_depth=max_depth)
    check_whole(where, 1, max_nodes=max_nodes, limit=limit)
    check_serdes(where, node=node)
    _check_outside(builder, where)
    of = node or edges._node.key or Native
    if cycle_policy == "allow-paths":
        _check_paths(where, weight=weight, max_nodes=max_nodes)
        return _paths(roots, edges, expand, name, max_depth, limit or _LIMIT, of, on_limit)
    if weight is not None and limit is not None:
        raise TopologyError(
            f"{where}: limit= counts links, and with weights a depth is a distance; "
            "bound the distance: max_depth=100, or the nodes: max_nodes=1000"
        )
    inputs = (
        builder.at_one_owner(roots._node, f"{name}-roots", value=of),
        builder.at_one_owner(edges._node, f"{name}-edges", of, None if expand or weight else of),
    )
    fixpoint = builder.add(
        plan.Reachable,
        name,
        kind="relation",
        inputs=inputs,
        key=roots._node.key,
        value=reached_serde(of),
        rekeyed=True,
        single_partition=roots._node.single_partition and edges._node.single_partition,
        node=of,
        expand=expand,
        weight=weight,
        max_depth=max_depth,
        max_nodes=max_nodes,
        limit=None if weight is not None else limit or _LIMIT,
        cycles=cycle_policy == "error",
        counted=deletion_mode == "support-counts",
        stops=on_limit == "stop",
    )
    return Relation(builder, fixpoint)


def _check_choices(where: str, cycle_policy: CyclePolicy, deletion_mode: DeletionMode, on_limit: OnLimit) -> None:
    check_choice(where, ("dedupe-node", "allow-paths", "error"), cycle_policy=cycle_policy)
    check_choice(where, ("recompute-affected", "support-counts"), deletion_mode=deletion_mode)
    check_choice(where, ("hold", "stop"), on_limit=on_limit)


def _check_paths(where: str, **bounds: Any) -> None:
    for what, bound in bounds.items():
        if bound is not None:
            raise TopologyError(
                f"{where}: {what}= goes with one row a node, and allow-paths has one a path; "
                "bound the paths instead: max_depth=16"
            )


def _check_inputs(builder: Builder, where: str, **inputs: Any) -> None:
    for what, given in inputs.items():
        allowed = Relation if what == "roots" else Relation | KTable
        if not isinstance(given, allowed):
            needed = "a Relation" if what == "roots" else "a Relation or a KTable"
            raise TopologyError(
                f"{where}: {what}= is {type(given).__name__}; {needed} is needed. A table becomes one by .to_relation()"
            )
        same_topology(where, builder, [given._builder])


def _check_outside(builder: Builder, where: str) -> None:
    if builder.open_loops:
        raise TopologyError(
            f"{where}: lies inside {builder.open_loops[-1]}; it is a recursion by itself, and cannot lie in another. "
            "Do it before or after, or write it as recursively(...) inside"
        )


def _check_functions(where: str, parameters: tuple[str, ...], **functions: Any) -> None:
    for what, function in functions.items():
        if function is not None:
            check_function(where, function, *parameters, what=what, iterates=what == "expand")


def _paths(
    roots: Relation[Any, Any],
    edges: Any,
    expand: Callable[[Any, Any], Iterable[Any]] | None,
    name: str,
    max_depth: int | None,
    limit: int,
    of: Serde[Any],
    on_limit: OnLimit,
) -> Relation[Any, Reached]:
    """Make one row for each path. The recursion is linear, X = starts + (X ⋈ edges), so it is computed by waves.

    X has rows node -> (key, root, depth, parent, order, path so far). The path so far is stored only if there is no
    `max_depth`; then it keeps a path from meeting a node twice.
    """
    key = roots._node.key
    value = Tuple(key or Native, of, Native, of, Native, Tuple(of, ...))
    simple = max_depth is None

    def start(key: Any, root: Any) -> tuple[Any, Any]:
        return root, (key, root, 0, None, None, (root,) if simple else ())

    def further(node: Any, found: tuple[Any, Any]) -> Iterable[tuple[Any, Any]]:
        (key, root, depth, _, _, path), edge = found
        for child in (edge,) if expand is None else expand(node, edge):
            end, order = (child.node, child.order) if type(child) is Child else (child, None)
            if end not in path:
                yield end, (key, root, depth + 1, node, order, (*path, end) if simple else ())

    def row(node: Any, found: tuple[Any, ...]) -> tuple[Any, Reached]:
        key, root, depth, parent, order, _ = found
        return key, Reached(root, node, depth, parent, node if order is None else order)

    starts = roots.distinct(f"{name}-roots").map(start, f"{name}-starts", of, value)
    links = edges if isinstance(edges, KTable) else edges.distinct(f"{name}-edges")

    def op(paths: Relation[Any, Any]) -> Relation[Any, Any]:
        met = paths.join(links, lambda node, found, edge: (node, (found, edge)), f"{name}-step", of)
        return met.flat_map(further, f"{name}-further", of, value)

    return starts.recursively(op, name, max_depth, limit, on_limit).map(row, f"{name}-rows", key, reached_serde(of))


class SubtreeTotals(KTable[Any, Any]):
    """A table node -> total. `errors` is a relation with the least node of each cycle, and the cycle."""

    def __init__(self, builder: Builder, node: plan.Node, errors: Relation[Any, tuple[Any, ...]]) -> None:
        super().__init__(builder, node)
        self.errors = errors


def tree_totals(
    builder: Builder,
    source: plan.Node,
    name: str,
    own: Callable[[Any, Any], Any] | None,
    parent: Callable[[Any, Any], Any] | None,
    include_self: bool,
    value: Serde[Any] | None,
) -> SubtreeTotals:
    """Add the steps of `KTable.tree_totals`, which explains the arguments."""
    where = f"tree_totals '{check_name(name, 'step')}'"
    _check_functions(where, ("node", "value"), own=own, parent=parent)
    check_flag(where, include_self=include_self)
    check_serdes(where, value=value)
    _check_outside(builder, where)
    of = source.key or Native
    tagged = builder.add(
        plan.TreeTotals,
        f"{name}-nodes",
        kind="relation",
        inputs=(builder.at_one_owner(source, f"{name}-nodes"),),
        key=of,
        value=Native,
        rekeyed=True,
        single_partition=source.single_partition,
        parent=parent or (lambda node, value: value),
        own=own or (lambda node, value: 1),
        include_self=include_self,
    )
    rows: Relation[Any, Any] = Relation(builder, tagged)
    totals = rows.flat_map_values(lambda told: told[1:] if told[0] == TOTAL else (), f"{name}-totals", value)
    errors = rows.flat_map_values(lambda told: told[1:] if told[0] == CYCLE else (), f"{name}-errors", Tuple(of, ...))
    latest = builder.add(
        plan.Latest, f"{name}-latest", kind="stream", inputs=(totals._node,), key=of, value=value, rekeyed=True
    )
    table = builder.add(plan.Upsert, name, kind="table", inputs=(builder.by_key(latest, name),), key=of, value=value)
    return SubtreeTotals(builder, table, errors)
