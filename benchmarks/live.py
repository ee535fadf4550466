"""Changes of a tree of 100,000 nodes, one at a time and 100 at a time: how long until the counts are right again."""

from benchmarks.descendants import median_of
from benchmarks.report import Section, Target, mebibytes, number
from benchmarks.runs import Figures, median, ratios
from benchmarks.trees import DIFFERENTIAL, EDDY, PLAIN, Case, measure
from benchmarks.workloads import tree_with_changes

__all__ = ["run"]

_SYSTEMS = (EDDY, DIFFERENTIAL, PLAIN)


def run(quick: bool) -> Section:
    """Half new leaves, a quarter leaves that go, a quarter subtrees that move."""
    nodes, changes, repetitions = (10_000, 1_000, 2) if quick else (100_000, 10_000, 5)
    section = Section(
        f"live: {changes:,} changes of a tree of {nodes:,} nodes; ×: p50 by differential-dataflow's",
        [
            "batches",
            "system",
            "p50 ms",
            "p99 ms",
            "changes/s",
            "×",
            "(pairs)",
            "× CPU",
            "CPU ms/batch",
            "peak MiB",
            "result",
        ],
    )
    workload, latency = tree_with_changes(nodes, changes), {}
    for size in (1, 100):
        case = Case(workload, size, repetitions)
        runs, wrong = measure(case, _SYSTEMS)
        section.runs[case.name] = runs
        section.wrong += wrong
        section.rows += [_row(size, changes, system, runs) for system in _SYSTEMS]
        latency[size] = float("nan") if any(run["wrong"] for run in runs[EDDY]) else median(runs[EDDY], "p50_ms")
    section.targets = [
        Target("live, one change at a time, p50", 0.1, "ms", {workload.name: latency[1]}),
        Target("live, 100 changes at a time, p50", 3.5, "ms", {workload.name: latency[100]}),
    ]
    return section


def _row(size: int, changes: int, system: str, runs: dict[str, list[Figures]]) -> list[str]:
    if system not in runs:
        return [str(size), system, *["–"] * 8, "not run: no cargo, or it could not build"]
    own = runs[system]
    pairs = ratios(own, runs.get(DIFFERENTIAL, []), "p50_ms")
    return [
        str(size),
        system,
        number(median(own, "p50_ms")),
        number(median(own, "p99_ms")),
        number(changes / median(own, "seconds")),
        number(median_of(pairs)),
        f"{number(min(pairs))}–{number(max(pairs))}" if pairs else "–",
        number(median_of(ratios(own, runs.get(DIFFERENTIAL, []), "cpu_seconds"))),
        number(median(own, "cpu_seconds") / changes * size * 1e3),
        mebibytes(median(own, "peak_bytes")),
        "WRONG" if any(run["wrong"] for run in own) else "ok",
    ]
