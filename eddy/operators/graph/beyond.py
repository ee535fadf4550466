"""Roots beyond a bound: roots that reach nodes deeper than the limit, or too many nodes.

    table   root  ->  (number of nodes deeper than the limit, number of all nodes if they are too many, else 0)

Invariant: the table has exactly the roots that exceed a bound. So it is a function of the links and the roots.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from eddy.operators.exchange import Ownership
from eddy.operators.graph.depths import Depths
from eddy.operators.operator import State
from eddy.state.ranks import Cell
from eddy.state.table_state import Table

__all__ = ["Beyond"]


class Beyond:
    """Maintains the table of roots that exceed a bound. `depths` has the depths of nodes.

    `sizes` has the number of nodes of each root; it is None if this number has no bound.
    """

    def __init__(
        self,
        table: Table[Any, tuple[int, int]],
        depths: Depths,
        sizes: Table[Any, int] | None,
        ownership: Ownership,
    ) -> None:
        self._table, self._depths, self._sizes, self._ownership = table, depths, sizes, ownership

    @property
    def state(self) -> State:
        """The table."""
        return self._table

    def update(
        self,
        roots: Iterable[Any],
        noted: Mapping[Any, Mapping[Any, Cell | None]],
        ranks: Mapping[Any, Mapping[Any, Cell]],
    ) -> dict[Any, tuple[bool, bool]]:
        """Apply the epoch's changes of these roots to the table.

        Returns the roots that were beyond a bound, or are beyond one now. Each has two flags: whether it was, and
        whether it is.
        """
        over = self._depths.over
        touched = list(dict.fromkeys(roots))
        olds = self._table.get_many(touched)
        if not over and not any(olds):
            return {}
        news: dict[Any, tuple[int, int] | None] = {}
        before: list[tuple[int, int] | None] = []
        for root, old in zip(touched, olds, strict=True):
            if old is not None or root in over:
                deep = (old[0] if old else 0) + self._deeper(root, noted.get(root, {}), ranks)
                size = 0 if self._sizes is None else self._sizes.get(root) or 0
                many = size if size > self._depths.most else 0
                news[root] = (deep, many) if deep or many else None
                before.append(old)
        self._table.put_many(news, before)
        return {
            root: (old is not None, new is not None)
            for (root, new), old in zip(news.items(), before, strict=True)
            if old is not None or new is not None
        }

    def _deeper(self, root: Any, notes: Mapping[Any, Cell | None], ranks: Mapping[Any, Mapping[Any, Cell]]) -> int:
        """Return by how much the epoch has changed the number of a root's nodes beyond the depth limit."""
        limit, moved = self._depths.limit, 0
        for node, old in notes.items():
            new = ranks.get(node, {}).get(root)
            moved += (new is not None and new[0] > limit) - (old is not None and old[0] > limit)
        return moved

    def held(self, name: str) -> Mapping[int, str]:
        """Return the message for one root beyond a bound: the first by the order of texts.

        The message is under partition 0. It is returned only if this worker owns this partition.
        """
        if not self._ownership.owns(0, 1):
            return {}
        why = min((self._message(name, *item) for item in self._table.items()), default=None)
        return {} if why is None else {0: why}

    def _message(self, name: str, root: Any, entry: tuple[int, int]) -> str:
        deep, many = entry
        if deep:
            what, bound = f"{deep:,} of the nodes that it reaches lie beyond limit {self._depths.limit}", "limit"
        else:
            what, bound = f"it reaches {many:,} nodes, more than max_nodes={self._depths.most}", "max_nodes"
        return (
            f"recursive_fixpoint '{name}': from root {root!r}: {what}; an answer within the bound is needed. Mend the "
            f"data, bound the depth: max_depth=16, or raise {bound}="
        )
