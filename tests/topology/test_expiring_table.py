"""Tables whose rows expire: by event time a function of the input alone, by wall clock of the committed ticks, too."""

import contextlib
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.operators.expiring_table import ExpiringTable
from eddy.partitioner import partition_of
from eddy.runtime.quiescence import last_cut
from eddy.state.memory import MemoryStore
from tests.children import KilledError
from tests.simulation.witness import KeptStore
from tests.waiting import Deadline

S = eddy.String
AFTER_MS = 10
BY = ("event time", "wall clock")


def topology(by: Any, after_ms: int = AFTER_MS) -> eddy.Topology:
    """Signs of life, kept for a while, and how many there are of each value."""
    made = eddy.Topology("app")
    live = made.stream("in", key=S, value=S).to_table("live", timedelta(milliseconds=after_ms), by)
    live.to("out")
    live.group_by(lambda key, value: (value, key), key=S, value=S).count("counts").to("counts", key=S)
    return made


def rows(driver: eddy.TopologyTestDriver) -> dict[str, str]:
    return dict(driver.store("live").all())


def most_a_step(worker: eddy.Worker, most: int) -> None:
    for operator in worker.circuit.operators:
        if isinstance(operator, ExpiringTable):
            operator.due.most = most


# Examples


def test_by_event_time_a_row_is_there_until_its_partition_is_so_much_later() -> None:
    with eddy.TopologyTestDriver(topology("event time")) as driver:
        signs = driver.input("in")
        signs.pipe("ann", "here", 100)
        signs.pipe("bob", "here", 109)
        assert rows(driver) == {"ann": "here", "bob": "here"}
        signs.pipe("bob", "there", 110)
        assert rows(driver) == {"bob": "there"}
        assert driver.output("out").read_records()[-2:] == [("ann", None, 110, ()), ("bob", "there", 110, ())]
        assert driver.output("counts", S).read_map() == {"there": 1}


def test_by_wall_clock_a_row_leaves_without_any_input() -> None:
    with eddy.TopologyTestDriver(topology("wall clock"), initial_wall_clock_ms=100) as driver:
        driver.input("in").pipe("ann", "here", 100)
        driver.advance_wall_clock_time(timedelta(milliseconds=AFTER_MS - 1))
        assert rows(driver) == {"ann": "here"}
        driver.advance_wall_clock_time(0.001)
        assert rows(driver) == {}
        assert driver.output("out").read_records() == [("ann", "here", 100, ()), ("ann", None, 110, ())]
        assert driver.output("counts", S).read_map() == {}


@pytest.mark.parametrize("by", BY)
def test_a_record_with_the_same_value_begins_anew(by: str) -> None:
    with eddy.TopologyTestDriver(topology(by)) as driver:
        signs = driver.input("in")
        signs.pipe("ann", "here", 5)
        signs.pipe("ann", "here", 9)
        driver.advance_wall_clock_time(0.018)
        signs.pipe("bob", "here", 18)
        assert rows(driver) == {"ann": "here", "bob": "here"}
        driver.advance_wall_clock_time(0.001)
        signs.pipe("bob", "here", 19)
        assert rows(driver) == {"bob": "here"}


@pytest.mark.parametrize("by", BY)
def test_a_record_that_comes_expired_is_not_there_and_takes_the_row_before_it_along(by: str) -> None:
    with eddy.TopologyTestDriver(topology(by), initial_wall_clock_ms=50) as driver:
        signs = driver.input("in")
        signs.pipe("ann", "here", 50)
        signs.pipe("bob", "late", 40)
        assert rows(driver) == {"ann": "here"}
        signs.pipe("ann", "late", 40)
        assert rows(driver) == {}
        assert driver.output("out").read_key_values() == [("ann", "here"), ("ann", None)]


def test_a_tick_in_the_future_is_not_work_that_is_left() -> None:
    with eddy.TopologyTestDriver(topology("wall clock")) as driver:
        driver.input("in").pipe("ann", "here", 1)
        assert driver.worker.idle()
        assert driver.worker.run_until_idle() == 0


