"""Finds the ways in which the rows of a plan are made. A way is a list of the input rows that together make a row."""

from collections.abc import Iterable
from typing import Any

from eddy.topology.plan.bags import Row, identity
from eddy.topology.plan.plan import Loop, Node, Plan
from eddy.topology.tracing.evaluation import Evaluation

__all__ = ["Input", "Ways"]

Input = tuple[Node, Row]


class Ways:
    """Looks up the ways in which rows are made. A step's index is built when one of its rows is first looked up."""

    def __init__(self, plan: Plan, evaluation: Evaluation) -> None:
        self._evaluation, self._bags = evaluation, evaluation.bags
        self._loops: dict[Node, Loop] = {v: loop for loop in plan.loops() for v in loop.variables}
        self._indexes: dict[Node, dict[Any, list[list[Input]]]] = {}

    def of(self, node: Node, row: Row) -> list[list[Input]]:
        """Return the ways to make a row.

        Each input row is given at the step that made it, not at steps that pass it on.
        """
        found = [[self._origin(*source) for source in way] for way in self._direct(node, row)]
        return sorted(found, key=lambda way: max((self._rank(*source) for source in way), default=0))

    def by_step(self, node: Node, row: Row) -> list[list[Input]]:
        """Return the ways in which a step makes a row from its inputs' rows; none if it passes rows on unchanged."""
        if node not in self._indexes:
            self._indexes[node] = self._index(node)
        return self._indexes[node].get(identity(row[0] if node.explained_by_key else row), [])

    def holding(self, node: Node, row: Row) -> list[Node]:
        """Return the inputs of a step that have this row."""
        return [source for source in node.inputs if row in self._bags[source]]

    def _rank(self, node: Node, row: Row) -> int:
        return self._evaluation.iteration(node, row) if node.variables else 0

    def _origin(self, node: Node, row: Row) -> Input:
        """Return a row at the step that made it, before the steps that only pass it on."""
        while True:
            if node in self._loops:
                node = self._loops[node].result_of(node)
            elif node.same_rows_as is not None:
                node = node.same_rows_as
            elif node.passes and len(holding := self.holding(node, row)) == 1:
                (node,) = holding
            else:
                return node, row

    def _direct(self, node: Node, row: Row) -> Iterable[list[Input]]:
        if node.results:
            return [[(source, row)] for source in (*node.inputs, *node.results) if row in self._bags[source]]
        if node.passes:
            return [[(source, row)] for source in self.holding(node, row)]
        origin = self._origin(node, row)
        return [[origin]] if origin[0] is not node else self.by_step(node, row)

    def _index(self, node: Node) -> dict[Any, list[list[Input]]]:
        found: dict[Any, list[list[Input]]] = {}
        for made, way in node.ways(*(self._bags[source] for source in node.inputs)):
            found.setdefault(identity(made), []).append(
                [(node if number < 0 else node.inputs[number], row) for number, row in way]
            )
        return found
