"""Joins of streams are a function of the records of each partition: an oracle in plain Python over the whole input.

Whatever the cut into epochs, the pace of partitions, the number of partitions and workers, restarts and lost states.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from eddy.state.memory import MemoryStore
from tests.waiting import PATIENCE_S, Deadline

S, N = eddy.String, eddy.Int64
SIDES = ("left", "right")
Record = tuple[int, str | None, int, int]
"""The number of its side, its key, value and timestamp."""
Row = tuple[str, int, int]
"""A key, a value and a timestamp."""
Joined = tuple[str | None, tuple[int | None, int | None], int]
"""A key, the values of both sides, and the timestamp."""


@dataclass(frozen=True)
class Program:
    """A join; `before`, `after` and `grace` in milliseconds. `by_value`: which sides are keyed by their last digits."""

    before: int
    after: int
    grace: int
    how: Literal["inner", "left", "outer"]
    by_value: tuple[bool, bool]
    filtered: bool
    alone: bool
    """Whether the stream is joined with itself."""

    def topology(self) -> eddy.Topology:
        made = eddy.Topology("app")
        streams = [made.stream(SIDES[side], key=S, value=N) for side in ((0,) if self.alone else (0, 1))]
        if self.filtered:
            streams = [stream.filter(lambda key, value: value % 3 != 0) for stream in streams]
        streams = streams * 2 if self.alone else streams
        left, right = (
            stream.select_key(lambda key, value: str(value % 10), key=S) if rekeyed else stream
            for stream, rekeyed in zip(streams, self.by_value, strict=True)
        )
        windows = eddy.JoinWindows(before=ms(self.before), after=ms(self.after), grace=ms(self.grace))
        if self.how == "inner":
            joined = left.join(right, lambda one, other: (one, other), windows, name="near")
        elif self.how == "left":
            joined = left.left_join(right, lambda one, other: (one, other), windows, name="near")
        else:
            joined = left.outer_join(right, lambda key, one, other: (one, other), windows, name="near")
        joined.to("out", value=eddy.Native)
        return made


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


@dataclass
class Oracle:
    """What has to come of records, by the rule alone."""

    program: Program
    partitions: int
    records: Sequence[Record]

    def __post_init__(self) -> None:
        self.times = {(side, partition): -1 for side in (0, 1) for partition in range(self.partitions)}
        self.rows: tuple[list[Row], list[Row]] = ([], [])
        self.joined: list[Joined] = []
        self.late = 0
        for topic, key, value, stamp in self.records:
            sides = (0, 1) if self.program.alone else (topic,)
            for side in sides:
                self.read(side, key, value, stamp)
        left, right = self.rows
        matched: tuple[set[int], set[int]] = (set(), set())
        for (i, (one, value, t)), (j, (other, match, u)) in product(enumerate(left), enumerate(right)):
            if one == other and t - self.program.before <= u <= t + self.program.after:
                self.joined.append((one, (value, match), max(t, u)))
                matched[0].add(i)
                matched[1].add(j)
        self.open: tuple[list[Row], list[Row]] = ([], [])
        for side in (0, 1):
            for i, row in enumerate(self.rows[side]):
                if not self.gone(side, row[0], row[2]):
                    self.open[side].append(row)
                elif i not in matched[side]:
                    self.alone(side, *row)

    def read(self, side: int, key: str | None, value: int, stamp: int) -> None:
        """Take a record of a side: it is late, or in its rows, or without a key."""
        program, place = self.program, home_of(key, value, self.partitions)
        self.times[side, place] = max(self.times[side, place], stamp)
        if program.filtered and value % 3 == 0:
            return
        mine = str(value % 10) if program.by_value[side] else key
        if mine is None:
            self.alone(side, None, value, stamp)
        elif self.times[side, place] > stamp + max((program.after, program.before)[side], 0) + program.grace:
            self.late += 1
        else:
            self.rows[side].append((mine, value, stamp))

    def alone(self, side: int, key: str | None, value: int, stamp: int) -> None:
        """A record without a match."""
        if self.program.how == "outer" or (self.program.how == "left" and side == 0):
            self.joined.append((key, (None, value) if side else (value, None), stamp))

    def gone(self, side: int, key: str, time: int) -> bool:
        """Whether no record of the other side can match that is not late."""
        reach, back = self.program.after, self.program.before
        if side:
            reach, back = back, reach
        last = max(0, time + reach)
        home = partition_of(key.encode(), self.partitions)
        places = [p for p in range(self.partitions) if self.program.by_value[1 - side] or p == home]
        return all(self.times[1 - side, p] - max(back, 0) - self.program.grace > last for p in places)


def home_of(key: str | None, value: int, partitions: int) -> int:
    return value % partitions if key is None else partition_of(key.encode(), partitions)


class Running:
    """Workers on a log, each with a store in memory."""

    def __init__(self, program: Program, partitions: int, count: int, most: int) -> None:
        self.log, self.topology = LocalLog(None), program.topology()
        self.log.create_topics(TopicSpec(topic, partitions) for topic in (*SIDES, "out"))
        self.partitions = partitions
        self.config = eddy.Config(max_epoch_records=most)
        self.stores = [MemoryStore() for _ in range(count)]
        self.workers = [self._worker(number) for number in range(count)]

    def _worker(self, number: int) -> eddy.Worker:
        return eddy.Worker(
            self.topology, self.log, self.config, member=str(number), store=self.stores[number], clock=lambda: 0.0
        )

    def replace(self, number: int) -> None:
        """A worker ends, and another one with nothing on its disk takes its place."""
        self.workers[number].close()
        self.stores[number] = MemoryStore()
        self.workers[number] = self._worker(number)

    def finish(self) -> None:
        deadline = Deadline(PATIENCE_S)
        while sum(worker.step() for worker in self.workers) or not self.workers[0].quiescent():
            deadline.check("rest")

    def write(self, records: Iterable[Record]) -> None:
        producer = self.log.producer(None)
        producer.begin()
        for side, key, value, stamp in records:
            data = None if key is None else key.encode()
            producer.send(SIDES[side], home_of(key, value, self.partitions), [data], [N.encode(value)], [stamp])
        producer.commit({}, None)
        producer.close()

    def written(self) -> list[Joined]:
        found: list[Joined] = []
        for partition in range(self.partitions):
            at = TopicPartition("out", partition)
            records = self.log.read(at, 0, self.log.end_offsets([at])[at], 100_000)
            for key, value, stamp in zip(records.keys, records.values, records.timestamps, strict=True):
                assert value is not None
                found.append((None if key is None else key.decode(), eddy.Native.decode(value), stamp))
        return found

    def kept(self, name: str) -> int:
        """The rows of a state in all changelogs."""
        rows: set[bytes] = set()
        for partition in range(self.partitions):
            at = TopicPartition(f"app-{name}-changelog", partition)
            records = self.log.read(at, 0, self.log.end_offsets([at])[at], 100_000)
            for key, value in zip(records.keys, records.values, strict=True):
                assert key is not None
                (rows.discard if value is None else rows.add)(key)
        return len(rows)


programs = st.builds(
    Program,
    before=st.integers(-4, 9),
    after=st.integers(-4, 9),
    grace=st.sampled_from([0, 0, 3, 10]),
    how=st.sampled_from(["inner", "left", "outer"]),
    by_value=st.tuples(st.booleans(), st.booleans()),
    filtered=st.booleans(),
    alone=st.booleans(),
).filter(lambda program: program.before + program.after >= 0)
key = st.sampled_from(["a", "b", "c", "ab", "3", None])
record = st.tuples(st.integers(0, 1), key, st.integers(1, 40), st.integers(0, 60))
parts = st.lists(st.lists(record, max_size=12), max_size=6)


def sortable(joined: Iterable[Joined]) -> list[str]:
    return sorted(map(repr, joined))


@given(programs, parts, st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 3, 1000]), st.data())
def test_joins_are_a_function_of_the_records_of_each_partition(
    program: Program, parts: list[list[Record]], partitions: int, count: int, most: int, data: st.DataObject
) -> None:
    running = Running(program, partitions, count, most)
    late = 0
    for part in parts:
        running.write(part)
        match data.draw(st.sampled_from(["finish", "step", "replace"])):
            case "finish":
                running.finish()
            case "step":
                running.workers[data.draw(st.integers(0, count - 1))].step()
            case _:
                number = data.draw(st.integers(0, count - 1))
                late += running.workers[number].statistics.late
                running.replace(number)
    running.finish()
    records = [record for part in parts for record in part if not program.alone or record[0] == 0]
    oracle = Oracle(program, partitions, records)
    assert sortable(running.written()) == sortable(oracle.joined)
    assert late + sum(worker.statistics.late for worker in running.workers) == oracle.late
    for side, name in enumerate(SIDES):
        assert running.kept(f"near-{name}") == len(set(oracle.open[side]))
        assert running.kept(f"near-{name}-calendar") == len({(key, time) for key, _, time in oracle.open[side]})
