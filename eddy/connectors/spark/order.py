"""What depends on the order in which records arrive, or on how they are cut into epochs: named, with the reason.

What a plan makes of its input is a function of the input alone, but for:

    stream-table joins              a record meets the table as it was when the record came
    changes of a table as a stream  how many of its values become facts depends on the epochs
    folds and tables of streams     where the records of a key come from more than one partition, nothing tells
                                    which of them came first; within one partition their offsets do

A fold whose function gives the same in any order is right all the same: who knows that says so.
"""

from collections.abc import Collection, Mapping

from eddy.topology.plan import (
    Aggregate,
    Block,
    Exchange,
    Latest,
    Node,
    Plan,
    Recursion,
    Source,
    StreamTableJoin,
    Transform,
    Upsert,
)
from eddy.topology.scopes import Scopes

__all__ = ["order_dependent", "tainted"]


def order_dependent(plan: Plan, partitions: Mapping[str, int], commutes: Collection[str] = ()) -> dict[str, str]:
    """The steps whose result the input does not determine, each with the reason. `commutes` names folds that do."""
    found: dict[str, str] = {}
    kept = _taken_up_as_tables(plan)
    for node in plan.nodes:
        if node in kept:
            continue
        if isinstance(node, StreamTableJoin):
            found[node.name] = "a stream-table join: each record meets the table as it was when the record came"
        elif isinstance(node, Latest):
            found[node.name] = (
                "a table's changes as a stream: how many of its values become records depends on how its input was "
                "cut into epochs"
            )
        elif isinstance(node, Upsert) and not _in_one_order(node.inputs[0], partitions):
            found[node.name] = _MIXED.format("a table of the last records of a stream")
        elif (
            isinstance(node, Aggregate)
            and node.inputs[0].kind == "stream"
            and node.name not in commutes
            and not _in_one_order(node.inputs[0], partitions)
        ):
            found[node.name] = _MIXED.format("a fold of a stream")
    return found


_MIXED = (
    "{}: the records of a key come from more than one partition, so that nothing tells which came first. If the "
    "function gives the same in any order, say so: commutes"
)


def tainted(plan: Plan, names: Collection[str]) -> dict[Node, str]:
    """The steps that depend on steps of these names, each with one of them; of a loop all that is inside."""
    scopes = Scopes(plan)
    found: dict[Node, str] = {}
    for node in plan.nodes:
        if node.name in names:
            found[node] = node.name
        elif sources := [found[source] for source in scopes.reads(node) if source in found]:
            found[node] = sources[0]
        elif isinstance(node, Recursion | Block):
            inside = [found[step] for step in scopes.deep(scopes.body[node]) if step in found]
            found.update(dict.fromkeys([node], inside[0]) if inside else {})
        if node in found and isinstance(node, Recursion | Block):
            for step in (*node.variables, *scopes.deep(scopes.body[node])):
                found.setdefault(step, found[node])
    return found


def _taken_up_as_tables(plan: Plan) -> set[Node]:
    """Changes of tables that become tables again and nothing else, under the same keys, with these tables."""
    readers: dict[Node, list[Node]] = {}
    for node in plan.nodes:
        for source in node.inputs:
            readers.setdefault(source, []).append(node)

    def ends(node: Node) -> list[Node]:
        if not isinstance(node, Exchange | Latest):
            return [node]
        return [end for reader in readers.get(node, []) for end in ends(reader)]

    found: set[Node] = set()
    for node in plan.nodes:
        if isinstance(node, Latest) and all(isinstance(end, Upsert) for end in ends(node)):
            found |= {node, *ends(node)}
    return found


def _in_one_order(node: Node, partitions: Mapping[str, int]) -> bool:
    """Whether all records of a key come from one partition of one topic, in its order."""
    rekeyed = False
    while True:
        if isinstance(node, Source):
            return not rekeyed or partitions[node.topic] == 1
        if not isinstance(node, Transform | Exchange):
            return False
        rekeyed = rekeyed or (isinstance(node, Transform) and node.rekeys)
        (node,) = node.inputs
