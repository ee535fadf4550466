"""What a benchmark hands back, and how it is printed: tables, targets, JSON."""

import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Section", "Target", "machine", "print_section", "print_targets"]


@dataclass(frozen=True, slots=True)
class Target:
    """A figure to reach on every workload in `measured`: at most `limit`, or at least."""

    what: str
    limit: float
    unit: str
    measured: Mapping[str, float]
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether all of `measured` reach it; None where nothing was measured."""
        values = [value for value in self.measured.values() if not math.isnan(value)]
        if not values:
            return None
        return all(value >= self.limit if self.at_least else value <= self.limit for value in values)

    def line(self) -> list[str]:
        """What, how much, what was measured, whether met."""
        sign = "≥" if self.at_least else "≤"
        values = ", ".join(f"{name} {number(value)}" for name, value in self.measured.items() if not math.isnan(value))
        verdict = {True: "met", False: "MISSED", None: "not measured"}[self.met]
        return [verdict, self.what, f"{sign} {number(self.limit)} {self.unit}", values]


@dataclass(slots=True)
class Section:
    """One benchmark's result: rows to print, notes, targets, and the single runs for `--json`.

    `others_cores`: how many cores others kept busy meanwhile, where the benchmark knows better than who called it.
    """

    title: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    runs: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    others_cores: float | None = None

    def as_json(self) -> dict[str, Any]:
        """All of it, for a machine."""
        targets = [
            {"what": t.what, "limit": t.limit, "unit": t.unit, "measured": dict(t.measured), "met": t.met}
            for t in self.targets
        ]
        return {"title": self.title, "runs": self.runs, "targets": targets, "notes": self.notes, "wrong": self.wrong}


def number(value: float) -> str:
    """Three significant digits, with thousands set apart."""
    if math.isnan(value):
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def mebibytes(size: float) -> str:
    """Bytes as MiB."""
    return number(size / (1 << 20))


def machine() -> str:
    """The line that every figure has to be read with."""
    return (
        f"machine: {os.cpu_count()} cores, {platform.machine()}, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )


def print_section(section: Section) -> None:
    """A title, the table, and what is to be said about it."""
    print(f"\n{section.title}")
    print_table([list(section.columns), *section.rows])
    for note in section.notes:
        print(f"  {note}")
    for wrong in section.wrong:
        print(f"  WRONG: {wrong}")


def print_targets(targets: Sequence[Target]) -> None:
    """A line a target."""
    if targets:
        print("\ntargets")
        print_table([["", "what", "target", "measured"], *(target.line() for target in targets)])


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Columns aligned: numbers to the right, words to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = [all(cell[:1] in "0123456789–-" for cell in column[1:]) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ]
        print("  " + "  ".join(cells).rstrip())