def test_rows_that_were_moved_by_key_expire_by_wall_clock() -> None:
    made = eddy.Topology("app")
    moved = made.stream("in", key=S, value=S).select_key(lambda key, value: value, key=S)
    moved.to_table("live", timedelta(milliseconds=AFTER_MS), "wall clock").to("out")
    with eddy.TopologyTestDriver(made, partitions=3) as driver:
        driver.input("in").pipe_all([("ann", "x"), ("bob", "y")], 5)
        assert driver.output("out").read_map() == {"x": "x", "y": "y"}
        driver.advance_wall_clock_time(0.015)
        assert sorted(driver.output("out").read_key_values()) == [("x", None), ("y", None)]


@pytest.mark.parametrize("by", [-1, timedelta(seconds=-1), float("nan"), float("inf"), None, "1 h"])
def test_a_drivers_clock_goes_forward_by_a_number_of_seconds(by: Any) -> None:
    made = eddy.TopologyTestDriver(topology("wall clock"))
    with made as driver, pytest.raises(eddy.TopologyError, match="advance_wall_clock_time: by="):
        driver.advance_wall_clock_time(by)


# Laws

Record = tuple[str, str | None, int]
records = st.tuples(st.sampled_from("abcd"), st.sampled_from(["x", "y", None]), st.integers(0, 40))


@dataclass(frozen=True)
class Naive:
    """The last record of each key, unless the clock of its partition has come to its end."""

    partitions: int

    def home(self, key: str) -> int:
        return partition_of(key.encode(), self.partitions)

    def rows(self, taken: Iterable[Record], tick: int | None = None) -> dict[str, str]:
        now: dict[int, int] = {}
        last: dict[str, tuple[str | None, int]] = {}
        for key, value, stamp in taken:
            now[self.home(key)] = max(now.get(self.home(key), 0), stamp)
            last[key] = value, stamp + AFTER_MS
        clock = (lambda key: now[self.home(key)]) if tick is None else lambda key: tick
        return {key: value for key, (value, end) in last.items() if value is not None and clock(key) < end}


def send(log: LocalLog, taken: Iterable[Record]) -> None:
    producer = log.producer(None)
    producer.begin()
    counts = log.topics(["in"])["in"].partitions
    for key, value, stamp in taken:
        home = partition_of(key.encode(), counts)
        producer.send("in", home, [key.encode()], [None if value is None else value.encode()], [stamp])
    producer.commit({}, None)


def pipe(driver: eddy.TopologyTestDriver, taken: Iterable[Record]) -> None:
    """All in one epoch."""
    send(driver.log, taken)
    driver.run()


@given(
    epochs=st.lists(st.lists(records, min_size=1, max_size=5), max_size=8), partitions=st.integers(1, 3), data=st.data()
)
@example(epochs=[[("a", "x", 20)], [("a", "y", 5)], [("a", "x", 11)]], partitions=1, data=None)
def test_by_event_time_any_cut_of_the_input_gives_the_same(
    epochs: list[list[Record]], partitions: int, data: Any
) -> None:
    taken: list[Record] = []
    with eddy.TopologyTestDriver(topology("event time"), partitions=partitions) as driver:
        for epoch in epochs:
            most_a_step(driver.worker, 1)
            if data is not None and data.draw(st.booleans()):
                driver.restart(lose_state=data.draw(st.booleans()))
            pipe(driver, epoch)
            taken += epoch
            assert rows(driver) == Naive(partitions).rows(taken)
        folded = driver.output("out").read_map()
        assert folded == Naive(partitions).rows(taken)


@given(
    story=st.lists(st.one_of(st.integers(0, 15), st.lists(records, min_size=1, max_size=5)), max_size=10),
    partitions=st.integers(1, 3),
    data=st.data(),
)
def test_by_wall_clock_rows_are_those_of_the_last_committed_tick(
    story: list[int | list[Record]], partitions: int, data: st.DataObject
) -> None:
    taken: list[Record] = []
    now_ms = 0
    with eddy.TopologyTestDriver(topology("wall clock"), partitions=partitions) as driver:
        for turn in story:
            most_a_step(driver.worker, 1)
            if data.draw(st.booleans()):
                driver.restart(lose_state=data.draw(st.booleans()))
            if isinstance(turn, int):
                driver.advance_wall_clock_time(turn / 1000)
                now_ms += turn
            else:
                pipe(driver, turn)
                taken += turn
            assert rows(driver) == Naive(partitions).rows(taken, now_ms)
        assert driver.output("out").read_map() == rows(driver)


