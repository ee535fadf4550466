"""A worker that counts records by key, or by key and window.

    windows WHAT RECORDS KEYS

The log is the embedded one in memory, a record is a millisecond after the one before it. WHAT is `count`, without
windows; `update` and `close`, in ten windows; or `brief`, in windows of which each has one record of a key. `-by-value`
after it groups by the value, through an exchange.
"""

import sys
from datetime import timedelta

import eddy
from benchmarks.systems.process import report, settle
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec

WINDOWS = 10
MARKS = 1
"""The rows of the state of marks, with one partition."""


def topology_of(what: str, records: int, keys: int) -> eddy.Topology:
    """The program."""
    topology = eddy.Topology("counting")
    words = topology.stream("words", eddy.String, eddy.String)
    kind, _, by_value = what.partition("-")
    groups = words.group_by(lambda key, value: value, key=eddy.String) if by_value else words.group_by_key()
    if kind == "count":
        groups.count("counts").to("counted", value=eddy.Int64)
        return topology
    size = timedelta(milliseconds=keys if kind == "brief" else records // WINDOWS)
    windowed = groups.windowed_by(eddy.TimeWindows(size), "update" if kind == "update" else "close")
    windowed.count("counts").to("counted", value=eddy.Int64)
    return topology


def each_count(what: str, records: int, keys: int) -> int:
    """The count of each key in the table in the end: of all records, or of the window that is open."""
    return {"count": records // keys, "brief": 1}.get(what.partition("-")[0], records // keys // WINDOWS)


def main(what: str, records: int, keys: int) -> None:
    """Write the records, then time the worker until it is idle; check the counts, and what is left in the store."""
    log = LocalLog(None)
    log.create_topics([TopicSpec("words", 1), TopicSpec("counted", 1)])
    producer = log.producer(None)
    producer.begin()
    names = [b"k%d" % (at % keys) for at in range(records)]
    producer.send("words", 0, names, names, list(range(records)))
    producer.commit({}, None)
    worker = eddy.Worker(topology_of(what, records, keys), log)
    while not worker.positions.entry.positions:
        worker.step(0.1)
    start = settle()
    worker.run_until_idle()
    report(start, epochs=worker.statistics.epochs)
    counts = worker.store("counts").all()
    rows = sum(1 for state in worker.circuit.states.values() for _ in state.items())  # type: ignore[attr-defined]
    kept = keys if what.partition("-")[0] == "count" else 2 * keys + MARKS * ("-" in what)
    wrong = f"{rows} rows in states, not {kept}" if rows != kept else ""
    if set(counts.values()) != {each_count(what, records, keys)} or len(counts) != keys:
        wrong = "the counts differ"
    worker.close()
    log.close()
    if wrong:
        raise SystemExit(wrong)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
