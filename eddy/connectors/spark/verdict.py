"""The verdict of a verification, for people and for those who look at the exit status."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from eddy.connectors.quiescence import Cut

__all__ = ["Compared", "Example", "Repaired", "Verdict"]


@dataclass(frozen=True, slots=True)
class Example:
    """A key that differs, with what was expected and what was found, as text."""

    key: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Compared:
    """A sink or a store: how many keys (of a stream: different records), how many differ, how many have moved on."""

    what: str
    name: str
    keys: int
    differing: int
    moved: int
    examples: list[Example]


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair did: how many corrections it wrote to which topic; or why it refused, and wrote nothing."""

    written: Mapping[str, int] = field(default_factory=dict)
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verification found. `untold` is what could not be told, `notes` what was not asked; with reasons."""

    application: str
    cut: Cut
    compared: list[Compared]
    untold: dict[str, str]
    notes: dict[str, str]
    left_out: int
    mismatches: str | None = None
    repaired: Repaired | None = None

    @property
    def differs(self) -> bool:
        """Whether something of what was compared does."""
        return any(part.differing for part in self.compared)

    @property
    def status(self) -> Literal[0, 1, 2]:
        """0 equal, 1 different, 2 could not tell, or would not repair."""
        if self.differs:
            return 2 if self.repaired and self.repaired.refused else 1
        return 2 if self.untold or any(part.moved for part in self.compared) else 0

    @property
    def word(self) -> str:
        """The verdict in a word or three."""
        return "different" if self.differs else ("equal", "", "could not tell")[self.status]

    def lines(self) -> Iterator[str]:
        """A summary for people."""
        inputs = ", ".join(f"{topic} {'/'.join(map(str, ends))}" for topic, ends in self.cut.inputs.items())
        yield f"{self.application}: {self.word}, at the cut {inputs}"
        for part in self.compared:
            moved = f", {part.moved:,} moved on since the cut and not compared" if part.moved else ""
            differ = f"{part.differing:,} differ" if part.differing else "all equal"
            yield f"{part.what} {part.name}: {part.keys:,} keys, {differ}{moved}"
            for example in part.examples:
                yield f"    {example.key}: expected {example.expected}, found {example.found}"
        for what, why in self.untold.items():
            yield f"could not tell: {what}: {why}"
        for what, why in self.notes.items():
            yield f"{what}: {why}"
        if self.left_out:
            yield f"{self.left_out:,} records were left out"
        if self.mismatches:
            yield f"all that differs: {self.mismatches}"
        if self.repaired:
            yield from self._repair(self.repaired)

    def _repair(self, repaired: Repaired) -> Iterator[str]:
        if repaired.refused:
            yield f"not repaired, nothing was written: {repaired.refused}"
        else:
            written = ", ".join(f"{count:,} to {topic}" for topic, count in repaired.written.items())
            yield f"corrections written: {written}; when the worker has taken them up, verify again"
