"""Descendants inside a Faust app: hosted by eddy in both modes, and by a loop topic made by hand in Faust alone."""

import sys
from pathlib import Path

from benchmarks.applications import Commands, System
from benchmarks.cluster import Cluster, MissingError, Topics, cluster
from benchmarks.kafka_runs import OnKafka
from benchmarks.report import Section, Target, mebibytes, number
from benchmarks.runs import interleave, median
from benchmarks.workloads import tree

__all__ = ["run"]


def _hosted(mode: str) -> Commands:
    def commands(cluster: Cluster, topics: Topics, folder: Path) -> list[list[str]]:
        program = [sys.executable, "-m", "benchmarks.systems.faust_app", cluster.bootstrap, topics.application]
        return [[*program, topics.nodes, topics.loop, topics.counts, str(folder / "state"), mode]]

    return commands


def _by_hand(cluster: Cluster, topics: Topics, folder: Path) -> list[list[str]]:
    program = [sys.executable, "-m", "benchmarks.systems.faust_loop", cluster.bootstrap, topics.application]
    return [[*program, topics.nodes, topics.loop, topics.counts, str(folder / "state")]]


_WORKER, _AGENTS = System("hosted, mode=worker", _hosted("worker")), System("hosted, mode=agents", _hosted("agents"))
_BY_HAND = System("Faust alone, a loop by hand", _by_hand)


def run(quick: bool) -> Section:
    """eddy gets the records in random order; the loop by hand gets parents first, as it needs, and a smaller tree."""
    section = Section(
        "faust: a broker, 4 partitions, one Faust worker; the loop by hand is at least once",
        ["workload", "system", "median s", "records/s", "CPU s", "peak MiB", "written", "result"],
    )
    large, small, times = (10_000, 1_000, 1) if quick else (100_000, 20_000, 3)
    try:
        with cluster() as broker:
            hosted = interleave([OnKafka(s, broker, tree("random", large)) for s in (_WORKER, _AGENTS)], times)
            by_hand = interleave([OnKafka(_BY_HAND, broker, tree("random", small), in_order=True)], 1)
    except MissingError as error:
        section.notes.append(f"not run: {error}")
        return section
    speed = {}
    for nodes, runs in ((large, hosted), (small, by_hand)):
        for system, own in runs.items():
            rate = speed[system] = (nodes - 1) / median(own, "seconds")
            wrong = "; ".join(dict.fromkeys(run["wrong"] for run in own if run["wrong"]))
            section.runs.setdefault(f"random, {nodes:,}", {})[system] = own
            section.wrong += [f"{system}: {wrong}"] if wrong and system != _BY_HAND.name else []
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
