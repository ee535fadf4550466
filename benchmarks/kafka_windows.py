"""Windows, joins in time and a processor on a Kafka broker, exactly once: eddy and Kafka Streams, on the same records.

Records are written in one transaction, a millisecond of event time after one another, and become visible at once to an
application that is up. The programs are those of `systems/in_time.py`.
"""

import math
import random
import struct
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path

from benchmarks.applications import EDDY, KAFKA_STREAMS, Application, System, available, in_time, started
from benchmarks.cluster import Cluster, Feed, MissingError, Reader, Topics, cluster
from benchmarks.kafka_runs import await_total
from benchmarks.report import Section, Target, mebibytes, number
from benchmarks.runs import Figures, busy_cores, interleave, median, ratios
from benchmarks.systems.in_time import APART, GAP, PROGRAMS, SIZE

__all__ = ["run"]

_BEGIN_MS = int(time.time() * 1000) - 6 * 3_600_000
"""Hours ago: a broker deletes what is older than a week, and refuses what is an hour ahead of it."""
_MILLISECOND = timedelta(milliseconds=1)
_MOMENT = struct.Struct(">q")
_TICKS = 64
"""Records long after all others, in all partitions: they close windows."""
_LATER_MS = 3_600_000
_TICK_KEYS = 100_000_000
Expected = Mapping[bytes, int]


