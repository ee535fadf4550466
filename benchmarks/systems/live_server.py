"""A server of live queries for `sockets.py`, in a process of its own: rows of a log in memory that change.

The log, and the thread that writes to it, are part of the process, and of the figures. No worker runs meanwhile: the
versions are those of committed records.

    stdout  the port; after each round of changes its processor time, in seconds
    stdin   for each round the seconds that it takes
"""

import argparse
import contextlib
import resource
import sys
import time

import eddy
from eddy.connectors.log import Producer, TopicSpec
from eddy.live.streams.limits import Limits
from eddy.serve.endpoint import endpoint_of
from eddy.serve.table_server import served

_TICK_S = 0.005


def _queries() -> eddy.Queries:
    queries, docs = eddy.Queries(), eddy.live_table("docs", key="id")

    @queries.query
    def of_owner(owner: int) -> eddy.Query:
        return docs.where(docs.owner == owner).limit(100)

    return queries


def _write(producer: Producer, numbers: range) -> None:
    """Change these rows, in one transaction; each has the time of the change."""
    values = [b'{"owner":%d,"at":%.6f}' % (number, time.time()) for number in numbers]
    producer.begin()
    producer.send("docs", 0, [number.to_bytes(8, "big") for number in numbers], values, [0] * len(numbers))
    producer.commit({}, None)


def _round(producer: Producer, count: int, seconds: float) -> None:
    """Change each row once a second, at even times; what is due is changed together."""
    began, done = time.monotonic(), 0
    while done < count * seconds:
        due = min(int(count * seconds), int((time.monotonic() - began) * count) + 1)
        while done < due:
            stop = min(due, done + count - done % count)
            _write(producer, range(done % count, done % count + stop - done))
            done = stop
        time.sleep(_TICK_S)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run as `python -m benchmarks.systems.live_server QUERIES STREAMS`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("queries", type=int)
    parser.add_argument("streams", type=int)
    arguments = parser.parse_args()
    count = arguments.queries
    topology = eddy.Topology("bench")
    topology.table("docs", key=eddy.Int64, value=eddy.Json())
    limits = Limits(connections=arguments.streams, client_connections=arguments.streams, client_queries=count)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(contextlib.closing(eddy.open_log()))
        log.create_topics([TopicSpec("docs", 1, {"cleanup.policy": "compact"})])
        producer = stack.enter_context(contextlib.closing(log.producer(None)))
        with eddy.run(topology, log) as worker:
            worker.wait_idle()
        server = stack.enter_context(served(endpoint_of("0"), topology, log, queries=_queries(), limits=limits))
        server.tables.wait(timeout_s=60)
        print(server.port, flush=True)
        for line in sys.stdin:
            before = _cpu_s()
            _round(producer, count, float(line))
            print(f"{_cpu_s() - before}", flush=True)


if __name__ == "__main__":
    main()
