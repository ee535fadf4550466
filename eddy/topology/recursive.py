"""Closing a recursion: the checks that `op` can end, and that waves give the right answer for it."""

from typing import Any

from eddy.errors import NonTerminatingRecursionError, TopologyError
from eddy.operators.recursion import Bound
from eddy.topology.builder import Builder, serdes
from eddy.topology.plan import Join, Node, Recursion, Sink, Variable, body_of

__all__ = ["close_recursion"]


def close_recursion(
    builder: Builder,
    name: str,
    seed: Node,
    variable: Variable,
    result: Any,
    bound: Bound,
    include_seeds: bool = True,
) -> Recursion:
    """Make the node of a recursion from what op returned.

    Raises: TopologyError naming the step that does not fit; NonTerminatingRecursionError.
    """
    where = f"recursively '{name}'"
    _check_bound(where, bound)
    if not isinstance(result, Node) or result.kind != variable.kind:
        raise TopologyError(
            f"{where}: op returned {type(result).__name__}; a collection of the same kind as its argument is needed. "
            "Return it: recursively(lambda rows: rows.filter(...))"
        )
    body = body_of(builder.plan, variable)
    if result is variable:
        raise NonTerminatingRecursionError(
            f"{where}: op is the identity, so that every row would come round for ever; "
            "a step that can drop a row is needed: filter, flat_map, an inner join"
        )
    if result not in body:
        raise TopologyError(f"{where}: op does not use its argument, so that nothing recurs. Build the result from it")
    _check_linear(where, variable, body)
    if bound.max_depth is None:
        _check_terminates(where, variable, result, body)
    return builder.add(
        Recursion,
        name,
        kind=variable.kind,
        inputs=(seed,),
        variable=variable,
        result=result,
        bound=bound,
        include_seeds=include_seeds,
        **serdes(seed),
    )


def _check_bound(where: str, bound: Bound) -> None:
    if bound.max_depth is not None and bound.max_depth < 0:
        raise TopologyError(f"{where}: max_depth={bound.max_depth}; 0 or more is needed")
    if bound.limit < 1:
        raise TopologyError(f"{where}: limit={bound.limit}; 1 or more is needed")
    if bound.on_limit not in {"error", "return", "dead-letter"}:
        raise TopologyError(f"{where}: on_limit={bound.on_limit!r}; 'error', 'return' or 'dead-letter' is needed")


def _check_linear(where: str, variable: Variable, body: list[Node]) -> None:
    inside = {variable, *body}
    for node in body:
        if isinstance(node, Sink):
            raise TopologyError(
                f"{where}: op writes to topic '{node.topic}'; inside a recursion nothing is written. "
                "Write what recursively returns: .recursively(...).to(...)"
            )
        if not node.linear or (isinstance(node, Join) and all(source in inside for source in node.inputs)):
            raise TopologyError(
                f"{where}: step '{node.name}' is not linear in the rows that go round; recursion by waves takes "
                "filter, map, flat_map, union and joins with collections from outside. Do it after the recursion"
            )


def _check_terminates(where: str, variable: Variable, result: Node, body: list[Node]) -> None:
    """Every way round has to pass a step that can drop a row."""
    ways: dict[Node, list[str] | None] = {variable: []}
    for node in body:
        open_ways = [ways[source] for source in node.inputs if ways.get(source) is not None]
        ways[node] = None if node.drops or not open_ways else [*(open_ways[0] or []), node.name]
    way = ways[result]
    if way is not None:
        raise NonTerminatingRecursionError(
            f"{where}: no step on the way {' → '.join(way)} can drop a row, so that every row would come round "
            "for ever; a filter, a flat_map or an inner join is needed, or a bound: max_depth=16"
        )
