"""Finds the rows of a linear recursion without a finite answer: rows on a cycle of op, and all rows derived from them.

The search begins with the rows that the waves have made so far. It removes each row that is derived from no remaining
row, until all remaining rows are derived from remaining rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from eddy.operators.path_text import path_text
from eddy.topology.plan.bags import Bag, Row, identity
from eddy.topology.plan.plan import Node

__all__ = ["CyclicRows", "cyclic_rows"]


class CyclicRows(NamedTuple):
    """The held rows of a recursion, by their identity, and a cycle that is the reason. It ends with its first row."""

    rows: dict[Any, Row]
    cycle: tuple[Row, ...]

    @property
    def keys(self) -> dict[Any, Any]:
        """The keys that have no row downstream, by their identity."""
        return {identity(row[0]): row[0] for row in self.rows.values()}

    @property
    def path(self) -> str:
        """The cycle as text: the keys of its rows, or the rows if all have the same key."""
        keys = [row[0] for row in self.cycle]
        return path_text(self.cycle if len(set(map(identity, keys))) == 1 < len(keys) - 1 else keys)


def cyclic_rows(variable: Node, body: Sequence[Node], result: Node, bags: Mapping[Node, Bag]) -> CyclicRows | None:
    """Return the variable's rows on cycles, and the rows derived from them; None if there is no cycle.

    `bags` has the rows of the steps inside, made from a single copy of each row of the variable.
    """
    rows = {identity(row): row for row, _ in bags[variable]}
    makers = _makers(variable, body, bags).get(result, {})
    left = {at: [maker for maker in makers.get(at, ()) if maker in rows] for at in rows}
    makes: dict[Any, list[Any]] = {}
    for at, found in left.items():
        for maker in found:
            makes.setdefault(maker, []).append(at)
    waiting = {at: len(found) for at, found in left.items()}
    ended = [at for at, count in waiting.items() if not count]
    for at in ended:  # the list grows in the loop
        for made in makes.get(at, ()):
            waiting[made] -= 1
            if not waiting[made]:
                ended.append(made)
    held = rows.keys() - set(ended)
    if not held:
        return None
    return CyclicRows({at: rows[at] for at in held}, tuple(rows[at] for at in _cycle(held, left)))


def _makers(variable: Node, body: Sequence[Node], bags: Mapping[Node, Bag]) -> dict[Node, dict[Any, set[Any]]]:
    """Return, by step and row, the rows of the variable from which the row is made."""
    found: dict[Node, dict[Any, set[Any]]] = {variable: {identity(row): {identity(row)} for row, _ in bags[variable]}}
    for node in body:
        of = found[node] = {}
        for made, sources in _ways(node, bags):
            for source, row in sources:
                of.setdefault(identity(made), set()).update(found.get(source, {}).get(identity(row), ()))
    return found


def _ways(node: Node, bags: Mapping[Node, Bag]) -> Iterable[tuple[Row, list[tuple[Node, Row]]]]:
    if node.passes:
        return ((row, [(source, row)]) for source in node.inputs for row, _ in bags[source])
    ways = node.ways(*(bags[source] for source in node.inputs))
    return ((made, [(node.inputs[number], row) for number, row in way]) for made, way in ways)


def _cycle(held: set[Any], makers: Mapping[Any, list[Any]]) -> list[Any]:
    """Return a cycle among the held rows, which begins and ends with its least row.

    The search goes from rows to makers.
    """
    path: dict[Any, None] = {}
    at = min(held, key=repr)
    while at not in path:
        path[at] = None
        at = min((maker for maker in makers[at] if maker in held), key=repr)
    cycle = list(path)[list(path).index(at) :][::-1]
    first = cycle.index(min(cycle, key=repr))
    return [*cycle[first:], *cycle[: first + 1]]