# The worker


class World:
    """A worker on a log in memory, with clocks that a test sets, and stores that outlive it."""

    def __init__(self, program: eddy.Topology, partitions: int = 1, **settings: Any) -> None:
        self.program, self.settings = program, settings
        self.log, self.wall_s = LocalLog(None), 0.0
        self.log.create_topics(TopicSpec(name, partitions) for name in ("in", "out", "counts"))

    def worker(self, member: str = "0", observe: Any = lambda step: None, store: Any = None) -> eddy.Worker:
        return eddy.Worker(
            self.program,
            self.log,
            eddy.Config(**self.settings),
            member=member,
            store=store or MemoryStore(),
            wall=lambda: self.wall_s,
            observe=observe,
        )

    def send(self, *taken: Record) -> None:
        send(self.log, taken)

    def note(self, partition: int = 0) -> str:
        """The note of a position, without the id of its topic."""
        at = TopicPartition("in", partition)
        return re.sub(r" @topic=\d+", "", self.log.committed("app", [at])[at].metadata)

    def out(self) -> list[tuple[bytes | None, bytes | None]]:
        at = TopicPartition("out", 0)
        found = self.log.read(at, 0, self.log.end_offsets([at])[at], 10_000)
        return list(zip(found.keys, found.values, strict=True))


def test_clocks_are_noted_only_where_an_operator_reads_them() -> None:
    plain = eddy.Topology("app")
    plain.stream("in", key=S, value=S).to_table("live").to("out")
    for program, note in [
        (plain, "0 0"),
        (topology("event time"), "0 0 @event=7"),
        (topology("wall clock"), "0 0 @tick=5"),
    ]:
        world = World(program)
        world.wall_s = 0.005
        world.send(("ann", "here", 7))
        worker = world.worker()
        worker.run_until_idle()
        assert world.note() == note
        worker.close()


@pytest.mark.parametrize("kept", [True, False])
def test_a_worker_that_begins_again_is_not_idle_before_rows_that_are_due_have_left(kept: bool) -> None:
    world, store = World(topology("wall clock")), KeptStore()
    world.send(("ann", "here", 0))
    first = world.worker(store=store)
    first.run_until_idle()
    first.close()
    world.wall_s = 1.0
    second = world.worker(store=store if kept else None)
    deadline = Deadline()
    while second.step() or not second.idle():
        deadline.check("the worker is idle")
    assert dict(second.store("live").all()) == {}
    assert world.out() == [(b"ann", b"here"), (b"ann", None)]
    second.close()


def test_a_worker_is_idle_though_rows_expire_after_each_of_its_ticks() -> None:
    world = World(topology("wall clock"))
    world.send(*((str(at), "here", at) for at in range(1_000)))
    worker = world.worker()
    worker.run_until_idle()
    for _ in range(3):
        world.wall_s += 0.02
        worker.step()
        world.wall_s += 0.02
        assert worker._due  # private: otherwise it is idle in any case
        assert worker.idle()
    worker.close()


def test_a_tick_never_goes_back_whichever_clock_the_next_worker_has() -> None:
    world = World(topology("wall clock"))
    world.wall_s = 100.0
    world.send(("ann", "here", 100_000))
    first = world.worker("first")
    first.run_until_idle()
    first.close()
    world.wall_s = 50.0
    world.send(("bob", "late", 99_980), ("eve", "here", 99_995))
    second = world.worker("second")
    second.run_until_idle()
    assert world.note() == "0 0 @tick=100000"
    assert dict(second.store("live").all()) == {"ann": "here", "eve": "here"}
    second.close()


class Killer:
    """Ends a worker at one of the steps that it observes, the first one being 1, once it is armed."""

    def __init__(self, at: int) -> None:
        self.at, self.seen, self.armed = at, 0, False

    def __call__(self, step: str) -> None:
        self.seen += self.armed
        if self.seen == self.at:
            raise KilledError


