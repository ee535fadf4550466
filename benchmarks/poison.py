"""What records that cannot be processed cost: none, 1, 10 and 100 of them among 50,000 facts, left out."""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.cluster import MissingError, cluster
from benchmarks.report import Section, Target, number
from benchmarks.runs import Figures, Program, interleave, median, ratios

__all__ = ["run"]

_WHERE = ("function", "adder", "join")
_BAD = (0, 1, 10, 100)


@dataclass(frozen=True, slots=True)
class _Case:
    """A log made anew for each run, or a broker, and so many bad facts at a step."""

    where: str
    bad: int
    facts: int
    bootstrap: str = ""

    @property
    def name(self) -> str:
        """Unique among those that take turns."""
        return str(self.bad)

    def run(self) -> Figures:
        """Run it once."""
        with tempfile.TemporaryDirectory() as folder:
            arguments = [self.bootstrap or folder, self.where, str(self.bad), str(self.facts)]
            return Program(self.name, [sys.executable, "-m", "benchmarks.systems.poison", *arguments], lambda: "").run()


def run(quick: bool) -> Section:
    """Every step on the embedded log, and the function on a broker."""
    facts, repetitions = (10_000, 1) if quick else (50_000, 3)
    section = Section(
        f"poison: {facts:,} facts, some of which cannot be processed and are left out; ×: time by that without any",
        [
            "log",
            "what fails",
            "bad",
            "median s",
            "×",
            "(pairs)",
            "× CPU",
            "records/s",
            "failed tries",
            "epochs",
            "result",
        ],
    )
    section.notes = [
        "function, adder: the rows that fail tell their records; join: they do not, and the epoch is halved.",
    ]
    for where in _WHERE:
        _measure(section, "embedded", [_Case(where, bad, facts) for bad in _BAD], repetitions)
    try:
        with cluster() as broker:
            for where in ("function", "join"):
                cases = [_Case(where, bad, facts, broker.bootstrap) for bad in _BAD]
                interleave(cases[:1], 1)
                _measure(section, "kafka", cases, repetitions)
    except MissingError as error:
        section.notes.append(f"kafka: not run: {error}")
    return section


def _measure(section: Section, log: str, cases: Sequence[_Case], repetitions: int) -> None:
    runs = interleave(cases, repetitions)
    where = cases[0].where
    section.runs[f"{log}, {where}"] = runs
    base = runs[cases[0].name]
    for case in cases:
        own = runs[case.name]
        pairs = ratios(own, base, "seconds")
        wrong = "; ".join(dict.fromkeys(run["wrong"] for run in own if run["wrong"]))
        section.wrong += [f"{log}, {where}, {case.bad} bad: {wrong}"] if wrong else []
        middle = median([{"x": pair} for pair in pairs], "x")
        section.rows.append(
            [
                *(log, where, str(case.bad), number(median(own, "seconds")), number(middle)),
                f"{number(min(pairs))}–{number(max(pairs))}" if pairs else "–",
                number(median([{"x": pair} for pair in ratios(own, base, "cpu_seconds")], "x")),
                number(case.facts / median(own, "seconds")),
                *(number(median(own, "aborts")), number(median(own, "epochs")), wrong or "ok"),
            ]
        )
        if case.bad == 1:
            what = f"poison, {log}, {where}: 1 bad record among {case.facts:,}"
            section.targets.append(Target(what, 2, "× the time without", {"": middle}))
