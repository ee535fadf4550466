"""An arrangement of encoded values with summaries: objects computed from the values of a key, or from a part of them.

The rows, in memory and in the store, are the same as in an arrangement. A summary, such as a set or a sorted list, is
in memory only. It is computed from the rows when it is first read, and then updated together with them.

Invariant: between epochs every summary in memory equals the one that `summarize` would make of the rows.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from eddy.state.arrangement import pairs_of
from eddy.state.ordered_arrangement import OrderedArrangement
from eddy.state.spec import StateSpec
from eddy.state.store import Store

__all__ = ["Part", "SummarizedArrangement"]

K = TypeVar("K")
S = TypeVar("S")

Part = tuple[bytes, bytes] | None
"""A range (first, last) of a key's values: first ≤ value < last, compared as bytes. None: all values of the key."""


class SummarizedArrangement(OrderedArrangement[K, bytes], Generic[K, S]):
    """Bags of bytes by key, with summaries of parts of a key's values. Parts with a summary do not overlap.

    `summarize` makes a summary of values with their weights.
    """

    def __init__(
        self, spec: StateSpec, store: Store | None, summarize: Callable[[Iterable[tuple[bytes, int]]], S]
    ) -> None:
        self._summarize = summarize
        self._summaries: dict[K, dict[Part, S]] = {}
        self._lent: set[K] = set()
        super().__init__(spec, store, bytes)

    def summary(self, key: K, part: Part = None) -> S:
        """Return the summary of a part of a key's values.

        A caller that changes rows of the part has to update the summary in the same epoch.
        Cost: constant if the summary is in memory, else the cost of making it.
        """
        self._lent.add(key)
        parts = self._summaries.setdefault(key, {})
        if part not in parts:
            values = pairs_of(self.get(key)) if part is None else self.between(key, *part)
            parts[part] = self._summarize(values)
        return parts[part]

    def replace(self, key: K, parts: Mapping[Part, S | None]) -> None:
        """Set the summaries of some parts of a key in the current epoch; None drops a part's summary."""
        self._lent.add(key)
        there = self._summaries.setdefault(key, {})
        for part, summary in parts.items():
            if summary is None:
                there.pop(part, None)
            else:
                there[part] = summary

    def commit(self) -> None:
        """End the current epoch. Drops the summaries of keys that have no rows any more."""
        for key in self._lent:
            if key not in self._fresh:
                self._summaries.pop(key, None)
        self._lent = set()
        super().commit()

    def rollback(self) -> None:
        """Return to the last commit. Summaries that the epoch has read or set are dropped, and made anew later."""
        for key in self._lent:
            self._summaries.pop(key, None)
        self._lent = set()
        super().rollback()

    def age(self) -> int:
        """Drop the older half of the cells, with their summaries. Returns the number of cells dropped."""
        dropped = super().age()
        self._summaries = {key: parts for key, parts in self._summaries.items() if key in self._aged}
        return dropped

    def forget(self) -> None:
        """Empty the memory after another writer has changed the store."""
        super().forget()
        self._summaries, self._lent = {}, set()
