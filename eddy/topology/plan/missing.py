"""Missing rows: the rows that a step would have if a step upstream had not dropped them.

A step's `missing` rows are made of those that it drops itself and, by its own function, of the missing rows of its
inputs. A key or a value that cannot be computed, such as the value of a join without its other side, is UNKNOWN.
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
"""A key or a value that only a step with all of its inputs could compute."""


def by_key(rows: Iterable[Missing], present: Iterable[Any]) -> Iterator[Missing]:
    """The missing rows whose keys have no row."""
    there = set(map(identity, present))
    for row in rows:
        if row.key is UNKNOWN or (row.key is not None and identity(row.key) not in there):
            yield row
