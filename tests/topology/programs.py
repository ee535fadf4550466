"""Programs that several tests run."""

from typing import Any

import eddy
from tests import oracle

S = eddy.String


def family(name: str = "family", filtered: bool = False, **bound: Any) -> eddy.Topology:
    """How many descendants everybody has: examples/family.py."""
    topology = eddy.Topology(name)
    parents = topology.table("nodes", key=S, value=S)
    updates = parents.to_relation()
    if filtered:
        updates = updates.filter(lambda node, parent: True)
    descendants = (
        updates.map(lambda node, parent: (parent, 1))
        .recursively(lambda rows: rows.join(parents, lambda _, one, parent: (parent, 1)), name="ancestors", **bound)
        .group_by_key()
        .count("descendants")
    )
    descendants.to("descendants", value=eddy.Int64)
    return topology


def kip(include_seeds: bool = True) -> eddy.Topology:
    """The program of KIP-857, as it is written there."""
    topology = eddy.Topology("kip")
    nodes = topology.stream("nodes", key=S, value=S)
    parents = nodes.to_table()
    (
        nodes.map(lambda child, parent: (parent, 1))
        .recursively(
            lambda updates: updates.join(parents, lambda count, parent: parent).map(lambda child, parent: (parent, 1)),
            include_seeds=include_seeds,
        )
        .group_by_key()
        .count("counts")
    )
    return topology


def rows_of(relation: eddy.Relation[Any, Any]) -> None:
    """Make a relation visible: its rows with their weights, in the store "rows"."""
    relation.map(lambda key, value: ((key, value), 1), "row", key=eddy.Native, value=eddy.Native).group_by_key().count(
        "rows"
    )


def shown(driver: eddy.TopologyTestDriver) -> oracle.Bag:
    """The rows of `rows_of`."""
    return oracle.bag(driver.store("rows").all().items())
