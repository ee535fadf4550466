"""A tree of 200 levels on a Kafka broker: what a level costs where the loop goes through a topic, and where not."""

import math

from benchmarks.applications import EDDY, KAFKA_STREAMS, KAFKA_STREAMS_TUNED, System, available
from benchmarks.cluster import Cluster, MissingError, cluster
from benchmarks.descendants import median_of
from benchmarks.kafka_runs import OnKafka
from benchmarks.report import Section, Target, mebibytes, number
from benchmarks.runs import Figures, interleave, median, ratios
from benchmarks.workloads import tree

__all__ = ["run"]


def run(quick: bool) -> Section:
    """Each node's parent is one of the 50 before it; with 5,000 nodes that makes 205 levels."""
    workload, repetitions = (tree("deep", 1_000), 1) if quick else (tree("deep", 5_000), 3)
    section = Section(
        f"kafka-deep: {workload.nodes:,} nodes, a parent among the last 50, filled; ×: time by Kafka Streams'",
        ["system", "median s", "min s", "max s", "×", "CPU s", "peak MiB", "result"],
    )
    try:
        with cluster() as broker:
            _measure(section, broker, OnKafka(EDDY, broker, workload), repetitions)
    except MissingError as error:
        section.notes.append(f"not run: {error}")
    return section


def _measure(section: Section, broker: Cluster, ours: OnKafka, repetitions: int) -> None:
    systems, missing = available(EDDY, KAFKA_STREAMS, KAFKA_STREAMS_TUNED)
    section.notes += [*missing, "tuned: commit.interval.ms=10, producer.linger.ms=0, poll.ms=5."]
    programs = [ours if s is EDDY else OnKafka(s, broker, ours.workload, in_order=True) for s in systems]
    for _ in range(repetitions):
        ours.run()  # not counted: a new broker is slow until it is compiled
    runs = interleave(programs, repetitions)
    section.runs[ours.workload.name] = runs
    section.rows = [_row(system, runs) for system in systems]
    section.wrong = [f"eddy: {run['wrong']}" for run in runs[EDDY.name] if run["wrong"]]
    section.others_cores = median([run for own in runs.values() for run in own], "others_cores")
    seconds = math.nan if section.wrong else median(runs[EDDY.name], "seconds")
    section.targets = [Target("kafka-deep", 1, "s", {ours.workload.name: seconds})]


def _row(system: System, runs: dict[str, list[Figures]]) -> list[str]:
    own = runs[system.name]
    seconds = [run["seconds"] for run in own if "seconds" in run]
    return [
        system.name,
        number(median(own, "seconds")),
        number(min(seconds, default=math.nan)),
        number(max(seconds, default=math.nan)),
        number(median_of(ratios(own, runs.get(KAFKA_STREAMS.name, []), "seconds"))),
        number(median(own, "cpu_seconds")),
        mebibytes(median(own, "peak_bytes")),
        "; ".join(dict.fromkeys(run["wrong"] for run in own if run["wrong"])) or "ok",
    ]
