"""Decides which one-off statements are answered by functions over whole tables; the circuit answers all others.

A statement is suitable if all its nodes are. Not suitable are blocks WITH MUTUALLY RECURSIVE, and recursions inside the
step of another recursion, because both are evaluated by iterations of nested time.
"""

from collections.abc import Iterator

from eddy.topology.sql.algebra import (
    Binding,
    Filter,
    InWindows,
    Join,
    Loop,
    Node,
    Semi,
    Series,
    Union,
    Valid,
    Variable,
    inputs_of,
)

__all__ = ["depends_on", "why_circuit"]


def why_circuit(node: Node) -> str:
    """Return why the circuit has to answer a statement; empty if functions over whole tables can."""
    return next((why for found in _nodes(node, set()) if (why := _why(found))), "")


def depends_on(node: Node, variable: Variable) -> bool:
    """Return whether a node's rows are made from the rows of a recursive table."""
    return any(
        isinstance(found, Variable) and found.of is variable.of and found.binding == variable.binding
        for found in _nodes(node, set())
    )


def _nodes(node: Node, seen: set[Node]) -> Iterator[Node]:
    if node not in seen:
        seen.add(node)
        yield node
        for found in inputs_of(node):
            yield from _nodes(found, seen)


def _why(node: Node) -> str:
    match node:
        case Binding():
            return f"'{node.binding}' of WITH MUTUALLY RECURSIVE is evaluated in iterations"
        case Valid():
            return "now() in a condition is a matter of time"
        case Loop():
            return _why_loop(node)
        case _:
            return ""


def _why_loop(loop: Loop) -> str:
    name = loop.variable.binding
    for found in _nodes(loop.step, set()):
        if isinstance(found, Loop) and depends_on(found, loop.variable):
            return f"'{name}' has a recursion in its step"
        if isinstance(found, Union) and len({depends_on(part, loop.variable) for part in found.inputs}) > 1:
            return f"the step of '{name}' has rows that are not made of '{name}'"
    if not loop.distinct and _repeats(loop.step, loop.variable):
        return f"nothing in the step of '{name}' can drop a row"
    return ""


def _repeats(node: Node, variable: Variable) -> bool:
    """Return whether some path from the recursive table to a node's rows has no step that can drop a row."""
    if isinstance(node, Filter | Join | Semi | Series | InWindows) or not depends_on(node, variable):
        return False
    return isinstance(node, Variable) or any(_repeats(found, variable) for found in inputs_of(node))
