"""The program of examples/family.py, over topics of any names."""

from typing import Any

import eddy


def family(application: str, nodes: str, counts: str, of: eddy.Serde[Any] = eddy.String) -> eddy.Topology:
    """Every node's number of descendants; `of` is the serde of nodes."""
    topology = eddy.Topology(application)
    parents = topology.table(nodes, key=of, value=of)
    descendants = (
        parents.to_relation()
        .map(lambda node, parent: (parent, 1))
        .recursively(lambda updates: updates.join(parents, lambda _, one, parent: (parent, 1)), name="ancestors")
        .group_by_key()
        .count("descendants")
    )
    descendants.to(counts, value=eddy.Int64)
    return topology
