"""Steps whose result depends on arrival order or on how records are cut into epochs, each with the reason.

The results of a plan are a function of its input alone, with these exceptions:

    stream-table joins              a record is joined with the table as it was when the record arrived
    changes of a table as a stream  the epochs decide how many of the table's values become facts
    processors                      their calls get records in the order of their arrival
    folds and tables of streams     if a key's records are in several partitions, their order across partitions
                                    is not determined; within one partition offsets give the order

A fold whose function gives the same result in any order is exact nevertheless. The user can declare such folds.

A fold over a table or a relation adds and subtracts rows as changes arrive, so it has to give the same result in any
order anyway. Sums of floats are the same except for their last digits: see `equivalence`.
"""

from collections.abc import Collection, Mapping
from typing import Literal

from eddy.errors import ConfigurationError
from eddy.topology.plan.plan import (
    Node,
    Plan,
)
from eddy.topology.plan.scopes import Scopes

__all__ = [
    "Ordered",
    "check_accepted",
    "check_commutes",
    "folds_in_any_order",
    "in_one_order",
    "order_dependent",
    "ordered",
    "tainted",
]

Ordered = Literal["no", "within keys", "all"]
"""Which records of a stream the input orders: none, only the records of each key, or records without a key as well."""


def order_dependent(
    plan: Plan, partitions: Mapping[str, int], commutes: Collection[str] = (), determined: Collection[Node] = ()
) -> dict[str, str]:
    """Return the steps whose result the input does not determine, by name, each with the reason.

    `commutes` names folds that give the same result in any order. The steps `determined` are left out: a worker's notes
    determine their results.
    """
    found: dict[str, str] = {}
    kept = _taken_up_as_tables(plan)
    for node in plan.nodes:
        if node in kept or node in determined:
            continue
        arrival = node.arrival
        if arrival is None or (arrival.folds and node.name in commutes):
            continue
        if arrival.mixed and in_one_order(node.inputs[0], partitions):
            continue
        found[node.name] = arrival.reason
        if arrival.folds:
            found[node.name] += (
                f". If its function gives the same result in any order, declare it: --commutes {node.name}"
            )
    return found


def check_commutes(plan: Plan, commutes: Collection[str]) -> None:
    """Check that each name is a fold of a stream. Raises: ConfigurationError naming the folds of streams."""
    folds = sorted(node.name for node in plan.nodes if node.arrival and node.arrival.folds)
    for name in commutes:
        if name not in folds:
            known = any(node.name == name for node in plan.nodes)
            is_ = "is not a fold of a stream" if known else "does not exist"
            raise ConfigurationError(
                f"application '{plan.name}': step '{name}', of which --commutes says that its function gives the same "
                f"in any order, {is_}; a fold of a stream is needed. "
                + (f"The folds of streams are: {', '.join(folds)}" if folds else "There is none: leave it out")
            )


def check_accepted(plan: Plan, dependent: Mapping[str, str], accepted: Collection[str]) -> None:
    """Check that each accepted name is one of the `dependent` steps. Raises: ConfigurationError naming those steps."""
    names = {node.name for node in plan.nodes}
    before = {node.name: step for node, step in tainted(plan, dependent).items()}
    for name in accepted:
        if name in dependent:
            continue
        is_ = "is determined by the input, and is compared" if name in names else "does not exist"
        if name in before:
            is_ = f"is only downstream of step '{before[name]}'"
        raise ConfigurationError(
            f"application '{plan.name}': step '{name}', of which --accept says that its result cannot be repeated, "
            f"{is_}; a step that is undetermined is needed. "
            + (f"These are: {', '.join(sorted(dependent))}" if dependent else "There is none: leave it out")
        )


def folds_in_any_order(plan: Plan, commutes: Collection[str] = ()) -> set[str]:
    """Return the names of folds whose results are compared although the order of their rows is undetermined."""
    return {node.name for node in plan.nodes if node.folds and (node.arrival is None or node.name in commutes)}


def tainted(plan: Plan, names: Collection[str]) -> dict[Node, str]:
    """Return the steps downstream of `names`, each with one of these names. For a loop the steps inside it follow."""
    scopes = Scopes(plan)
    found: dict[Node, str] = {}
    for node in plan.nodes:
        if node.name in names:
            found[node] = node.name
        elif sources := [found[source] for source in scopes.reads(node) if source in found]:
            found[node] = sources[0]
        elif node.variables:
            inside = [found[step] for step in scopes.deep(scopes.body[node]) if step in found]
            if inside:
                found[node] = inside[0]
        if node in found and node.variables:
            for step in (*node.variables, *scopes.deep(scopes.body[node])):
                found.setdefault(step, found[node])
    return found


def _taken_up_as_tables(plan: Plan) -> set[Node]:
    """Return the streams made of a table's changes that are only read as tables again, and these tables."""
    readers: dict[Node, list[Node]] = {}
    for node in plan.nodes:
        for source in node.inputs:
            readers.setdefault(source, []).append(node)

    def ends(node: Node) -> list[Node]:
        if not (node.role == "exchange" or _turns_to_facts(node)):
            return [node]
        return [end for reader in readers.get(node, []) for end in ends(reader)]

    found: set[Node] = set()
    for node in plan.nodes:
        if _turns_to_facts(node) and all(end.keeps_last for end in ends(node)):
            found |= {node, *ends(node)}
    return found


def _turns_to_facts(node: Node) -> bool:
    if node.only_by_worker:
        return False
    return node.kind == "stream" and any(source.kind != "stream" for source in node.inputs[:1])


def in_one_order(node: Node, partitions: Mapping[str, int]) -> bool:
    """Whether a stream has all records of a key in the order of one partition of one topic."""
    return ordered(node, partitions) != "no"


def ordered(node: Node, partitions: Mapping[str, int]) -> Ordered:
    """Return which records of a stream the input puts in order: all, only the records of each key, or none."""
    rekeyed = False
    while True:
        if node.role == "source":
            return "all" if node.partition_count(partitions) == 1 else "no" if rekeyed else "within keys"
        if not node.keeps_records or len(node.inputs) > 1:
            return "no"
        rekeyed = rekeyed or node.rekeys
        (node,) = node.inputs
