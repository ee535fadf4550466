"""Backfill and verify on Spark, beside a worker that replays the same history and Spark's own means.

spark            the targets, on trees of 100,000 and 1,000,000 nodes and one that is 205 levels deep
spark-crossing   from where on a backfill is faster than the worker; up to an hour
"""

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.embedded import COUNTS, create_topics, produce, read_all
from benchmarks.report import Section, Target, number
from benchmarks.runs import Figures, Program
from benchmarks.systems.process import read_rows
from benchmarks.workloads import Workload, read_counts, tree
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition

__all__ = ["crossing", "run"]

_CORES = "2"
_PYTHON = [sys.executable, "-m"]
_PATIENCE_S = 3_600.0
_OURS = ("backfill", "verify")
_STEP_BY_STEP = "step by step"
_PEERS = {"WITH RECURSIVE": "recursive", "DataFrame loop": "loop"}
_COLUMNS = ["tree", "system", "s", "CPU s", "records/s", "peak MiB", "result"]
_NOTES = [
    "one run of each, the session's start not counted; CPU s and peak MiB are of all processes; heap: up to 4 GiB.",
    "step by step: --one-task 0, by Spark's own joins and groupings.",
]


def run(quick: bool) -> Section:
    """Measure what the targets ask for."""
    section = Section(f"spark: the example, embedded log, 1 partition, local[{_CORES}]", _COLUMNS, notes=[*_NOTES])
    small, large = ("random", 10_000 if quick else 100_000), ("random", 20_000 if quick else 1_000_000)
    deep = ("deep", 1_000 if quick else 5_000)
    found: dict[str, Mapping[str, Figures]] = {}
    for shape, nodes in (small, large, deep):
        workload = tree(shape, nodes)
        peers = _PEERS if shape == "random" else {}
        found[workload.name] = _measure(section, workload, ["worker", *_OURS, *peers], steps=True)
    one, many, levels = (found[f"{shape}-{nodes}"] for shape, nodes in (small, large, deep))
    s = {name: {way: figures["seconds"] for way, figures in ways.items()} for name, ways in found.items()}
    by, all_by, levels_by = (s[f"{shape}-{nodes}"] for shape, nodes in (small, large, deep))
    nan = float("nan")
    quickest, steps = by.get("backfill", nan), f"backfill {_STEP_BY_STEP}"
    section.targets = [
        Target("backfill by WITH RECURSIVE", 1, "×", {"100,000": quickest / by.get("WITH RECURSIVE", nan)}),
        Target("backfill of 1,000,000", 90, "s", {w: all_by.get(w, nan) for w in ("backfill", steps)}),
        Target("backfill of 205 levels", 90, "s", {w: levels_by.get(w, nan) for w in ("backfill", steps)}),
        Target(
            "CPU time step by step by Spark's own best",
            1.5,
            "×",
            {"100,000": _by_peers(one), "1,000,000": _by_peers(many)},
        ),
        Target("CPU time step by step of 205 levels", 60, "s", {"5,000": _cpu(levels.get(steps, {}))}),
        Target(
            "growth of the time by growth of the input", 1, "×", {"10 ×": all_by.get("backfill", 0) / quickest / 10}
        ),
        Target(
            "verify by backfill", 1.3, "×", {n: f.get("verify", nan) / f.get("backfill", nan) for n, f in s.items()}
        ),
    ]
    return section


def crossing(quick: bool) -> Section:
    """Measure worker, backfill and verify on larger and larger trees."""
    section = Section("spark-crossing: a worker beside a backfill of the same history", _COLUMNS, notes=[*_NOTES])
    sizes = (10_000, 30_000) if quick else (300_000, 1_000_000, 3_000_000, 10_000_000)
    found = {nodes: _measure(section, tree("random", nodes), ["worker", *_OURS], steps=False) for nodes in sizes}
    for what in _OURS:
        pairs = [
            (nodes, f[what]["seconds"], f["worker"]["seconds"])
            for nodes, f in found.items()
            if {what, "worker"} <= f.keys()
        ]
        faster = [nodes for nodes, own, worker in pairs if own < worker]
        said = f"faster than the worker at {', '.join(f'{n:,}' for n in faster)}" if faster else "never faster here"
        section.notes.append(f"{what}: {said}")
    return section


