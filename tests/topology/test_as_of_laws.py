"""Joins as of a time are a function of the records of each partition: an oracle in plain Python over the whole input.

Whatever the cut into epochs, the pace of partitions, the number of partitions and workers, restarts and lost states.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.partitioner import partition_of
from tests.topology.joining import Joined, N, Record, Running, S, home_of, ms, sortable


@dataclass(frozen=True)
class Program:
    """A join; `history` and `grace` in milliseconds. `by_value`: whether the left side is keyed by its last digits."""

    history: int
    grace: int
    left: bool
    by_value: bool
    filtered: bool
    sent: bool = False
    """Whether the left side is sent through an exchange before the join."""

    def topology(self) -> eddy.Topology:
        made = eddy.Topology("app")
        orders, rates = made.stream("left", key=S, value=N), made.stream("right", key=S, value=N)
        if self.filtered:
            orders, rates = (
                stream.filter(lambda key, value: value is None or value % 3 != 0) for stream in (orders, rates)
            )
        if self.by_value:
            orders = orders.filter(lambda key, value: value is not None)
            orders = orders.select_key(lambda key, value: str(value % 10), key=S)
        if self.sent:
            orders = orders.repartition(name="sent")
        as_of = eddy.AsOf(ms(self.history), grace=ms(self.grace))
        if self.left:
            joined = orders.left_join(rates, lambda order, rate: (order, rate), as_of, name="rated")
        else:
            joined = orders.join(rates, lambda key, order, rate: (order, rate), as_of, name="rated")
        joined.to("out", value=eddy.Native)
        return made


@dataclass
class Oracle:
    """What has to come of records, by the rule alone."""

    program: Program
    partitions: int
    records: Sequence[Record]
    joined: list[Joined] = field(default_factory=list)
    waiting: set[tuple[str, int, int]] = field(default_factory=set)
    late: int = 0

    def __post_init__(self) -> None:
        self.times = {(side, partition): -1 for side in (0, 1) for partition in range(self.partitions)}
        self.versions: dict[str, dict[int, int | None]] = {}
        self.asked: list[tuple[str, int, int]] = []
        for record in self.records:
            self.read(*record)
        for key, value, stamp in self.asked:
            self.ask(key, value, stamp)

    def read(self, side: int, key: str | None, value: int | None, stamp: int) -> None:
        """Take a record of a side: it is late, or asks for a value, or is one, or has no key."""
        program, place = self.program, (side, home_of(key, value, self.partitions))
        self.times[place] = max(self.times[place], stamp)
        if value is not None and program.filtered and value % 3 == 0:
            return
        if side == 0 and value is None:
            return
        mine = str(value % 10) if side == 0 and value is not None and program.by_value else key
        if mine is None:
            if side == 0 and program.left and value is not None:
                self.joined.append((None, (value, None), stamp))
        elif self.times[place] > stamp + (program.grace if side else program.history):
            self.late += 1
        elif side:
            self.versions.setdefault(mine, {})[stamp] = value
        elif value is not None:
            self.asked.append((mine, value, stamp))

    def ask(self, key: str, value: int, stamp: int) -> None:
        """Join a record, or let it wait."""
        if self.times[1, partition_of(key.encode(), self.partitions)] <= stamp + self.program.grace:
            self.waiting.add((key, value, stamp))
            return
        found = {at: rate for at, rate in self.versions.get(key, {}).items() if at <= stamp}
        rate = found[max(found)] if found else None
        if rate is not None or self.program.left:
            self.joined.append((key, (value, rate), stamp))

    def kept(self) -> tuple[int, int]:
        """The number of versions of which a record can still ask, and of those that are not final."""
        final = open = 0
        for key, versions in self.versions.items():
            home = partition_of(key.encode(), self.partitions)
            homes = range(self.partitions) if self.program.by_value or self.program.sent else [home]
            lefts = min(self.times[0, place] for place in homes)
            low = min(lefts - self.program.history, self.times[1, home] - self.program.grace) - 1
            old = [at for at in versions if at <= max(-1, low)]
            open += len(versions) - len(old)
            final += bool(old) and versions[max(old)] is not None
        return final + open, open


programs = st.builds(
    Program,
    history=st.sampled_from([0, 5, 20, 100]),
    grace=st.sampled_from([0, 0, 3, 20]),
    left=st.booleans(),
    by_value=st.booleans(),
    filtered=st.booleans(),
    sent=st.booleans(),
)
key = st.sampled_from(["a", "b", "c", "3", "7", None])
record = st.tuples(st.integers(0, 1), key, st.one_of(st.none(), st.integers(1, 40)), st.integers(-9, 12))
parts = st.lists(st.lists(record, min_size=1, max_size=15), min_size=1, max_size=6)


@given(programs, parts, st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 3, 1000]), st.booleans(), st.data())
def test_joins_as_of_a_time_are_a_function_of_the_records_of_each_partition(
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
    late = 0
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
                running.replace(number)
    running.finish()
    oracle = Oracle(program, partitions, written)
    assert sortable(running.written()) == sortable(oracle.joined)
    assert late + sum(worker.statistics.late for worker in running.workers) == oracle.late
    assert running.kept("rated-waiting") == len(oracle.waiting)
    assert running.kept("rated-waiting-calendar") == len({(key, at) for key, _, at in oracle.waiting})
    assert (running.kept("rated-versions"), running.kept("rated-versions-calendar")) == oracle.kept()