@pytest.mark.parametrize("by", BY)
def test_killed_at_any_step_of_a_commit_nothing_expires_twice_or_comes_back(by: str) -> None:
    for at in count(1):
        world, killer, store = World(topology(by)), Killer(at), KeptStore()
        world.send(("ann", "x", 1), ("bob", "y", 2))
        worker = world.worker(observe=killer, store=store)
        most_a_step(worker, 1)
        worker.run_until_idle()
        killer.armed, world.wall_s = True, 0.03
        world.send(("eve", "z", 30))
        with contextlib.suppress(KilledError):
            worker.run_until_idle()
        world.wall_s = 0.02  # the clock of the next one is late
        after = world.worker(store=store if at % 2 else None)
        after.run_until_idle()
        assert dict(after.store("live").all()) == {"eve": "z"}
        assert world.out()[:2] == [(b"ann", b"x"), (b"bob", b"y")]
        assert sorted(world.out()[2:]) == [(b"ann", None), (b"bob", None), (b"eve", b"z")]
        after.close()
        if killer.seen < at:
            assert at > 10, "an epoch has more steps"
            return


def test_many_rows_expire_in_epochs_of_a_bounded_size_and_no_cut_comes_before_the_last() -> None:
    for by in BY:
        world = World(topology(by))
        world.send(*((f"k{n}", "x", 1) for n in range(50)))
        worker = world.worker()
        worker.run_until_idle()
        most_a_step(worker, 20)
        world.wall_s = 1.0
        if by == "event time":
            world.send(("later", None, 1000))
        left = []
        while rows_left := dict(worker.store("live").all()):
            before = last_cut(world.log, worker.internal.cuts)
            worker.step()
            left.append(len(rows_left) - len(dict(worker.store("live").all())))
            done = not dict(worker.store("live").all())
            assert worker.quiescent() == done
            assert ("@overdue" in world.note()) != done
            assert (last_cut(world.log, worker.internal.cuts) != before) == done
        assert left == [20, 20, 10]
        worker.close()


def test_of_two_workers_rows_expire_at_each_and_a_cut_follows_though_no_input_came() -> None:
    world = World(topology("wall clock"), partitions=4, cut_interval_s=0.0)
    workers = [world.worker(member) for member in ("one", "other")]
    world.send(*((f"k{n}", "x", 1) for n in range(8)))

    def rest() -> list[dict[str, str]]:
        while not all(worker.idle() for worker in workers):
            for worker in workers:
                worker.step()
        for worker in (*workers, *workers):
            worker.step()
        return [dict(worker.store("live").all()) for worker in workers]

    one, other = rest()
    assert one.keys().isdisjoint(other)
    assert len(one) + len(other) == 8
    before = last_cut(world.log, workers[0].internal.cuts)
    world.wall_s = 1.0
    for worker in workers:
        worker.step()
    assert rest() == [{}, {}]
    after = last_cut(world.log, workers[0].internal.cuts)
    assert before is not None
    assert after is not None
    assert after.inputs == before.inputs
    assert sum(after.outputs["out"]) > sum(before.outputs["out"])
    for worker in workers:
        worker.close()


def test_a_tick_while_a_cut_is_looked_for_makes_it_none() -> None:
    world = World(topology("wall clock"), partitions=1)
    world.send(("ann", "here", 1))
    worker = world.worker()
    worker.run_until_idle()
    assert worker.positions.quiescent_cut() is not None
    ends = world.log.end_offsets

    def ticks_in_between(partitions: Any) -> Any:
        world.log.end_offsets = ends  # type: ignore[method-assign]
        found = ends(partitions)
        world.log.end_offsets = once  # type: ignore[method-assign]
        return found

    def once(partitions: Any) -> Any:  # the second look, at the ends of outputs
        world.log.end_offsets = ends  # type: ignore[method-assign]
        found = ends(partitions)
        world.wall_s = 1.0
        worker.run_until_idle()
        return found

    world.log.end_offsets = ticks_in_between  # type: ignore[method-assign]
    assert worker.positions.quiescent_cut() is None
    assert dict(worker.store("live").all()) == {}
    worker.close()


