"""Joins of streams are a function of the records of each partition: an oracle in plain Python over the whole input.

Whatever the cut into epochs, the pace of partitions, the number of partitions and workers, restarts and lost states.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.partitioner import partition_of
from tests.topology.joining import SIDES, Joined, N, Record, Running, S, home_of, ms, sortable

Row = tuple[str, int, int]
"""A key, a value and a timestamp."""


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
    sent: tuple[int, int] = (0, 0)
    """How many exchanges each side passes before the join."""

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
        left, right = (
            sent_on(stream, side, times) for stream, side, times in zip((left, right), SIDES, self.sent, strict=True)
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


def sent_on(stream: eddy.KStream[str, int], side: str, times: int) -> eddy.KStream[str, int]:
    """A stream that passes exchanges; the first of two has other partitions."""
    if times == 2:
        stream = stream.repartition(3, f"{side}-first")
    return stream.repartition(name=f"{side}-last") if times else stream


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
        of_all = self.program.by_value[1 - side] or self.program.sent[1 - side]
        places = [p for p in range(self.partitions) if of_all or p == home]
        return all(self.times[1 - side, p] - max(back, 0) - self.program.grace > last for p in places)


programs = st.builds(
    Program,
    before=st.integers(-4, 9),
    after=st.integers(-4, 9),
    grace=st.sampled_from([0, 0, 3, 10]),
    how=st.sampled_from(["inner", "left", "outer"]),
    by_value=st.tuples(st.booleans(), st.booleans()),
    filtered=st.booleans(),
    alone=st.booleans(),
    sent=st.tuples(st.sampled_from([0, 0, 1, 2]), st.sampled_from([0, 0, 1, 2])),
).filter(lambda program: program.before + program.after >= 0)
key = st.sampled_from(["a", "b", "c", "ab", "3", None])
record = st.tuples(st.integers(0, 1), key, st.integers(1, 40), st.integers(0, 60))
parts = st.lists(st.lists(record, max_size=12), max_size=6)


@given(programs, parts, st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 3, 1000]), st.data())
def test_joins_are_a_function_of_the_records_of_each_partition(
    program: Program, parts: list[list[Record]], partitions: int, count: int, most: int, data: st.DataObject
) -> None:
    running = Running(program.topology(), partitions, count, most)
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
