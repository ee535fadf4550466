"""Descendants in a Faust app: hosted by eddy in both modes, beside loop topics made by hand in Faust and in Quix."""

import sys
from pathlib import Path

from benchmarks.applications import Commands, System
from benchmarks.cluster import Cluster, MissingError, Topics, cluster
from benchmarks.kafka_runs import OnKafka
from benchmarks.quix_peer import python
from benchmarks.report import Section, Target, mebibytes, number
from benchmarks.runs import interleave, median
from benchmarks.workloads import ROOT, tree

__all__ = ["run"]


def _hosted(mode: str) -> Commands:
    def commands(cluster: Cluster, topics: Topics, folder: Path) -> list[list[str]]:
        program = [sys.executable, "-m", "benchmarks.systems.faust_app", cluster.bootstrap, topics.application]
        return [[*program, topics.nodes, topics.loop, topics.counts, str(folder / "state"), mode]]

    return commands


def _in_faust(cluster: Cluster, topics: Topics, folder: Path) -> list[list[str]]:
    program = [sys.executable, "-m", "benchmarks.systems.faust_loop", cluster.bootstrap, topics.application]
    return [[*program, topics.nodes, topics.loop, topics.counts, str(folder / "state")]]


def _in_quix(cluster: Cluster, topics: Topics, folder: Path) -> list[list[str]]:
    program = [python(), str(ROOT / "benchmarks" / "systems" / "quix_loop.py"), cluster.bootstrap, topics.application]
    return [[*program, topics.nodes, topics.loop, topics.counts, str(folder / "state")]]


_WORKER, _AGENTS = System("hosted, mode=worker", _hosted("worker")), System("hosted, mode=agents", _hosted("agents"))
_BY_HAND = [System("Faust, a loop by hand", _in_faust), System("Quix, a loop by hand", _in_quix)]


def _by_hand(section: Section) -> list[System]:
    """Those that can run here; a note says why the others cannot."""
    try:
        python()
    except MissingError as error:
        section.notes.append(f"not run: {error}")
        return _BY_HAND[:1]
    return _BY_HAND


def run(quick: bool) -> Section:
    """eddy gets the records in random order; loops by hand get parents first, as they need, and a smaller tree."""
    section = Section(
        "faust: a broker, 4 partitions, one worker; loops by hand are at least once",
        ["workload", "system", "median s", "records/s", "CPU s", "peak MiB", "written", "result"],
    )
    large, small, times = (10_000, 1_000, 1) if quick else (100_000, 20_000, 3)
    try:
        with cluster() as broker:
            hosted = interleave([OnKafka(s, broker, tree("random", large)) for s in (_WORKER, _AGENTS)], times)
            by_hand = interleave(
                [OnKafka(s, broker, tree("random", small), in_order=True) for s in _by_hand(section)], 1
            )
    except MissingError as error:
        section.notes.append(f"not run: {error}")
        return section
    speed = {}
    for nodes, runs in ((large, hosted), (small, by_hand)):
        for system, own in runs.items():
            rate = speed[system] = (nodes - 1) / median(own, "seconds")
            wrong = "; ".join(dict.fromkeys(run["wrong"] for run in own if run["wrong"]))
            section.runs.setdefault(f"random, {nodes:,}", {})[system] = own
            section.wrong += [f"{system}: {wrong}"] if wrong and system not in {s.name for s in _BY_HAND} else []
            section.rows.append(
                [
                    f"random, {nodes:,}",
                    system,
                    number(median(own, "seconds")),
                    number(rate),
                    number(median(own, "cpu_seconds")),
                    mebibytes(median(own, "peak_bytes")),
                    number(median(own, "written")),
                    wrong or "ok",
                ]
            )
    section.targets = [Target("faust, mode=agents", 20_000, "records/s", {"": speed[_AGENTS.name]}, at_least=True)]
    return section
