"""All descendants of every node, in memory, on one thread: eddy's circuit and its peers, no log."""

from benchmarks.report import Section, Target, mebibytes, number
from benchmarks.runs import Figures, median, ratios
from benchmarks.trees import DIFFERENTIAL, EDDY, EDDY_STR, PLAIN, Case, measure
from benchmarks.workloads import tree

__all__ = ["run"]

_BATCH = 1_000
_SYSTEMS = (EDDY, DIFFERENTIAL, PLAIN, EDDY_STR)


def run(quick: bool) -> Section:
    """Random trees and WordNet, records in random order, in one batch and in batches of 1,000."""
    section = Section(
        "descendants: in memory, one thread; ×: time by differential-dataflow's, the median of the pairs (least–most)",
        [
            "workload",
            "system",
            "median s",
            "min s",
            "records/s",
            "×",
            "(pairs)",
            "× CPU",
            "peak MiB",
            "bytes/node",
            "result",
        ],
    )
    one_batch, batches, memory = {}, {}, {}
    for case in cases(quick):
        runs, wrong = measure(case, _SYSTEMS)
        section.runs[case.name] = runs
        section.wrong += wrong
        for system in _SYSTEMS:
            section.rows.append(_row(case, system, runs))
        ours = runs[EDDY]
        if not any(run["wrong"] for run in ours):
            against = median_of(ratios(ours, runs.get(DIFFERENTIAL, []), "seconds"))
            (batches if case.batch else one_batch)[case.workload.name] = against
            memory[case.name] = bytes_a_node(case, ours)
    section.notes = [
        "bytes/node: peak resident memory of the run less that before it, the rows loaded, by the number of nodes.",
        "plain dict: a program written for this one question; strings are compared with the peer's numbers.",
    ]
    section.targets = [
        Target("descendants, one batch", 3, "× differential-dataflow", one_batch),
        Target("descendants, batches of 1,000", 1, "× differential-dataflow", batches),
        Target("descendants, memory beyond the rows", 400, "bytes a node", memory),
    ]
    return section


def cases(quick: bool) -> list[Case]:
    """What is measured; quick: one small tree."""
    if quick:
        return [Case(tree("random", 10_000), batch, 2) for batch in (0, _BATCH)]
    sizes = [(tree("random", 100_000), 5, 5), (tree("wordnet"), 5, 5), (tree("random", 1_000_000), 3, 2)]
    return [
        Case(workload, batch, repetitions)
        for workload, *both in sizes
        for batch, repetitions in zip((0, _BATCH), both, strict=True)
    ]


def bytes_a_node(case: Case, runs: list[Figures]) -> float:
    """The memory that the run added, by node."""
    added = [run | {"added": run["peak_bytes"] - run["before_bytes"]} for run in runs if "peak_bytes" in run]
    return median(added, "added") / case.workload.nodes


def median_of(values: list[float]) -> float:
    """The median; NaN of nothing."""
    return median([{"x": value} for value in values], "x")


def _row(case: Case, system: str, runs: dict[str, list[Figures]]) -> list[str]:
    if system not in runs:
        return [case.name, system, *["–"] * 8, "not run: no cargo, or it could not build"]
    own, seconds = runs[system], median(runs[system], "seconds")
    pairs = ratios(own, runs.get(DIFFERENTIAL, []), "seconds")
    return [
        case.name,
        system,
        number(seconds),
        number(min((run["seconds"] for run in own if "seconds" in run), default=float("nan"))),
        number((case.workload.nodes - 1) / seconds),
        number(median_of(pairs)),
        f"{number(min(pairs))}–{number(max(pairs))}" if pairs else "–",
        number(median_of(ratios(own, runs.get(DIFFERENTIAL, []), "cpu_seconds"))),
        mebibytes(median(own, "peak_bytes")),
        number(bytes_a_node(case, own)),
        "WRONG" if any(run["wrong"] for run in own) else "ok",
    ]
