"""The verdict of a verification, as text for people and as an exit status."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from eddy.runtime.quiescence import Cut

__all__ = ["Compared", "Example", "Repaired", "Since", "Verdict"]

_BY_SPARK = "computed by Spark, no code of the worker's operators"
_QUICK = "quick: with the worker's own operators"
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


@dataclass(frozen=True, slots=True)
class Since:
    """The age of a cut in seconds, if known, and the number of later offsets by topic. Some offsets may have no record.

    `limit_s` is the longest time for which records may wait.
    """

    age_s: float | None
    waiting: Mapping[str, int]
    limit_s: float | None = None

    @property
    def stale(self) -> bool:
        """Whether records wait for longer than they may."""
        return bool(self.waiting) and self.limit_s is not None and (self.age_s is None or self.age_s > self.limit_s)

    @property
    def text(self) -> str:
        """The age and the lag of the cut as text."""
        age = "the cut" if self.age_s is None else f"the cut is {_duration(self.age_s)} old"
        if not self.waiting:
            return (
                f"{age}: no records have arrived since"
                if self.age_s is None
                else f"{age}; no records have arrived since"
            )
        topics = ", ".join(f"{topic} {count:,}" for topic, count in self.waiting.items())
        lag = f"up to {sum(self.waiting.values()):,} records have arrived since, and are not compared ({topics})"
        return f"{age}{':' if self.age_s is None else ';'} {lag}"


def _duration(seconds: float) -> str:
    for unit_s, unit in ((_DAY_S, "days"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


@dataclass(frozen=True, slots=True)
class Example:
    """A key that differs, with the expected and the found value as text, "nothing" for no value.

    `is_expected` and `is_found` tell whether the key has such a value. `remark` is the end of the found text, about a
    wrong partition or a wrong order.
    """

    key: str
    expected: str
    found: str
    is_expected: bool = True
    is_found: bool = True
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Compared:
    """The comparison of a sink or a store: the number of its keys, and how many of them differ or have moved.

    Of a stream, different records are counted in place of keys.

    - `near`: the number of keys whose floats are within the tolerance but not equal
    - `misplaced`: the number of differing keys with a record in a partition other than the key's
    - `missing`: the number of differing keys that are expected, and were not found in their partition
    - `extra`: the number of differing keys that are not expected
    """

    what: str
    name: str
    keys: int
    differing: int
    moved: int
    examples: list[Example]
    near: int = 0
    misplaced: int = 0
    missing: int = 0
    extra: int = 0


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of a repair: corrections written by topic, or why it refused and wrote nothing."""

    written: Mapping[str, int] = field(default_factory=dict)
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a verification.

    - `undetermined`: parts that the input cannot decide, with reasons
    - `accepted`: undetermined parts that were not to be compared, with reasons
    - `notes`: other parts that were not compared, with reasons
    - `other_files`: the differences between the given files and the files from which the states were made, which may
      explain differences of rows
    - `compacted`: by topic, the reason why an input may have lost records from before the cut, which may also explain
      differences
    - `tolerance`: the tolerance for floats
    - `since`: the time and the records since the cut
    - `quick`: the worker's own operators computed small inputs
    """

    application: str
    cut: Cut
    compared: list[Compared]
    undetermined: dict[str, str]
    notes: dict[str, str]
    left_out: int
    mismatches: str | None = None
    repaired: Repaired | None = None
    other_files: list[str] = field(default_factory=list)
    tolerance: float = 0.0
    since: Since | None = None
    quick: bool = False
    accepted: Mapping[str, str] = field(default_factory=dict)
    compacted: Mapping[str, str] = field(default_factory=dict)

    @property
    def differs(self) -> bool:
        """Whether a compared part differs."""
        return any(part.differing for part in self.compared)

    @property
    def other_inputs(self) -> bool:
        """Whether the states may have been made from other inputs, so that differences prove no error."""
        return bool(self.other_files or self.compacted)

    @property
    def status(self) -> Literal[0, 1, 2]:
        """The exit status: 0 equal, 1 different, 2 could not tell or did not repair."""
        if self.differs:
            return 2 if self.other_inputs or (self.repaired and self.repaired.refused) else 1
        stale = self.since is not None and self.since.stale
        return 2 if self.undetermined or stale or any(part.moved for part in self.compared) else 0

    @property
    def word(self) -> str:
        """The verdict in one to three words."""
        if self.differs and not self.other_inputs:
            return "different"
        return "could not tell" if self.status else "equal"

    def lines(self) -> Iterator[str]:
        """Yield the lines of a summary for people."""
        by = _QUICK if self.quick else _BY_SPARK
        yield f"{self.application}: {self.word}, at the cut {self.cut.described()}; {by}"
        if self.since is not None:
            yield self.since.text
            if self.since.stale and not self.differs:
                yield "could not tell: records wait for a worker longer than --max-age allows. Start one: eddy run …"
        for part in self.compared:
            moved = f", {part.moved:,} changed since the cut and not compared" if part.moved else ""
            differ = f"{part.differing:,} differ" if part.differing else "all equal"
            near = f", {part.near:,} of them to {self.tolerance:g}, being floats" if part.near else ""
            yield f"{part.what} {part.name}: {part.keys:,} keys, {differ}{near}{moved}"
            for example in part.examples:
                yield f"    {example.key}: expected {example.expected}, found {example.found}"
        yield from self._of_other_inputs()
        for what, why in self.undetermined.items():
            yield f"could not tell: {what}: {why}"
        for what, why in self.accepted.items():
            yield f"accepted, not compared: {what}: {why}"
        for what, why in self.notes.items():
            yield f"{what}: {why}"
        if self.left_out:
            yield f"{self.left_out:,} records were rejected"
        if self.mismatches:
            yield f"all differences: {self.mismatches}"
        if self.repaired:
            yield from self._repair(self.repaired)

    def _of_other_inputs(self) -> Iterator[str]:
        for why in self.other_files:
            yield f"could not tell: {why}" if self.differs else f"equal, though {why}"
        for topic, why in self.compacted.items():
            yield f"could not tell: topic '{topic}': {why}"

    def _repair(self, repaired: Repaired) -> Iterator[str]:
        if repaired.refused:
            yield f"not repaired, nothing was written: {repaired.refused}"
        else:
            written = ", ".join(f"{count:,} to {topic}" for topic, count in repaired.written.items())
            yield f"corrections written: {written}; when the worker has processed them, verify again"
