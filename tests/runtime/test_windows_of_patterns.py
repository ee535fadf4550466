"""Windows, joins in time and `deduplicate` over topics by a pattern, which join and are deleted while workers run.

The oracle has the rule alone: a topic joins at the least event time of its pattern's partition, and a deleted one is
left out. Topics join while the workers are at rest, so that the times at which they join are known.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import eddy
from eddy.cli.application import find
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.operators.context import Context
from eddy.partitioner import partition_of
from eddy.state.memory import MemoryStore
from tests.runtime.test_topic_patterns import KeptStore, KilledError
from tests.waiting import Deadline

S, N = eddy.String, eddy.Int64
NAMES = ["in-a", "in-b", "in-c"]
OUT = TopicPartition("out", 0)
SIZE, GRACE, END = 10, 4, 1_000
Row = tuple[str, int, int]
"""Key, value, timestamp."""
Kind = Literal["count", "rekeyed", "sent", "sessions", "once", "once by value", "once sent", "join"]
KINDS: tuple[Kind, ...] = ("count", "rekeyed", "sent", "sessions", "once", "once by value", "once sent", "join")


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def topology_of(kind: Kind) -> eddy.Topology:
    topology = eddy.Topology("app")
    stream = topology.stream(pattern="in-.*", key=S, value=N)
    if kind in ("once", "once by value", "once sent"):
        if kind == "once sent":
            stream = stream.repartition(2, "first")
        by = (lambda key, value: value % 3) if kind == "once by value" else None
        stream.deduplicate(by, within=ms(SIZE), grace=ms(GRACE), name="once").to("out", value=eddy.Native)
        return topology
    if kind == "join":
        other = topology.stream("other", key=S, value=N)
        pairs = stream.join(other, lambda one, two: (one, two), eddy.JoinWindows(ms(SIZE), grace=ms(GRACE)), name="j")
        pairs.to("out", value=eddy.Native)
        return topology
    if kind == "sent":
        stream = stream.repartition(2, "first").repartition(3, "second")
    groups = (
        stream.group_by(lambda key, value: str(value % 3) if value >= 0 else "end", key=S)
        if kind == "rekeyed"
        else stream.group_by_key()
    )
    windows: eddy.TimeWindows | eddy.SessionWindows = eddy.TimeWindows(ms(SIZE), grace=ms(GRACE))
    if kind == "sessions":
        windows = eddy.SessionWindows(ms(SIZE), ms(GRACE))
    counts = groups.windowed_by(windows, "close").reduce(lambda one, two: one + two, "sums")
    counts.to_stream().map(lambda key, total: (key.key, (key.start_ms, total)), key=S).to("out", value=eddy.Native)
    return topology


@dataclass
class Oracle:
    """What has to come of the records, and when, by the rule."""

    kind: Kind
    partitions: int
    times: dict[tuple[str, int], int] = field(default_factory=dict)
    gone: dict[tuple[str, int], int] = field(default_factory=dict)
    offsets: Counter[tuple[str, int]] = field(default_factory=Counter)
    """The next offsets: a transaction takes one in each partition."""
    taken: list[tuple[int, int, int, str, Row]] = field(default_factory=list)
    """Records that are not late: time of the partition, partition, offset, topic, record."""
    closed: list[int] = field(default_factory=list)

    def join(self, topic: str) -> None:
        for p in range(self.partitions):
            there = [time for (name, of), time in self.times.items() if of == p and name != "other"]
            left = [time for (_, of), time in self.gone.items() if of == p]
            self.times[topic, p] = -1 if topic == "other" else min(there) if there else max(left, default=-1)

    def delete(self, topic: str) -> None:
        for p in range(self.partitions):
            self.gone[topic, p] = self.times.pop((topic, p))

    def take(self, topic: str, row: Row) -> None:
        key, _, at = row
        place = topic, partition_of(key.encode(), self.partitions)
        time = self.times[place] = max(self.times[place], at)
        if self.kind[:4] == "once":
            late = at + SIZE + GRACE <= time
        elif self.kind in ("join", "sessions"):
            late = at + SIZE + GRACE < time
        else:
            late = at - at % SIZE + SIZE + GRACE <= time
        if not late:
            self.taken.append((time, place[1], self.offsets[place], topic, row))
        self.offsets[place] += 1

    def all(self) -> Counter[Any]:
        """All rows that have to come in the end, without the records that end all windows."""
        made = getattr(self, f"_{self.kind.replace(' ', '_')}")()
        return Counter(row for row in made if not row[0].startswith("end"))

    def over(self, row: Any) -> bool:
        """Whether a window that was passed on is over by now, where each partition decides for itself or all do."""
        (key, start, *_), homes = row, range(self.partitions)
        where = [partition_of(key.encode(), self.partitions)] if self.kind == "count" else homes
        return all(time >= start + SIZE + GRACE for (_, p), time in self.times.items() if p in where)

    def _count(self, group: Callable[[Row], str] = lambda row: row[0]) -> Iterable[Any]:
        sums = Counter[tuple[str, int]]()
        for *_, row in self.taken:
            sums[group(row), row[2] - row[2] % SIZE] += row[1]
        return [(*window, total) for window, total in sums.items()]

    _sent = _count

    def _rekeyed(self) -> Iterable[Any]:
        return self._count(lambda row: str(row[1] % 3) if row[1] >= 0 else "end")

    def _sessions(self) -> Iterable[Any]:
        rows = sorted((key, at, value) for *_, (key, value, at) in self.taken)
        made: list[list[Any]] = []
        for index, (key, at, value) in enumerate(rows):
            if index and rows[index - 1][0] == key and at - rows[index - 1][1] <= SIZE:
                made[-1][2] += value
            else:
                made.append([key, at, value])
        return [tuple(session) for session in made]

    def _once(self, by: Callable[[Row], Any] = lambda row: row[0]) -> Iterable[Any]:
        passed: dict[Any, list[int]] = {}
        for *_, row in sorted(self.taken):
            if all(abs(row[2] - at) >= SIZE for at in passed.setdefault(by(row), [])):
                passed[by(row)].append(row[2])
                yield row

    _once_sent = _once

    def _once_by_value(self) -> Iterable[Any]:
        return self._once(lambda row: row[1] % 3)

    def _join(self) -> Iterable[Any]:
        left = [row for *_, topic, row in self.taken if topic != "other"]
        right = [row for *_, topic, row in self.taken if topic == "other"]
        return [
            (key, one, two)
            for key, one, at in left
            for other, two, to in right
            if key == other and abs(at - to) <= SIZE
        ]


class Stage:
    """A log, workers whose stores outlive them, and the oracle."""

    def __init__(self, kind: Kind, partitions: int, workers: int, most: int, topics: list[str]) -> None:
        self.log, self.kind, self.partitions = LocalLog(None), kind, partitions
        self.oracle = Oracle(kind, partitions)
        self.config = eddy.Config(topics_interval_s=0.0, max_epoch_records=most, retry_s=1e9)
        self.left = 10_000
        self.log.create_topics([TopicSpec("out", partitions)])
        if kind == "join":
            self.make("other")
        for topic in topics:
            self.make(topic)
        self.stores: list[MemoryStore] = [KeptStore() for _ in range(workers)]
        self.workers = [self.worker(number) for number in range(workers)]
        self.rest()

    def worker(self, number: int) -> eddy.Worker:
        store = self.stores[number]
        return eddy.Worker(
            topology_of(self.kind), self.log, self.config, member=str(number), store=store, observe=self.observe
        )

    def observe(self, step: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise KilledError(step)

    def make(self, topic: str) -> None:
        self.log.create_topics([TopicSpec(topic, self.partitions)])
        self.oracle.join(topic)

    def delete(self, topic: str) -> None:
        self.log.delete_topics([topic])
        self.oracle.delete(topic)

    def send(self, topic: str, rows: list[Row]) -> None:
        producer = self.log.producer(None)
        producer.begin()
        for key, value, at in rows:
            home = partition_of(key.encode(), self.partitions)
            producer.send(topic, home, [key.encode()], [N.encode(value)], [at])
            self.oracle.take(topic, (key, value, at))
        producer.commit({}, None)
        self.oracle.offsets.update({(topic, partition_of(key.encode(), self.partitions)) for key, _, _ in rows})

    def restart(self, number: int, lose_state: bool) -> None:
        self.log.evict("app", str(number))
        if lose_state:
            self.stores[number] = KeptStore()
        self.workers[number] = self.worker(number)

    def step(self, number: int) -> int:
        try:
            return self.workers[number].step()
        except KilledError:
            self.left = 10_000
            self.restart(number, lose_state=False)
            return 0

    def rest(self) -> None:
        """Step until nothing is left to do, as `eddy wait` finds out."""
        deadline, numbers = Deadline(), range(len(self.workers))
        while sum(map(self.step, numbers)) or not find(topology_of(self.kind), self.log).quiescent(self.log):
            deadline.check("rest")
        written = self.written()
        assert written <= self.oracle.all() or self.kind not in ("count", "once", "join")
        if self.kind in ("count", "rekeyed", "sent"):
            assert written == Counter(row for row in self.oracle.all().elements() if self.oracle.over(row))

    def written(self) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for partition in range(self.partitions):
            at = TopicPartition("out", partition)
            read = self.log.read(at, 0, self.log.end_offsets([at])[at], 100_000)
            for key, value, time in zip(read.keys, read.values, read.timestamps, strict=True):
                assert key is not None
                assert value is not None
                row = eddy.Native.decode(value)
                row = (row, time) if self.kind[:4] == "once" else row
                found[key.decode(), *row] += 1
        return Counter({row: count for row, count in found.items() if not row[0].startswith("end")})

    def end(self) -> None:
        """A record far ahead in each partition of each topic closes all windows."""
        keys: dict[int, str] = {}
        for number in range(100):
            keys.setdefault(partition_of(b"end%d" % number, self.partitions), f"end{number}")
        for at in (END, END + 1):
            for topic in sorted({name for name, _ in self.oracle.times}):
                self.send(topic, [(key, -3, at) for key in keys.values()])
            self.rest()


keys = st.sampled_from("klm")
rows = st.lists(st.tuples(keys, st.integers(0, 9), st.sampled_from([0, 1, 9, 10, 19, 20, 40])), min_size=1, max_size=5)
actions = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(["other", *NAMES]), rows),
    st.tuples(st.just("send"), st.sampled_from(["other", *NAMES]), rows),
    st.tuples(st.just("step"), st.integers(0, 2)),
    st.tuples(st.just("rest")),
    st.tuples(st.just("restart"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("crash in"), st.integers(1, 12)),
    st.tuples(st.just("make"), st.sampled_from(NAMES)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(st.just("replace"), st.sampled_from(NAMES)),
)


REPLACED = [("send", "in-a", [("k", 1, 0), ("k", 1, 40)]), ("replace", "in-b"), ("send", "in-b", [("k", 1, 0)])]
"""A topic takes the place of the only one, whose window is closed."""
AS_LATE = [
    ("send", "in-a", [("k", 1, 10), ("k", 1, 10), ("k", 1, 10), ("l", 0, 10)]),
    ("send", "in-b", [("m", 2, 5)]),
    ("rest",),
    ("send", "in-b", [("m", 3, 0)]),
]
"""A record that is before another one in the order, of which the other topic had the same time already."""
SAME_OFFSETS = [("send", "in-a", [("k", 1, 10)]), ("send", "in-b", [("m", 2, 5)]), ("rest",)]
"""Two records of one time, partition and offset wait."""
WAITED_FOR = [("send", "in-a", [("k", 1, 0), ("k", 1, 40)]), ("send", "in-b", [("k", 1, 0)]), ("delete", "in-b")]
"""A topic goes that alone held a window open."""
AND_KILLED = [*WAITED_FOR[:2], ("rest",), ("crash in", 1), WAITED_FOR[2]]
"""So does its worker, before it can tell others of it."""


@given(
    script=st.lists(actions, max_size=16),
    kind=st.sampled_from(KINDS),
    partitions=st.integers(1, 3),
    workers=st.integers(1, 3),
    most=st.sampled_from([1, 3, 1_000]),
    first=st.integers(1, 2),
)
@example(script=REPLACED, kind="count", partitions=1, workers=1, most=1_000, first=1)
@example(script=AS_LATE, kind="once by value", partitions=1, workers=1, most=1_000, first=2)
@example(script=SAME_OFFSETS, kind="once by value", partitions=1, workers=1, most=1_000, first=2)
@example(script=WAITED_FOR, kind="rekeyed", partitions=1, workers=1, most=1_000, first=2)
@example(script=WAITED_FOR, kind="sent", partitions=3, workers=3, most=1_000, first=2)
@example(script=AND_KILLED, kind="sent", partitions=3, workers=3, most=1_000, first=2)
def test_windows_are_a_function_of_the_records_and_the_times_at_which_topics_join(
    script: list[tuple[Any, ...]], kind: Kind, partitions: int, workers: int, most: int, first: int
) -> None:
    stage = Stage(kind, partitions, workers, most, NAMES[:first])
    there, made, begin = set(NAMES[:first]), set(NAMES[:first]), 0
    for what, *arguments in script:
        if what == "send":
            topic, sent = arguments
            sent, begin = [(key, value, begin + at) for key, value, at in sent], begin + 5
            if topic in there or (topic == "other" and kind == "join"):
                stage.send(topic, sent)
        elif what == "rest":
            stage.rest()
        elif what == "crash in":
            stage.left = arguments[0]
        elif what in ("make", "delete", "replace"):
            (topic,) = arguments
            stage.rest()
            if what == "delete" and topic in there and len(there) > 1:
                stage.delete(topic)
                there.remove(topic)
            elif what != "delete" and topic not in made:
                for other in sorted(there if what == "replace" else ()):
                    stage.delete(other)
                    there.remove(other)
                stage.make(topic)
                there.add(topic)
                made.add(topic)
            stage.rest()
        elif arguments[0] < workers:
            stage.step(arguments[0]) if what == "step" else stage.restart(*arguments)
    stage.end()
    assert stage.written() == stage.oracle.all()
    for worker in stage.workers:
        worker.close()
    stage.log.close()


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_quiescent_before_each_worker_has_done_the_work_that_topics_leave(seed: int) -> None:
    """Workers step in any order after a topic was deleted or made anew, and some end in the middle.

    Whenever a worker, or another program, finds nothing left to do, the windows are closed that the topic held open.
    """
    dice = random.Random(seed)
    kind: Kind = dice.choice(["count", "rekeyed", "sent"])
    stage = Stage(kind, dice.randint(1, 3), dice.randint(2, 3), 1_000, NAMES[:2])
    keys = {partition_of(key.encode(), stage.partitions): key for key in "klmnopqrs"}
    for topic, times in (("in-a", [0, 40]), ("in-b", [0])):
        stage.send(topic, [(key, 1, at) for at in times for key in keys.values()])
    stage.rest()
    assert not stage.written()
    stage.delete("in-b")
    if dice.random() < 0.5:
        stage.make("in-b")
    wanted = Counter(row for row in stage.oracle.all().elements() if stage.oracle.over(row))
    assert wanted
    deadline = Deadline()
    while True:
        deadline.check("the windows")
        number = dice.randrange(len(stage.workers))
        if dice.random() < 0.02:
            stage.restart(number, lose_state=dice.random() < 0.5)
        stage.step(number)
        if stage.workers[number].quiescent() or find(topology_of(kind), stage.log).quiescent(stage.log):
            break
    assert stage.written() == wanted
    for worker in stage.workers:
        worker.close()
    stage.log.close()


class TestWindows:
    def test_a_topic_that_joins_opens_no_closed_window_and_one_that_is_deleted_holds_none_open(self) -> None:
        stage = Stage("count", 1, 1, 1_000, ["in-a"])
        stage.send("in-a", [("k", 1, 5), ("k", 1, 14)])
        stage.rest()
        assert stage.written() == {("k", 0, 1): 1}
        stage.make("in-b")
        stage.rest()
        stage.send("in-b", [("k", 7, 6), ("k", 2, 15)])
        stage.send("in-a", [("k", 1, 30)])
        stage.rest()
        assert stage.written() == {("k", 0, 1): 1}  # 7 was late; the second window waits for the topic that has joined
        (worker,) = stage.workers
        (waiting,) = worker.circuit.open_windows(Context(event_time=worker.positions.entry.event_time))
        assert waiting[1:3] == ("in-b", 0)
        stage.delete("in-b")
        stage.rest()
        assert stage.written() == {("k", 0, 1): 1, ("k", 10, 3): 1}

    def test_an_idle_topic_holds_none_open_where_the_author_says_so(self) -> None:
        topology, now = eddy.Topology("app"), [100.0]
        stream = topology.stream(pattern="in-.*", key=S, value=N, idle_after=timedelta(seconds=60))
        windows = eddy.TimeWindows(timedelta(seconds=10))
        stream.group_by_key().windowed_by(windows, "close").count("n").to("out")
        log = LocalLog(None)
        log.create_topics([TopicSpec(name, 1) for name in ("in-a", "in-b", "out")])
        producer = log.producer(None)
        producer.begin()
        producer.send("in-a", 0, [b"k", b"k"], [N.encode(1)] * 2, [5_000, 90_000])
        producer.commit({}, None)
        config = eddy.Config(topics_interval_s=0.0)
        with closing(eddy.Worker(topology, log, config, wall=lambda: now[0])) as worker:
            worker.run_until_idle()
            assert log.end_offsets([OUT])[OUT] == 0
            now[0] = 161.0
            worker.run_until_idle()
            assert len(log.read(OUT, 0, log.end_offsets([OUT])[OUT], 9)) == 2  # 161 s less 60 s: both windows

    @pytest.mark.parametrize("kind", ["count", "once", "join"])
    def test_what_spark_says(self, kind: Kind) -> None:
        steps = [node.only_by_worker for node in topology_of(kind).plan.nodes if node.only_by_worker]
        assert steps
        assert all("joins pattern 'in-.*'" in why for why in steps)
