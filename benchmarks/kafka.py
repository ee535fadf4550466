"""Descendants on a Kafka broker, exactly once: eddy's worker, two of them, and Kafka Streams with its loop topic."""

import math
from dataclasses import dataclass

from benchmarks.applications import EDDY, KAFKA_STREAMS, TWO_WORKERS, System, available
from benchmarks.cluster import Cluster, MissingError, cluster
from benchmarks.kafka_runs import OnKafka
from benchmarks.report import Section, Target, mebibytes, number
from benchmarks.runs import Figures, interleave, median, ratios
from benchmarks.workloads import Workload, tree

__all__ = ["run"]

_SYSTEMS = (EDDY, TWO_WORKERS, KAFKA_STREAMS)


@dataclass(frozen=True, slots=True)
class Case:
    """What each system is given: a tree that is there at once, or live; the peer gets it `in_order`."""

    workload: Workload
    repetitions: int
    live: bool = False

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.workload.name}, {'live' if self.live else 'filled'}"


def run(quick: bool) -> Section:
    """eddy is given the records in random order, Kafka Streams parents first, which its example needs."""
    section = Section(
        "kafka: a broker, 4 partitions, exactly once; ×: records/s by Kafka Streams', the median of the pairs",
        [
            "workload",
            "system",
            "median s",
            "min s",
            "records/s",
            "×",
            "(pairs)",
            "CPU s",
            "× CPU",
            "peak MiB",
            "× MiB",
            "written",
            "result",
        ],
    )
    section.notes = [
        "filled: the application is up, then all records become visible at once; live: written while it reads.",
        "first each system has run once, not counted, since a new broker is slow until it is compiled.",
        "Kafka Streams is given parents first; wrong counts of its are shown, and fail nothing here.",
    ]
    try:
        with cluster() as broker:
            _measure(section, broker, quick)
    except MissingError as error:
        section.notes.append(f"not run: {error}")
    return section


def _cases(quick: bool) -> list[Case]:
    if quick:
        return [Case(tree("random", 10_000), 1, live) for live in (False, True)]
    small, wordnet = tree("random", 100_000), tree("wordnet")
    filled = [Case(small, 3), Case(wordnet, 3), Case(tree("random", 1_000_000), 1)]
    return [*filled, Case(small, 3, live=True), Case(wordnet, 3, live=True)]


def _measure(section: Section, broker: Cluster, quick: bool) -> None:
    systems, missing = available(*_SYSTEMS)
    section.notes += missing
    speed, scaling, memory = {}, {}, {}
    if not quick:
        interleave(_programs(broker, Case(tree("random", 100_000), 1), systems), 1)
    for case in _cases(quick):
        runs = interleave(_programs(broker, case, systems), case.repetitions)
        section.runs[case.name] = runs
        for system in systems:
            own = runs[system.name]
            section.rows.append(_row(case, system, runs))
            if system is not KAFKA_STREAMS:
                section.wrong += [f"{case.name}: {system.name}: {run['wrong']}" for run in own if run["wrong"]]
        one, two, peer = (runs.get(system.name, []) for system in _SYSTEMS)
        speed[case.name] = _middle(ratios(peer, one, "seconds"))
        scaling[case.name] = _middle(ratios(one, two, "seconds"))
        memory[case.name] = _middle(ratios(one, peer, "peak_bytes"))
    if KAFKA_STREAMS in systems:
        _shuffled(section, broker, _cases(quick))
    found = [
        run["others_cores"]
        for runs in section.runs.values()
        for own in runs.values()
        for run in own
        if "seconds" in run
    ]
    section.others_cores = sum(found) / len(found) if found else None
    section.targets = [
        Target("kafka, one process", 10, "× Kafka Streams' records/s", speed, at_least=True),
        Target("kafka, two processes", 1.5, "× one process", scaling, at_least=True),
        Target("kafka, one process, peak memory", 0.5, "× Kafka Streams'", memory),
    ]


def _programs(broker: Cluster, case: Case, systems: list[System]) -> list[OnKafka]:
    return [OnKafka(s, broker, case.workload, in_order=s is KAFKA_STREAMS, live=case.live) for s in systems]


def _shuffled(section: Section, broker: Cluster, cases: list[Case]) -> None:
    """The peer on what eddy was given, once: how many of its counts are wrong then."""
    for live in (False, True):
        case = next(case for case in cases if case.live == live)
        name = f"{case.name}, shuffled"
        found = OnKafka(KAFKA_STREAMS, broker, case.workload, live=live).run()
        section.runs[name] = {KAFKA_STREAMS.name: [found]}
        section.notes.append(f"Kafka Streams on {name}, once: {found['wrong'] or 'every count is right'}.")


def _row(case: Case, system: System, runs: dict[str, list[Figures]]) -> list[str]:
    own, peer = runs[system.name], runs.get(KAFKA_STREAMS.name, [])
    pairs = ratios(peer, own, "seconds")
    return [
        case.name,
        system.name,
        number(median(own, "seconds")),
        number(min((run["seconds"] for run in own if "seconds" in run), default=math.nan)),
        number((case.workload.nodes - 1) / median(own, "seconds")),
        number(_middle(pairs)),
        f"{number(min(pairs))}–{number(max(pairs))}" if pairs else "–",
        number(median(own, "cpu_seconds")),
        number(_middle(ratios(own, peer, "cpu_seconds"))),
        mebibytes(median(own, "peak_bytes")),
        number(_middle(ratios(own, peer, "peak_bytes"))),
        number(median(own, "written")),
        "; ".join(dict.fromkeys(run["wrong"] for run in own if run["wrong"])) or "ok",
    ]


def _middle(values: list[float]) -> float:
    return median([{"x": value} for value in values], "x")
