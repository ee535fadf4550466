"""A worker on disk through whose states windows pass: as many open and close as there are records, each of a new key.

    passing_windows KIND RECORDS

The embedded log and the states are on disk, a record is a millisecond after the one before it, and a window takes a
second. At the end a record an hour later closes all windows before it. KIND is `tumbling`, `by-value` (through an
exchange), `sessions`, `sliding`, or `joined`: two streams of half as many records each, none with a match.
"""

import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import eddy
from benchmarks.systems.process import report, resident_bytes, settle
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Producer, TopicSpec

KINDS = ("tumbling", "by-value", "sessions", "sliding", "joined")
SAMPLES = 20
_SECOND = timedelta(seconds=1)
_LATER_MS = 3_600_000
_BATCH = 20_000
_CACHE_BYTES = 16 << 20
_MOST_ROWS = 40_000
"""Of states, while windows are open: ten seconds, of four rows for each record."""
_LAST_ROWS = 12
"""Of the record that is an hour later, and the marks of its partition."""


def topology_of(kind: str) -> eddy.Topology:
    """The program."""
    topology = eddy.Topology("passing")
    words = topology.stream("words", eddy.String, eddy.String)
    if kind == "joined":
        others = topology.stream("others", eddy.String, eddy.String)
        joined = words.outer_join(others, lambda one, other: one or other, eddy.JoinWindows(_SECOND), eddy.String)
        joined.to("out", value=eddy.String)
        return topology
    windows: dict[str, eddy.SessionWindows | eddy.SlidingWindows] = {
        "sessions": eddy.SessionWindows(_SECOND),
        "sliding": eddy.SlidingWindows(_SECOND),
    }
    groups = words.group_by(lambda key, value: value, key=eddy.String) if kind == "by-value" else words.group_by_key()
    windowed = groups.windowed_by(windows.get(kind, eddy.TimeWindows(_SECOND)), emit="close")
    windowed.count("counts").to("out", value=eddy.Int64)
    return topology


def send(producer: Producer, kind: str, first: int, times: range) -> None:
    """Write records of these times, with keys from `first` on; of `joined` every other one to each topic."""
    topics = ("words", "others") if kind == "joined" else ("words",)
    producer.begin()
    for number, topic in enumerate(topics):
        own = times[number :: len(topics)]
        names = [b"k%d" % (first + time - times.start) for time in own]
        producer.send(topic, 0, names, names, list(own))
    producer.commit({}, None)


def main(kind: str, records: int) -> None:
    """Write and step in turn; note rows, memory and the size on disk; check what is left, and what was passed on."""
    with tempfile.TemporaryDirectory() as folder:
        log, state = LocalLog(Path(folder) / "log"), Path(folder) / "state"
        log.create_topics([TopicSpec(topic, 1) for topic in ("words", "others", "out")])
        worker = eddy.Worker(topology_of(kind), log, eddy.Config(state_dir=state, cache_bytes=_CACHE_BYTES))
        producer = log.producer(None)
        samples: list[tuple[int, int, int, int]] = []

        def rows() -> int:
            return sum(1 for kept in worker.circuit.states.values() for _ in kept.items())  # type: ignore[attr-defined]

        start = settle()
        for first in range(0, records, _BATCH):
            times = range(first, min(first + _BATCH, records))
            send(producer, kind, first, times)
            worker.run_until_idle()
            if len(samples) < SAMPLES * times.stop // records:
                disk = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
                samples.append((times.stop, rows(), resident_bytes(), disk))
        send(producer, kind, records, range(records + _LATER_MS, records + _LATER_MS + 1 + (kind == "joined")))
        worker.run_until_idle()
        report(start, samples=samples, last_rows=rows(), written=worker.statistics.written)
        most, last, written = max(sample[1] for sample in samples), rows(), worker.statistics.written
        producer.close()
        worker.close()
        log.close()
    if most > _MOST_ROWS or last > _LAST_ROWS or written != records:
        raise SystemExit(f"{most:,} rows in states, {last} in the end, {written:,} of {records:,} windows passed on")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
