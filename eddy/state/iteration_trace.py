"""A trace: the rows (key, value) of a collection inside a loop, with the changes of their weights by iteration.

In memory a key's cell maps each value to its *history*. A history has pairs (time, weight): from this time on, the
row's weight is higher by this weight. In the store every pair is a separate row (`row_layout.py`), so that one change
writes one row, however many rows its key has. Past epochs are collapsed: their changes are summed.

Invariant: `_undo` holds the changes of the current epoch, so the state before it is the current state minus these. No
weight in a history is 0, no history and no cell is empty.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from eddy.state.cache import Cache
from eddy.state.row_layout import split, stored_rows, weighted, weighted_rows
from eddy.state.spec import UNCHANGED, Changes, StateSpec
from eddy.state.store import Store

__all__ = ["History", "Trace"]

K = TypeVar("K")
V = TypeVar("V")

History = tuple[tuple[Any, int], ...]
"""Pairs (time, weight), with each time once."""


class Trace(Cache[K, dict[Any, History]], Generic[K, V]):
    """The histories of rows, by key and value. The value serde of `spec` encodes pairs (time, value)."""

    def __init__(self, spec: StateSpec, store: Store | None = None) -> None:
        self._undo: list[tuple[Sequence[tuple[K, V]], Sequence[int], Any]] = []
        self._touched: set[K] = set()
        super().__init__(spec, store)

    def integrate(self, rows: Sequence[tuple[K, V]], weights: Sequence[int], time: Any) -> None:
        """Add rows with these weights at one time. The caller must not change the arguments until the epoch ends.

        Cost: a few dict operations a row.
        Raises: TypeError for a row that cannot be hashed; the rows before it are added.
        """
        if not rows:
            return
        if not self._complete:
            self.get_many([key for key, _ in rows])
            self._touched.update(key for key, _ in rows)
        self._undo.append((rows, weights, time))
        try:
            self._add(rows, weights, time)
        except TypeError:
            added = next((place for place, row in enumerate(rows) if not _is_hashable(row)), len(rows))
            self._undo[-1] = rows[:added], weights[:added], time
            raise

    def _add(self, rows: Sequence[tuple[K, V]], weights: Sequence[int], time: Any) -> None:
        fresh = self._fresh
        for (key, value), weight in zip(rows, weights, strict=True):
            cell = fresh.get(key)
            if cell is None:
                fresh[key] = {value: ((time, weight),)}
            elif (history := cell.get(value)) is None:
                cell[value] = ((time, weight),)
            else:
                self._extend(key, cell, value, history, time, weight)

    def _extend(self, key: K, cell: dict[Any, History], value: V, history: History, time: Any, weight: int) -> None:
        for at, before in history:
            if at == time:
                rest = tuple(pair for pair in history if pair[0] != time)
                history = (*rest, (time, before + weight)) if before + weight else rest
                break
        else:
            history = (*history, (time, weight))
        if history:
            cell[value] = history
        else:
            del cell[value]
            if not cell:
                del self._fresh[key]

    def changes(self) -> Changes:
        """The changes of the current epoch, as rows for the store and the changelog."""
        if not self._undo:
            return UNCHANGED
        rows = [row for row, weight in self._added().items() if weight]
        stamped = [(time, value) for _, value, time in rows]
        news = [self.weight(*row) for row in rows]
        return weighted_rows(self.spec, [key for key, _, _ in rows], stamped, news)

    def commit(self) -> None:
        """End the current epoch; its changes are in the store."""
        self._undo = []
        if not self._complete:
            for key in self._touched:
                self._aged.pop(key, None)
            self._touched = set()

    def rollback(self) -> None:
        """Return to the last commit."""
        for (key, value, time), weight in self._added().items():
            if weight:
                cell = self._fresh.setdefault(key, {})
                self._extend(key, cell, value, cell.get(value, ()), time, -weight)
        self._undo, self._touched = [], set()

    def changed_keys(self) -> set[K]:
        """The keys of rows that the current epoch has changed."""
        return {key for rows, _, _ in self._undo for key, _ in rows}

    def items(self) -> Iterator[tuple[tuple[K, Any, V], int]]:
        """Yield every ((key, time, value), weight), with the changes of the current epoch, in no particular order."""
        if self._complete:
            for key, cell in list(self._fresh.items()):
                for value, history in cell.items():
                    for time, weight in history:
                        yield (key, time, value), weight
            return
        added = self._added()
        for key, value, time in added:
            if weight := self.weight(key, value, time):
                yield (key, time, value), weight
        for row_key, data in self._rows():
            key_data, rest = split(row_key)
            original, weight = weighted(rest, data)
            time, value = self.spec.value.decode(original)
            key = self.spec.key.decode(key_data)
            if (key, value, time) not in added:
                yield (key, time, value), weight

    def weight(self, key: K, value: V, time: Any) -> int:
        """Return the weight that a row has at a time, by its history; 0 if it has no history.

        The key must have been read or changed in this epoch, so that its cell is in memory.
        """
        history = self._fresh.get(key, {}).get(value, ())
        return next((weight for at, weight in history if at == time), 0)

    def _added(self) -> dict[tuple[K, V, Any], int]:
        """Return the changes of weights in the current epoch, by (key, value, time)."""
        added: dict[tuple[K, V, Any], int] = {}
        for rows, weights, time in self._undo:
            for (key, value), weight in zip(rows, weights, strict=True):
                added[key, value, time] = added.get((key, value, time), 0) + weight
        return added

    def _load(self, keys: list[K]) -> dict[K, dict[Any, History]]:
        assert self._store is not None
        loaded: dict[K, dict[Any, History]] = {}
        for key, rows in stored_rows(self.spec, self._store, keys):
            cell: dict[Any, History] = {}
            for rest, data in rows:
                original, weight = weighted(rest, data)
                time, value = self.spec.value.decode(original)
                cell[value] = (*cell.get(value, ()), (time, weight))
            if cell:
                loaded[key] = cell
        return loaded

    def _changed_keys(self) -> set[K]:
        return self._touched


def _is_hashable(row: tuple[Any, Any]) -> bool:
    try:
        hash(row)
    except TypeError:
        return False
    return True
