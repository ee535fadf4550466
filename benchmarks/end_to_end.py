"""WordNet through the embedded log on disk: topic in, RocksDB and changelogs, topic out, exactly once."""

import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.embedded import COUNTS, create_topics, produce, read_all
from benchmarks.report import Section, Target, mebibytes, number
from benchmarks.runs import Figures, Program, interleave, median, ratios
from benchmarks.systems.process import read_rows
from benchmarks.workloads import Workload, read_counts, tree
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition

__all__ = ["run"]

_WORKER = [sys.executable, "-m", "benchmarks.systems.worker", "run"]
_PLAIN = [sys.executable, "-m", "benchmarks.systems.plain_log"]


def run(quick: bool) -> Section:
    """With the topic filled before, in 1 and in 4 partitions, and produced by another process meanwhile."""
    workload = tree("random", 10_000) if quick else tree("wordnet")
    section = Section(
        f"end-to-end: {workload.name} through the embedded log on disk; ×: time by the plain program's",
        [
            "topic",
            "system",
            "median s",
            "min s",
            "records/s",
            "epochs",
            "written",
            "×",
            "(pairs)",
            "CPU s",
            "peak MiB",
            "result",
        ],
    )
    rates = {}
    for partitions in (1, 4):
        case = _case(partitions)
        runs = _measure(workload, partitions, 2 if quick else 5)
        section.runs[case] = runs
        for system, own in runs.items():
            section.wrong += [f"{case}: {system}: {run['wrong']}" for run in own if run["wrong"]]
            section.rows.append(_row(case, system, own, runs["plain program"]))
        if not any(run["wrong"] for run in runs["eddy"]):
            rates[case] = (workload.nodes - 1) / median(runs["eddy"], "seconds")
    section.targets = [Target("end-to-end, topic filled before", 50_000, "records/s", rates, at_least=True)]
    section.notes = [
        "from the first poll to quiescence, state in RocksDB, with changelogs; written: records in the output topic.",
        "live: a process produces meanwhile, 1,000 records a transaction; from its first one on.",
        "plain program: the same records in, out and into two changelogs, in the same transactions; no state on disk.",
    ]
    return section


def _case(partitions: int) -> str:
    return f"{partitions} partition{'s' if partitions > 1 else ''}"


def _measure(workload: Workload, partitions: int, repetitions: int) -> dict[str, list[Figures]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        empty, filled = folder / "empty", folder / "filled"
        for path, rows in ((empty, []), (filled, read_rows(str(workload.records)))):
            log = LocalLog(path)
            create_topics(log, partitions)
            produce(log, rows, partitions)
            log.close()
        log_dir, state = folder / "log", folder / "state"
        fresh, live = [*_WORKER, str(log_dir), str(state)], ["--live", str(workload.records)]
        programs = [
            _OnCopy("eddy", fresh, filled, log_dir, workload, partitions),
            _OnCopy("plain program", [*_PLAIN, str(log_dir)], filled, log_dir, workload, partitions),
            _OnCopy("eddy, live", fresh + live, empty, log_dir, workload, partitions),
        ]
        return interleave(programs, repetitions)


class _OnCopy(Program):
    """A program that runs on a copy of a log of its own, whose output topic is checked."""

    def __init__(
        self, name: str, command: list[str], template: Path, log_dir: Path, workload: Workload, partitions: int
    ) -> None:
        super().__init__(name, command, lambda: "")
        self.template, self.log_dir, self.workload, self.partitions = template, log_dir, workload, partitions

    def run(self) -> Figures:
        """Run it once, on a fresh copy."""
        for path in (self.log_dir, self.log_dir.parent / "state"):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.template, self.log_dir)
        figures = super().run()
        if figures["wrong"]:
            return figures
        log = LocalLog(self.log_dir)
        start = {TopicPartition(COUNTS, partition): 0 for partition in range(self.partitions)}
        written = list(read_all(log, start))
        log.close()
        got = {node: str(count) for node, count in dict(written).items() if count}
        want = read_counts(self.workload.expected)
        differing = sum(1 for node in want.keys() | got.keys() if want.get(node) != got.get(node))
        wrong = f"{differing} of {len(want)} counts differ" if differing else ""
        return figures | {"written": len(written), "wrong": wrong}


def _row(case: str, system: str, own: list[Figures], floor: list[Figures]) -> list[str]:
    pairs = ratios(own, floor, "seconds")
    seconds = median(own, "seconds")
    return [
        case,
        system,
        number(seconds),
        number(min((run["seconds"] for run in own if "seconds" in run), default=float("nan"))),
        number(median(own, "records") / seconds),
        number(median(own, "epochs")),
        number(median(own, "written")),
        number(median([{"x": pair} for pair in pairs], "x")),
        f"{number(min(pairs))}–{number(max(pairs))}" if pairs else "–",
        number(median(own, "cpu_seconds")),
        mebibytes(median(own, "peak_bytes")),
        "WRONG" if any(run["wrong"] for run in own) else "ok",
    ]
