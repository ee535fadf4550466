"""The README's program, how many descendants each node of a tree has; and its oracle, which walks up from each node."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import eddy

__all__ = ["counted", "descendants"]


def descendants(parents: eddy.KTable[str, str]) -> eddy.KTable[Any, Any]:
    """The counts by node, of a table node → parent."""
    return (
        parents.to_relation()
        .map(lambda node, parent: (parent, 1))
        .recursively(lambda updates: updates.join(parents, lambda _, one, parent: (parent, 1)), name="ancestors")
        .group_by_key()
        .count("descendants")
    )


def counted(parents: Mapping[str, str]) -> dict[str, int]:
    """The oracle."""
    counts: Counter[str] = Counter()
    for node in parents:
        above = parents.get(node)
        while above is not None:
            counts[above] += 1
            above = parents.get(above)
    return dict(counts)
