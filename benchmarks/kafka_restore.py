"""The state directory is gone: how fast a worker restores 1,000,000 keys from the changelogs on a Kafka broker."""

import math
import shutil
import tempfile
from pathlib import Path

from benchmarks.applications import EDDY, KAFKA_STREAMS, System, available, started
from benchmarks.cluster import Cluster, Feed, MissingError, Reader, Topics, cluster
from benchmarks.kafka_runs import Growing, await_total, differing, fill
from benchmarks.report import Section, Target, mebibytes, number
from benchmarks.runs import Figures, busy_cores, median
from benchmarks.workloads import Workload, tree

__all__ = ["run"]


def run(quick: bool) -> Section:
    """Fill, stop, remove the states, start; then a new leaf tells by its ancestors' counts that all is there."""
    workload = tree("random", 10_000 if quick else 1_000_000)
    section = Section(
        f"kafka-restore: {workload.nodes:,} keys, 4 partitions, the state directory gone",
        ["system", "starts", "median s", "min s", "keys/s", "× keys/s", "restored", "restored/s", "peak MiB", "result"],
    )
    try:
        with cluster() as broker:
            systems, missing = available(EDDY, KAFKA_STREAMS)
            runs = {system: _run(system, broker, workload, 3 if system is EDDY else 1) for system in systems}
    except MissingError as error:
        section.notes = [f"not run: {error}"]
        return section
    section.notes = [
        *missing,
        "seconds: from `Worker(…)`, or `KafkaStreams.start()`, until all partitions are owned and restored.",
        "restored: changelog records, of which a key has as many as epochs, or commits, have changed it.",
    ]
    section.runs[workload.name] = {system.name: own for system, own in runs.items()}
    section.rows = [_row(system, own, runs.get(KAFKA_STREAMS, []), workload) for system, own in runs.items()]
    section.wrong = [f"eddy: {figures['wrong']}" for figures in runs[EDDY] if figures["wrong"]]
    section.others_cores = median([figures for own in runs.values() for figures in own], "others_cores")
    rate = math.nan if section.wrong else workload.nodes / median(runs[EDDY], "ready")
    section.targets = [Target("kafka-restore", 100_000, "keys/s", {workload.name: rate}, at_least=True)]
    return section


def _run(system: System, broker: Cluster, workload: Workload, starts: int) -> list[Figures]:
    with broker.topics() as topics, tempfile.TemporaryDirectory() as name:
        reader, oracle, folder = Reader(broker.bootstrap, topics.counts), Growing(workload), Path(name)
        try:
            with started(system, broker, topics, folder) as application:
                fill(broker, topics, workload, application, in_order=system is not EDDY)
                await_total(reader, oracle.total, application)
            if wrong := differing(reader.counts(), oracle.counts()):
                return [{"wrong": f"filled: {wrong}"}]
            return [_start(system, broker, topics, folder, reader, oracle) for _ in range(starts)]
        except RuntimeError as error:
            return [{"wrong": str(error)}]
        finally:
            reader.close()


def _start(system: System, broker: Cluster, topics: Topics, folder: Path, reader: Reader, oracle: Growing) -> Figures:
    """Start on nothing; once it is ready, a leaf under the last node."""
    others = busy_cores([broker.pid] if broker.pid else [])
    for state in folder.glob("state-*"):
        shutil.rmtree(state)
    with started(system, broker, topics, folder) as application:
        figures = application.wait_ready() | application.figures()
        feed = Feed(broker.bootstrap, topics.nodes)
        feed.send([oracle.leaf(oracle.nodes - 1)])
        feed.close()
        await_total(reader, oracle.total, application)
    return figures | {"others_cores": others(), "wrong": differing(reader.counts(), oracle.counts())}


def _row(system: System, own: list[Figures], peer: list[Figures], workload: Workload) -> list[str]:
    seconds, restored = median(own, "ready"), median(own, "restored")
    return [
        system.name,
        number(len(own)),
        number(seconds),
        number(min((run["ready"] for run in own if "ready" in run), default=math.nan)),
        number(workload.nodes / seconds),
        number(median(peer, "ready") / seconds),
        number(restored),
        number(restored / seconds),
        mebibytes(median(own, "peak_bytes")),
        "; ".join(dict.fromkeys(run["wrong"] for run in own if run["wrong"])) or "ok",
    ]
