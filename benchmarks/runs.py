"""Run programs in turn, A B A B …, each in a process of its own, and check what each of them wrote."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.processes import busy_seconds, cpu_seconds, tree
from benchmarks.workloads import ROOT

__all__ = ["Figures", "Program", "busy_cores", "interleave", "median", "ratios"]

Figures = dict[str, Any]
"""What a program reported: seconds, memory in bytes, latencies; `wrong` says what its result lacks, or ''."""


class Runnable(Protocol):
    """What can be measured again and again."""

    @property
    def name(self) -> str:
        """What tables call it."""

    def run(self) -> Figures:
        """Run it once."""


@dataclass
class Program:
    """A command that prints a line of JSON last, and the check of what it wrote: '' where that is right."""

    name: str
    command: Sequence[str]
    check: Callable[[], str]
    timeout_s: float = 900.0

    def run(self) -> Figures:
        """Run it once."""
        begun = time.perf_counter()
        try:
            done = subprocess.run(
                self.command,
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=self.timeout_s,
            )
        except subprocess.TimeoutExpired:
            return {"wrong": f"not done after {self.timeout_s:.0f} s"}
        if done.returncode:
            return {"wrong": f"exit status {done.returncode}: {done.stderr.strip()[-400:]}"}
        figures: Figures = json.loads(done.stdout.splitlines()[-1])
        return figures | {"wall_seconds": time.perf_counter() - begun, "wrong": self.check()}


def system(module: str, what: str, *arguments: int) -> Program:
    """A program of `benchmarks/systems` that checks its own results, called by what it measures."""
    return Program(what, [sys.executable, "-m", f"benchmarks.systems.{module}", what, *map(str, arguments)], lambda: "")


def interleave(programs: Sequence[Runnable], repetitions: int) -> dict[str, list[Figures]]:
    """Run every program `repetitions` times, in turn, so that a noisy moment meets all of them."""
    found: dict[str, list[Figures]] = {program.name: [] for program in programs}
    for _ in range(repetitions):
        for program in programs:
            found[program.name].append(program.run())
    return found


def median(runs: Sequence[Figures], figure: str) -> float:
    """The median of one figure over the runs that have it; NaN where none has."""
    values = [run[figure] for run in runs if figure in run]
    return statistics.median(values) if values else float("nan")


def ratios(ours: Sequence[Figures], theirs: Sequence[Figures], figure: str) -> list[float]:
    """Our figure by theirs, pair by pair."""
    return [a[figure] / b[figure] for a, b in zip(ours, theirs, strict=False) if figure in a and figure in b]


def busy_cores(ours: Sequence[int] = ()) -> Callable[[], float]:
    """Begin to watch; the function returned tells how many cores others kept busy since.

    Others are all but this process, its children, and those of `ours`.
    """

    def spent() -> tuple[float, float, float]:
        return time.monotonic(), busy_seconds(), cpu_seconds([*tree(os.getpid()), *ours], waited_for=True)

    start = spent()

    def others() -> float:
        wall, busy, own = (now - then for now, then in zip(spent(), start, strict=True))
        return max(0.0, (busy - own) / wall) if wall else 0.0

    return others
