"""The derivation of a row: the rows from which it is made, step by step back to the rows of source tables.

A row of a loop leads through the loop's variable to the rows of the same loop from which it was made, in the order of
their iterations, so that a way that ends in a seed is first. A row is explained once; after that it is *repeated*,
which also ends the ways round a cycle.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from eddy.topology.plan.bags import Row, identity
from eddy.topology.plan.plan import Loop, Node, Plan
from eddy.topology.tracing.evaluation import Evaluation

__all__ = ["Derivation", "derive"]

Input = tuple[Node, Row]
_SHOWN_EACH = 20


class Derivation(msgspec.Struct, omit_defaults=True):
    """A row of a step, and the rows from which it is made: each item of `of` is one way to make it, with all input
    rows.

    Args:
        weight: the weight of the row.
        iteration: for a row of a loop, the first iteration that made it.
        repeated: whether the row is explained elsewhere in this derivation.
        more: the number of further ways, or rows, that are not shown.
    """

    step: str
    does: str
    key: Any
    value: Any
    weight: int = 1
    iteration: int | None = None
    of: list[list["Derivation"]] = []
    repeated: bool = False
    more: int = 0


def derive(plan: Plan, evaluation: Evaluation, node: Node, row: Row, limit: int = 500) -> Derivation:
    """The derivation of a row, of at most about `limit` rows: the rows nearest to it."""
    ways = _Ways(plan, evaluation)
    root = ways.shown(node, row)
    seen = {(node, identity(row))}
    todo = deque([(root, node, row)])
    count = 1
    while todo:
        made, at, of = todo.popleft()
        found = ways.of(at, of)
        for way in found:
            if count > limit or len(made.of) >= _SHOWN_EACH:
                made.more += 1
                continue
            made.of.append([])
            for source, part in way:
                count += 1
                below = ways.shown(source, part)
                made.of[-1].append(below)
                known = (source, identity(part))
                if known in seen:
                    below.repeated = not source.begins
                else:
                    seen.add(known)
                    todo.append((below, source, part))
    return root


class _Ways:
    """The ways in which rows are made. The index of a step is built when one of its rows is first looked up."""

    def __init__(self, plan: Plan, evaluation: Evaluation) -> None:
        self._evaluation, self._bags = evaluation, evaluation.bags
        self._loops: dict[Node, Loop] = {v: loop for loop in plan.loops() for v in loop.variables}
        self._indexes: dict[Node, dict[Any, list[list[Input]]]] = {}

    def shown(self, node: Node, row: Row) -> Derivation:
        """A row by itself."""
        iteration = self._evaluation.iteration(node, row) if node.variables else None
        return Derivation(node.name, node.does, row[0], row[1], self._bags[node].weight(row), iteration)

    def of(self, node: Node, row: Row) -> list[list[Input]]:
        """The ways to make a row: the input rows of each, without steps that only pass rows on."""
        found = [[self._origin(*source) for source in way] for way in self._direct(node, row)]
        return sorted(found, key=lambda way: max((self._rank(*source) for source in way), default=0))

    def _rank(self, node: Node, row: Row) -> int:
        return self._evaluation.iteration(node, row) if node.variables else 0

    def _origin(self, node: Node, row: Row) -> Input:
        """The step that made a row, without steps that only pass it on."""
        while True:
            if node in self._loops:
                node = self._loops[node].result_of(node)
            elif node.same_rows_as is not None:
                node = node.same_rows_as
            elif node.passes and len(holding := self._holding(node, row)) == 1:
                (node,) = holding
            else:
                return node, row

    def _holding(self, node: Node, row: Row) -> list[Node]:
        return [source for source in node.inputs if row in self._bags[source]]

    def _direct(self, node: Node, row: Row) -> Iterable[list[Input]]:
        if node.results:
            return [[(source, row)] for source in (*node.inputs, *node.results) if row in self._bags[source]]
        if node.passes:
            return [[(source, row)] for source in self._holding(node, row)]
        origin = self._origin(node, row)
        if origin[0] is not node:
            return [[origin]]
        if node not in self._indexes:
            self._indexes[node] = self._index(node)
        return self._indexes[node].get(identity(row[0] if node.explained_by_key else row), [])

    def _index(self, node: Node) -> dict[Any, list[list[Input]]]:
        found: dict[Any, list[list[Input]]] = {}
        for made, way in node.ways(*(self._bags[source] for source in node.inputs)):
            found.setdefault(identity(made), []).append([(node.inputs[number], row) for number, row in way])
        return found
