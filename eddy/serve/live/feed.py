"""The changes of tables that a view server has taken in and that live queries have not seen yet.

The reader of tables puts changes, under the lock of the rows; later ones of a row take the place of earlier ones, so
that the feed is bounded by the number of rows, however late its reader is.
"""

from collections.abc import Iterable, Mapping

from eddy.serve.views.rows import Changes, Rows, Snapshot
from eddy.serve.views.version import Version

__all__ = ["Feed"]


class Feed:
    """Changes by table, and the version that they lead to."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._pending: dict[str, dict[bytes, bytes | None]] = {}
        self._watched: set[str] = set()
        self.stale: set[str] = set()
        """Tables that are read anew: what has changed is not known until they are whole again."""
        rows.attach(self)

    def put(self, changes: Changes) -> None:
        """Keep the changes of a version. The caller holds the lock of the rows."""
        for table, rows in changes.items():
            if table in self._watched:
                self._pending.setdefault(table, {}).update(rows)

    def lost(self, table: str) -> None:
        """All rows of a table have gone, to be read anew. The caller holds the lock of the rows."""
        if table in self._watched:
            self._watched.discard(table)
            self._pending.pop(table, None)
            self.stale.add(table)

    def watch(self, table: str) -> Snapshot:
        """Keep changes of a table from now on; the rows as they are now. Raises: NotReadyError."""
        with self._rows.changed:
            snapshot = self._rows.snapshot()
            self._watched.add(table)
            self._pending.pop(table, None)
            self.stale.discard(table)
            return snapshot

    def unwatch(self, table: str) -> None:
        """Keep no changes of a table."""
        with self._rows.changed:
            self._watched.discard(table)
            self._pending.pop(table, None)
            self.stale.discard(table)

    def take(self, tables: Iterable[str]) -> tuple[Mapping[str, Mapping[bytes, bytes | None]], Version]:
        """The changes of these tables since the last call, and the version that they lead to."""
        with self._rows.changed:
            taken = {table: self._pending.pop(table) for table in tables if table in self._pending}
            return taken, self._rows.version

    def close(self) -> None:
        """Keep nothing any more."""
        self._rows.detach(self)
