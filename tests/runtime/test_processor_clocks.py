"""Punctuations by wall clock: each moment once, by committed ticks, whichever worker has the partition."""

from collections import Counter
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.state.memory import MemoryStore
from tests.simulation.witness import KeptStore

S, N = eddy.String, eddy.Int64
SECOND = timedelta(seconds=1)


class Ticking:
    """Tells each of its ticks and, every five seconds of event time, that time."""

    def init(self, context: eddy.ProcessorContext) -> None:
        self.context, self.ticks = context, context.store("ticks")
        context.schedule(SECOND, "wall clock", self.tick)
        context.schedule(5 * SECOND, "event time", self.look)

    def process(self, record: eddy.Record[str, str]) -> None:
        """Nothing."""

    def tick(self, time_ms: int) -> None:
        assert self.context.wall_clock_ms == time_ms
        number = (self.ticks.get("number") or 0) + 1
        self.ticks.put("number", number)
        self.context.forward(eddy.Record(f"{self.context.partition}", f"{time_ms // 1_000} {number}"))

    def look(self, time_ms: int) -> None:
        self.context.forward(eddy.Record("look", str(time_ms)))


def topology() -> eddy.Topology:
    made = eddy.Topology("app")
    made.store("ticks", S, N)
    made.stream("in", S, S).process(Ticking, ["ticks"], "ticking", S, S).to("out")
    return made


class Killed(BaseException):
    """The end of a process."""


class Killer:
    """Ends a worker at one of the steps that it observes, the first one being 1, once it is armed."""

    def __init__(self, at: int) -> None:
        self.at, self.seen, self.armed = at, 0, False

    def __call__(self, step: str) -> None:
        self.seen += self.armed
        if self.seen == self.at:
            raise Killed


class World:
    """Workers on a log in memory, with a clock that a test sets."""

    def __init__(self, partitions: int = 1) -> None:
        self.log, self.wall_s = LocalLog(None), 0.5
        self.log.create_topics(TopicSpec(name, partitions) for name in ("in", "out"))

    def worker(self, member: str = "0", store: Any = None, observe: Any = lambda step: None) -> eddy.Worker:
        return eddy.Worker(
            topology(),
            self.log,
            member=member,
            store=store or MemoryStore(),
            wall=lambda: self.wall_s,
            observe=observe,
        )

    def send(self, time_ms: int, partition: int = 0) -> None:
        producer = self.log.producer(None)
        producer.begin()
        producer.send("in", partition, [b"k"], [b"v"], [time_ms])
        producer.commit({}, None)

    def out(self) -> list[tuple[str, str]]:
        found = []
        for partition in range(self.log.topics(["out"])["out"].partitions):
            at = TopicPartition("out", partition)
            read = self.log.read(at, 0, self.log.end_offsets([at])[at], 1_000)
            pairs = zip(read.keys, read.values, strict=True)
            found += [((key or b"").decode(), (value or b"").decode()) for key, value in pairs]
        return found


@pytest.mark.parametrize("kept", [True, False])
def test_killed_at_any_step_each_moment_is_called_once(kept: bool) -> None:
    for at in count(1):
        world, killer, store = World(), Killer(at), KeptStore()
        worker = world.worker(store=store, observe=killer)
        worker.run_until_idle()
        world.wall_s = 1.2
        worker.run_until_idle()
        killer.armed, world.wall_s, done = True, 2.7, False
        try:
            worker.run_until_idle()
            done = True
        except Killed:
            world.log.evict("app", "0")
        killer.armed = False
        again = worker if done else world.worker(store=store if kept else None)
        again.run_until_idle()
        world.wall_s = 3.0
        again.run_until_idle()
        assert world.out() == [("0", "1 1"), ("0", "2 2"), ("0", "3 3")], at
        again.close()
        if done:
            assert at > 10
            return


def test_a_worker_that_takes_partitions_over_goes_on_with_their_moments() -> None:
    world = World(partitions=2)
    first = world.worker("first")
    for partition in (0, 1):
        world.send(1, partition)
    first.run_until_idle()
    world.wall_s = 1.0
    first.run_until_idle()
    second = world.worker("second")
    for wall_s in (1.4, 2.1, 2.2, 3.5, 3.6):
        world.wall_s = wall_s
        for _ in range(6):
            first.step()
            second.step()
    first.close()
    world.wall_s = 3.9  # before the next moment: nothing is called for the partition that moves
    for _ in range(6):
        second.step()
    world.wall_s = 4.0
    for _ in range(6):
        second.step()
    second.close()
    expected = [(partition, f"{moment} {moment}") for partition in "01" for moment in (1, 2, 3, 4)]
    assert Counter(world.out()) == Counter(expected)


def test_a_worker_waits_for_the_first_moment_of_either_clock() -> None:
    world = World()
    worker = world.worker()
    world.send(1_000)
    worker.run_until_idle()
    assert worker.circuit.next_tick == 1_000
    assert worker.clocks.wait_s(60.0) == pytest.approx(0.501)
    assert worker.idle()
    world.send(5_000)
    worker.run_until_idle()
    assert world.out() == [("look", "5000")]
    worker.close()
