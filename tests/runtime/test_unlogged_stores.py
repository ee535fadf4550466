"""A store without a changelog has the rows of the last epoch, or none: never older ones."""

from itertools import count
from typing import Any

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from tests.simulation.witness import KeptStore

S, N = eddy.String, eddy.Int64


class Counting:
    """Counts the records of each key."""

    def init(self, context: eddy.ProcessorContext) -> None:
        self.context, self.counts = context, context.store("counts")

    def process(self, record: eddy.Record[str, str]) -> None:
        n = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, n)
        self.context.forward(record.replace(value=n))


def topology(memory: bool = False) -> eddy.Topology:
    made = eddy.Topology("app")
    made.store("counts", S, N, changelog=False, memory=memory)
    made.stream("in", key=S, value=S).process_values(Counting, ["counts"], "counting", N).to("out")
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


class Rig:
    def __init__(self, partitions: int = 1, memory: bool = False) -> None:
        self.log, self.memory = LocalLog(None), memory
        self.log.create_topics(TopicSpec(name, partitions) for name in ("in", "out"))

    def worker(self, store: Any, observe: Any = lambda step: None, member: str = "0") -> eddy.Worker:
        return eddy.Worker(topology(self.memory), self.log, store=store, observe=observe, member=member)

    def send(self, key: str, partition: int = 0) -> None:
        producer = self.log.producer(None)
        producer.begin()
        producer.send("in", partition, [key.encode()], [b""], [1])
        producer.commit({}, None)


@pytest.mark.parametrize("kept", [True, False])
def test_its_rows_are_those_of_the_disk(kept: bool) -> None:
    rig, store = Rig(), KeptStore()
    for expected in (1, 2, 3):
        rig.send("a")
        worker = rig.worker(store if kept else KeptStore())
        worker.run_until_idle()
        assert worker.store("counts").get("a") == (expected if kept else 1)
        worker.close()


def test_killed_at_any_step_it_goes_on_with_the_rows_of_the_last_epoch_or_with_none() -> None:
    outcomes = []
    for at in count(1):
        rig, store, killer = Rig(), KeptStore(), Killer(at)
        rig.send("a")
        worker = rig.worker(store, killer)
        worker.run_until_idle()
        killer.armed = True
        rig.send("a")
        try:
            worker.run_until_idle()
        except Killed:
            rig.log.evict("app", "0")
        else:
            worker.close()
            break
        again = rig.worker(store)
        again.run_until_idle()
        rig.send("a")
        again.run_until_idle()
        outcomes.append(again.store("counts").get("a"))
        again.close()
    assert set(outcomes) == {3, 1}
    assert outcomes.index(1) > 3  # an epoch that was not committed costs nothing
    assert outcomes.count(1) <= 2  # only between the commit and the store


@pytest.mark.parametrize("memory", [True, False])
def test_a_partition_that_another_worker_had_meanwhile_begins_empty(memory: bool) -> None:
    rig, mine, others = Rig(memory=memory), KeptStore(), KeptStore()
    rig.send("a")
    first = rig.worker(mine)
    first.run_until_idle()
    first.close()
    second = rig.worker(others, member="1")
    rig.send("a")
    second.run_until_idle()
    assert second.store("counts").get("a") == 1
    second.close()
    third = rig.worker(mine)
    rig.send("a")
    third.run_until_idle()
    assert third.store("counts").get("a") == 1
    third.close()


def test_a_rebalance_keeps_the_rows_of_partitions_that_stay() -> None:
    rig, mine, others = Rig(partitions=2, memory=True), KeptStore(), KeptStore()
    first = rig.worker(mine)
    for partition, key in enumerate(rig_keys()):
        rig.send(key, partition)
    first.run_until_idle()
    second = rig.worker(others, member="1")
    for _ in range(20):
        first.step()
        second.step()
    for partition, key in enumerate(rig_keys()):
        rig.send(key, partition)
    for _ in range(20):
        first.step()
        second.step()
    counts = [worker.store("counts").get(key) for worker, key in zip((first, second), rig_keys(), strict=True)]
    assert counts == [2, 1]
    first.close()
    second.close()


def rig_keys() -> list[str]:
    """A key of each of two partitions."""
    from eddy.partitioner import partition_of

    names = [f"k{number}" for number in range(100)]
    return [next(name for name in names if partition_of(name.encode(), 2) == partition) for partition in (0, 1)]


def test_the_epochs_number_is_noted_only_where_a_store_has_no_changelog() -> None:
    rig = Rig()
    rig.send("a")
    worker = rig.worker(KeptStore())
    worker.run_until_idle()
    (counters,) = worker.positions.entry.counters.values()
    assert counters.epoch >= 0
    assert " @epoch=" in counters.note()
    worker.close()