def test_a_rejected_record_does_not_move_the_time_of_its_partition() -> None:
    made = eddy.Topology("app")
    checked = made.stream("in", key=S, value=S).filter(lambda key, value: 1 // (value != "bad"))
    checked.to_table("live", timedelta(milliseconds=AFTER_MS), "event time").to("out")
    world = World(made, on_error="skip")
    world.send(("ann", "here", 5), ("bob", "bad", 1000), ("eve", "here", 6))
    worker = world.worker()
    worker.run_until_idle()
    assert dict(worker.store("live").all()) == {"ann": "here", "eve": "here"}
    assert world.note() == "0 0 @event=6"
    worker.close()


def test_all_parts_of_an_epoch_that_fails_have_the_same_tick() -> None:
    """And what came expired is not set aside: it never reached the function that fails."""
    world: World

    def checked(value: str) -> str:
        world.wall_s += 1.0  # time passes with every try
        if value == "bad":
            raise ValueError("bad")
        return value

    made = eddy.Topology("app")
    live = made.stream("in", key=S, value=S).to_table("live", timedelta(milliseconds=2000), "wall clock")
    live.map_values(checked).to("out")
    world = World(made, on_error="skip")
    world.wall_s = 10.0
    world.send(("old", "bad", 8000), *((f"k{n}", "bad" if n == 3 else "x", 8001) for n in range(8)))
    worker = world.worker()
    while worker.lag():
        worker.step()
    assert (worker.statistics.skipped, worker.statistics.set_aside) == (0, 1)
    assert world.note() == "0 0 @tick=10000"
    worker.close()


@pytest.mark.parametrize("by", BY)
def test_no_record_is_left_out_for_a_function_that_fails_on_rows_that_expire(by: Any) -> None:
    made = eddy.Topology("app")
    live = made.stream("in", key=S, value=S).to_table("live", timedelta(milliseconds=AFTER_MS), by)
    live.to_stream().map_values(str.upper).to("out")  # str.upper(None) raises
    world = World(made, on_error="skip")
    world.send(("ann", "x", 1), ("bob", "y", 2))
    worker = world.worker()
    worker.run_until_idle()
    world.wall_s = 0.5
    world.send(("eve", "z", 600), ("joe", "z", 601))
    worker.run_until_idle()
    assert dict(worker.store("live").all()) == {"eve": "z", "joe": "z"}
    assert (worker.statistics.skipped, worker.statistics.set_aside) == (0, 2)
    assert world.out()[2:] == [(b"eve", b"Z"), (b"joe", b"Z")]
    worker.close()


def test_a_failure_in_an_epoch_in_which_rows_expire_is_the_functions_own() -> None:
    """The time of a batch with rows that expire is a deadline, and no number of a record."""
    made = eddy.Topology("app")
    signs = made.stream("in", key=S, value=S)
    live = signs.to_table("live", timedelta(milliseconds=AFTER_MS), "event time")
    live.join(signs.to_table("all"), lambda one, other: other).map_values(int).to("out", value=eddy.Int64)
    world = World(made)
    world.send(("ann", "1", 1))
    worker = world.worker()
    worker.run_until_idle()
    world.send(("eve", "2", 600), ("bob", "bad", 600))
    with pytest.raises(eddy.DataError, match="invalid literal for int"):
        worker.run_until_idle()
    worker.close()


def test_a_program_without_the_table_has_no_overdue_work_of_it() -> None:
    world = World(topology("wall clock"), accept_plan=True)
    world.send(*((f"k{n}", "x", 1) for n in range(5)))
    worker = world.worker()
    worker.run_until_idle()
    most_a_step(worker, 2)
    world.wall_s = 1.0
    worker.step()
    assert "@overdue" in world.note()
    worker.close()
    made = world.program = eddy.Topology("app")
    made.stream("in", key=S, value=S).to_table("all").to("out")
    worker = world.worker()
    worker.run_until_idle()
    assert worker.idle()
    worker.close()


def test_an_epoch_looks_into_no_partition_in_which_nothing_is_due() -> None:
    class Counting(MemoryStore):
        scans = 0

        def scan_between(self, *where: Any) -> Any:
            self.scans += 1
            return super().scan_between(*where)

    store = Counting()
    world = World(topology("event time"), partitions=4)
    worker = world.worker(store=store)
    world.send(*((f"k{n}", "x", 1) for n in range(50)))
    worker.run_until_idle()
    worker.run_until_idle()
    before = store.scans
    for turn in range(5):
        world.send(*((f"n{n}", "x", 2 + turn) for n in range(50)))
        worker.run_until_idle()
    assert store.scans == before
    worker.close()


def test_a_poll_waits_no_longer_than_until_the_next_tick() -> None:
    log = LocalLog(None)
    log.create_topics(TopicSpec(name, 1) for name in ("in", "out", "counts"))
    producer = log.producer(None)
    producer.begin()
    producer.send("in", 0, [b"ann"], [b"here"], [round(time.time() * 1000)])
    producer.commit({}, None)
    worker = eddy.Worker(topology("wall clock", 1500), log)
    while not dict(worker.store("live").all()):
        worker.step()
    began, steps = time.monotonic(), 0
    while dict(worker.store("live").all()):
        worker.step(timeout_s=300.0)
        steps += 1
    assert time.monotonic() - began < 200
    assert steps < 10, "no busy loop"
    worker.close()


# What is refused


def refused(text: str, make: Any) -> None:
    with pytest.raises(eddy.TopologyError, match=text):
        make(eddy.Topology("app"))


HOUR = timedelta(hours=1)


def test_rows_without_the_timestamp_of_a_record_are_refused() -> None:
    def of_a_table(made: eddy.Topology) -> None:
        made.table("in", key=S, value=S).to_stream().to_table("live", HOUR, "wall clock")

    refused("to_table 'live': .* makes rows that are not records of a source; .* Let the source's records", of_a_table)


def test_by_event_time_rows_that_were_moved_are_refused() -> None:
    def moved(made: eddy.Topology) -> None:
        made.stream("in", key=S, value=S).select_key(lambda key, value: value, key=S).to_table(
            "live", HOUR, "event time"
        )

    refused("moves rows to others; .* Call to_table before it, or write expire_by='wall clock'", moved)


def test_streams_of_many_steps_and_merges_are_looked_at_once() -> None:
    made = eddy.Topology("long")
    facts = made.stream("in", key=S, value=S)
    for _ in range(30):
        facts = facts.merge(facts.filter(lambda key, value: True))
    for _ in range(1_500):
        facts = facts.filter(lambda key, value: True)
    facts.to_table("live", HOUR, "event time")


def test_by_event_time_rows_of_several_topics_are_refused() -> None:
    def merged(made: eddy.Topology) -> None:
        one, other = made.stream("one", key=S, value=S), made.stream("other", key=S, value=S)
        one.merge(other).to_table("live", HOUR, "event time")

    refused("from several topics: 'one', 'other'; one is needed", merged)


@pytest.mark.parametrize("after", [0, 3600, timedelta(0), timedelta(microseconds=999), timedelta(-1), timedelta.max])
def test_a_span_of_less_than_a_millisecond_or_for_ever_is_refused(after: Any) -> None:
    refused(
        "a timedelta from a millisecond to [0-9,]+ days",
        lambda made: made.stream("in").to_table("t", after, "event time"),
    )


def test_a_span_needs_a_clock_and_a_clock_a_span() -> None:
    refused(
        "expire_by=None; 'event time' or 'wall clock' is needed", lambda made: made.stream("in").to_table("t", HOUR)
    )
    refused("expire_after=None", lambda made: made.stream("in").to_table("t", expire_by="event time"))


def test_a_table_whose_rows_expire_is_refused_inside_a_recursion() -> None:
    def recursive(made: eddy.Topology) -> None:
        facts = made.stream("in", key=S, value=S)
        facts.recursively(
            lambda rows: rows.filter(lambda key, value: False).to_table("live", HOUR, "wall clock").to_stream(), "loop"
        )

    refused("step 'loop-variable' makes rows that are not records of a source", recursive)
