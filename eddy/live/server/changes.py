"""Keeps the changes of tables that a table server has applied, but live queries have not applied yet.

The reader of tables puts changes here, while it holds the lock of the rows. A later change of a row replaces the
earlier one. So there are at most as many changes as rows, however late the live queries are.
"""

from collections.abc import Iterable, Mapping

from eddy.tables.served_rows import Changes, RowsSnapshot, ServedRows
from eddy.tables.version import Version

__all__ = ["TableChanges"]


class TableChanges:
    """The changes of tables, by name, and the version to which they lead. Several names may stand for one table."""

    def __init__(self, rows: ServedRows) -> None:
        self._rows = rows
        self._pending: dict[str, dict[bytes, bytes | None]] = {}
        self._watched: dict[str, str] = {}
        self.stale: set[str] = set()
        """Names of tables that are read anew: their changes are not known until they are whole again."""
        rows.attach(self)

    def put(self, changes: Changes) -> None:
        """Add the changes of a version. The caller holds the lock of the rows."""
        for name, table in self._watched.items():
            if table in changes:
                self._pending.setdefault(name, {}).update(changes[table])

    def lost(self, table: str) -> None:
        """Note that all rows of a table were removed and are being read anew. The caller holds the lock of the rows."""
        for name in [name for name, watched in self._watched.items() if watched == table]:
            self.miss(name)

    def miss(self, name: str) -> None:
        """Note that the rows under this name have to be read anew. Until then their changes are dropped."""
        with self._rows.changed:
            self._watched.pop(name, None)
            self._pending.pop(name, None)
            self.stale.add(name)

    def watch(self, name: str, table: str) -> RowsSnapshot:
        """Keep the changes of a table from now on, under this name. Returns the present rows. Raises: NotReadyError."""
        with self._rows.changed:
            snapshot = self._rows.snapshot()
            self._watched[name] = table
            self._pending.pop(name, None)
            self.stale.discard(name)
            return snapshot

    def unwatch(self, name: str) -> None:
        """Stop keeping changes by this name."""
        with self._rows.changed:
            self._watched.pop(name, None)
            self._pending.pop(name, None)
            self.stale.discard(name)

    def take(self, names: Iterable[str]) -> tuple[Mapping[str, Mapping[bytes, bytes | None]], Version]:
        """Return the changes under these names since the last call, and the version to which they lead."""
        with self._rows.changed:
            taken = {name: self._pending.pop(name) for name in names if name in self._pending}
            return taken, self._rows.version

    def close(self) -> None:
        """Stop following the rows."""
        self._rows.detach(self)
