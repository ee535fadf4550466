"""Closing a recursion: the checks that `op` can end, and the choice of how it is computed.

    waves         op is linear: filter, map, flat_map, union, joins with collections from outside
    nested time   anything else on relations: distinct, minus, aggregates, X joined with itself, loops inside

Nested time needs all rows of a loop in one place, unless every step inside keeps the keys. Whether one
does not is known only when op has been built; then it is built once more, with all it reads brought to
one owner.
"""

from collections.abc import Callable
from typing import Any

from eddy.errors import NonTerminatingRecursionError, TopologyError
from eddy.operators.recursion import Bound
from eddy.topology.builder import Builder, serdes
from eddy.topology.plan import (
    Aggregate,
    Block,
    Exchange,
    Join,
    Kind,
    Latest,
    Node,
    Recursion,
    Sink,
    StreamTableJoin,
    TableJoin,
    Upsert,
    Variable,
)
from eddy.topology.scopes import Scopes

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
    """Build `op`, which makes of the node of X the node of what comes of it, and close the loop.

    `op` returns the node of a collection of the same kind, or else whatever the author's function returned.

    Raises: TopologyError naming the step that does not fit; NonTerminatingRecursionError.
    """
    where = f"recursively '{name}'"
    _check_bound(where, bound)
    length = len(builder.plan.nodes)
    variable, result, body = _build(builder, where, name, kind, seed, op)
    why = _why_nested(body, variable)
    start = seed
    if moves_rows(body, why) and not seed.sole:
        builder.plan.rewind(length)
        start = builder.at_one_owner(seed, f"{name}-seed")
        variable, result, body = _build(builder, where, name, kind, start, op)
    elif why:
        start = builder.by_key(seed, f"{name}-seed")
    if why:
        check_inside(where, body)
        if bound.on_limit == "dead-letter":
            raise TopologyError(
                f"{where}: on_limit='dead-letter' is for recursions by waves, and this one goes by nested time, since "
                f"{why}; 'error' or 'return' is needed"
            )
    if bound.max_depth is None:
        _check_terminates(where, variable, result, body)
    sole = start.sole if builder.open_loops else seed.sole  # what a loop around takes in stays there
    return builder.add(
        Recursion,
        name,
        kind=kind,
        inputs=(start,),
        variable=variable,
        result=result,
        bound=bound,
        include_seeds=include_seeds,
        nested=why,
        sole=sole,
        rekeyed=start.sole and not sole,
        **serdes(seed),
    )


def _build(
    builder: Builder, where: str, name: str, kind: Kind, seed: Node, op: Callable[[Node], Any]
) -> tuple[Variable, Node, list[Node]]:
    variable = builder.add(Variable, f"{name}-variable", label=name, kind=kind, sole=seed.sole, **serdes(seed))
    with builder.inside(where):
        result = op(variable)
    if not isinstance(result, Node):
        raise TopologyError(
            f"{where}: op returned {type(result).__name__}; a collection of the same kind as its argument is needed. "
            "Return it: recursively(lambda rows: rows.filter(...))"
        )
    if result is variable:
        raise NonTerminatingRecursionError(
            f"{where}: op is the identity, so that every row would come round for ever; "
            "a step that can drop a row is needed: filter, flat_map, an inner join"
        )
    scopes = Scopes(builder.plan)
    body = scopes.inside([variable])
    if result not in body:
        raise TopologyError(f"{where}: op does not use its argument, so that nothing recurs. Build the result from it")
    refuse_sinks(f"{where}: op", "recursively", body)
    return variable, result, scopes.deep(body)


def _check_bound(where: str, bound: Bound) -> None:
    if bound.max_depth is not None and bound.max_depth < 0:
        raise TopologyError(f"{where}: max_depth={bound.max_depth}; 0 or more is needed")
    if bound.limit < 1:
        raise TopologyError(f"{where}: limit={bound.limit}; 1 or more is needed")
    if bound.on_limit not in {"error", "return", "dead-letter"}:
        raise TopologyError(f"{where}: on_limit={bound.on_limit!r}; 'error', 'return' or 'dead-letter' is needed")


def _why_nested(body: list[Node], variable: Variable) -> str:
    """The first step that waves cannot do, in words; empty where they can do all."""
    inside = {variable, *body}
    for node in body:
        if isinstance(node, Recursion | Block):
            return f"'{node.name}' inside it is a recursion, too"
        if not node.linear:
            return f"step '{node.name}' is not linear"
        if isinstance(node, Join) and all(source in inside for source in node.inputs):
            return f"step '{node.name}' joins what goes round with itself"
    return ""


def refuse_sinks(where: str, verb: str, body: list[Node]) -> None:
    """Refuse to write from inside a loop. Raises: TopologyError naming the topic."""
    for node in body:
        if isinstance(node, Sink):
            raise TopologyError(
                f"{where} writes to topic '{node.topic}'; inside a recursion nothing is written. Write what "
                f"{verb}(...) returns"
            )


def moves_rows(body: list[Node], nested: object) -> bool:
    """Whether a loop has to be at one owner: steps inside are, or nested time meets one that sends rows to others."""
    return any(node.sole or (nested and (node.rekeyed or isinstance(node, Exchange))) for node in body)


def check_inside(where: str, body: list[Node]) -> None:
    """Refuse steps that nested time cannot do. Raises: TopologyError."""
    for node in body:
        if isinstance(node, Exchange) and not node.inputs[0].sole:
            raise TopologyError(
                f"{where}: step '{node.name}' sends rows to other owners in the middle of a round, which would give a "
                "wrong answer; bring what it reads to one owner before the recursion: relation.at_one_owner('…')"
            )
        if node.kind == "stream" or isinstance(node, TableJoin | Upsert | Latest | StreamTableJoin):
            what = "is of a stream or of tables" if node.kind == "stream" else "joins or makes tables"
            raise TopologyError(
                f"{where}: step '{node.name}' {what}, which has no place inside a recursion by nested time; relations "
                "are needed. Write table.to_relation(), and join relations"
            )
        if isinstance(node, Aggregate) and node.subtractor is None:
            raise TopologyError(f"{where}: step '{node.name}' folds records of a stream; rows of a relation are needed")


def _check_terminates(where: str, variable: Variable, result: Node, body: list[Node]) -> None:
    """Every way round has to pass a step that can drop a row."""
    ways: dict[Node, list[str] | None] = {variable: []}
    for node in body:
        open_ways = [ways[source] for source in node.inputs if ways.get(source) is not None]
        ends = node.drops or isinstance(node, Recursion | Block)
        ways[node] = None if ends or not open_ways else [*(open_ways[0] or []), node.name]
    way = ways[result]
    if way is not None:
        raise NonTerminatingRecursionError(
            f"{where}: no step on the way {' → '.join(way)} can drop a row, so that every row would come round "
            "for ever; a filter, a flat_map or an inner join is needed, or a bound: max_depth=16"
        )
