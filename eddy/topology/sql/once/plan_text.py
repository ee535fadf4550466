"""The plan of a statement as text, for EXPLAIN: how it is computed, and its nodes, with their inputs below them."""

import re
from collections.abc import Iterator

from eddy.topology.sql.algebra import Binding, Loop, NamedTable, Node, Project, Variable, inputs_of
from eddy.topology.sql.once.suitable import why_circuit
from eddy.topology.sql.statement_text import StatementText

__all__ = ["explained_query", "plan_lines"]

_EXPLAIN = re.compile(r"\s*EXPLAIN\b", re.IGNORECASE)
_WORDS = re.compile(r"(?<=.)(?=[A-Z])")


def explained_query(text: StatementText) -> StatementText | None:
    """Return the query of an EXPLAIN, with blanks for the word EXPLAIN; None for any other statement."""
    found = _EXPLAIN.match(text.text)
    return None if found is None else StatementText(" " * found.end() + text.text[found.end() :], text.name)


def plan_lines(node: Node) -> list[str]:
    """Return the lines of the answer to EXPLAIN."""
    why = why_circuit(node)
    return [f"circuit: {why}" if why else "functions over whole tables", *_lines(node, 1, set())]


def _lines(node: Node, depth: int, seen: set[Node]) -> Iterator[str]:
    while isinstance(node, Project) and all(expr.op == "column" for expr in node.exprs):
        node = node.input  # this projection only chooses and renames columns
    again = " (as above)" if node in seen and inputs_of(node) else ""
    yield f"{'  ' * depth}{_title(node)}{again}"
    if not again:
        seen.add(node)
        for found in inputs_of(node):
            yield from _lines(found, depth + 1, seen)


def _title(node: Node) -> str:
    match node:
        case NamedTable():
            return f"table {node.table}"
        case Variable() | Binding():
            return f"rows of {node.binding}"
        case Loop():
            return f"waves of {node.variable.binding}, {'UNION' if node.distinct else 'UNION ALL'}"
        case _:
            return _WORDS.sub(" ", type(node).__name__).lower()
