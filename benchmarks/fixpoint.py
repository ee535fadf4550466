"""Least depths of a graph that changes, cycles and deletes and all; and what a change costs by the size of a tree."""

import sys
import tempfile
from pathlib import Path

from benchmarks.descendants import median_of
from benchmarks.graphs import Graph, graph
from benchmarks.report import Section, Target, number
from benchmarks.runs import Figures, Program, interleave, median, ratios
from benchmarks.trees import DIFFERENTIAL, differential
from benchmarks.workloads import read_counts

__all__ = ["run"]

_EDDY, _COUNTS, _NESTED = "eddy", "eddy, support-counts", "eddy, nested time"
_WIDTH = 40


def run(quick: bool) -> Section:
    """A graph of 20,000 nodes in batches of 20, one of 1,000 nodes a swap at a time, and wide trees."""
    section = Section(
        "fixpoint: least depths under inserts and deletes, one thread; ×: p50 by differential-dataflow's",
        ["graph", "what", "system", "p50 ms", "p99 ms", "all s", "epochs/s", "×", "(pairs)", "× CPU", "result"],
    )
    small = (2_000, 4_000, 200) if quick else (20_000, 40_000, 2_000)
    repetitions = 2 if quick else 5
    found = {}
    for what, workload in (
        ("circuit", graph(*small, 20, 10)),
        ("operator", graph(1_000, 2_000, 2_000 if quick else 20_000, 2, 1, swaps=True)),
    ):
        runs = _measure(workload, what, repetitions)
        section.runs[f"{what}, {workload.name}"] = runs
        section.wrong += [
            f"{workload.name}: {name}: {r['wrong']}" for name, rs in runs.items() for r in rs if r["wrong"]
        ]
        section.rows += [
            _row(workload, what, system, runs)
            for system in (_EDDY, _COUNTS, _NESTED, DIFFERENTIAL)
            if (system, what) != (_NESTED, "operator")
        ]
        found[what] = runs
    sizes = [1_000, 5_000] if quick else [5_000, 10_000, 20_000, 50_000, 100_000, 200_000]
    costs = {nodes: _churn(nodes) for nodes in sizes}
    section.runs["churn"] = {str(nodes): [figures] for nodes, figures in costs.items()}
    section.notes += ["a leaf of a wide tree moves, max_depth 16: µs a change, by the nodes of the tree", *_plot(costs)]
    ours, theirs = found["circuit"][_EDDY], found["circuit"].get(DIFFERENTIAL, [])
    swaps = found["operator"][_EDDY]
    section.targets = [
        Target("fixpoint, batches of 20, all", 1, "× differential-dataflow",
               {"": median_of(ratios(ours, theirs, "seconds"))}),
        Target("the same by nested time, all", 4, "× differential-dataflow",
               {"": median_of(ratios(found["circuit"][_NESTED], theirs, "seconds"))}),
        Target("fixpoint, batches of 20, p50", 0.84, "ms", {"": median(ours, "p50_ms")}),
        Target("fixpoint, a swap an epoch, at the operator", 50_000, "swaps/s",
               {"": 10_000 * (0.1 if quick else 1) / median(swaps, "seconds")}, at_least=True),
        Target("fixpoint, a change's cost, largest tree by smallest", 1.5, "×",
               {"": costs[sizes[-1]]["p50_ms"] / costs[sizes[0]]["p50_ms"]}),
    ]  # fmt: skip
    return section


def _measure(workload: Graph, what: str, repetitions: int) -> dict[str, list[Figures]]:
    with tempfile.TemporaryDirectory() as folder:
        out, sums = Path(folder) / "depths", Path(folder) / "sums"
        files = [str(workload.records), str(out), str(sums)]
        eddy = [sys.executable, "-m", "benchmarks.systems.reach", what]
        commands = {
            _EDDY: [*eddy, "affected", str(workload.batch), *files],
            _COUNTS: [*eddy, "counts", str(workload.batch), *files],
        }
        if what == "circuit":
            commands[_NESTED] = [*eddy, "nested", str(workload.batch), *files]
        if (peer := differential("reach")) is not None:
            commands[DIFFERENTIAL] = [str(peer), *files, str(workload.batch)]
        programs = [Program(name, command, lambda: _check(workload, out, sums)) for name, command in commands.items()]
        return interleave(programs, repetitions)


def _check(workload: Graph, out: Path, sums: Path) -> str:
    """Every depth at the end, and the checksum after every batch."""
    got, want = read_counts(out), read_counts(workload.expected)
    same = sums.read_text() == workload.sums.read_text()
    out.unlink()
    sums.unlink()
    differing = sum(1 for node in want.keys() | got.keys() if want.get(node) != got.get(node))
    if differing:
        return f"{differing} of {len(want)} depths differ"
    return "" if same else "a checksum on the way differs"


def _churn(nodes: int) -> Figures:
    command = [sys.executable, "-m", "benchmarks.systems.reach", "churn", "affected", str(nodes)]
    runs = [Program(f"churn {nodes}", command, lambda: "").run() for _ in range(3)]
    return min(runs, key=lambda figures: figures.get("p50_ms", float("inf")))


def _plot(costs: dict[int, Figures]) -> list[str]:
    most = max(figures["p50_ms"] for figures in costs.values())
    return [
        f"{nodes:>9,}  p50 {figures['p50_ms'] * 1e3:5.1f}  p99 {figures['p99_ms'] * 1e3:6.1f}  "
        f"{'█' * round(_WIDTH * figures['p50_ms'] / most)}"
        for nodes, figures in costs.items()
    ]


def _row(workload: Graph, what: str, system: str, runs: dict[str, list[Figures]]) -> list[str]:
    where = what if system != DIFFERENTIAL else "dataflow"
    if system not in runs:
        return [workload.name, where, system, *["–"] * 7, "not run: no cargo, or it could not build"]
    own, peer = runs[system], runs.get(DIFFERENTIAL, [])
    pairs = ratios(own, peer, "p50_ms")
    return [
        workload.name,
        where,
        system,
        number(median(own, "p50_ms")),
        number(median(own, "p99_ms")),
        number(median(own, "seconds")),
        number(workload.changes / workload.batch / median(own, "seconds")),
        number(median_of(pairs)),
        f"{number(min(pairs))}–{number(max(pairs))}" if pairs else "–",
        number(median_of(ratios(own, peer, "cpu_seconds"))),
        "WRONG" if any(run["wrong"] for run in own) else "ok",
    ]