def _by_peers(found: Mapping[str, Figures]) -> float:
    """CPU time of a backfill step by step, divided by the least of Spark's own means."""
    return _cpu(found.get(f"backfill {_STEP_BY_STEP}", {})) / min(_cpu(found.get(peer, {})) for peer in _PEERS)


def _measure(section: Section, workload: Workload, systems: list[str], steps: bool) -> Mapping[str, Figures]:
    """Run systems over one workload, into the section. Returns the figures of right results, by system."""
    found: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory() as name:
        for system in systems:
            for label, program in _programs(system, workload, Path(name), steps):
                figures = program.run()
                _add(section, workload, label, figures)
                if not figures["wrong"]:
                    found[label] = figures
    return found


def _programs(system: str, workload: Workload, folder: Path, steps: bool) -> list[tuple[str, Program]]:
    """The programs of one system. A verification reads what the backfill wrote."""
    if system in _PEERS:
        command = ["recursive" if system == "WITH RECURSIVE" else "loop", str(workload.records), _CORES]
        return [(system, _spark(system, [*command, str(workload.expected)]))]
    if system == "verify":
        command = ["verify", str(folder / "backfill"), _CORES]
        ways = [("verify", command), *([(f"verify {_STEP_BY_STEP}", [*command, "0"])] if steps else [])]
        return [(label, _spark(label, given)) for label, given in ways]
    ways = [(system, system, [])]
    if system == "backfill" and steps:
        ways.append((f"backfill {_STEP_BY_STEP}", "steps", ["0"]))
    programs = []
    for label, place, more in ways:
        log = _filled(folder / place, workload)
        check = _checking(log, workload)
        if system == "worker":
            command = [*_PYTHON, "benchmarks.systems.worker", "run", str(log), str(folder / "state")]
            programs.append((label, Program(label, command, check, _PATIENCE_S)))
        else:
            programs.append((label, _spark(label, ["backfill", str(log), _CORES, *more], check)))
    return programs


def _spark(name: str, arguments: list[str], check: Callable[[], str] = lambda: "") -> Program:
    return Program(name, [*_PYTHON, "benchmarks.systems.spark", *arguments], check, _PATIENCE_S)


def _add(section: Section, workload: Workload, system: str, figures: Figures) -> None:
    if figures.get("status", 0) or not figures.get("right", True):
        figures["wrong"] = f"exit status {figures.get('status')}" if "status" in figures else "its counts are wrong"
    section.runs[f"{workload.name}, {system}"] = [figures]
    ours = system not in _PEERS
    section.wrong += [f"{workload.name}, {system}: {figures['wrong']}"] if figures["wrong"] and ours else []
    seconds = figures.get("seconds", float("nan"))
    peak = figures.get("tree_peak_bytes", figures.get("peak_bytes", float("nan"))) / 2**20
    result = f"FAILED: {figures['wrong'][:80]}" if figures["wrong"] else "ok"
    row = [
        workload.name,
        system,
        number(seconds),
        number(_cpu(figures)),
        number(workload.nodes / seconds),
        number(peak),
    ]
    section.rows.append([*row, result])


def _cpu(figures: Figures) -> float:
    """Processor seconds of all processes of a system."""
    found: float = figures.get("tree_cpu_seconds", figures.get("cpu_seconds", float("nan")))
    return found


def _filled(place: Path, workload: Workload) -> Path:
    """A log with the workload's records."""
    log = LocalLog(place)
    create_topics(log, 1)
    produce(log, read_rows(str(workload.records)), 1)
    log.close()
    return place


def _checking(place: Path, workload: Workload) -> Callable[[], str]:
    def check() -> str:
        log = LocalLog(place)
        read = dict(read_all(log, {TopicPartition(COUNTS, 0): 0}))
        written = {node: str(count) for node, count in read.items() if count}
        log.close()
        want = {node: count for node, count in read_counts(workload.expected).items() if int(count)}
        return "" if written == want else f"{len(written)} counts, {len(want)} expected, or values differ"

    return check
