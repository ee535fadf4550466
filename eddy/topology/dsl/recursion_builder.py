"""Closes a recursion: checks that `op` can end, and chooses its strategy.

    waves         op is linear: filter, map, flat_map, union, joins with collections from outside
    nested time   anything else on relations: distinct, minus, aggregates, X joined with itself, loops inside

Nested time needs all rows of a loop in a single partition, unless every step inside keeps the keys. Whether every step
does is known only after `op` was called. If one does not, `op` is called again with all inputs in a single partition.
"""

from collections.abc import Callable
from typing import Any

from eddy.errors import NonTerminatingRecursionError, TopologyError
from eddy.operators.bound import Bound
from eddy.topology.arguments import check_choice, check_name, check_whole
from eddy.topology.dsl.builder import Builder, serdes
from eddy.topology.plan.plan import Kind, Node, Recursion, Variable
from eddy.topology.plan.scopes import Scopes

__all__ = ["check_inside", "close_recursion", "moves_rows", "refuse_sinks"]


def close_recursion(
    builder: Builder,
    name: str,
    kind: Kind,
    seed: Node,
    op: Callable[[Node], Any],
    bound: Bound,
    include_seeds: bool = True,
) -> Recursion:
    """Call `op`, which makes the node of op(X) from the node of X, and close the loop.

    `op` returns a node of the same kind as X, or the author's result unchanged if that is invalid.

    Raises: TopologyError naming the step that is not allowed; NonTerminatingRecursionError.
    """
    where = f"recursively '{check_name(name, 'step')}'"
    _check_bound(where, bound, kind)
    length = len(builder.plan.nodes)
    variable, result, body = _build(builder, where, name, kind, seed, op)
    why = _why_nested(body, variable)
    if why and kind == "stream":
        raise TopologyError(
            f"{where}: {why}; a recursion of a stream takes steps that are linear: filters, maps, joins with tables "
            "from outside. Do the rest before or after it, or recur over rows: stream.to_table().to_relation()"
        )
    start = seed
    if moves_rows(body, why) and not seed.single_partition:
        builder.plan.rewind(length)
        start = builder.at_one_owner(seed, f"{name}-seed")
        variable, result, body = _build(builder, where, name, kind, start, op)
    elif why:
        start = builder.by_key(seed, f"{name}-seed")
    if why:
        check_inside(where, body)
        if bound.on_limit == "dead-letter":
            raise TopologyError(
                f"{where}: on_limit='dead-letter' is for recursions by waves, and this one is computed by "
                f"nested time, since "
                f"{why}; 'hold' or 'return' is needed"
            )
    _refuse_limits(where, body)
    if bound.max_depth is None:
        _check_terminates(where, variable, result, body)
    from_start = bool(builder.open_loops)  # inputs of an enclosing loop remain in the loop's single partition
    single_partition = start.single_partition if from_start else seed.single_partition
    return builder.add(
        Recursion,
        name,
        kind=kind,
        inputs=(start,),
        variable=variable,
        result=result,
        bound=bound,
        iterations=bound.depth if bound.by_depth else bound.limit,
        include_seeds=include_seeds,
        nested=why,
        single_partition=single_partition,
        rekeyed=start.single_partition and not single_partition,
        **serdes(seed),
    )


def _build(
    builder: Builder, where: str, name: str, kind: Kind, seed: Node, op: Callable[[Node], Any]
) -> tuple[Variable, Node, list[Node]]:
    variable = builder.add(
        Variable, f"{name}-variable", label=name, kind=kind, single_partition=seed.single_partition, **serdes(seed)
    )
    with builder.inside(where):
        result = op(variable)
    if not isinstance(result, Node):
        raise TopologyError(
            f"{where}: op returned {type(result).__name__}; a collection of the same kind as its argument is needed. "
            "Return it: recursively(lambda rows: rows.filter(...))"
        )
    if result is variable:
        raise NonTerminatingRecursionError(
            f"{where}: op is the identity, so that every row would be repeated for ever; "
            "a step that can drop a row is needed: filter, flat_map, an inner join"
        )
    scopes = Scopes(builder.plan)
    body = scopes.inside([variable])
    if result not in body:
        raise TopologyError(f"{where}: op does not use its argument, so that nothing recurs. Build the result from it")
    refuse_sinks(f"{where}: op", "recursively", body)
    return variable, result, scopes.deep(body)


def _check_bound(where: str, bound: Bound, kind: Kind) -> None:
    check_whole(where, 0, max_depth=bound.max_depth)
    check_whole(where, 1, optional=False, limit=bound.limit)
    choices = ("error", "return", "dead-letter") if kind == "stream" else ("hold", "stop", "return", "dead-letter")
    check_choice(where, choices, on_limit=bound.on_limit)


def _why_nested(body: list[Node], variable: Variable) -> str:
    """Return a text that names the first step that waves cannot compute; empty if waves can compute all steps."""
    inside = {variable, *body}
    for node in body:
        if node.variables:
            return f"'{node.name}' inside it is a recursion, too"
        if not node.linear:
            return f"step '{node.name}' is not linear"
        if node.bilinear and all(source in inside for source in node.inputs):
            return f"step '{node.name}' joins the recursion's own rows with each other"
    return ""


def refuse_sinks(where: str, verb: str, body: list[Node]) -> None:
    """Refuse sinks inside a loop. Raises: TopologyError naming the topic."""
    for node in body:
        if node.role == "sink":
            raise TopologyError(
                f"{where} writes to topic '{node.label}'; inside a recursion nothing is written. Write what "
                f"{verb}(...) returns"
            )


def _refuse_limits(where: str, body: list[Node]) -> None:
    """Raise TopologyError for a block in a loop whose limit would make rows of errors.

    Only an outermost block has `errors`.
    """
    for node in body:
        if node.error_limit is not None:
            raise TopologyError(
                f"{where}: block '{node.name}' inside it has limit={node.error_limit}, on_limit='hold', and a "
                "recursion has no errors to show them in. Write on_limit='return', or make the recursion a block of "
                "one binding: topology.mutually_recursive(lambda x: (seed.union(…x…),), …)"
            )


def moves_rows(body: list[Node], nested: object) -> bool:
    """Return whether a loop needs a single partition.

    It does if a step inside needs one or, by nested time, if a step changes keys.
    """
    return any(node.single_partition or (nested and (node.rekeyed or node.role == "exchange")) for node in body)


def check_inside(where: str, body: list[Node]) -> None:
    """Refuse steps that nested time cannot compute. Raises: TopologyError."""
    for node in body:
        if node.refused_in_nested_time:
            raise TopologyError(f"{where}: {node.refused_in_nested_time}")


def _check_terminates(where: str, variable: Variable, result: Node, body: list[Node]) -> None:
    """Check that every path through the loop has a step that can drop a row. Raises: NonTerminatingRecursionError."""
    paths: dict[Node, list[str] | None] = {variable: []}
    for node in body:
        open_paths = [paths[source] for source in node.inputs if paths.get(source) is not None]
        paths[node] = None if node.drops or not open_paths else [*(open_paths[0] or []), node.name]
    path = paths[result]
    if path is not None:
        raise NonTerminatingRecursionError(
            f"{where}: no step on the path {' → '.join(path)} can drop a row, so that every row would be repeated "
            "for ever; a filter, a flat_map or an inner join is needed, or a bound: max_depth=16"
        )
