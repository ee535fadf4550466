"""Steps whose result depends on arrival order or on how records are cut into epochs, each with the reason.

The results of a plan are a function of its input alone, with these exceptions:

    stream-table joins              a record is joined with the table as it was when the record arrived
    changes of a table as a stream  the epochs decide how many of the table's values become facts
    folds and tables of streams     if a key's records come from several partitions, their order across partitions
                                    is not determined; within one partition offsets give the order

A fold whose function gives the same result in any order is exact nevertheless; the user can declare that.

A fold over a table or a relation adds and subtracts rows as changes arrive, so it has to give the same result in any
order anyway. Sums of floats do, except for their last digits: see `equivalence`.
"""

from collections.abc import Collection, Mapping

from eddy.errors import ConfigurationError
from eddy.topology.plan import (
    Aggregate,
    Block,
    Exchange,
    Latest,
    Node,
    Plan,
    Recursion,
    Reduce,
    Source,
    StreamTableJoin,
    Transform,
    TreeTotals,
    Upsert,
)
from eddy.topology.scopes import Scopes

__all__ = ["check_commutes", "folds_in_any_order", "in_one_order", "order_dependent", "tainted"]


def order_dependent(plan: Plan, partitions: Mapping[str, int], commutes: Collection[str] = ()) -> dict[str, str]:
    """The steps whose result the input does not determine, with reasons. `commutes` names folds to skip."""
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
        elif isinstance(node, Upsert) and not in_one_order(node.inputs[0], partitions):
            found[node.name] = f"a table of the last records of a stream: {_MIXED}"
        elif _folds_a_stream(node) and node.name not in commutes and not in_one_order(node.inputs[0], partitions):
            found[node.name] = (
                f"a fold of a stream: {_MIXED}. If its function gives the same in any order, say so: "
                f"--commutes {node.name}"
            )
    return found


_MIXED = "the records of a key come from more than one partition, so that nothing tells which came first"


def check_commutes(plan: Plan, commutes: Collection[str]) -> None:
    """Check that each name is a fold of a stream. Raises: ConfigurationError naming those that are."""
    folds = sorted(node.name for node in plan.nodes if _folds_a_stream(node))
    for name in commutes:
        if name not in folds:
            known = any(node.name == name for node in plan.nodes)
            is_ = "is no fold of a stream" if known else "does not exist"
            raise ConfigurationError(
                f"application '{plan.name}': step '{name}', of which --commutes says that its function gives the same "
                f"in any order, {is_}; a fold of a stream is needed. "
                + (f"The folds of streams are: {', '.join(folds)}" if folds else "There is none: leave it out")
            )


def folds_in_any_order(plan: Plan, commutes: Collection[str] = ()) -> set[str]:
    """The steps that fold rows in an undetermined order and are compared nevertheless."""
    return {
        node.name
        for node in plan.nodes
        if isinstance(node, Reduce | TreeTotals)
        or (isinstance(node, Aggregate) and (node.inputs[0].kind != "stream" or node.name in commutes))
    }


def _folds_a_stream(node: Node) -> bool:
    return isinstance(node, Aggregate) and node.inputs[0].kind == "stream" and not node.commutes


def tainted(plan: Plan, names: Collection[str]) -> dict[Node, str]:
    """The steps downstream of steps with these names, each with one such name; for a loop also the steps inside it."""
    scopes = Scopes(plan)
    found: dict[Node, str] = {}
    for node in plan.nodes:
        if node.name in names:
            found[node] = node.name
        elif sources := [found[source] for source in scopes.reads(node) if source in found]:
            found[node] = sources[0]
        elif isinstance(node, Recursion | Block):
            inside = [found[step] for step in scopes.deep(scopes.body[node]) if step in found]
            if inside:
                found[node] = inside[0]
        if node in found and isinstance(node, Recursion | Block):
            for step in (*node.variables, *scopes.deep(scopes.body[node])):
                found.setdefault(step, found[node])
    return found


def _taken_up_as_tables(plan: Plan) -> set[Node]:
    """Streams of table changes that only become tables again, under the same keys, and these tables."""
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


def in_one_order(node: Node, partitions: Mapping[str, int]) -> bool:
    """Whether all records of a key come from one partition of one topic, in its order."""
    rekeyed = False
    while True:
        if isinstance(node, Source):
            return not rekeyed or partitions[node.topic] == 1
        if not isinstance(node, Transform | Exchange):
            return False
        rekeyed = rekeyed or (isinstance(node, Transform) and node.rekeys)
        (node,) = node.inputs
