"""How fast a worker reads a global table whole, beside confluent-kafka alone, which keeps nothing of it."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import eddy
from benchmarks.cluster import Cluster, MissingError, Topics, batches_of, cluster, write_numbered
from benchmarks.report import Section, Target, number
from benchmarks.runs import Figures, interleave, median, ratios
from eddy.connectors.kafka import KafkaLog, KafkaSettings

__all__ = ["run"]

_PATIENCE_S = 600.0


def run(quick: bool) -> Section:
    """The same topic by both, in turn."""
    rows, repetitions = (20_000, 1) if quick else (1_000_000, 3)
    section = Section(
        f"global-table: {rows:,} rows in 4 partitions on Kafka; ×: rate by that of the client alone",
        ["who", "median s", "CPU s", "records/s", "×", "× CPU", "result"],
    )
    try:
        with cluster() as broker, broker.topics() as topics:
            write_numbered(broker.bootstrap, topics.nodes, rows)
            cases = [_Client("confluent-kafka", broker, topics, rows), _Worker("eddy", broker, topics, rows)]
            runs = section.runs["global-table"] = interleave(cases, repetitions)
    except MissingError as error:
        section.notes = [f"not run: {error}"]
        return section
    client, worker = (runs[case.name] for case in cases)
    for name, own in runs.items():
        wrong = "; ".join(dict.fromkeys(one["wrong"] for one in own if one["wrong"]))
        section.wrong += [f"{name}: {wrong}"] if wrong else []
        rates, cpu = ([{"x": pair} for pair in ratios(client, own, f)] for f in ("seconds", "cpu_seconds"))
        section.rows.append(
            [
                *(name, number(median(own, "seconds")), number(median(own, "cpu_seconds"))),
                number(rows / median(own, "seconds")),
                *(number(median(rates, "x")), number(median(cpu, "x")), wrong or "ok"),
            ]
        )
    found = median([{"x": pair} for pair in ratios(client, worker, "seconds")], "x")
    told = "× the rate of the client alone"
    section.targets = [Target("global-table", 0.5, told, {f"{rows:,} rows": found}, at_least=True)]
    return section


@dataclass(frozen=True)
class _Case:
    name: str
    broker: Cluster
    topics: Topics
    rows: int

    def read(self) -> Iterator[int]:
        """Read the topic, then yield; then yield the number of rows that were found."""
        raise NotImplementedError

    def run(self) -> Figures:
        """Read the topic once."""
        began, cpu = time.monotonic(), time.process_time()
        reading = self.read()
        next(reading)
        seconds, cpu_seconds = time.monotonic() - began, time.process_time() - cpu
        found = next(reading)
        reading.close()
        wrong = "" if found == self.rows else f"{found:,} rows"
        return {"seconds": seconds, "cpu_seconds": cpu_seconds, "wrong": wrong}


class _Client(_Case):
    """A consumer that is assigned all partitions, and counts what it gets."""

    def read(self) -> Iterator[int]:
        """Consume until all have come."""
        found = sum(map(len, batches_of(self.broker.bootstrap, self.topics.nodes, self.rows)))
        yield found
        yield found


class _Worker(_Case):
    """A worker with an empty disk, until it processes."""

    def read(self) -> Iterator[int]:
        """Start, and count the rows."""
        topology = eddy.Topology(self.topics.application)
        table = topology.global_table(self.topics.nodes, eddy.String, eddy.String, name="table")
        stream = topology.stream(self.topics.loop, eddy.String, eddy.String)
        stream.join(table, lambda value, other: other, value=eddy.String, select=lambda value: value).to(
            self.topics.counts
        )
        until = time.monotonic() + _PATIENCE_S
        log = KafkaLog(KafkaSettings.of(self.broker.bootstrap))
        with (
            tempfile.TemporaryDirectory() as folder,
            closing(log),
            closing(eddy.Worker(topology, log, eddy.Config(state_dir=folder))) as worker,
        ):
            while worker.state.name != "PROCESSING" and time.monotonic() < until:
                worker.step(0.1)
            yield 0
            yield len(worker.store("table")) if worker.state.name == "PROCESSING" else 0
