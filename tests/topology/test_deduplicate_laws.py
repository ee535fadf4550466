"""Records that pass `deduplicate` are a function of the records of each partition: an oracle over the whole input.

Whatever the cut into epochs, the pace of partitions, the number of partitions and workers, restarts and lost states.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.partitioner import partition_of
from tests.topology.joining import SIDES, N, Record, Running, S, home_of, ms

Passed = tuple[str | None, tuple[int, int | None], int]
"""A key, a number within its record and its value, and the timestamp."""


Sent = Literal["", "once", "twice", "half"]


def key_of(value: int | None) -> str:
    return str((value or 0) % 5)


@dataclass(frozen=True)
class Program:
    """Spans in milliseconds. `by_value`: by the last digits of values, else by key. `spread`: two rows of a record,
    which are equal if they are `alike`.

    `sent`: the exchanges before: none, one, two with other keys between them, or one for the left of two sides alone.
    """

    within: int
    grace: int
    by_value: bool
    merged: bool
    spread: bool
    filtered: bool
    alike: bool = False
    sent: Sent = ""

    @property
    def numbers(self) -> list[int]:
        """The numbers of the rows of a record."""
        return [0, 0 if self.alike else 1] if self.spread else [0]

    def topology(self) -> eddy.Topology:
        made = eddy.Topology("app")
        sides = [made.stream(side, key=S, value=N) for side in SIDES]
        if self.sent == "half":
            sides[0] = sides[0].repartition(name="half")
        rows = sides[0].merge(sides[1]) if self.merged else sides[0]
        if self.filtered:
            rows = rows.filter(lambda key, value: value is None or value % 3 != 0)
        numbers = self.numbers
        several = rows.flat_map_values(lambda value: [(number, value) for number in numbers], value=eddy.Native)
        if self.sent == "once":
            several = several.repartition(name="sent")
        if self.sent == "twice":
            apart = several.select_key(lambda key, value: str(value), key=S).repartition(2, "first")
            several = apart.select_key(lambda key, value: key_of(value[1]), key=S).repartition(name="second")
        by = (lambda key, value: None if value[1] is None else value[1] % 4) if self.by_value else None
        once = several.deduplicate(by, within=ms(self.within), grace=ms(self.grace), name="once")
        once.to("out", value=eddy.Native)
        return made


@dataclass
class Oracle:
    """The records that have to pass, by the rule alone."""

    program: Program
    partitions: int
    records: Sequence[Record]
    passed: list[Passed] = field(default_factory=list)
    late: int = 0
    duplicates: int = 0

    def __post_init__(self) -> None:
        count = 2 if self.program.merged else 1
        self.times = {(side, partition): -1 for side in range(count) for partition in range(self.partitions)}
        self.rows: list[tuple[int, int, int, int, int, str | None, int | None, int]] = []
        for offset, (side, key, value, stamp) in enumerate(self.records):
            place = side, home_of(key, value, self.partitions)
            if place in self.times:
                self.times[place] = max(self.times[place], stamp)
                self.read(place, offset, key, value, stamp)
        self.rows_waiting: list[tuple[int, ...]] = []
        self.moments: dict[str | int, list[int]] = {}
        for row in sorted(self.rows):
            self.take(*row)

    def read(self, place: tuple[int, int], offset: int, key: str | None, value: int | None, stamp: int) -> None:
        program, time = self.program, self.times[place]
        if value is not None and program.filtered and value % 3 == 0:
            return
        if key is None and (program.sent == "once" or (program.sent == "half" and place[0] == 0)):
            return
        key = key_of(value) if program.sent == "twice" else key
        if (value if program.by_value else key) is None:
            return
        for number in program.numbers:
            if stamp + program.within + program.grace <= time:
                self.late += 1
            else:
                self.rows.append((time, *place, offset, number, key, value, stamp))

    def home(self, mine: str | int) -> int:
        return partition_of(mine.encode() if isinstance(mine, str) else eddy.Native.encode(mine), self.partitions)

    def read_by(self, mine: str | int) -> list[tuple[int, int, int]]:
        """The time of each source partition that may have a record of a `by` value."""
        program = self.program
        places = [p for p in self.times if program.by_value or program.sent or p[1] == self.home(mine)]
        return [(self.times[place], *place) for place in places]

    def take(
        self, time: int, side: int, partition: int, offset: int, n: int, key: str | None, value: int | None, at: int
    ) -> None:
        mine = (value or 0) % 4 if self.program.by_value else key
        assert mine is not None
        least = min(self.read_by(mine))
        if time >= least[0] if self.program.sent else (time, side, partition) > least:
            self.rows_waiting.append((time, side, partition, offset, n))
            return
        before = self.moments.setdefault(mine, [])
        if all(abs(at - other) >= self.program.within for other in before):
            before.append(at)
            self.passed.append((key, (n, value), at))
        else:
            self.duplicates += 1

    @property
    def waiting(self) -> int:
        """The number of entries of records that wait; equal rows that were sent share one."""
        return len(set(self.rows_waiting) if self.program.sent else self.rows_waiting)

    def kept(self) -> int:
        """The number of `by` values with a moment that may still be near a record that is not late."""
        span = 2 * self.program.within + self.program.grace
        return sum(
            any(at + span > min(self.read_by(mine))[0] for at in moments) for mine, moments in self.moments.items()
        )


def unnumbered(row: Any) -> tuple[str | None, int | None, int]:
    key, (_, value), at = row
    return key, value, at


programs = st.builds(
    Program,
    within=st.sampled_from([1, 5, 20, 100]),
    grace=st.sampled_from([0, 0, 3, 20]),
    by_value=st.booleans(),
    merged=st.booleans(),
    spread=st.booleans(),
    filtered=st.booleans(),
    alike=st.booleans(),
    sent=st.sampled_from(["", "", "once", "twice", "half"]),
)
key = st.sampled_from(["a", "b", "c", "3", None])
record = st.tuples(st.integers(0, 1), key, st.one_of(st.none(), st.integers(1, 40)), st.integers(-25, 12))
parts = st.lists(st.lists(record, min_size=1, max_size=15), min_size=1, max_size=6)


@given(programs, parts, st.integers(1, 3), st.integers(1, 3), st.sampled_from([1, 3, 1000]), st.booleans(), st.data())
def test_what_passes_is_a_function_of_the_records_of_each_partition(
    program: Program,
    parts: list[list[Record]],
    partitions: int,
    count: int,
    most: int,
    ends: bool,
    data: st.DataObject,
) -> None:
    running = Running(program.topology(), partitions, count, most)
    written: list[Record] = []
    late = duplicates = 0
    if ends:
        parts = [*parts, [(side, None, number, 90) for side in (0, 1) for number in range(4, 4 + partitions)]]
    for number, part in enumerate(parts):
        records = [(side, key, value, max(0, 10 * number + stamp)) for side, key, value, stamp in part]
        running.write(records)
        written += records
        match data.draw(st.sampled_from(["finish", "step", "replace"])):
            case "finish":
                running.finish()
            case "step":
                running.workers[data.draw(st.integers(0, count - 1))].step()
            case _:
                number = data.draw(st.integers(0, count - 1))
                late += running.workers[number].statistics.late
                duplicates += running.workers[number].statistics.duplicates
                running.replace(number)
    running.finish()
    oracle = Oracle(program, partitions, written)
    if program.sent and program.spread:  # of two rows of one record any, but always the same
        at_once = Running(program.topology(), partitions, 1, 1_000)
        at_once.write(written)
        at_once.finish()
        assert sorted(map(repr, running.written())) == sorted(map(repr, at_once.written()))
        assert Counter(map(unnumbered, running.written())) == Counter(map(unnumbered, oracle.passed))
    else:
        assert sorted(map(repr, running.written())) == sorted(map(repr, oracle.passed))
    assert late + sum(worker.statistics.late for worker in running.workers) == oracle.late
    assert duplicates + sum(worker.statistics.duplicates for worker in running.workers) == oracle.duplicates
    assert running.kept("once-waiting") == running.kept("once-waiting-calendar") == oracle.waiting
    assert running.kept("once-passed") == running.kept("once-calendar") == oracle.kept()
