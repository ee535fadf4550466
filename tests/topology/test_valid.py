"""Rows that are true for a while: by event time a function of the input, by wall clock of the committed ticks, too."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.operators.valid_rows import LATEST_MS, ValidRows
from eddy.partitioner import partition_of
from eddy.runtime.quiescence import last_cut
from eddy.state.memory import MemoryStore
from tests.children import KilledError
from tests.simulation.witness import KeptStore
from tests.waiting import Deadline

S, N = eddy.String, eddy.Int64
AFTER_MS = 10
BY = ("event time", "wall clock")


def begins(key: Any, row: Any) -> int | None:
    """A row is a list: from, until, names."""
    return row[0]  # type: ignore[no-any-return]


def ends(key: Any, row: Any) -> int | None:
    return row[1]  # type: ignore[no-any-return]


def topology(by: Any) -> eddy.Topology:
    """Offers that are open for a while, and how many there are of each name."""
    made = eddy.Topology("app")
    offers = made.table("in", S, eddy.Native)
    there = offers.to_relation().valid(clock=by, from_=begins, until=ends, name="open")
    there.to_table("offers").to("out", S, eddy.Native)
    there.flat_map(lambda key, row: [(name, key) for name in row[2]], key=S, value=S).group_by_key().count("counts").to(
        "counts"
    )
    return made


def rows(driver: eddy.TopologyTestDriver | eddy.Worker) -> dict[str, Any]:
    return dict(driver.store("offers").all())


def most_a_step(worker: eddy.Worker, most: int) -> None:
    for operator in worker.circuit.operators:
        if isinstance(operator, ValidRows):
            operator.due.most = most


# Examples


def test_by_event_time_a_row_is_there_from_one_moment_until_another() -> None:
    with eddy.TopologyTestDriver(topology("event time")) as driver:
        offers = driver.input("in")
        offers.pipe("a", (100, 110, ("x",)), 90)
        assert rows(driver) == {}
        offers.pipe("b", (None, 105, ("x", "y")), 99)
        assert rows(driver) == {"b": (None, 105, ("x", "y"))}
        offers.pipe("c", (0, None, ()), 100)
        assert rows(driver).keys() == {"a", "b", "c"}
        assert dict(driver.store("counts").all()) == {"x": 2, "y": 1}
        offers.pipe("d", None, 105)
        assert rows(driver).keys() == {"a", "c"}
        offers.pipe("c", None, 109)
        assert rows(driver).keys() == {"a"}
        offers.pipe("d", None, 110)
        assert rows(driver) == {}
        assert driver.output("out", S).read_records()[-1][:3] == ("a", None, 110)
        assert dict(driver.store("counts").all()) == {}


def test_by_wall_clock_rows_come_and_go_without_any_input() -> None:
    with eddy.TopologyTestDriver(topology("wall clock"), initial_wall_clock_ms=100) as driver:
        driver.input("in").pipe("a", (105, 110, ()), 1_000)
        assert rows(driver) == {}
        driver.advance_wall_clock_time(timedelta(milliseconds=5))
        assert rows(driver).keys() == {"a"}
        driver.advance_wall_clock_time(0.004)
        assert rows(driver).keys() == {"a"}
        driver.advance_wall_clock_time(0.001)
        assert rows(driver) == {}
        assert [value for _, value in driver.output("out", S, eddy.Native).read_key_values()] == [(105, 110, ()), None]


@pytest.mark.parametrize("by", BY)
def test_a_row_that_is_taken_back_while_it_waits_never_comes(by: str) -> None:
    with eddy.TopologyTestDriver(topology(by)) as driver:
        offers = driver.input("in")
        offers.pipe("a", (5, 10, ()), 1)
        offers.pipe("a", None, 2)
        driver.advance_wall_clock_time(0.006)
        offers.pipe("b", None, 6)
        assert driver.output("out", S, eddy.Native).read_key_values() == []


@pytest.mark.parametrize("by", BY)
def test_a_row_whose_end_is_not_after_its_beginning_is_never_there(by: str) -> None:
    with eddy.TopologyTestDriver(topology(by)) as driver:
        for moment, span in enumerate([(3, 3), (4, 2), (0, 0)]):
            driver.input("in").pipe("abc"[moment], (*span, ()), moment)
        driver.advance_wall_clock_time(1)
        driver.input("in").pipe("d", None, 1_000)
        assert driver.output("out", S, eddy.Native).read_key_values() == []


def test_links_of_the_last_hour_say_who_reaches_whom() -> None:
    with eddy.TopologyTestDriver(links(3_600_000)) as driver:
        seen = driver.input("links")
        seen.pipe("ann-bob", 1_000_000, 1_000_000)
        seen.pipe("bob-eve", 2_000_000, 2_000_000)
        assert dict(driver.store("reached").all()) == {"ann>bob": 1, "ann>eve": 1, "bob>eve": 1}
        seen.pipe("eve-ann", 4_600_000, 4_600_000)
        assert dict(driver.store("reached").all()) == {"bob>eve": 1, "bob>ann": 1, "eve>ann": 1}
        seen.pipe("bob-eve", 4_700_000, 4_700_000)
        driver.advance_event_time(5_600_000)
        assert dict(driver.store("reached").all()) == {"bob>eve": 1, "bob>ann": 1, "eve>ann": 1}
        driver.advance_event_time(9_000_000)
        assert dict(driver.store("reached").all()) == {}


def links(after_ms: int) -> eddy.Topology:
    """Pairs of people who reach one another over links that were seen within a span."""
    made = eddy.Topology("reach")
    seen = made.table("links", S, N).to_relation()
    live = seen.valid(clock="event time", until=lambda link, at: at + after_ms, name="live")
    steps = live.map(lambda link, at: (link[:3], link[4:]), key=S, value=S)
    pairs = steps.recursively(
        lambda found: (
            found.map(lambda one, other: (other, one), key=S, value=S)
            .join(steps, lambda _, one, other: (one, other), "step", S, S)
            .distinct("once")
        ),
        "reaching",
    ).distinct("pairs")
    pairs.map(lambda one, other: (f"{one}>{other}", 1), key=S, value=N).group_by_key().count("reached").to("reached")
    return made


def test_a_relation_made_from_others_by_the_same_topic_may_be_valid_for_a_while() -> None:
    made = eddy.Topology("app")
    table = made.table("in", S, N)
    both = table.to_relation().filter(lambda key, at: at > 3).union(table.to_relation().map_values(lambda at: at + 1))
    both.valid(clock="event time", until=ends_at, name="live").group_by_key().count("n").to("out")
    with eddy.TopologyTestDriver(made) as driver:
        driver.input("in").pipe("a", 5, 1)
        assert dict(driver.store("n").all()) == {"a": 2}
        driver.input("in").pipe("b", 1, 5)
        assert dict(driver.store("n").all()) == {"a": 1}
        driver.input("in").pipe("a", None, 5)
        assert dict(driver.store("n").all()) == {}


def ends_at(key: Any, at: int) -> int:
    return at


def test_rows_that_were_moved_by_key_come_and_go_by_wall_clock() -> None:
    made = eddy.Topology("app")
    moved = made.table("in", S, N).to_relation().map(lambda key, at: (f"k{at}", at), key=S, value=N)
    moved.valid(clock="wall clock", until=ends_at, name="live").to_table("rows").to("out")
    with eddy.TopologyTestDriver(made, partitions=3) as driver:
        driver.input("in").pipe_all([("ann", 5), ("bob", 7)], 5)
        assert dict(driver.store("rows").all()) == {"k5": 5, "k7": 7}
        driver.advance_wall_clock_time(0.005)
        assert dict(driver.store("rows").all()) == {"k7": 7}


# Bad input


@pytest.mark.parametrize("moment", [-1, LATEST_MS + 1, 2**53 + 1, 2**63, 1.5, True, "soon", 1_700_000_000_000_000])
def test_a_moment_that_is_no_time_is_refused_where_the_row_is_read(moment: Any) -> None:
    with (
        eddy.TopologyTestDriver(topology("event time")) as driver,
        pytest.raises(eddy.DataError, match=r"valid 'open': until=.*test_valid\.py:\d+ returned .* milliseconds since"),
    ):
        driver.input("in").pipe("a", (None, moment, ()), 1)


def test_a_row_without_a_time_is_rejected_alone() -> None:
    config = eddy.Config(on_error="skip")
    with eddy.TopologyTestDriver(topology("event time"), config=config) as driver:
        driver.input("in").pipe_all([("a", (1, 9, ())), ("b", (-1, 9, ())), ("c", (LATEST_MS, LATEST_MS, ()))], 5)
        assert rows(driver).keys() == {"a"}
        driver.input("in").pipe("b", (0, LATEST_MS, ()), 6)
        assert rows(driver).keys() == {"a", "b"}


def test_a_row_without_a_time_after_an_exchange_is_set_aside_until_it_is_taken_back() -> None:
    made = eddy.Topology("app")
    moved = made.table("in", S, N).to_relation().map(lambda key, at: ("all", at), key=S, value=N)
    moved.valid(clock="wall clock", until=ends_at, name="live").group_by_key().count("n").to("out")
    with eddy.TopologyTestDriver(made, eddy.Config(on_error="skip")) as driver:
        driver.input("in").pipe_all([("a", 7), ("b", -1), ("c", 9)], 1)
        assert dict(driver.store("n").all()) == {"all": 2}
        driver.input("in").pipe_all([("a", -1), ("b", 8)], 1)
        assert dict(driver.store("n").all()) == {"all": 2}
        driver.input("in").pipe("a", None, 1)
        driver.advance_wall_clock_time(0.008)
        assert dict(driver.store("n").all()) == {"all": 1}


# Refused when the topology is built


def test_a_place_where_no_time_passes_is_refused() -> None:
    made = eddy.Topology("app")
    one, other = made.table("in", S, N).to_relation(), made.table("others", S, N).to_relation()

    def inside(found: Any) -> Any:
        return found.filter(lambda key, at: at > 3).valid(clock="wall clock", until=ends_at)

    def outside(found: Any) -> Any:
        return found.filter(lambda key, at: at > 3).union(one.valid(clock="wall clock", until=ends_at))

    moved = one.map(lambda key, at: (key, at), key=S, value=N)
    pairs = one.map_values(str, value=S)
    reach: Any = made.recursive_fixpoint(roots=pairs, edges=pairs, name="reach")
    loop = one.recursively(lambda found: found.filter(lambda key, at: at > 9), "loop")
    for place, message in [
        (lambda: one.valid(clock="event time"), "neither from_ nor until is given"),
        (lambda: one.valid(clock="clock", until=ends_at), "clock="),
        (lambda: moved.valid(clock="event time", until=ends_at), "moves rows to others.*Call valid before it"),
        (
            lambda: one.join(one, lambda key, at, _: (f"{key}!", at)).valid(clock="event time", until=ends_at),
            "moves rows",
        ),
        (lambda: reach.valid(clock="wall clock", until=ends_at), "results of the recursion 'reach'"),
        (lambda: one.at_one_owner("one").valid(clock="event time", until=ends_at), "moves rows to others"),
        (lambda: one.union(other).valid(clock="event time", until=ends_at), "several topics: '(in|others)', '"),
        (lambda: loop.valid(clock="wall clock", until=ends_at), "results of the recursion 'loop'"),
        (lambda: one.recursively(inside, "first"), "inside recursively 'first'|recursion"),
        (lambda: one.recursively(outside, "second"), "no time passes"),
        (
            lambda: made.constant([("a", 1)], "fixed", S, N).valid(clock="event time", until=ends_at),
            "derive from no topic",
        ),
    ]:
        with pytest.raises(eddy.TopologyError, match=message):
            place()


def test_rows_of_a_join_by_its_keys_are_valid_and_an_idle_partition_goes_on() -> None:
    made = eddy.Topology("app")
    table = made.stream("in", S, N, idle_after=timedelta(milliseconds=20)).to_table("table").to_relation()
    both = table.join(table, lambda key, one, other: (key, one + other), "both", S, N, keeps_key=True)
    both.valid(clock="event time", until=ends_at, name="live").group_by_key().count("n")
    with eddy.TopologyTestDriver(made, initial_wall_clock_ms=1_000) as driver:
        driver.input("in").pipe("a", 505, 1_000)
        assert dict(driver.store("n").all()) == {"a": 1}
        driver.advance_wall_clock_time(0.025)
        assert dict(driver.store("n").all()) == {"a": 1}
        driver.advance_wall_clock_time(0.020)
        assert dict(driver.store("n").all()) == {}


# Laws

Record = tuple[str, tuple[int | None, int | None, tuple[str, ...]] | None, int]
bounds = st.one_of(st.none(), st.integers(0, 40))
values = st.tuples(bounds, bounds, st.lists(st.sampled_from("xy"), max_size=2).map(tuple))
records = st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), values), st.integers(0, 40))


def there(taken: Iterable[Record], partitions: int, tick: int | None = None) -> dict[str, Any]:
    """The last record of each key, if the clock of its partition is between its moments."""
    now: dict[int, int] = {}
    last: dict[str, Any] = {}
    for key, value, stamp in taken:
        home = partition_of(key.encode(), partitions)
        now[home] = max(now.get(home, 0), stamp)
        last[key] = value
    found = {}
    for key, value in last.items():
        if value is not None:
            clock = now[partition_of(key.encode(), partitions)] if tick is None else tick
            if (value[0] is None or value[0] <= clock) and (value[1] is None or clock < value[1]):
                found[key] = value
    return found


def counted(found: dict[str, Any]) -> dict[str, int]:
    return dict(Counter(name for value in found.values() for name in value[2]))


def send(log: LocalLog, taken: Iterable[Any], topic: str = "in", serde: Any = eddy.Native) -> None:
    producer = log.producer(None)
    producer.begin()
    partitions = log.topics([topic])[topic].partitions
    for key, value, stamp in taken:
        data = None if value is None else serde.encode(value)
        producer.send(topic, partition_of(key.encode(), partitions), [key.encode()], [data], [stamp])
    producer.commit({}, None)


@given(
    epochs=st.lists(st.lists(records, min_size=1, max_size=5), max_size=8), partitions=st.integers(1, 4), data=st.data()
)
@example(epochs=[[("a", (20, 30, ()), 1)], [("a", (20, 25, ()), 26)], [("a", None, 31)]], partitions=1, data=None)
def test_by_event_time_any_cut_of_the_input_gives_the_same(
    epochs: list[list[Record]], partitions: int, data: Any
) -> None:
    taken: list[Record] = []
    with eddy.TopologyTestDriver(topology("event time"), partitions=partitions) as driver:
        for epoch in epochs:
            if data is not None and data.draw(st.booleans()):
                driver.restart(lose_state=data.draw(st.booleans()))
            most_a_step(driver.worker, 1)
            send(driver.log, epoch)
            driver.run()
            taken += epoch
            assert rows(driver) == there(taken, partitions)
        assert driver.output("out", S, eddy.Native).read_map() == there(taken, partitions)
        assert driver.output("counts", S, N).read_map() == counted(there(taken, partitions))


@given(
    story=st.lists(st.one_of(st.integers(0, 15), st.lists(records, min_size=1, max_size=5)), max_size=10),
    partitions=st.integers(1, 4),
    data=st.data(),
)
def test_by_wall_clock_rows_are_those_of_the_last_committed_tick(
    story: list[int | list[Record]], partitions: int, data: st.DataObject
) -> None:
    taken: list[Record] = []
    now_ms = 0
    with eddy.TopologyTestDriver(topology("wall clock"), partitions=partitions) as driver:
        for turn in story:
            if data.draw(st.booleans()):
                driver.restart(lose_state=data.draw(st.booleans()))
            most_a_step(driver.worker, 1)
            if isinstance(turn, int):
                driver.advance_wall_clock_time(turn / 1000)
                now_ms += turn
            else:
                send(driver.log, turn)
                driver.run()
                taken += turn
            assert rows(driver) == there(taken, partitions, now_ms)
        assert driver.output("counts", S, N).read_map() == counted(rows(driver))


people = ["ann", "bob", "eve", "jim"]
sightings = st.tuples(
    st.sampled_from([f"{one}-{other}" for one in people for other in people if one != other]),
    st.one_of(st.none(), st.integers(0, 60)),
    st.integers(0, 60),
)


def closure(taken: Iterable[tuple[str, int | None, int]], partitions: int) -> set[str]:
    """Who reaches whom over the links that are there, by going on until nothing is new."""
    spans = [(key, None if at is None else (None, at + AFTER_MS, ()), stamp) for key, at, stamp in taken]
    steps = {(link[:3], link[4:]) for link in there(spans, partitions)}
    found = set(steps)
    while more := {(one, far) for one, other in found for near, far in steps if near == other} - found:
        found |= more
    return {f"{one}>{other}" for one, other in found}


@given(
    epochs=st.lists(st.lists(sightings, min_size=1, max_size=6), max_size=8),
    partitions=st.integers(1, 4),
    data=st.data(),
)
def test_a_recursion_over_valid_links_is_the_closure_at_each_moment(
    epochs: list[list[Any]], partitions: int, data: st.DataObject
) -> None:
    taken: list[Any] = []
    with eddy.TopologyTestDriver(links(AFTER_MS), partitions=partitions) as driver:
        for epoch in epochs:
            if data.draw(st.booleans()):
                driver.restart(lose_state=data.draw(st.booleans()))
            most_a_step(driver.worker, 2)
            send(driver.log, epoch, "links", N)
            driver.run()
            taken += epoch
            assert dict(driver.store("reached").all()).keys() == closure(taken, partitions)


# Workers


class World:
    """Workers on a log in memory, with a clock that a test sets, and stores that outlive them."""

    def __init__(self, by: str, partitions: int = 1) -> None:
        self.by, self.partitions = by, partitions
        self.log, self.wall_s = LocalLog(None), 0.0
        self.log.create_topics(TopicSpec(name, partitions) for name in ("in", "out", "counts"))

    def worker(self, member: str = "0", observe: Any = lambda step: None, store: Any = None) -> eddy.Worker:
        worker = eddy.Worker(
            topology(self.by),
            self.log,
            eddy.Config(),
            member=member,
            store=store or MemoryStore(),
            wall=lambda: self.wall_s,
            observe=observe,
        )
        most_a_step(worker, 1)
        return worker

    def read(self, topic: str) -> list[tuple[bytes, bytes | None]]:
        found: list[Any] = []
        for at in (TopicPartition(topic, number) for number in range(self.partitions)):
            read = self.log.read(at, 0, self.log.end_offsets([at])[at], 10_000)
            found += zip(read.keys, read.values, strict=True)
        return found

    def latest(self, topic: str, serde: Any) -> dict[str, Any]:
        """The last value of each key."""
        last = dict(self.read(topic))
        return {key.decode(): serde.decode(value) for key, value in last.items() if value is not None}


def rest(workers: list[eddy.Worker]) -> None:
    """Run until nothing is left to do."""
    deadline = Deadline()
    while sum(worker.step() for worker in workers) or not all(worker.idle() for worker in workers):
        deadline.check("the workers are idle")
    for worker in (*workers, *workers):
        worker.step()


@pytest.mark.parametrize("by", BY)
def test_killed_at_any_step_of_a_commit_no_row_comes_or_goes_twice(by: str) -> None:
    for at in count(1):
        world, store, killer = World(by), KeptStore(), Killer(at)
        send(world.log, [("ann", (None, 20, ("x",)), 1), ("bob", (25, 90, ("x",)), 2)])
        worker = world.worker(observe=killer, store=store)
        rest([worker])
        killer.armed, world.wall_s = True, 0.03
        send(world.log, [("eve", (0, None, ()), 30)])
        with contextlib.suppress(KilledError):
            rest([worker])
        after = world.worker(store=store if at % 2 else None)
        rest([after])
        assert rows(after).keys() == {"bob", "eve"}
        assert Counter(key for key, _ in world.read("out")) == {b"ann": 2, b"bob": 1, b"eve": 1}
        after.close()
        if killer.seen < at:
            assert at > 10, "an epoch has more steps"
            return


class Killer:
    """Ends a worker at one of the steps that it observes, the first one being 1, once it is armed."""

    def __init__(self, at: int) -> None:
        self.at, self.seen, self.armed = at, 0, False

    def __call__(self, step: str) -> None:
        self.seen += self.armed
        if self.seen == self.at:
            raise KilledError


@given(
    owners=st.integers(2, 3),
    parts=st.lists(st.lists(records, min_size=1, max_size=6), min_size=2, max_size=4),
    data=st.data(),
)
@settings(max_examples=20)
@pytest.mark.slow
def test_of_several_workers_that_come_and_go_the_rows_are_those_of_the_input(
    owners: int, parts: list[list[Record]], data: st.DataObject
) -> None:
    world = World("event time", 4)
    workers = [world.worker("0")]
    taken: list[Record] = []
    for number, part in enumerate(parts, 1):
        send(world.log, part)
        taken += part
        if len(workers) < owners:
            workers.append(world.worker(str(number)))
        elif data.draw(st.booleans()):
            workers.pop(data.draw(st.integers(0, owners - 1))).close()
        rest(workers)
        assert world.latest("out", eddy.Native) == there(taken, 4)
        assert world.latest("counts", N) == counted(there(taken, 4))
    for worker in workers:
        worker.close()


@pytest.mark.parametrize("by", BY)
def test_many_rows_go_in_epochs_of_a_bounded_size_and_no_cut_comes_before_the_last(by: str) -> None:
    world = World(by)
    send(world.log, [(f"k{n}", (None, 9, ()), 1) for n in range(50)])
    worker = world.worker()
    rest([worker])
    most_a_step(worker, 20)
    world.wall_s = 1.0
    if by == "event time":
        send(world.log, [("later", None, 1000)])
    left = []
    while before := rows(worker):
        cut = last_cut(world.log, worker.internal.cuts)
        worker.step()
        left.append(len(before) - len(rows(worker)))
        assert worker.quiescent() == (not rows(worker))
        assert (last_cut(world.log, worker.internal.cuts) != cut) == (not rows(worker))
    assert left == [20, 20, 10]
    worker.close()


def test_a_state_has_the_rows_with_a_moment_to_come_alone() -> None:
    with eddy.TopologyTestDriver(topology("event time")) as driver:
        (step,) = (operator for operator in driver.worker.circuit.operators if isinstance(operator, ValidRows))
        sizes: Callable[[], list[int]] = lambda: [len(list(state.items())) for state in step.states()]  # noqa: E731
        driver.input("in").pipe_all([("a", (2, 9, ())), ("b", (0, None, ())), ("c", (9, 2, ()))], 1)
        assert sizes() == [1, 1, 1]
        driver.input("in").pipe("d", (0, 20, ()), 8)
        assert sizes() == [2, 2, 2]
        driver.input("in").pipe("b", None, 20)
        assert sizes() == [0, 0, 0]
