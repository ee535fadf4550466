"""Recognizes a WITH RECURSIVE that only computes reachability, since `recursive_fixpoint` is cheaper for it.

    WITH RECURSIVE t(n) AS (seed UNION SELECT e.y FROM t JOIN e ON t.n = e.x)

Such a query has one column, is a set, and follows one edge in each iteration. A node is a value with a flag. A root
node is added, with an edge to each value of the seed, so that there is only one root.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eddy.topology.sql.algebra import Join, Loop, Node, Project, Variable
from eddy.topology.sql.expressions import Expr, columns_of, replace_columns
from eddy.topology.sql.expressions import column as column_of

if TYPE_CHECKING:
    from eddy.operators.graph.reached import Reached

__all__ = ["START", "Edges", "edges_of", "from_start", "link", "reached"]

START = (False, None)
"""The root node, whose children are the values of the seed."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges from `key` to `to`, one for each row of `node`."""

    node: Node
    key: Expr
    to: Expr


def edges_of(loop: Loop) -> Edges | None:
    """Return the edges that a recursion follows; None if its step is not reachability."""
    if not loop.distinct or len(loop.columns) != 1:
        return None
    step: Node = loop.step
    out = column_of(0, loop.columns[0].type)
    while isinstance(step, Project):
        out = replace_columns(out, step.exprs)
        step = step.input
    if not isinstance(step, Join) or len(step.left_key) != 1:
        return None
    width = len(step.left.columns)
    if _is_variable(step.left, step.left_key[0]):
        places = {i: column_of(i - width, found.type) for i, found in enumerate(step.columns) if i >= width}
        edges, key = step.right, step.right_key[0]
    elif _is_variable(step.right, step.right_key[0]):
        places = {i: column_of(i, found.type) for i, found in enumerate(step.columns) if i < width}
        edges, key = step.left, step.left_key[0]
    else:
        return None
    if not set(columns_of(out)) <= places.keys():
        return None
    return Edges(edges, key, replace_columns(out, places))


def _is_variable(node: Node, key: Expr) -> bool:
    """Return whether a side of the join is the recursive variable, joined by its only column."""
    while isinstance(node, Project):
        if len(node.exprs) != 1 or node.exprs[0].op != "column":
            return False
        node = node.input
    return isinstance(node, Variable) and key.op == "column"


def link(key: tuple[Any], value: tuple[Any]) -> tuple[Any, Any]:
    """Return an edge between two values."""
    return (True, key[0]), (True, value[0])


def from_start(key: tuple[()], value: tuple[Any]) -> tuple[Any, Any]:
    """Return the edge from the root to a value of the seed."""
    return START, (True, value[0])


def reached(key: Any, row: "Reached") -> tuple[Any, Any]:
    """Return a reached node as a row of a set, without a value."""
    return (row.node[1],), ()
