"""Ranks: for each node of a graph, what it has from each root: (depth, parent, order, supports).

    len(node)(4) node root  ->  cell

A node's cells lie together, so that one lookup tells from which roots it is reached. An operator
changes them in place, and notes in `notes(root)` what each was before it touches it first.

Invariant: `_notes` holds the cells before the running epoch of all that it has changed. A node that
has no cell left is among `emptied`, and stays in memory, with none, until the epoch ends; so the store
is not asked for it.
"""

import struct
from collections.abc import Iterator, Set
from typing import Any

from eddy.serde import Serde
from eddy.state.cache import Cache
from eddy.state.spec import Changes, StateSpec
from eddy.state.store import Store

__all__ = ["Cell", "Ranks"]

Cell = tuple[Any, Any, Any, int]
"""Depth, parent, order, and the number of supports where they are counted."""

_LENGTH = struct.Struct(">I")
_NONE: Set[Any] = frozenset()


class Ranks(Cache[Any, dict[Any, Cell]]):
    """Cells by node, then by root. `root` is the serde of roots; `spec` has those of nodes and of cells."""

    def __init__(self, spec: StateSpec, root: Serde[Any], store: Store | None = None) -> None:
        self._root = root
        self._notes: dict[Any, dict[Any, Cell | None]] = {}
        self.emptied: list[Any] = []
        super().__init__(spec, store)

    def notes(self, root: Any) -> dict[Any, Cell | None]:
        """Where to note a root's cells before they are changed: by node; None where there was none."""
        found = self._notes.get(root)
        if found is None:
            found = self._notes[root] = {}
        return found

    def noted(self) -> dict[Any, dict[Any, Cell | None]]:
        """All that was noted in the running epoch, by root."""
        return self._notes

    def changes(self) -> Changes:
        """What the running epoch has changed, as rows for the store and the changelog."""
        moved = [
            (node, root, new)
            for root, notes in self._notes.items()
            for node, old in notes.items()
            if (new := self._fresh[node].get(root)) != old
        ]
        nodes = self.spec.key.identify_many([node for node, _, _ in moved])
        roots = self._root.identify_many([root for _, root, _ in moved])
        pack, encode = _LENGTH.pack, self.spec.value.encode
        return Changes(
            self.spec.partitions_of(nodes),
            [pack(len(node)) + node + root for node, root in zip(nodes, roots, strict=True)],
            [None if cell is None else encode(cell) for _, _, cell in moved],
        )

    def commit(self) -> None:
        """Take the running epoch's changes as done; the store has them."""
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
        """Yield every ((node, root), cell), the running epoch's included, in no particular order."""
        fresh = self._fresh
        if not self._complete:
            keys = {self.spec.key.decode(self._split(row)[0]) for row, _ in self._rows()}
            self.get_many(list(keys))
        for node, cells in list(fresh.items()):
            for root, cell in cells.items():
                yield (node, root), cell

    @staticmethod
    def _split(row: bytes) -> tuple[bytes, bytes]:
        end = 4 + _LENGTH.unpack_from(row)[0]
        return row[4:end], row[end:]

    def _load(self, keys: list[Any]) -> dict[Any, dict[Any, Cell]]:
        assert self._store is not None
        encoded = self.spec.key.identify_many(keys)
        homes = self.spec.partitions_of(encoded)
        prefixes = [
            self.spec.prefix(home) + _LENGTH.pack(len(data)) + data for home, data in zip(homes, encoded, strict=True)
        ]
        root, decode = self._root.decode, self.spec.value.decode
        scanned = zip(keys, prefixes, self._store.scan_many(prefixes), strict=True)
        return {
            key: {root(row[len(prefix) :]): decode(data) for row, data in rows} for key, prefix, rows in scanned if rows
        }

    def _changed_keys(self) -> Set[Any]:
        return _NONE
