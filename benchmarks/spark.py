"""How long a backfill on Spark takes against a worker that replays the same history, and how long a verification."""

import sys
import tempfile
from pathlib import Path

from benchmarks.embedded import COUNTS, create_topics, produce, read_all
from benchmarks.report import Section, number
from benchmarks.runs import Figures, Program
from benchmarks.systems.process import read_rows
from benchmarks.workloads import Workload, read_counts, tree
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition

__all__ = ["run"]

_CORES = "2"
_PYTHON = [sys.executable, "-m"]


def run(quick: bool) -> Section:
    """One run of each: a session's start is not counted, a job of minutes is not repeated."""
    section = Section(
        f"spark: the example on random trees, embedded log, 1 partition, local[{_CORES}]",
        ["nodes", "system", "s", "records/s", "result"],
    )
    for nodes in (10_000,) if quick else (100_000, 1_000_000):
        workload = tree("random", nodes)
        with tempfile.TemporaryDirectory() as name:
            for system, figures in _measure(workload, Path(name)).items():
                section.runs[f"{nodes}, {system}"] = [figures]
                section.wrong += [f"{nodes}, {system}: {figures['wrong']}"] if figures["wrong"] else []
                seconds = figures.get("seconds", float("nan"))
                result = "WRONG" if figures["wrong"] else "ok"
                section.rows.append([f"{nodes:,}", system, number(seconds), number(nodes / seconds), result])
    return section


def _measure(workload: Workload, folder: Path) -> dict[str, Figures]:
    found = {}
    for system in ("worker", "backfill"):
        place = folder / system
        log = LocalLog(place)
        create_topics(log, 1)
        produce(log, read_rows(str(workload.records)), 1)
        log.close()

        def check(place: Path = place) -> str:
            return _check(place, workload)

        if system == "worker":
            command = [*_PYTHON, "benchmarks.systems.worker", "run", str(place), str(folder / "state")]
        else:
            command = [*_PYTHON, "benchmarks.systems.spark", "backfill", str(place), _CORES]
        found[system] = Program(system, command, check).run()
    command = [*_PYTHON, "benchmarks.systems.spark", "verify", str(folder / "backfill"), _CORES]
    found["verify"] = verified = Program("verify", command, lambda: "").run()
    if verified.get("status", 0):
        verified["wrong"] = f"exit status {verified['status']}"
    return found


def _check(place: Path, workload: Workload) -> str:
    log = LocalLog(place)
    written = {node: str(count) for node, count in dict(read_all(log, {TopicPartition(COUNTS, 0): 0})).items() if count}
    log.close()
    want = {node: count for node, count in read_counts(workload.expected).items() if int(count)}
    return "" if written == want else f"{len(written)} counts, {len(want)} expected, or values differ"
