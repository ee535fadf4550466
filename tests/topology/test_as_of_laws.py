"""Joins as of a time are a function of the records of each partition: an oracle in plain Python over the whole input.

Whatever the cut into epochs, the pace of partitions, the number of partitions and workers, restarts and lost states.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.partitioner import partition_of
from tests.topology.joining import Joined, N, Record, Running, S, home_of, ms, sortable

Rates = Literal["", "keyed", "sent", "twice", "both"]


_RENAMED = {None: "3", "c": "a", "7": "3"}
"""Without a key a record may be in any partition."""


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
    rates: Rates = ""
    """What happens to the right side before: other keys, exchanges, or a second topic, the left one, beside it."""

    def key_of_rate(self, key: str | None, value: int | None) -> str | None:
        """The key of a record of the right side, when it is joined."""
        renamed = key if self.rates in ("", "both") else _RENAMED.get(key, key)
        return f"{renamed}{value}"[0] if self.rates == "twice" else renamed

    def topology(self) -> eddy.Topology:
        made = eddy.Topology("app")
        orders, rates = made.stream("left", key=S, value=N), made.stream("right", key=S, value=N)
        rates_too = orders
        if self.filtered:
            orders, rates = (
                stream.filter(lambda key, value: value is None or value % 3 != 0) for stream in (orders, rates)
            )
        if self.by_value:
            orders = orders.filter(lambda key, value: value is not None)
            orders = orders.select_key(lambda key, value: str(value % 10), key=S)
        if self.sent:
            orders = orders.repartition(name="sent")
        if self.rates == "both":
            rates = rates.merge(rates_too)
        if self.rates in ("keyed", "sent", "twice"):
            rates = rates.select_key(lambda key, value: _RENAMED.get(key, key), key=S)
        if self.rates in ("sent", "twice"):
            rates = rates.repartition(name="rates")
        if self.rates == "twice":
            apart = rates.select_key(lambda key, value: f"{key}{value}", key=S).repartition(3, "apart")
            rates = apart.select_key(lambda key, value: key[0], key=S)
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
        self.come: list[tuple[int, int, int, int, str, int | None, int]] = []
        self.versions: dict[str, dict[int, int | None]] = {}
        self.asked: list[tuple[str, int, int]] = []
        for offset, record in enumerate(self.records):
            self.read(offset, *record)
        for *_, key, value, stamp in (
            self.come if self.program.rates == "" else sorted(self.come, key=itemgetter(0, 1, 2, 3))
        ):
            self.versions.setdefault(key, {})[stamp] = value
        for key, value, stamp in self.asked:
            self.ask(key, value, stamp)

    def read(self, offset: int, side: int, key: str | None, value: int | None, stamp: int) -> None:
        """Take a record of a side: it is late, or asks for a value, or is one, or has no key."""
        program, place = self.program, (side, home_of(key, value, self.partitions))
        self.times[place] = max(self.times[place], stamp)
        if side == 0 and program.rates == "both":
            self.take_version(offset, place, key, value, stamp)
        if value is not None and program.filtered and value % 3 == 0:
            return
        if side:
            mine = program.key_of_rate(key, value)
            self.take_version(offset, place, mine, value, stamp)
            return
        if value is None:
            return
        mine = str(value % 10) if program.by_value else key
        if mine is None:
            if program.left:
                self.joined.append((None, (value, None), stamp))
        elif self.times[place] > stamp + program.history:
            self.late += 1
        else:
            self.asked.append((mine, value, stamp))

    def take_version(self, offset: int, place: tuple[int, int], key: str | None, value: int | None, stamp: int) -> None:
        """Take a version, unless it is late or has no key."""
        if key is None:
            return
        if self.times[place] > stamp + self.program.grace:
            self.late += 1
        else:
            self.come.append((self.times[place], *place, offset, key, value, stamp))

    def rates_time(self, key: str) -> int:
        """The least event time of the partitions from which versions of a key may come."""
        rates, home = self.program.rates, partition_of(key.encode(), self.partitions)
        homes = [home] if rates in ("", "both") else range(self.partitions)
        return min(self.times[side, place] for place in homes for side in ((0, 1) if rates == "both" else (1,)))

    def ask(self, key: str, value: int, stamp: int) -> None:
        """Join a record, or let it wait."""
        if self.rates_time(key) <= stamp + self.program.grace:
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
            low = min(lefts - self.program.history, self.rates_time(key) - self.program.grace) - 1
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
    rates=st.sampled_from(["", "", "keyed", "sent", "twice", "both"]),
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
    check(program, parts, partitions, count, most, ends, data)


of_one_time = st.tuples(
    st.just(1), st.sampled_from(["3", "7", None, None]), st.integers(1, 40), st.sampled_from([1, 2])
)
orders = [(0, "3", 2, at) for at in (1, 5)]


@given(
    st.builds(
        Program,
        history=st.just(100),
        grace=st.just(20),
        left=st.just(True),
        by_value=st.just(False),
        filtered=st.just(False),
        rates=st.sampled_from(["keyed", "sent", "twice", "both"]),
    ),
    st.lists(st.lists(of_one_time, min_size=6, max_size=12), min_size=1, max_size=2),
    st.integers(1, 4),
    st.integers(1, 3),
    st.data(),
)
def test_of_versions_of_one_time_the_last_one_in_the_order_of_records_counts(
    program: Program, parts: list[list[Record]], partitions: int, count: int, data: st.DataObject
) -> None:
    parts = [[(*row, at - 10 * number) for *row, at in part] for number, part in enumerate(parts, 1)]
    check(program, [orders, *parts], partitions, count, 3, True, data)


def check(
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
