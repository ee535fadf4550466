"""Serving: reading a table whole, point reads in process and over HTTP, and from a record to the row that it makes.

On the embedded log eddy alone; on a broker beside interactive queries of Kafka Streams, on the same topic.
"""

import contextlib
import http.client
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import eddy
from benchmarks.cluster import MissingError, cluster
from benchmarks.interactive_queries import InteractiveQueries
from benchmarks.report import Section, Target, number
from benchmarks.runs import Figures
from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.serve.endpoint import endpoint_of
from eddy.serve.table_server import served

__all__ = ["run"]

_PATIENCE_S = 600.0
_BATCH = 50_000
_WARM_UP = 100
"""Records before those that are measured: the broker has just started."""
_TEAMS = 1_000
_READS = 200_000
_PEER = "Kafka Streams, RocksDB"
_CLIENT = """
import http.client, random, sys, time
port, rows, seconds, path = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
connection, done = http.client.HTTPConnection("127.0.0.1", port, timeout=30), 0
end = time.monotonic() + seconds
while time.monotonic() < end:
    connection.request("GET", f"{path}k{random.randrange(rows):07}")
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200
    done += 1
print(done / seconds)
"""
_SERVER = """
import sys
import eddy
from benchmarks.serve import counted
bootstrap, name, state = sys.argv[1:]
with eddy.open_tables(counted(name), eddy.kafka(bootstrap), state_dir=state) as tables:
    tables.wait(timeout_s=600)
    print("ready", flush=True)
    sys.stdin.read()
"""


def run(quick: bool) -> Section:
    """All figures; Kafka's where there is a broker, the peer's where there is Java."""
    rows, seconds = (50_000, 1.0) if quick else (1_000_000, 5.0)
    section = Section(f"serve: a table of {rows:,} rows", ["figure", "store", "by the clock", "by processor time"])
    found: dict[str, Figures] = {store: _embedded(section, rows, store, seconds) for store in ("memory", "RocksDB")}
    with contextlib.ExitStack() as stack:
        try:
            bootstrap = stack.enter_context(cluster()).bootstrap
        except MissingError as error:
            section.notes.append(f"Kafka: not run: {error}")
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            found |= _on_kafka(section, bootstrap, folder, rows, seconds, 20 if quick else 200)
    own = {system: figures for system, figures in found.items() if system != _PEER}
    limits = (("rows read/s of processor time", 100_000, True), ("point reads/s", 20_000, True))
    others = (
        ("requests/s", 2_000, True),
        ("readable p50 ms", 20, False),
        ("patch p50 ms", 25, False),
        ("throughput with a server beside it", 0.9, True),
    )
    for name, limit, least in (*limits, *others):
        measured = {system: figures[name] for system, figures in own.items() if name in figures}
        section.targets.append(Target(f"serve, {name}", limit, "", measured, least))
    section.runs = {"serve": found}
    return section


def _embedded(section: Section, rows: int, store: str, seconds: float) -> Figures:
    topology = eddy.Topology("bench")
    topology.table("rows", key=eddy.String, value=eddy.String)
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(eddy.open_log(Path(folder) / "log")) as log:
        log.create_topics([TopicSpec("rows", 1, {"cleanup.policy": "compact"})])
        with eddy.run(topology, log) as worker:
            worker.wait_idle()
        _fill(log, "rows", rows)
        state_dir = Path(folder) / "state" if store == "RocksDB" else None
        return _served(section, topology, log, state_dir, store, rows, seconds)


def _served(
    section: Section, topology: eddy.Topology, log: Log, state_dir: Path | None, store: str, rows: int, seconds: float
) -> Figures:
    """Read all tables whole, then read rows of the table `rows`."""
    began, cpu = time.perf_counter(), time.process_time()
    with served(endpoint_of("0"), topology, log, state_dir) as server:
        server.tables.wait(timeout_s=_PATIENCE_S)
        whole_s, whole_cpu_s = time.perf_counter() - began, time.process_time() - cpu
        if server.tables["rows"].count() != rows:
            section.wrong.append(f"{store}: {server.tables['rows'].count():,} rows of {rows:,} were read")
        reads_s, reads_cpu_s = _reads(server.tables, rows)
        cpu = time.process_time()
        requests = _requests(server.port, "/v1/tables/rows/", rows, seconds)
        requests_cpu_s = time.process_time() - cpu
    return _noted(
        section, store, rows, (whole_s, whole_cpu_s), (reads_s, reads_cpu_s), requests, requests_cpu_s / seconds
    )


