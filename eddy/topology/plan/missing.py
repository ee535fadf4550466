"""Rows that are not there: the rows that a step would have if a step upstream had not dropped them.

A step's `missing` rows are made of those that it drops itself and, by its own function, of the missing rows of its
inputs. A key or a value that nobody can tell, such as that of a join without its other side, is UNKNOWN.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from eddy.topology.plan.bags import Row, identity

if TYPE_CHECKING:
    from eddy.topology.plan.node import Node

__all__ = ["UNKNOWN", "DropReason", "Missing", "by_key"]


class _Unknown:
    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Any = _Unknown()
"""A key or a value that only a step with all of its inputs could tell."""


class DropReason(NamedTuple):
    """A step that has dropped a row, and the reason.

    `lacks`: the input that has no row with the key of `row`, if that is the reason.
    `held`: whether a recursion holds it until the data is mended.
    `then`: the filters that would drop what is made of it.
    """

    step: "Node"
    reason: str
    row: Row
    lacks: "Node | None" = None
    held: bool = False
    then: "tuple[DropReason, ...]" = ()


class Missing(NamedTuple):
    """A row that would be there, as often as its weight, and the drop because of which it is not."""

    key: Any
    value: Any
    drop: DropReason
    weight: int = 1


def by_key(rows: Iterable[Missing], present: Iterable[Any]) -> Iterator[Missing]:
    """The missing rows whose keys are not there."""
    there = set(map(identity, present))
    for row in rows:
        if row.key is UNKNOWN or (row.key is not None and identity(row.key) not in there):
            yield row
