"""A table that knows the number and the bytes of its rows in each partition.

    size(partition)  =  (number of rows, Σ bytes of a row's key and value as they are stored)

The sizes are counted once from the store and then kept up to date in memory, so they are not stored.

Invariant: a partition is counted before an epoch first changes it, because until then the store has all its rows.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from eddy.state.spec import StateSpec
from eddy.state.store import Store
from eddy.state.table_state import Table

__all__ = ["Size", "SizedTable"]

K = TypeVar("K")
V = TypeVar("V")


class Size(NamedTuple):
    """A number of rows, and their bytes."""

    rows: int = 0
    bytes: int = 0


class SizedTable(Table[K, V]):
    """A `Table` that also counts its rows and their bytes. Cost: old and new values are encoded once more."""

    def __init__(self, spec: StateSpec, store: Store | None = None) -> None:
        self._sizes: dict[int, Size] = {}
        self._committed: dict[int, Size] = {}
        super().__init__(spec, store)

    def size(self, partition: int) -> Size:
        """Return the size of a partition, with the changes of the current epoch.

        Cost: the first call reads the partition.
        """
        if partition not in self._sizes:
            rows = [] if self._store is None else self._store.scan(self.spec.prefix(partition))
            lengths = [len(key) - len(self.spec.prefix(partition)) + len(value) for key, value in rows]
            self._committed[partition] = self._sizes[partition] = Size(len(lengths), sum(lengths))
        return self._sizes[partition]

    def lengths(self, keys: Sequence[K], values: Sequence[V | None]) -> list[int]:
        """Return the number of bytes of each row, 0 for a key whose value is None."""
        encode = self.spec.value.encode
        encoded = self.spec.key.identify_many(keys)
        return [
            0 if value is None else len(key) + len(encode(value)) for key, value in zip(encoded, values, strict=True)
        ]

    def put_many(self, news: Mapping[K, V | None], olds: Sequence[V | None]) -> None:
        """Set values as `Table.put_many` does, and update the sizes."""
        keys, values = list(news), list(news.values())
        homes = self.spec.partitions_of(self.spec.key.identify_many(keys))
        before, after = self.lengths(keys, olds), self.lengths(keys, values)
        for home, old, new, was, is_now in zip(homes, olds, values, before, after, strict=True):
            rows, size = self.size(home)
            self._sizes[home] = Size(rows + (new is not None) - (old is not None), size + is_now - was)
        super().put_many(news, olds)

    def commit(self) -> None:
        """End the current epoch; its changes are in the store."""
        super().commit()
        self._committed = dict(self._sizes)

    def rollback(self) -> None:
        """Return to the last commit."""
        super().rollback()
        self._sizes = dict(self._committed)

    def forget(self) -> None:
        """Forget the sizes and the cells, because another writer has changed the store."""
        super().forget()
        self._sizes, self._committed = {}, {}