def _noted(
    section: Section,
    store: str,
    rows: int,
    whole_s: tuple[float, float],
    reads_s: tuple[float, float],
    requests: float,
    cores: float,
) -> Figures:
    """Rows of the report, and figures; seconds are by the clock and by processor time."""
    for name, wall, of_cpu in (
        ("rows read/s", rows / whole_s[0], rows / whole_s[1]),
        ("point reads/s in process", _READS / reads_s[0], _READS / reads_s[1]),
        ("requests/s over HTTP, one client", requests, requests / cores),
    ):
        section.rows.append([name, store, number(wall), number(of_cpu)])
    return {
        "rows read/s": rows / whole_s[0],
        "rows read/s of processor time": rows / whole_s[1],
        "point reads/s": _READS / reads_s[1],
        "requests/s": requests / cores,
    }


def _fill(log: Log, topic: str, rows: int) -> None:
    numbers = list(range(rows))
    random.Random(1).shuffle(numbers)
    with contextlib.closing(log.producer(None)) as producer:
        for start in range(0, rows, _BATCH):
            part = numbers[start : start + _BATCH]
            producer.begin()
            keys, values = [b"k%07d" % n for n in part], [b"team of %07d" % (n % _TEAMS) for n in part]
            producer.send(topic, 0, keys, values, [0] * len(part))
            producer.commit({}, None)


def _reads(tables: eddy.Tables, rows: int) -> tuple[float, float]:
    rng, table = random.Random(2), tables["rows"]
    keys = [f"k{rng.randrange(rows):07}" for _ in range(_READS)]
    began, cpu = time.perf_counter(), time.process_time()
    for key in keys:
        table.get(key)
    return time.perf_counter() - began, time.process_time() - cpu


def _requests(port: int, path: str, rows: int, seconds: float) -> float:
    """Requests a second of one client, a process of its own, on one connection."""
    command = [sys.executable, "-c", _CLIENT, str(port), str(rows), str(seconds), path]
    client = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PATIENCE_S)
    return float(client.stdout)


def counted(name: str) -> eddy.Topology:
    """A table of the topic `<name>-in`, and how many of its rows each value has."""
    topology = eddy.Topology(name)
    source = topology.table(f"{name}-in", key=eddy.String, value=eddy.String, name="rows")
    source.to_relation().map(lambda key, value: (value, 1)).group_by_key().count("counts")
    return topology


def _on_kafka(
    section: Section, bootstrap: str, folder: Path, rows: int, seconds: float, samples: int
) -> dict[str, Figures]:
    """A table and its counts by value: eddy, then the peer, each with an application of its own on one topic."""
    name = f"bench-{time.time_ns()}"
    topic, store, found = f"{name}-in", "Kafka, RocksDB", dict[str, Figures]()
    topology = counted(name)
    section.notes.append(
        f"on Kafka: a topic of one partition, and its rows counted by {_TEAMS:,} values; read from changelogs. Kafka "
        "Streams commits every 10 ms; its queries show rows before they are committed, of each store by itself."
    )
    with contextlib.closing(eddy.kafka(bootstrap)) as log:
        eddy.create_topics(topology, log)
        _fill(log, topic, rows)
        with eddy.run(topology, log, eddy.Config(state_dir=folder / "worker")) as worker:
            worker.wait_idle(_PATIENCE_S)
        found[store] = _served(section, topology, log, folder / "tables", store, rows, seconds)
        with (
            eddy.run(topology, log, eddy.Config(state_dir=folder / "worker")),
            eddy.open_tables(topology, log, state_dir=folder / "tables") as tables,
        ):
            tables.wait(timeout_s=_PATIENCE_S)

            def exact(count: int, end: int, since: float) -> float:
                tables.wait({topic: [end]}, exact=True, timeout_s=_PATIENCE_S)
                if tables["counts"].get("new") != count:
                    section.wrong.append(f"{store}: {tables['counts'].get('new')} rows are counted of {count}")
                return time.perf_counter() - since

            found[store] |= _latency(section, store, log, topic, samples, 0, exact)
        with eddy.run(topology, log, eddy.Config(state_dir=folder / "worker")):
            found[store] |= _to_patch(section, topology, log, folder / "tables", store, samples)
        share = _beside(section, bootstrap, log, topology, folder, rows // 10)
        found[store] |= {"throughput with a server beside it": share}
        try:
            found[_PEER] = _peer(section, bootstrap, folder, log, topic, rows, seconds, samples)
        except (MissingError, RuntimeError) as error:
            section.notes.append(f"Kafka Streams: not run: {error}")
    section.notes.append(
        "of 'record to row' and 'record to patch': p50, then p99, in ms by the clock; eddy's rows to the exact version."
    )
    return found


def _to_patch(section: Section, topology: eddy.Topology, log: Log, folder: Path, store: str, samples: int) -> Figures:
    """From the commit of a record to the patch that a client of live queries over HTTP has read."""
    counts = eddy.live_table("counts", key="team", value="count")
    queries = eddy.Queries()
    queries.query(name="live")(lambda: counts.where(counts.team == "live"))
    topic, taken = f"{topology.name}-in", []
    with (
        served(endpoint_of("0"), topology, log, folder, queries=queries) as server,
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=_PATIENCE_S)) as client,
        contextlib.closing(log.producer(None)) as producer,
    ):
        client.request("GET", "/v1/live?" + urlencode({"query": '{"id":"q","name":"live"}'}))
        lines = iter(client.getresponse())
        next(line for line in lines if line.startswith(b"event: snapshot"))
        for count in range(1, _WARM_UP + samples + 1):
            producer.begin()
            producer.send(topic, 0, [b"live%d" % count], [b"live"], [0])
            producer.flush()
            producer.commit({}, None)
            since = time.perf_counter()
            next(line for line in lines if b'"count":%d}' % count in line)
            taken.append((time.perf_counter() - since) * 1e3)
    taken = sorted(taken[_WARM_UP:])
    p50, p99 = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
    section.rows.append(["record to patch over HTTP", store, number(p50), number(p99)])
    return {"patch p50 ms": p50, "patch p99 ms": p99}


