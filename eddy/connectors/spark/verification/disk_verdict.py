"""The verdict of a comparison of stores on disk with their changelogs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from eddy.connectors.spark.verification.verdict import Compared

__all__ = ["DiskVerdict", "StoreVerdict"]


@dataclass(frozen=True, slots=True)
class StoreVerdict:
    """The states of one store.

    `undetermined` has states that cannot be compared, `notes` states that need no comparison, both with reasons.
    In `compared`, `moved` counts rows that are replaced when a worker starts.
    """

    path: Path
    compared: list[Compared] = field(default_factory=list)
    undetermined: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def reasons(self) -> Iterator[tuple[str, str]]:
        """Yield the parts that could not be decided, with reasons; the directory itself if no state is in it."""
        yield from self.undetermined.items()
        if not (self.compared or self.undetermined):
            yield f"directory '{self.path}'", "no state is there to compare"


@dataclass(frozen=True, slots=True)
class DiskVerdict:
    """The verdict about all stores of an application in one folder."""

    application: str
    stores: list[StoreVerdict]

    @property
    def status(self) -> Literal[0, 1, 2]:
        """The exit status: 0 equal, 1 different, 2 undetermined, or a store in which no state was compared."""
        if any(part.differing for store in self.stores for part in store.compared):
            return 1
        return 2 if any(True for store in self.stores for _ in store.reasons()) else 0

    @property
    def word(self) -> str:
        """The verdict in one to three words."""
        return ("equal", "different", "could not tell")[self.status]

    def lines(self) -> Iterator[str]:
        """Yield the lines of a summary for people."""
        yield f"{self.application}: {self.word}, states on disk beside their changelogs"
        for store in self.stores:
            yield f"in {store.path}:"
            for part in store.compared:
                differ = f"{part.differing:,} differ" if part.differing else "all equal"
                newer = f", {part.moved:,} changed since and replaced when a worker starts" if part.moved else ""
                yield f"store {part.name}: {part.keys:,} rows, {differ}{newer}"
                for example in part.examples:
                    yield f"    {example.key}: expected {example.expected}, found {example.found}"
            for what, why in store.reasons():
                yield f"could not tell: {what}: {why}"
            for what, why in store.notes.items():
                yield f"{what}: {why}"
