"""How fast Spark reads a topic of Kafka, in this process and by one and two executors, beside confluent-kafka alone.

It is how `backfill` and `verify` read inputs: in Spark's tasks, through eddy's own client, committed records only.
"""

import os
import sys

from benchmarks.cluster import PARTITIONS, MissingError, cluster, write_numbered
from benchmarks.report import Section, Target, number
from benchmarks.runs import Figures, Program, interleave, median, ratios

__all__ = ["run"]

_ONE, _TWO = "one executor", "two executors"
_MASTERS = {
    "local[1]": "local[1]",
    "local[2]": "local[2]",
    _ONE: "local-cluster[1,1,1024]",
    _TWO: "local-cluster[2,1,1024]",
}
_CLIENT = "confluent-kafka alone"
_PATIENCE_S = 600.0


def run(quick: bool) -> Section:
    """The same topic by all, in turn."""
    records, repetitions = (50_000, 1) if quick else (2_000_000, 3)
    section = Section(
        f"spark-kafka: {records:,} records of a topic in {PARTITIONS} partitions, read by Spark's tasks",
        ["who", "s", "CPU s", "records/s", "records/CPU s", "result"],
    )
    section.notes = [
        "the session's start, and a first reading, are not counted; CPU s are of all processes but the broker.",
        f"the machine has {os.cpu_count()} cores, which the broker, the driver and the executors share.",
    ]
    try:
        with cluster() as broker, broker.topics() as topics:
            write_numbered(broker.bootstrap, topics.nodes, records)
            given = [broker.bootstrap, topics.nodes, str(records)]
            command = [sys.executable, "-m", "benchmarks.systems.spark_reading"]
            names = {_CLIENT: "client", **_MASTERS}
            programs = [
                Program(name, [*command, master, *given], lambda: "", _PATIENCE_S) for name, master in names.items()
            ]
            runs = interleave(programs, repetitions)
    except MissingError as error:
        section.notes = [f"not run: {error}"]
        return section
    rates: dict[str, float] = {}
    for name, own in runs.items():
        section.runs[name] = own
        wrong = "; ".join(dict.fromkeys(_wrong(one) for one in own if _wrong(one)))
        section.wrong += [f"{name}: {wrong}"] if wrong else []
        seconds, cpu = (float("nan") if wrong else median(own, what) for what in ("seconds", "tree_cpu_seconds"))
        rates[name] = records / seconds
        rated = [number(seconds), number(cpu), number(rates[name]), number(records / cpu)]
        section.rows.append([name, *rated, wrong[:80] or "ok"])
    both = ratios(runs[_ONE], runs[_TWO], "seconds") if not section.wrong else []
    section.targets = [
        Target("spark-kafka: read", 200_000, "records/s", {"local[2]": rates["local[2]"]}, at_least=True),
        Target(
            "spark-kafka: two executors, where each has a core to itself",
            1.6,
            "× the records/s of one",
            {"2 executors": median([{"x": pair} for pair in both], "x") if both else float("nan")},
            at_least=True,
        ),
    ]
    return section


def _wrong(figures: Figures) -> str:
    return str(figures["wrong"] or ("" if figures.get("right", False) else "other records"))
