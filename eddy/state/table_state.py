"""A table: the latest value of each key, in memory and, at each commit, in a store.

Invariant: `_undo` holds, in order, the keys changed in the current epoch with their previous values; so `rollback` is
exact, `changes` returns the rows to commit, and the store never sees an open epoch.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Generic, TypeVar

from eddy.state.cache import Cache
from eddy.state.spec import UNCHANGED, Changes, StateSpec
from eddy.state.store import Store

__all__ = ["Table"]

K = TypeVar("K")
V = TypeVar("V")


class Table(Cache[K, V], Generic[K, V]):
    """Maps keys to values. A key with the value None is absent. Without a store all rows remain in memory."""

    def __init__(self, spec: StateSpec, store: Store | None = None) -> None:
        self._undo: list[tuple[list[K], Sequence[V | None]]] = []
        self._changed: dict[K, None] | None = None  # the keys in `_undo`, made when first needed
        super().__init__(spec, store)

    def put_many(self, news: Mapping[K, V | None], olds: Sequence[V | None]) -> None:
        """Set the values of `news`, and delete the keys whose value is None.

        `olds` are the values that `get_many` has returned for these keys.
        """
        self._undo.append((list(news), olds))
        self._changed = None
        self._fresh.update(news)  # type: ignore[arg-type]
        if None in news.values():
            for key in [key for key, new in news.items() if new is None]:
                del self._fresh[key]

    def changes(self) -> Changes:
        """The changes of the current epoch, as rows for the store and the changelog."""
        if not self._undo:
            return UNCHANGED
        keys, olds = self._undo[0] if len(self._undo) == 1 else self._before()
        news = list(map(self._fresh.get, keys))
        if None in news:  # a key that the epoch has added and deleted has no row in the store to delete
            stored = [new is not None or old is not None for new, old in zip(news, olds, strict=True)]
            keys, news = list(compress(keys, stored)), list(compress(news, stored))
        encoded = self.spec.key.identify_many(keys)
        return Changes(self.spec.partitions_of(encoded), encoded, self._encoded(news))

    def _before(self) -> tuple[list[K], list[V | None]]:
        """Return the keys that the current epoch has changed, and their values before the epoch."""
        before: dict[K, V | None] = {}
        for changed, olds in reversed(self._undo):
            before.update(zip(changed, olds, strict=True))
        keys = list(self._changed_keys())
        return keys, [before[key] for key in keys]

    def _encoded(self, values: list[V | None]) -> list[bytes | None]:
        if None not in values:
            return [*self.spec.value.encode_many(values)]
        present = [value is not None for value in values]
        encodings = iter(self.spec.value.encode_many(list(compress(values, present))))
        return [next(encodings) if there else None for there in present]

    def commit(self) -> None:
        """End the current epoch; its changes are in the store."""
        if self._aged:
            for key in self._changed_keys():
                self._aged.pop(key, None)
        self._undo, self._changed = [], None

    def rollback(self) -> None:
        """Return to the last commit."""
        for keys, olds in reversed(self._undo):
            for key, old in zip(keys, olds, strict=True):
                if old is None:
                    self._fresh.pop(key, None)
                else:
                    self._fresh[key] = old
        self._undo, self._changed = [], None

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield every (key, value), with the changes of the current epoch, in no particular order."""
        if self._complete:
            yield from list(self._fresh.items())
            return
        changed = self._changed_keys()
        yield from [(key, self._fresh[key]) for key in changed if key in self._fresh]
        for key_bytes, data in self._rows():
            key = self.spec.key.decode(key_bytes)
            if key not in changed:
                yield key, self.spec.value.decode(data)

    def _load(self, keys: list[K]) -> dict[K, V]:
        assert self._store is not None
        encoded = self.spec.key.identify_many(keys)
        partitions = self.spec.partitions_of(encoded)
        prefixes = {partition: self.spec.prefix(partition) for partition in set(partitions)}
        stored = self._store.get_many([prefixes[p] + key for p, key in zip(partitions, encoded, strict=True)])
        decode = self.spec.value.decode
        return {key: decode(data) for key, data in zip(keys, stored, strict=True) if data is not None}

    def _changed_keys(self) -> dict[K, None]:
        if self._changed is None:
            self._changed = dict.fromkeys(key for keys, _ in self._undo for key in keys)
        return self._changed
