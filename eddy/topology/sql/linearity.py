"""Decides from the algebra of a WITH RECURSIVE's step whether the step is linear in the recursive table.

    step(A + B) = step(A) + step(B)

PostgreSQL applies the step to the rows of the previous iteration. Only if the step is linear, the result is the least X
= seed + step(X), which eddy keeps up to date as rows are added and removed. The check follows every path from the
recursive table to the step's rows, through queries, common table expressions and joins.
"""

from collections.abc import Callable

from eddy.errors import TopologyError
from eddy.topology.sql.algebra import (
    Binding,
    Block,
    Distinct,
    Except,
    Group,
    InSessions,
    Intersect,
    Limit,
    Loop,
    Node,
    Outer,
    Product,
    Semi,
    Shared,
    Union,
    Variable,
    inputs_of,
)

__all__ = ["linear_references"]

Refuse = Callable[[Variable, str], TopologyError]


def linear_references(step: Node, of: object, refuse: Refuse) -> list[Variable]:
    """Return the references of a step to the recursive table `of`.

    `refuse` makes the error for a reference and its place in the step. Raises: this error if the step is not linear.
    """
    return _Step(of, refuse).references(step)


class _Step:
    def __init__(self, of: object, refuse: Refuse) -> None:
        self._of, self._refuse = of, refuse
        self._shared: dict[int, list[Variable]] = {}
        self._blocks: set[Block] = set()

    def references(self, node: Node) -> list[Variable]:
        """Return the references below a node. Raises: the error of `refuse` if the node is not linear in them."""
        match node:
            case Variable():
                return [node] if node.of is self._of else []
            case Shared():
                if id(node) not in self._shared:
                    self._shared[id(node)] = self.references(node.input)
                return self._shared[id(node)]
            case Product():
                return self._product(node)
            case Binding():
                return self._block(node.block)
        below = [self.references(found) for found in inputs_of(node)]
        for place, found in zip(_nonlinear(node), below, strict=False):
            if place and found:
                raise self._refuse(found[0], place)
        return [reference for found in below for reference in found]

    def _product(self, node: Product) -> list[Variable]:
        """Return the recursive references in a product, which is linear in one input while the others do not change."""
        first, *others = [found for found in map(self.references, node.inputs) if found] or [[]]
        if others:
            raise self._refuse(others[0][0], "named twice in its step")
        return first

    def _block(self, block: Block) -> list[Variable]:
        if block not in self._blocks:
            self._blocks.add(block)
            for _, definition in block.bindings:
                if found := self.references(definition):
                    raise self._refuse(found[0], "in a block inside of its step")
        return []


def _nonlinear(node: Node) -> tuple[str, ...]:
    """Return a text for each input of a node: empty if the node is linear in it, else the input's place in the step."""
    match node:
        case Distinct():
            return (f"{'inside of UNION' if isinstance(node.input, Union) else 'below DISTINCT'} of its step",)
        case Group():
            is_value = any(found.function == "only" for found in node.aggregates)
            return (f"{'in a query inside of an expression' if is_value else 'below an aggregate'} of its step",)
        case Limit():
            return ("below LIMIT of its step",)
        case InSessions():
            return ("below SESSION of its step",)
        case Except() | Intersect():
            return (f"inside of {type(node).__name__.upper()} of its step",) * 2
        case Semi():
            return "", "in a query inside of an expression of its step"
        case Outer():
            place = "in an outer join of its step"
            return "" if node.kept == "left" else place, "" if node.kept == "right" else place
        case Loop():
            place = "in a recursive table inside of its step"
            return place if node.distinct else "", place
    return ()