@dataclass(frozen=True)
class Records:
    """Random keys; the record at place i has the value i and the time `_BEGIN_MS` + i."""

    program: str
    count: int
    keys: int

    @property
    def sides(self) -> int:
        """The number of topics."""
        return 2 if self.program == "joined" else 1

    @cached_property
    def keys_of_sides(self) -> list[list[int]]:
        """The keys of the records of each topic."""
        drawn = random.Random(f"{self.program} {self.count}")
        return [drawn.choices(range(self.keys), k=self.count // self.sides) for _ in range(self.sides)]

    @cached_property
    def times(self) -> list[dict[int, list[int]]]:
        """The places of the records of each key, by topic."""
        found: list[dict[int, list[int]]] = []
        for keys in self.keys_of_sides:
            of: dict[int, list[int]] = defaultdict(list)
            for place, key in enumerate(keys):
                of[key].append(place)
            found.append(of)
        return found

    @cached_property
    def expected(self) -> Expected:
        """The counts by the bytes of their keys; of joins the sum and the number of the values."""
        match self.program:
            case "joined":
                return self._joined()
            case "sessions":
                return self._sessions()
            case "processed":
                return {str(key).encode(): len(places) for key, places in self.times[0].items()}
            case _:
                return self._windows()

    @property
    def total(self) -> int:
        """The sum of all values in the end."""
        return self.expected[b"sum"] if self.program == "joined" else self.count

    def _windows(self) -> Expected:
        size, counts = SIZE // _MILLISECOND, defaultdict[bytes, int](int)
        for key, places in self.times[0].items():
            for place in places:
                start = (_BEGIN_MS + place) // size * size
                counts[str(key).encode() + _MOMENT.pack(start)] += 1
        return counts

    def _sessions(self) -> Expected:
        gap, counts = GAP // _MILLISECOND, dict[bytes, int]()
        for key, places in self.times[0].items():
            start = last = places[0]
            size = 0
            for place in [*places, math.inf]:
                if place - last > gap:
                    ends = _MOMENT.pack(_BEGIN_MS + last), _MOMENT.pack(_BEGIN_MS + start)
                    counts[str(key).encode() + b"".join(ends)] = size
                    start, size = int(place) if place < math.inf else 0, 0
                last, size = int(place) if place < math.inf else 0, size + 1
        return counts

    def _joined(self) -> Expected:
        apart, left, right = APART // _MILLISECOND, *self.times
        pairs = total = 0
        for key, places in left.items():
            others = right.get(key, [])
            for place in places:
                near = others[bisect_left(others, place - apart) : bisect_right(others, place + apart)]
                pairs += len(near)
                total += place * len(near) + sum(near)
        return {b"sum": total, b"pairs": pairs}


class _Nothing(dict[bytes, int]):
    """A table that keeps no row."""

    def __setitem__(self, key: bytes, value: int) -> None:
        """Nothing."""


class _Sums(Reader):
    """Reads all values, and adds them up: none replaces another one."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap, topic)
        self.latest = _Nothing()


@dataclass(slots=True)
class _OnKafka:
    """A system on records."""

    system: System
    cluster: Cluster
    records: Records

    @property
    def name(self) -> str:
        """The name in tables."""
        return self.system.name

    def run(self) -> Figures:
        """Run it once, on topics of its own."""
        others = busy_cores([self.cluster.pid] if self.cluster.pid else [])
        joined = self.records.program == "joined"
        with self.cluster.topics() as topics, tempfile.TemporaryDirectory() as folder:
            reader = (_Sums if joined else Reader)(self.cluster.bootstrap, topics.counts)
            try:
                with started(self.system, self.cluster, topics, Path(folder)) as application:
                    begun = self._fill(topics, application)
                    await_total(reader, self.records.total, application)
                    figures = application.figures() | {"seconds": reader.last_s - begun}
            except RuntimeError as error:
                return {"wrong": str(error)}
            finally:
                reader.close()
            return figures | {"written": reader.records, "wrong": self._wrong(reader), "others_cores": others()}

    def _fill(self, topics: Topics, application: Application) -> float:
        feeds = [Feed(self.cluster.bootstrap, topic, held_back=True) for topic in (topics.nodes, topics.loop)]
        for feed, keys in zip(feeds, self.records.keys_of_sides, strict=False):
            feed.send(((key, place) for place, key in enumerate(keys)), _BEGIN_MS)
            if self.records.program == "final":
                feed.send(((_TICK_KEYS + at, 0) for at in range(_TICKS)), _BEGIN_MS + self.records.count + _LATER_MS)
        application.wait_ready()
        begun = time.perf_counter()
        for feed in feeds[: self.records.sides]:
            feed.release()
        for feed in feeds[: self.records.sides]:
            feed.close()
        return begun

    def _wrong(self, reader: Reader) -> str:
        expected = self.records.expected
        if self.records.program == "joined":
            same = (reader.total, reader.records) == (expected[b"sum"], expected[b"pairs"])
            return "" if same else f"{reader.records:,} pairs, not {expected[b'pairs']:,}"
        found = {bytes(key): count for key, count in reader.latest.items() if count}
        wrong = sum(expected.get(key) != found.get(key) for key in expected.keys() | found.keys())
        return f"{wrong:,} of {len(expected):,} counts differ" if wrong else ""


def run(quick: bool) -> Section:
    """All programs."""
    count, keys, repetitions = (20_000, 1_000, 1) if quick else (1_000_000, 10_000, 3)
    section = Section(
        f"kafka-windows: {count:,} records over {keys:,} keys, 4 partitions, exactly once; ×: by Kafka Streams'",
        [
            "program",
            "system",
            "median s",
            "records/s",
            "×",
            "(pairs)",
            "CPU s",
            "× CPU",
            "peak MiB",
            "written",
            "result",
        ],
    )
    section.notes = [
        f"tumbling: a count by key and window of {SIZE}; sessions: by key and session with a gap of {GAP}; final: as "
        'tumbling, each window\'s count once, when it closes (emit="close" and suppress(untilWindowCloses)).',
        f"joined: two streams of half as many records each, {APART} apart at most.",
        "processed: a count by key in the store of a processor, which forwards it with each record.",
        "eddy: one process, and two of one application; Kafka Streams: one process of two threads, exactly_once_v2, "
        "its record cache and all other settings as by default.",
    ]
    try:
        with cluster() as broker:
            for program in PROGRAMS:
                _measure(section, broker, Records(program, count, keys), repetitions)
    except MissingError as error:
        section.notes.append(f"not run: {error}")
    in_windows = [program for program in section.runs if program != "processed"]
    speed = {program: _middle(_pairs(section, program, "seconds")) for program in in_windows}
    section.targets = [Target("windows on Kafka", 1, "× Kafka Streams' records/s", speed, at_least=True)]
    if "processed" in section.runs:
        cpu = {"processed": _middle(_pairs(section, "processed", "cpu_seconds"))}
        what = "× Kafka Streams' records a processor second"
        section.targets.append(Target("a processor on Kafka", 0.5, what, cpu, at_least=True))
    return section


def _measure(section: Section, broker: Cluster, records: Records, repetitions: int) -> None:
    systems, missing = available(*in_time(records.program))
    section.notes += [note for note in missing if note not in section.notes]
    runs = section.runs[records.program] = interleave(
        [_OnKafka(system, broker, records) for system in systems], repetitions
    )
    for name, own in runs.items():
        seconds = median(own, "seconds")
        pairs = _pairs(section, records.program, "seconds", name)
        if name.startswith("eddy"):
            section.wrong += [f"{records.program}: {one['wrong']}" for one in own if one["wrong"]]
        section.rows.append(
            [
                *(records.program, name, number(seconds), number(records.count / seconds), number(_middle(pairs))),
                f"{number(min(pairs))}–{number(max(pairs))}" if pairs else "–",
                number(median(own, "cpu_seconds")),
                number(_middle(_pairs(section, records.program, "cpu_seconds", name))),
                mebibytes(median(own, "peak_bytes")),
                number(median(own, "written")),
                "; ".join(dict.fromkeys(one["wrong"] for one in own if one["wrong"])) or "ok",
            ]
        )


def _pairs(section: Section, program: str, figure: str, name: str = EDDY.name) -> list[float]:
    """Kafka Streams' figure by that of eddy under this name, pair by pair; none for others."""
    runs = section.runs[program]
    return ratios(runs.get(KAFKA_STREAMS.name, []), runs[name], figure) if name.startswith(EDDY.name) else []


def _middle(values: list[float]) -> float:
    return median([{"x": value} for value in values], "x")
