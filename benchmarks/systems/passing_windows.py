"""A worker on disk through whose states windows pass: as many open and close as there are records, each of a new key.

    passing_windows KIND RECORDS

The embedded log and the states are on disk. A window takes a second, and a record is a millisecond after the one
before it; of `calendar` a window takes a day, and a day has a thousand records. At the end a record much later closes
all windows before it. KIND is one of these:

    tumbling, hopping, calendar, sliding, sessions    a count of each window, when it closes; of `hopping` four windows
                                                      for each record
    by-value        tumbling, through an exchange
    suppressed      tumbling, with `suppress()`
    values          sessions, with the number of different values of each
    joined, left    an outer and a left join of two streams of half as many records each, without a match
    as-of           two such streams with a thousand keys, a left join with the other's value at each record's time
"""

import sys
import tempfile
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import eddy
from benchmarks.systems.process import report, resident_bytes, settle
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Producer, TopicSpec
from eddy.state.partitioned_map import PartitionedMap

SAMPLES = 20
_DAY_MS, _SECOND = 86_400_000, timedelta(seconds=1)
_LATER = 3_600_000
"""The record that closes all windows is so many steps later."""
_BATCH = 20_000
_CACHE_BYTES = 16 << 20
_MOST_ROWS = 40_000
"""Of states, while windows are open: ten seconds, of four rows for each record."""
_LAST_ROWS = 12
"""Of the record that is an hour later, and the marks of its partition."""
_KEYS = 1_000
"""Of `as-of`, whose state has the last value of each key."""
_OF_TWO = ("joined", "left", "as-of")
KINDS = ("tumbling", "hopping", "calendar", "by-value", "suppressed", "sessions", "values", "sliding", *_OF_TWO)

_Windows = eddy.CalendarWindows | eddy.SessionWindows | eddy.SlidingWindows | eddy.TimeWindows


def topology_of(kind: str) -> eddy.Topology:
    """The program."""
    topology = eddy.Topology("passing")
    words = topology.stream("words", eddy.String, eddy.String)
    if kind in _OF_TWO:
        _join(words, topology.stream("others", eddy.String, eddy.String), kind).to("out", value=eddy.String)
        return topology
    windows: dict[str, _Windows] = {
        "hopping": eddy.TimeWindows(_SECOND, advance=_SECOND / 4),
        "calendar": eddy.CalendarWindows("day", "Europe/Zurich"),
        "sessions": eddy.SessionWindows(_SECOND),
        "values": eddy.SessionWindows(_SECOND),
        "sliding": eddy.SlidingWindows(_SECOND),
    }
    groups = words.group_by(lambda key, value: value, key=eddy.String) if kind == "by-value" else words.group_by_key()
    emit = "update" if kind == "suppressed" else "close"
    windowed = groups.windowed_by(windows.get(kind, eddy.TimeWindows(_SECOND)), emit=emit)
    counts = windowed.distinct_count("counts") if kind == "values" else windowed.count("counts")
    (counts.suppress() if kind == "suppressed" else counts).to("out", value=eddy.Int64)
    return topology


def _join(words: eddy.KStream[str, str], others: eddy.KStream[str, str], kind: str) -> eddy.KStream[str, str]:
    if kind == "as-of":
        return words.left_join(others, lambda one, other: one, eddy.AsOf(_SECOND), eddy.String)
    join = words.outer_join if kind == "joined" else words.left_join
    return join(others, lambda one, other: one or other, eddy.JoinWindows(_SECOND), eddy.String)


def send(producer: Producer, kind: str, records: range, later: int = 0) -> None:
    """Write the records of these numbers, `later` steps after their time; of two streams every other one to each."""
    topics, step_ms = ("words", "others") if kind in _OF_TWO else ("words",), 86_400 if kind == "calendar" else 1
    producer.begin()
    for place, topic in enumerate(topics):
        own = records[place :: len(topics)]
        names = [b"k%d" % (number // 2 % _KEYS if kind == "as-of" else number) for number in own]
        producer.send(topic, 0, names, names, [_DAY_MS + step_ms * (number + later) for number in own])
    producer.commit({}, None)


def expected(kind: str, records: int) -> tuple[int, int]:
    """The records passed on, and the most rows in states at the end. A record of `as-of` has its value at once."""
    match kind:
        case "hopping":
            return 4 * records, _LAST_ROWS
        case "left":
            return records // 2, _LAST_ROWS
        case "as-of":
            return records // 2 + 1, _LAST_ROWS + _KEYS
        case _:
            return records, _LAST_ROWS


def _items(state: Any) -> Iterable[object]:
    """Return the rows of a state; the marks of an exchange are read by partition."""
    return state.items([0]) if isinstance(state, PartitionedMap) else state.items()


def main(kind: str, records: int) -> None:
    """Write and step in turn; note rows, memory and the size on disk; check what is left, and what was passed on."""
    with tempfile.TemporaryDirectory() as folder:
        log, state = LocalLog(Path(folder) / "log"), Path(folder) / "state"
        log.create_topics([TopicSpec(topic, 1) for topic in ("words", "others", "out")])
        worker = eddy.Worker(topology_of(kind), log, eddy.Config(state_dir=state, cache_bytes=_CACHE_BYTES))
        producer = log.producer(None)
        samples: list[tuple[int, int, int, int]] = []

        def rows() -> int:
            return sum(sum(1 for _ in _items(state)) for state in worker.circuit.states.values())

        start = settle()
        for first in range(0, records, _BATCH):
            batch = range(first, min(first + _BATCH, records))
            send(producer, kind, batch)
            worker.run_until_idle()
            if len(samples) < SAMPLES * batch.stop // records:
                disk = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
                samples.append((batch.stop, rows(), resident_bytes(), disk))
        send(producer, kind, range(records, records + 1 + (kind in _OF_TWO)), _LATER)
        worker.run_until_idle()
        report(start, samples=samples, last_rows=rows(), written=worker.statistics.written)
        most, last, written = max(sample[1] for sample in samples), rows(), worker.statistics.written
        producer.close()
        worker.close()
        log.close()
    passed, left = expected(kind, records)
    if most > _MOST_ROWS or last > left or written != passed:
        raise SystemExit(f"{most:,} rows in states, {last} in the end, {written:,} of {passed:,} windows passed on")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
