"""The in-memory part of a state: one *cell* for each key, in two generations.

A cell is the object that a state has for a key, such as the value of a table or the bag of an arrangement. A lookup
that misses the fresh generation takes the cell from the aged generation or the store and moves it to the fresh
generation. When there are too many cells, the newer half becomes the aged generation, and the older half is dropped.
Accesses are not recorded, so the keys of a whole batch are looked up by one `map(dict.get, keys)`.

Invariant: while `complete`, all keys are in memory, and the store is not read.
Invariant: every cell changed in the current epoch is in the fresh generation, or absent.
"""

from collections.abc import Collection, Container, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Generic, TypeVar

from eddy.state.spec import StateSpec
from eddy.state.store import Store

__all__ = ["Cache"]

K = TypeVar("K")
C = TypeVar("C")  # a cell


class Cache(Generic[K, C]):
    """Cells by key. Subclasses define how a cell is read from the store, and which keys have changed."""

    def __init__(self, spec: StateSpec, store: Store | None) -> None:
        self.spec = spec
        self._store = store
        self._fresh: dict[K, C] = {}
        self._aged: dict[K, C] = {}
        self._complete = self._store_is_empty()

    def get_many(self, keys: Sequence[K]) -> list[C | None]:
        """Return the cell of each key, None for a key without a cell.

        Cost: one dict lookup a key while all cells are in memory; a batched read of the store for the others.
        """
        if not self._fresh and self._complete:
            return [None] * len(keys)
        found: list[C | None] = list(map(self._fresh.get, keys))
        if self._complete or None not in found:
            return found
        return self._fill(keys, found)

    def get(self, key: K) -> C | None:
        """The cell of one key."""
        cell = self._fresh.get(key)
        return cell if cell is not None or self._complete else self.get_many([key])[0]

    @property
    def complete(self) -> bool:
        """Whether all cells are in memory, so that the store is not read."""
        return self._complete

    def resident(self, keys: Collection[K] = ()) -> dict[K, C]:
        """Return a dict with the cells of `keys`, for loops that read many cells. It may also have other cells."""
        if not self._complete:
            self.get_many(list(keys))
        return self._fresh

    def forget(self) -> None:
        """Empty the memory after another writer has changed the store."""
        self._fresh, self._aged, self._complete = {}, {}, self._store_is_empty()

    def _fill(self, keys: Sequence[K], found: list[C | None]) -> list[C | None]:
        changed = self._changed_keys()
        missing = {key for key, cell in zip(keys, found, strict=True) if cell is None and key not in changed}
        if None in missing and not self._stores_none:
            missing.discard(None)
        if missing:
            fresh, aged = self._fresh, self._aged
            for key in [key for key in missing if key in aged]:
                fresh[key] = aged.pop(key)
                missing.discard(key)
            if missing:
                fresh.update(self._load(list(missing)))
            found = list(map(fresh.get, keys))
        return found

    @cached_property
    def _stores_none(self) -> bool:
        """Whether the store can have a row with the key None. It cannot if the serde of keys cannot encode None."""
        try:
            self.spec.key.identify_many([None])
        except Exception:  # any error of the author's serde
            return False
        return True

    @property
    def cells(self) -> int:
        """The number of cells in memory."""
        return len(self._fresh) + len(self._aged)

    def age(self) -> int:
        """Drop the older half of the cells. The store must have all cells. Returns the number of dropped cells."""
        if self._store is None:
            return 0
        before, fresh, aged = self.cells, self._fresh, self._aged
        kept = before // 2
        if len(fresh) >= kept:
            self._aged = dict(islice(fresh.items(), len(fresh) - kept, None))
        else:
            self._aged = dict(islice(aged.items(), before - kept, None)) | fresh
        self._fresh, self._complete = {}, False
        return before - self.cells

    def _load(self, keys: list[K]) -> dict[K, C]:
        raise NotImplementedError

    def _changed_keys(self) -> Container[K]:
        raise NotImplementedError

    def _rows(self) -> Iterator[tuple[bytes, bytes]]:
        """The state's rows in the store, under their row keys."""
        assert self._store is not None
        prefix = self.spec.name.encode() + b"\x00"
        return ((key[len(prefix) + 2 :], data) for key, data in self._store.scan(prefix))

    def _store_is_empty(self) -> bool:
        return self._store is None or next(self._rows(), None) is None
