"""One new leaf at a time under a loaded tree on a Kafka broker: how long until all its ancestors' counts are new."""

import math
import random
import tempfile
import time
from pathlib import Path

from benchmarks.applications import EDDY, KAFKA_STREAMS, KAFKA_STREAMS_TUNED, Application, System, available, started
from benchmarks.cluster import Cluster, Feed, MissingError, Reader, Topics, cluster
from benchmarks.kafka_runs import Growing, await_total, differing, fill
from benchmarks.report import Section, Target, mebibytes, number
from benchmarks.runs import Figures, busy_cores, median
from benchmarks.systems.process import percentiles_ms
from benchmarks.workloads import Workload, tree

__all__ = ["run"]

_PATIENCE_S = 30.0


def run(quick: bool) -> Section:
    """From the send of a leaf to the last ancestor's new count at a reader of committed records."""
    workload = tree("random", 2_000 if quick else 20_000)
    samples = {EDDY: 1_000, KAFKA_STREAMS: 100, KAFKA_STREAMS_TUNED: 300}
    section = Section(
        f"kafka-latency: one new leaf at a time in a random tree of {workload.nodes:,}, 4 partitions, exactly once",
        ["system", "leaves", "p50 ms", "p99 ms", "most ms", "× p50", "CPU ms/leaf", "peak MiB", "result"],
    )
    try:
        with cluster() as broker:
            systems, missing = available(*samples)
            section.notes = [*missing, "tuned: commit.interval.ms=10, producer.linger.ms=0, poll.ms=5."]
            runs = {
                system: _run(system, broker, workload, samples[system] // (10 if quick else 1)) for system in systems
            }
    except MissingError as error:
        section.notes.append(f"not run: {error}")
        return section
    section.runs[workload.name] = {system.name: [figures] for system, figures in runs.items()}
    section.rows = [_row(system, figures, runs.get(KAFKA_STREAMS, {})) for system, figures in runs.items()]
    section.wrong = [f"eddy: {runs[EDDY]['wrong']}"] if runs[EDDY]["wrong"] else []
    section.others_cores = median(list(runs.values()), "others_cores")
    section.targets = [
        Target(f"kafka-latency, {name}", limit, "ms", {workload.name: runs[EDDY].get(f"{name}_ms", math.nan)})
        for name, limit in (("p50", 30), ("p99", 150))
    ]
    return section


def _run(system: System, broker: Cluster, workload: Workload, samples: int) -> Figures:
    others = busy_cores([broker.pid] if broker.pid else [])
    with broker.topics() as topics, tempfile.TemporaryDirectory() as folder:
        reader = Reader(broker.bootstrap, topics.counts)
        try:
            with started(system, broker, topics, Path(folder)) as application:
                fill(broker, topics, workload, application, in_order=system is not EDDY)
                figures = _leaves(broker, topics, application, reader, Growing(workload), samples)
        except RuntimeError as error:
            return {"wrong": str(error)}
        finally:
            reader.close()
    return figures | {"others_cores": others()}


def _leaves(
    broker: Cluster, topics: Topics, application: Application, reader: Reader, oracle: Growing, samples: int
) -> Figures:
    """Wait for the tree, then send leaf by leaf."""
    await_total(reader, oracle.total, application)
    if wrong := differing(reader.counts(), oracle.counts()):
        return {"wrong": f"loaded: {wrong}"}
    feed, choice = Feed(broker.bootstrap, topics.nodes, linger_ms=0), random.Random(5)

    def one_more() -> float:
        begun = time.perf_counter()
        feed.send([oracle.leaf(choice.randrange(oracle.nodes))])
        while reader.total != oracle.total:
            reader.take(0.05)
            if time.perf_counter() - begun > _PATIENCE_S:
                application.alive()
                raise RuntimeError(f"after {_PATIENCE_S:.0f} s {differing(reader.counts(), oracle.counts())}")
        return time.perf_counter() - begun

    for _ in range(samples // 10):
        one_more()  # not counted: a new broker is slow until it is compiled
    before = application.figures()
    seconds = [one_more() for _ in range(samples)]
    after = application.figures()
    feed.close()
    cpu = (after["cpu_seconds"] - before["cpu_seconds"]) / samples
    figures = {"leaves": samples, "most_ms": max(seconds) * 1e3, "cpu_ms": cpu * 1e3, "latencies_s": seconds}
    return after | figures | percentiles_ms(seconds) | {"wrong": differing(reader.counts(), oracle.counts())}


def _row(system: System, own: Figures, peer: Figures) -> list[str]:
    def figure(name: str) -> float:
        return float(own.get(name, math.nan))

    return [
        system.name,
        number(figure("leaves")),
        number(figure("p50_ms")),
        number(figure("p99_ms")),
        number(figure("most_ms")),
        number(figure("p50_ms") / peer.get("p50_ms", math.nan)),
        number(figure("cpu_ms")),
        mebibytes(figure("peak_bytes")),
        own["wrong"] or "ok",
    ]
