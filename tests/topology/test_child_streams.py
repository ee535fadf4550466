"""The children of processors: streams to which records are forwarded by name."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy import ProcessorError, Record, TopologyError, TopologyTestDriver
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from eddy.state.memory import MemoryStore
from tests.waiting import step_to_rest

S, N = eddy.String, eddy.Int64
CHILDREN = ["low", "high", "looks"]
EVERY_MS = 7


class Sorting:
    """Forwards numbers below 0 to `low`, those above 0 to `high`, and 0 to all; sums of keys to `looks` by the time.

    It raises for 7, after it has forwarded it and changed the sum.
    """

    def init(self, context: eddy.ProcessorContext) -> None:
        self.context, self.sums = context, context.store("sums")
        context.schedule(timedelta(milliseconds=EVERY_MS), "event time", self.look)

    def process(self, record: Record[str, int]) -> None:
        self.sums.put(record.key, (self.sums.get(record.key) or 0) + record.value)
        if record.value:
            self.context.forward(record, "low" if record.value < 0 else "high")
        else:
            self.context.forward(record)
        if record.value == 7:
            self.context.forward(record, child="looks")
            raise ValueError("7 is not a number here")

    def look(self, time_ms: int) -> None:
        for key, total in self.sums.all():
            self.context.forward(Record(key, total), child="looks")


def sorting(values: bool = False) -> eddy.Topology:
    """The children of `Sorting`, each in the topic of its name; the number of those in `high` in `highs`."""
    topology = eddy.Topology("app")
    topology.store("sums", S, N)
    stream = topology.stream("in", S, N)
    if values:
        children = stream.process_values(Sorting, ["sums"], "sorting", N, children=CHILDREN)
    else:
        children = stream.process(Sorting, ["sums"], "sorting", S, N, children=CHILDREN)
    for name in CHILDREN:
        children[name].to(name)
    children["high"].group_by_key().count("highs").to("highs")
    return topology


def sorted_rows(rows: Iterable[tuple[str, int, int]]) -> dict[str, list[tuple[str, int, int]]]:
    """The rows of each child that follow from the records of one partition, in order."""
    found: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    sums: dict[str, int] = {}
    clock = -1
    for key, number, time in rows:
        if time > clock >= 0 and clock // EVERY_MS < time // EVERY_MS:
            found["looks"] += [(known, sums[known], time) for known in sorted(sums)]
        clock = max(clock, time)
        if number == 7:
            continue
        sums[key] = sums.get(key, 0) + number
        for child, wanted in {"low": number <= 0, "high": number >= 0, "looks": number == 0}.items():
            if wanted:
                found[child].append((key, number, time))
    return found


def split(rows: Iterable[tuple[str, int, int]], partitions: int) -> list[list[tuple[str, int, int]]]:
    """The rows of each partition."""
    parts: list[list[tuple[str, int, int]]] = [[] for _ in range(partitions)]
    for row in rows:
        parts[partition_of(row[0].encode(), partitions)].append(row)
    return parts


def send(log: Any, rows: Iterable[tuple[str, int, int]], partitions: int) -> None:
    producer = log.producer(None)
    producer.begin()
    for key, number, time in rows:
        data = key.encode()
        producer.send("in", partition_of(data, partitions), [data], [N.encode(number)], [time])
    producer.commit({}, None)


def written(log: Any, topic: str, partitions: int) -> list[list[tuple[str, int, int]]]:
    """The rows in each partition of a topic."""
    found = []
    for partition in range(partitions):
        at = TopicPartition(topic, partition)
        read = log.read(at, 0, log.end_offsets([at])[at], 100_000)
        rows = zip(read.keys, read.values, read.timestamps, strict=True)
        found.append([(key.decode(), N.decode(value), time) for key, value, time in rows])
    return found


def last(parts: list[list[tuple[str, int, int]]]) -> dict[str, int]:
    return {key: number for rows in parts for key, number, _ in rows}


def check(log: Any, rows: list[tuple[str, int, int]], partitions: int) -> None:
    """Every child has the rows of the oracle, in the order of each partition, and the count its number."""
    wanted = [sorted_rows(part) for part in split(rows, partitions)]
    for name in CHILDREN:
        assert written(log, name, partitions) == [part[name] for part in wanted], name
    highs: dict[str, int] = {}
    for part in wanted:
        for key, _, _ in part["high"]:
            highs[key] = highs.get(key, 0) + 1
    assert last(written(log, "highs", partitions)) == highs


record = st.tuples(st.sampled_from("abcd"), st.integers(-3, 7), st.integers(0, 40))
epochs = st.lists(st.lists(record, min_size=1, max_size=6), max_size=7)


@given(epochs=epochs, partitions=st.integers(1, 3), values=st.booleans(), data=st.data())
def test_children_have_the_records_of_their_names_whatever_the_cut_and_the_restarts(
    epochs: list[list[tuple[str, int, int]]], partitions: int, values: bool, data: st.DataObject
) -> None:
    config = eddy.Config(on_error="skip")
    with TopologyTestDriver(sorting(values), partitions=partitions, config=config) as driver:
        for epoch in epochs:
            if data.draw(st.booleans()):
                driver.restart(lose_state=data.draw(st.booleans()))
            send(driver.log, epoch, partitions)
            driver.run()
        check(driver.log, [row for epoch in epochs for row in epoch], partitions)


@given(epochs=epochs, partitions=st.integers(2, 3), data=st.data())
def test_two_workers_that_come_and_go_write_the_same(
    epochs: list[list[tuple[str, int, int]]], partitions: int, data: st.DataObject
) -> None:
    log, topology, config = LocalLog(None), sorting(), eddy.Config(on_error="skip")
    log.create_topics(TopicSpec(topic, partitions) for topic in ("in", "highs", *CHILDREN))

    def worker(member: str) -> eddy.Worker:
        return eddy.Worker(topology, log, config, member=member, store=MemoryStore(), clock=lambda: 0.0)

    workers = [worker("0"), worker("1")]
    for epoch in epochs:
        send(log, epoch, partitions)
        for one in workers:
            one.step()
        if data.draw(st.booleans()):  # one of them ends, and another one with nothing on its disk takes its place
            number = data.draw(st.integers(0, 1))
            workers[number].close()
            workers[number] = worker(str(number))
    step_to_rest(workers)
    for one in workers:
        one.close()
    check(log, [row for epoch in epochs for row in epoch], partitions)


class Changes:
    """Forwards inserted rows of a table to `come`, retracted ones to `gone`."""

    def init(self, context: eddy.ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record[str, int]) -> None:
        self.context.forward(record, "come" if record.weight > 0 else "gone")


@given(rows=st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 3)), max_size=12), ends=st.booleans())
def test_retracted_rows_have_a_child_of_their_own(rows: list[tuple[str, int | None]], ends: bool) -> None:
    topology = eddy.Topology("app")
    table = topology.table("in", S, N)
    for name, stream in table.process(Changes, (), "changes", S, N, weights=True, children=["come", "gone"]).items():
        stream.to(name)
    come, gone, now = [], [], dict[str, int | None]()
    with TopologyTestDriver(topology) as driver:
        for key, number in rows:
            driver.input("in").pipe(key, number)
            if ends:
                driver.restart(lose_state=True)
            old = now.get(key)
            now[key] = number
            if old != number:
                come += [] if number is None else [(key, number)]
                gone += [] if old is None else [(key, old)]
        assert driver.output("come").read_key_values() == come
        assert driver.output("gone").read_key_values() == gone


class TestExamples:
    def test_records_keep_their_timestamps_and_headers(self) -> None:
        class Passing(Changes):
            def process(self, record: Record[str, int]) -> None:
                self.context.forward(record, child="one")
                self.context.forward(record.replace(timestamp_ms=7, headers=()))

        topology = eddy.Topology("app")
        for name, stream in (
            topology.stream("in", S, N).process_values(Passing, value=N, children=["one", "two"]).items()
        ):
            stream.to(name)
        with TopologyTestDriver(topology) as driver:
            driver.input("in").pipe("a", 1, 5, headers=(("h", b"x"),))
            assert driver.output("one").read_records() == [("a", 1, 5, (("h", b"x"),)), ("a", 1, 7, ())]
            assert driver.output("two").read_records() == [("a", 1, 7, ())]

    def test_a_child_that_no_step_reads_has_its_records_for_nobody(self) -> None:
        topology = eddy.Topology("app")
        table = topology.table("in", S, N)
        table.process_values(Changes, (), "changes", N, weights=True, children=["come", "gone"])["gone"].to("gone")
        with TopologyTestDriver(topology) as driver:
            driver.input("in").pipe("a", 1)
            driver.input("in").pipe("a", 2)
            assert driver.output("gone").read_key_values() == [("a", 1)]

    def test_children_may_be_merged(self) -> None:
        topology = eddy.Topology("app")
        table = topology.table("in", S, N)
        both = table.process_values(Changes, (), "changes", N, weights=True, children=["come", "gone"])
        both["come"].merge(both["gone"].map_values(lambda number: -number)).to("out")
        with TopologyTestDriver(topology) as driver:
            driver.input("in").pipe("a", 1)
            driver.input("in").pipe("a", 2)
            assert sorted(driver.output("out").read_key_values()) == [("a", -1), ("a", 1), ("a", 2)]

    def test_they_are_steps_of_the_topology(self) -> None:
        topology = eddy.Topology("app")
        topology.stream("in", S, N).process(Changes, (), "changes", children=["come", "gone"])["gone"].to("out", S, N)
        assert "Processor: changes-gone (stores: [])" in topology.describe()

    def test_names_of_children_that_are_taken_are_refused(self) -> None:
        topology = eddy.Topology("app")
        stream = topology.stream("in", S, N)
        stream.filter(lambda key, value: True, name="step-one")
        with pytest.raises(TopologyError, match="'step-one'"):
            stream.process(Changes, (), "step", children=["one"])

    def test_an_unknown_child_is_refused_where_a_record_is_forwarded(self) -> None:
        topology = eddy.Topology("app")
        for stream in topology.stream("in", S, N).process(Changes, (), "step", children=["came", "gone"]).values():
            stream.filter(lambda key, value: False)
        why = r"process 'step': forward\(child='come'\): the step's children are 'came', 'gone'; .* children=\['came', "
        with TopologyTestDriver(topology) as driver, pytest.raises(ProcessorError, match=why):
            driver.input("in").pipe("a", 1)
