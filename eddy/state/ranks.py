"""Ranks of a graph's nodes: a node has a cell (depth, parent, order, supports) for each root that reaches it.

A row key is made of node and root (`row_layout.py`). A node's cells are adjacent, so one lookup returns all roots that
reach it. An operator changes the cells in place, and records in `notes(root)` the previous value of a cell before its
first change.

Invariant: `_notes` holds the previous values of all cells changed in the current epoch. A node that has lost all cells
is in `emptied`, and remains in memory as an empty dict until the epoch ends, so that the store is not read for it.
"""

from collections.abc import Iterator, Set
from typing import Any

from eddy.serde import Serde
from eddy.state.cache import Cache
from eddy.state.row_layout import row_key, split, stored_rows
from eddy.state.spec import Changes, StateSpec
from eddy.state.store import Store

__all__ = ["Cell", "Ranks"]

Cell = tuple[Any, Any, Any, int]
"""Depth, parent, order, and the number of supports if they are counted."""

_NONE: Set[Any] = frozenset()


class Ranks(Cache[Any, dict[Any, Cell]]):
    """The cells of nodes, by node and root. `root` is the serde of roots; `spec` has the serdes of nodes and cells."""

    def __init__(self, spec: StateSpec, root: Serde[Any], store: Store | None = None) -> None:
        self._root = root
        self._notes: dict[Any, dict[Any, Cell | None]] = {}
        self.emptied: list[Any] = []
        super().__init__(spec, store)

    def notes(self, root: Any) -> dict[Any, Cell | None]:
        """Return the previous values of a root's changed cells, by node; None for a new cell.

        Before the caller changes a cell, it must add the cell's value to this dict.
        """
        found = self._notes.get(root)
        if found is None:
            found = self._notes[root] = {}
        return found

    def noted(self) -> dict[Any, dict[Any, Cell | None]]:
        """Return the previous values of all cells that the epoch has changed, by root and node."""
        return self._notes

    def changes(self) -> Changes:
        """The changes of the current epoch, as rows for the store and the changelog."""
        moved = [
            (node, root, new)
            for root, notes in self._notes.items()
            for node, old in notes.items()
            if (new := self._fresh[node].get(root)) != old
        ]
        nodes = self.spec.key.identify_many([node for node, _, _ in moved])
        roots = self._root.identify_many([root for _, root, _ in moved])
        encode = self.spec.value.encode
        return Changes(
            self.spec.partitions_of(nodes),
            list(map(row_key, nodes, roots)),
            [None if cell is None else encode(cell) for _, _, cell in moved],
        )

    def commit(self) -> None:
        """End the current epoch; its changes are in the store."""
        if self.emptied:
            for node in self.emptied:
                if not self._fresh.get(node, True):
                    del self._fresh[node]
            self.emptied = []
        if self._notes:
            self._notes = {}

    def rollback(self) -> None:
        """Return to the last commit."""
        fresh = self._fresh
        for root, notes in self._notes.items():
            for node, old in notes.items():
                cells = fresh.get(node)
                if old is not None:
                    assert cells is not None
                    cells[root] = old
                elif cells is not None:
                    cells.pop(root, None)
                    self.emptied.append(node)
        self.commit()

    def items(self) -> Iterator[tuple[tuple[Any, Any], Cell]]:
        """Yield every ((node, root), cell), with the changes of the current epoch, in no particular order."""
        fresh = self._fresh
        if not self._complete:
            keys = {self.spec.key.decode(split(row)[0]) for row, _ in self._rows()}
            self.get_many(list(keys))
        for node, cells in list(fresh.items()):
            for root, cell in cells.items():
                yield (node, root), cell

    def _load(self, keys: list[Any]) -> dict[Any, dict[Any, Cell]]:
        assert self._store is not None
        root, decode = self._root.decode, self.spec.value.decode
        return {
            key: {root(rest): decode(data) for rest, data in rows}
            for key, rows in stored_rows(self.spec, self._store, keys)
            if rows
        }

    def _changed_keys(self) -> Set[Any]:
        return _NONE
