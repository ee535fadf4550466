"""Defines the rows of a fixpoint over a graph, the children that `expand` may return, and the order of nodes.

Nodes are any hashable values, also of several types in one graph. `least` and `ordered` sort them by type: None,
numbers, text, bytes, tuples, structs, other values. Within a type they sort as Python does.
"""

from typing import Any

import msgspec

from eddy.serde import Native, Serde, Tuple

__all__ = ["Child", "Reached", "cell_serde", "least", "ordered", "reached_serde"]


class Reached(msgspec.Struct, frozen=True, gc=False):
    """An output row: `node` is reached from `root` at `depth`, through `parent`. `order` sorts it among its siblings.

    Sorted by (depth, parent, order) the rows of a root are its graph in breadth-first order. A root has depth 0 and no
    parent. A row with a `cycle` is an error row: it lists the nodes of the cycle, the first again at the end, and has
    depth -1.
    """

    root: Any
    node: Any
    depth: Any
    parent: Any = None
    order: Any = None
    cycle: tuple[Any, ...] = ()


class Child(msgspec.Struct, frozen=True, gc=False):
    """A child that `expand` returns, with the sort key that orders it among its siblings."""

    node: Any
    order: Any


def reached_serde(node: Serde[Any]) -> Serde[Any]:
    """Make the serde of `Reached` from the serde of nodes."""
    row, nodes = Tuple(node, node, Native, node, Native), Tuple(node, ...)

    def fields(reached: Reached) -> tuple[Any, ...]:
        return (reached.root, reached.node, reached.depth, reached.parent, reached.order)

    def encode(reached: Reached) -> bytes:
        return Native.encode((row.encode(fields(reached)), nodes.encode(reached.cycle)))

    def identify(reached: Reached) -> bytes:
        parts = row.identify_many([fields(reached)]) + nodes.identify_many([reached.cycle])
        return Native.encode(tuple(parts))

    def decode(data: bytes) -> Reached:
        written, cycle = Native.decode(data)
        root, node, depth, parent, order = row.decode(written)
        return Reached(root, node, depth, parent, order, nodes.decode(cycle))

    return Serde(f"reached({node.name})", encode, decode, identify=identify, recipe=(reached_serde, (node,)))


def cell_serde(node: Serde[Any]) -> Serde[Any]:
    """Make the serde of a node's cell (depth, parent, order, number of supports) from the serde of nodes."""
    return Tuple(Native, node, Native, Native)


def least(one: Any, other: Any) -> Any:
    """Return the lesser of two nodes.

    >>> least(2, 1), least("a", 2), least((1, "x"), (1, 2))
    (1, 2, (1, 2))
    """
    try:
        return other if other < one else one
    except TypeError:
        return other if _precedence(other) < _precedence(one) else one


def ordered(nodes: Any) -> list[Any]:
    """Sort nodes from the least to the greatest.

    >>> ordered(["b", 2, "a", 1.5])
    [1.5, 2, 'a', 'b']
    """
    try:
        return sorted(nodes)
    except TypeError:
        return sorted(nodes, key=_precedence)


def _precedence(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, int | float):
        return (1, value)
    if isinstance(value, str):
        return (2, value)
    if isinstance(value, bytes):
        return (3, value)
    if type(value) is tuple:
        return (4, tuple(map(_precedence, value)))
    kind = type(value).__qualname__
    if isinstance(value, msgspec.Struct):
        return (5, kind, tuple(map(_precedence, msgspec.structs.astuple(value))))
    return (6, kind, repr(value))
