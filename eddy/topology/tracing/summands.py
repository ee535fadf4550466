"""The parts of a receipt, with their numbers: groups of rows of a step, and subtrees of a forest."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from eddy.topology.plan.bags import Row, identity
from eddy.topology.plan.graph_bags import Forest
from eddy.topology.plan.plan import Node
from eddy.topology.tracing.titles import label

__all__ = ["DIRECT", "OWN", "RowGroup", "RowShare", "RowShares", "SubtreeSums", "add_share", "not_zero"]

DIRECT = "direct"
"""The title of the part for the rows of a recursion that its seed makes."""
OWN = "own"
"""The title of the part of a subtree's sum that is the own number of its topmost node."""


class RowShare(NamedTuple):
    """A row, and the number that one copy of it adds. If `op` joined the row, its key in the join is there, too."""

    row: Row
    number: Fraction
    joined_by: Any = None


RowShares = dict[Any, RowShare]
"""Shares by the identities of their rows and of their keys in the join."""


class RowGroup:
    """The rows of a step that form one part. `last_iteration` is the last one whose rows count, if depth is bounded."""

    def __init__(self, node: Node, key: Any, title: str, last_iteration: int | None = None) -> None:
        self.node, self.key, self.title, self.last_iteration = node, key, title, last_iteration
        self.shares: RowShares = {}
        self.number = Fraction(0)
        self.word = ""
        self.direct: list[RowGroup] = []
        """The groups that this group consists of, if it is the direct part."""
        self.tree: SubtreeSums | None = None
        self.at: Any = None
        """The item at the top of the subtree, if the group is a subtree."""

    def add(self, row: Row, share: Fraction, weight: int) -> None:
        """Add a row; each of its copies adds `share`."""
        add_share(self.shares, RowShare(row, share))
        self.number += share * weight


class SubtreeSums:
    """The sums of the subtrees of a forest."""

    def __init__(self, node: Node, forest: Forest, numbers: Mapping[Any, Fraction]) -> None:
        self.node, self.keys, self.own = node, forest.keys, numbers
        self.sums: dict[Any, Fraction] = {}
        self.below: dict[Any, list[Any]] = {}
        self.tops: list[Any] = []
        waiting: dict[Any, int] = {}
        todo = list(numbers)
        for item in todo:  # the list grows in the loop, by the items above
            if item not in self.sums:
                self.sums[item] = numbers.get(item, Fraction(0))
                above = forest.above[item]
                self.tops += [item] if above is None else []
                if above is not None:
                    self.below.setdefault(above, []).append(item)
                    waiting[above] = waiting.get(above, 0) + 1
                    todo.append(above)
        ready = [item for item in self.sums if item not in waiting]
        for item in ready:  # the list grows in the loop, so each item is taken after all items below it
            above = forest.above[item]
            if above is not None:
                self.sums[above] += self.sums[item]
                waiting[above] -= 1
                if not waiting[above]:
                    ready.append(above)

    def part(self, item: Any) -> RowGroup:
        """Return an item with all items below it, as one part."""
        part = RowGroup(self.node, self.keys[item], label(self.keys[item]))
        part.tree, part.at, part.number = self, item, self.sums[item]
        return part

    def parts(self, item: Any) -> list[RowGroup]:
        """Return the item's own number, and each of its children with all items below, as parts."""
        own = RowGroup(self.node, self.keys[item], OWN)
        own.word, own.number = OWN, self.own.get(item, Fraction(0))
        return not_zero([own, *map(self.part, self.below.get(item, ()))])


def add_share(shares: RowShares, share: RowShare) -> None:
    """Add a row's share to the share that is stored for the row; if none is stored, store it."""
    place = identity(share.row), identity(share.joined_by)
    before = shares.get(place)
    shares[place] = share if before is None else share._replace(number=before.number + share.number)


def not_zero(parts: Iterable[RowGroup]) -> list[RowGroup]:
    """Return the parts whose number is not 0."""
    return [part for part in parts if part.number]