def _beside(section: Section, bootstrap: str, log: Log, topology: eddy.Topology, folder: Path, rows: int) -> float:
    """The worker's records by processor time, with a table server in a process of its own beside it, over without."""
    taken: dict[bool, list[float]] = {False: [], True: []}
    for with_server in (False, True, False, True, False, True):
        _fill(log, f"{topology.name}-in", rows)
        command = [sys.executable, "-c", _SERVER, bootstrap, topology.name, str(folder / "beside")]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) if with_server else None
        try:
            if server is not None and server.stdout is not None and not server.stdout.readline():
                section.wrong.append("with a server beside it: the server did not start")
            cpu = time.process_time()
            with eddy.run(topology, log, eddy.Config(state_dir=folder / "worker")) as worker:
                worker.wait_idle(_PATIENCE_S)
            taken[with_server].append(time.process_time() - cpu)
        finally:
            if server is not None:
                server.communicate(timeout=_PATIENCE_S)
    without, beside = (statistics.median(taken[with_server]) for with_server in (False, True))
    section.rows.append(["worker's records/s, alone", "Kafka, RocksDB", "", number(rows / without)])
    section.rows.append(["worker's records/s, with a server beside it", "Kafka, RocksDB", "", number(rows / beside)])
    return without / beside


def _peer(
    section: Section, bootstrap: str, folder: Path, log: Log, topic: str, rows: int, seconds: float, samples: int
) -> Figures:
    """Interactive queries: let them read the topic, then restore the states from their changelogs, and read."""
    state, name, new = folder / "streams", f"{topic}-streams", _WARM_UP + samples
    with contextlib.closing(InteractiveQueries(bootstrap, name, topic, state)) as first:
        first.ask(f"await new {new}")
    shutil.rmtree(state)
    with contextlib.closing(InteractiveQueries(bootstrap, name, topic, state)) as peer:
        whole_s = peer.ready_s, peer.cpu_s
        peer.ask(f"await new {new}")
        reads = peer.reads(_READS, rows)
        cpu = peer.cpu_s
        requests = _requests(peer.port, "/", rows, seconds)
        cores = (peer.cpu_s - cpu) / seconds
        reads_s = reads["seconds"], reads["cpu_seconds"]
        figures = _noted(section, _PEER, rows, whole_s, reads_s, requests, cores)

        def readable(count: int, end: int, since: float) -> float:
            return peer.readable_s("new", count, since)

        return figures | _latency(section, _PEER, log, topic, samples, new, readable)


def _latency(
    section: Section,
    store: str,
    log: Log,
    topic: str,
    samples: int,
    before: int,
    readable: Callable[[int, int, float], float],
) -> Figures:
    """From the commit of a record to its count.

    `before` is the number of such records sent earlier. `readable(count, end, since)` waits for this count and this end
    of the topic, and returns the seconds since `since`.
    """
    taken = []
    with contextlib.closing(log.producer(None)) as producer:
        for count in range(before + 1, before + _WARM_UP + samples + 1):
            producer.begin()
            producer.send(topic, 0, [b"n%d" % count], [b"new"], [0])
            ends = producer.flush()
            producer.commit({}, None)
            taken.append(readable(count, ends[TopicPartition(topic, 0)], time.perf_counter()) * 1e3)
    taken = sorted(taken[_WARM_UP:])
    p50, p99 = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
    section.rows.append(["record to row", store, number(p50), number(p99)])
    return {"readable p50 ms": p50, "readable p99 ms": p99}
