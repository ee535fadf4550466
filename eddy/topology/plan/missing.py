"""Missing rows: the rows that a step would have if neither it nor an upstream step had dropped them.

A step's missing rows are the rows that it drops itself, and the rows that its function makes of its inputs' missing
rows. A key or a value that cannot be computed is UNKNOWN, as the value of a join whose other side is missing.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from eddy.topology.plan.bags import identity
from eddy.topology.plan.node import Missing

__all__ = ["UNKNOWN", "by_key"]


class _Unknown:
    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Any = _Unknown()
"""A key or a value that only a step with all its inputs could compute."""


def by_key(rows: Iterable[Missing], present: Iterable[Any]) -> Iterator[Missing]:
    """Yield the missing rows whose keys are not in `present`."""
    there = set(map(identity, present))
    for row in rows:
        if row.key is UNKNOWN or (row.key is not None and identity(row.key) not in there):
            yield row
