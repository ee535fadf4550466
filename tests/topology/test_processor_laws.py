"""Processors that do again what eddy's operators do give the same, whatever the cut, the restarts and the workers.

The calls of punctuations by event time are those of a plain function of each partition's records.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from eddy.state.memory import MemoryStore
from tests.waiting import step_to_rest

S, N = eddy.String, eddy.Int64
EVERY_MS = 7


class Stored:
    """A processor with one store, `s`."""

    def init(self, context: eddy.ProcessorContext) -> None:
        self.context, self.store = context, context.store("s")


class Counting(Stored):
    def process(self, record: eddy.Record[str, int]) -> None:
        n = (self.store.get(record.key) or 0) + 1
        self.store.put(record.key, n)
        self.context.forward(record.replace(value=n))


class Summing(Stored):
    def process(self, record: eddy.Record[str, int]) -> None:
        total = (self.store.get(record.key) or 0) + record.value
        self.store.put(record.key, total)
        self.context.forward(record.replace(value=total))


class Once(Stored):
    def process(self, record: eddy.Record[str, int]) -> None:
        if self.store.get(record.key) is None:
            self.store.put(record.key, record.value)
            self.context.forward(record)


def counted(stream: eddy.KStream[str, int]) -> eddy.KTable[str, int]:
    return stream.group_by_key().count("own")


def summed(stream: eddy.KStream[str, int]) -> eddy.KTable[str, int]:
    return stream.group_by_key().reduce(lambda total, n: total + n, "own")


def first(stream: eddy.KStream[str, int]) -> eddy.KTable[str, int]:
    return stream.group_by_key().reduce(lambda kept, n: kept, "own")


AGAIN: dict[str, tuple[type[Stored], Callable[[Any], Any]]] = {
    "count": (Counting, counted),
    "reduce": (Summing, summed),
    "dedup": (Once, first),
}


def both(name: str, rekeyed: bool) -> eddy.Topology:
    """What a processor makes, in `done`, and what our operator makes, in `own`: tables of the last value."""
    factory, own = AGAIN[name]
    topology = eddy.Topology("app")
    topology.store("s", S, N)
    stream = topology.stream("in", key=S, value=N)
    if rekeyed:
        stream = stream.select_key(lambda key, value: key[:1], key=S)
    stream.process_values(factory, ["s"], "step", N).to_table("last").to("done")
    own(stream).to("own")
    return topology


records = st.tuples(st.sampled_from(["a", "b", "c1", "c2"]), st.integers(-5, 5))
epochs = st.lists(st.lists(records, min_size=1, max_size=6), max_size=7)


@pytest.mark.parametrize("name", AGAIN)
@given(epochs=epochs, partitions=st.integers(1, 3), rekeyed=st.booleans(), data=st.data())
def test_a_processor_does_what_an_operator_does(
    name: str, epochs: list[list[tuple[str, int]]], partitions: int, rekeyed: bool, data: st.DataObject
) -> None:
    if name == "dedup":
        rekeyed = False  # which of the records of several partitions is the first is not determined
    with eddy.TopologyTestDriver(both(name, rekeyed), partitions=partitions) as driver:
        for epoch in epochs:
            if data.draw(st.booleans()):
                driver.restart(lose_state=data.draw(st.booleans()))
            driver.input("in").pipe_all(epoch)
            assert driver.store("s").all() == driver.store("own").all()
        assert driver.output("done").read_map() == driver.output("own").read_map()


@given(epochs=epochs, rekeyed=st.booleans(), data=st.data())
def test_two_workers_do_what_one_operator_does(
    epochs: list[list[tuple[str, int]]], rekeyed: bool, data: st.DataObject
) -> None:
    log, topology = LocalLog(None), both("count", rekeyed)
    log.create_topics(TopicSpec(topic, 4) for topic in ("in", "done", "own"))
    worker = lambda member: eddy.Worker(topology, log, member=member, store=MemoryStore(), clock=lambda: 0.0)  # noqa: E731
    workers = [worker("0"), worker("1")]
    for epoch in epochs:
        send(log, [(key, value, 1) for key, value in epoch], 4)
        for one in workers:
            one.step()
        if data.draw(st.booleans()):  # one of them goes, and another one with nothing on its disk takes its place
            number = data.draw(st.integers(0, 1))
            workers[number].close()
            workers[number] = worker(str(number))
    step_to_rest(workers)
    for one in workers:
        one.close()
    wanted = Counter(key[:1] if rekeyed else key for epoch in epochs for key, _ in epoch)
    assert last(log, "done", 4) == last(log, "own", 4) == dict(wanted)


def send(log: LocalLog, rows: Iterable[tuple[str, int, int]], partitions: int) -> None:
    producer = log.producer(None)
    producer.begin()
    for key, value, time in rows:
        data = key.encode()
        producer.send("in", partition_of(data, partitions), [data], [N.encode(value)], [time])
    producer.commit({}, None)


def last(log: LocalLog, topic: str, partitions: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for partition in range(partitions):
        at = TopicPartition(topic, partition)
        read = log.read(at, 0, log.end_offsets([at])[at], 100_000)
        found.update({key.decode(): N.decode(value) for key, value in zip(read.keys, read.values, strict=True)})  # type: ignore[union-attr, arg-type]
    return found


# Punctuations


class Looking(Stored):
    """Counts records by key; at each look tells all counts of its partition, and the time."""

    def init(self, context: eddy.ProcessorContext) -> None:
        super().init(context)
        self.slow = context.schedule(timedelta(milliseconds=3 * EVERY_MS), "event time", self.end)
        context.schedule(timedelta(milliseconds=EVERY_MS), "event time", self.look)

    def process(self, record: eddy.Record[str, int]) -> None:
        self.store.put(record.key, (self.store.get(record.key) or 0) + 1)
        self.context.forward(record.replace(value=self.context.event_time_ms))

    def look(self, time_ms: int) -> None:
        for key, n in self.store.all():
            self.context.forward(eddy.Record(f"look {key}", n * 1_000 + time_ms))

    def end(self, time_ms: int) -> None:
        self.context.forward(eddy.Record("end", time_ms))
        if time_ms > 60:
            self.slow.cancel()


def looks(rows: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """The same for the records of one partition."""
    told: list[tuple[str, int, int]] = []
    counts: Counter[str] = Counter()
    clock, ended = -1, False
    for key, value, time in rows:
        if time > clock >= 0:
            if clock // (3 * EVERY_MS) < time // (3 * EVERY_MS) and not ended:
                told.append(("end", time, time))
                ended = time > 60
            if clock // EVERY_MS < time // EVERY_MS:
                told += [(f"look {known}", n * 1_000 + time, time) for known, n in sorted(counts.items())]
        clock = max(clock, time)
        if value >= 0:
            counts[key] += 1
            told.append((key, clock, time))
    return told


timed = st.tuples(st.sampled_from("abcd"), st.integers(-1, 1), st.integers(0, 90))


@given(cut=st.lists(st.lists(timed, min_size=1, max_size=6), max_size=7), partitions=st.integers(1, 3), data=st.data())
def test_punctuations_by_event_time_are_a_function_of_the_input(
    cut: list[list[tuple[str, int, int]]], partitions: int, data: st.DataObject
) -> None:
    topology = eddy.Topology("app")
    topology.store("s", S, N)
    stream = topology.stream("in", key=S, value=N).filter(lambda key, value: value >= 0)
    stream.process(Looking, ["s"], "step", S, N).to("out")
    with eddy.TopologyTestDriver(topology, partitions=partitions) as driver:
        for epoch in cut:
            if data.draw(st.booleans()):
                driver.restart(lose_state=data.draw(st.booleans()))
            send(driver.log, epoch, partitions)
            driver.run()
        found = [(key, value, time) for key, value, time, _ in driver.output("out").read_records()]
    rows = [row for epoch in cut for row in epoch]
    by_partition = [[row for row in rows if partition_of(row[0].encode(), partitions) == p] for p in range(partitions)]
    assert Counter(found) == Counter(told for part in by_partition for told in looks(part))
    if partitions == 1:
        assert found == looks(rows)
