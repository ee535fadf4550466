"""Serving: reading a table whole, point reads in process and over HTTP, and from a record to the row that it makes."""

import contextlib
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import eddy
from benchmarks.cluster import MissingError, cluster
from benchmarks.report import Section, Target, number
from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.serve.endpoint import endpoint_of
from eddy.serve.views.server import served

__all__ = ["run"]

_PATIENCE_S = 600.0
_BATCH = 50_000
_WARM_UP = 100
"""Records before those that are measured: the broker has just started."""
_CLIENT = """
import http.client, random, sys, time
port, rows, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
connection, done = http.client.HTTPConnection("127.0.0.1", port, timeout=30), 0
end = time.monotonic() + seconds
while time.monotonic() < end:
    connection.request("GET", f"/v1/tables/rows/k{random.randrange(rows):07}")
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200
    done += 1
print(done / seconds)
"""


def run(quick: bool) -> Section:
    """All figures; Kafka's where there is a broker."""
    rows = 50_000 if quick else 1_000_000
    section = Section(f"serve: a table of {rows:,} rows", ["figure", "store", "by the clock", "by processor time"])
    found: dict[str, dict[str, float]] = {}
    for store in ("memory", "RocksDB"):
        found[store] = _tables(section, rows, store, 1.0 if quick else 5.0)
    with contextlib.ExitStack() as stack:
        try:
            broker = stack.enter_context(cluster())
        except MissingError as error:
            section.notes.append(f"Kafka: not run: {error}")
        else:
            found["Kafka"] = _latency(section, eddy.kafka(broker.bootstrap), 20 if quick else 200)
    limits = (("rows read/s of processor time", 100_000, True), ("point reads/s", 20_000, True))
    for name, limit, least in (*limits, ("requests/s", 2_000, True), ("readable p50 ms", 20, False)):
        measured = {system: figures[name] for system, figures in found.items() if name in figures}
        section.targets.append(Target(f"serve, {name}", limit, "", measured, least))
    section.runs = {"serve": found}
    return section


def _tables(section: Section, rows: int, store: str, seconds: float) -> dict[str, float]:
    topology = eddy.Topology("bench")
    topology.table("rows", key=eddy.String, value=eddy.String)
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(eddy.open_log(Path(folder) / "log")) as log:
        log.create_topics([TopicSpec("rows", 1, {"cleanup.policy": "compact"})])
        with eddy.run(topology, log) as worker:
            worker.wait_idle()
        _fill(log, rows)
        state_dir = Path(folder) / "state" if store == "RocksDB" else None
        began, cpu = time.perf_counter(), time.process_time()
        with served(endpoint_of("0"), topology, log, state_dir) as server:
            server.views.wait(timeout_s=_PATIENCE_S)
            whole_s, whole_cpu_s = time.perf_counter() - began, time.process_time() - cpu
            if server.views["rows"].count() != rows:
                section.wrong.append(f"{store}: {server.views['rows'].count():,} rows of {rows:,} were read")
            reads, reads_cpu = _reads(server.views, rows, 200_000)
            command = [sys.executable, "-c", _CLIENT, str(server.port), str(rows), str(seconds)]
            cpu = time.process_time()
            client = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PATIENCE_S)
            requests = float(client.stdout)
            requests_cpu = requests * seconds / (time.process_time() - cpu)
    for name, wall, of_cpu in (
        ("rows read/s", rows / whole_s, rows / whole_cpu_s),
        ("point reads/s in process", reads, reads_cpu),
        ("requests/s over HTTP, one client", requests, requests_cpu),
    ):
        section.rows.append([name, store, number(wall), number(of_cpu)])
    return {"rows read/s of processor time": rows / whole_cpu_s, "point reads/s": reads_cpu, "requests/s": requests_cpu}


def _fill(log: Log, rows: int) -> None:
    numbers = list(range(rows))
    random.Random(1).shuffle(numbers)
    with contextlib.closing(log.producer(None)) as producer:
        for start in range(0, rows, _BATCH):
            keys = [b"k%07d" % n for n in numbers[start : start + _BATCH]]
            producer.begin()
            producer.send("rows", 0, keys, [b"value of " + key for key in keys], [0] * len(keys))
            producer.commit({}, None)


def _reads(views: eddy.Views, rows: int, count: int) -> tuple[float, float]:
    rng, table = random.Random(2), views["rows"]
    keys = [f"k{rng.randrange(rows):07}" for _ in range(count)]
    began, cpu = time.perf_counter(), time.process_time()
    for key in keys:
        table.get(key)
    return count / (time.perf_counter() - began), count / (time.process_time() - cpu)


def _latency(section: Section, log: Log, samples: int) -> dict[str, float]:
    """From the commit of a record to the exact version that has what a worker made of it."""
    topology = eddy.Topology(f"bench-{time.time_ns()}")
    source = topology.table(f"{topology.name}-in", key=eddy.String, value=eddy.String, name="rows")
    source.to_relation().map(lambda key, value: (value, 1)).group_by_key().count("counts")
    eddy.create_topics(topology, log)
    taken = []
    with contextlib.closing(log), eddy.run(topology, log), eddy.views(topology, log) as views:
        views.wait(timeout_s=_PATIENCE_S)
        with contextlib.closing(log.producer(None)) as producer:
            for n in range(_WARM_UP + samples):
                producer.begin()
                producer.send(f"{topology.name}-in", 0, [b"k%d" % n], [b"v"], [0])
                ends = producer.flush()
                producer.commit({}, None)
                began = time.perf_counter()
                end = ends[TopicPartition(f"{topology.name}-in", 0)]
                views.wait({f"{topology.name}-in": [end]}, exact=True, timeout_s=_PATIENCE_S)
                taken.append((time.perf_counter() - began) * 1e3)
        if views["counts"].get("v") != _WARM_UP + samples:
            section.wrong.append(f"Kafka: {views['counts'].get('v')} rows are counted of {_WARM_UP + samples}")
    taken = sorted(taken[_WARM_UP:])
    p50, p99 = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
    section.rows.append(["record to exact row, p50 and p99 ms", "Kafka, memory", number(p50), number(p99)])
    section.notes.append("of the last row: p50, then p99. Worker, reader and producer share one process.")
    return {"readable p50 ms": p50, "readable p99 ms": p99}
