"""Records are joined with a global table as of the offsets that the log notes for them, and once all is quiet these are
the ends: an oracle over the records of the log and the notes alone.

Whatever the cut into epochs, the pace of workers, the number of partitions, restarts, kills and lost states.
"""

import json
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from itertools import count
from typing import Any

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Records, TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from eddy.runtime.quiescence import last_cut
from tests.seeds import of_today, parts_of
from tests.simulation.witness import KeptStore

S, N = eddy.String, eddy.Int64
KEYS = "abcde"
CONFIG = eddy.Config(on_error="dead-letter", max_epoch_records=5, cut_interval_s=0.0)


def topology() -> eddy.Topology:
    made = eddy.Topology("app")
    rates = made.global_table("rates", S, N)
    sales = made.stream("sales", S, S)
    sales.left_join(rates, lambda sale, rate: f"{sale}:{rate}", value=S, select=lambda sale: sale[:1]).to("out")
    return made


class Killed(BaseException):
    """The end of a process."""


class World:
    """Some workers, what befalls them, and the log."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.partitions, self.rates = self.dice.randint(1, 3), self.dice.randint(1, 3)
        self.log = LocalLog(None)
        self.log.create_topics(TopicSpec(name, self.partitions) for name in ("sales", "out"))
        self.log.create_topics([TopicSpec("rates", self.rates)])
        self.numbers = count()
        self.dying: set[str] = set()
        self.workers: dict[str, eddy.Worker] = {}
        self.stores: dict[str, KeptStore] = {}
        self.begin("0")

    def begin(self, member: str) -> None:
        def observe(step: str) -> None:
            if member in self.dying and self.dice.random() < 0.3:
                raise Killed

        if member not in self.stores or self.dice.random() < 0.5:
            self.stores[member] = KeptStore()
        store = self.stores[member]
        self.workers[member] = eddy.Worker(topology(), self.log, CONFIG, member=member, store=store, observe=observe)

    def send(self, topic: str, rows: list[tuple[int, bytes | None, bytes | None]]) -> None:
        producer = self.log.producer(None)
        producer.begin()
        for partition, key, value in rows:
            producer.send(topic, partition, [key], [value], [next(self.numbers)])
        producer.commit({}, None) if self.dice.random() < 0.9 else producer.abort()
        producer.close()

    def change(self) -> None:
        """Rows of the table: new ones, deleted ones, some that do not decode."""
        rows: list[tuple[int, bytes | None, bytes | None]] = []
        for _ in range(self.dice.randint(1, 4)):
            key = self.dice.choice(KEYS).encode()
            values = [N.encode(next(self.numbers)), N.encode(next(self.numbers)), None, b"x"]
            rows.append((partition_of(key, self.rates), key, self.dice.choice(values)))
        self.send("rates", rows)

    def sell(self) -> None:
        drawn = [self.dice.choice(KEYS) for _ in range(self.dice.randint(1, 12))]
        sales = [(self.dice.randrange(self.partitions), b"k", f"{key}{next(self.numbers)}".encode()) for key in drawn]
        self.send("sales", list(sales))

    def work(self) -> None:
        member = self.dice.choice([*self.workers])
        try:
            self.workers[member].step()
        except Killed:
            self.dying.discard(member)
            self.log.evict("app", member)
            self.begin(member)

    def befall(self) -> None:
        """A restart, a kill to come, one worker more or less."""
        member = self.dice.choice([*self.workers])
        match self.dice.randrange(4):
            case 0:
                self.workers.pop(member).close()
                self.begin(member)
            case 1:
                self.dying.add(member)
            case 2 if len(self.workers) > 1:
                self.dying.discard(member)
                self.workers.pop(member).close()
            case 3 if "1" not in self.workers or "0" not in self.workers:
                self.begin("1" if "0" in self.workers else "0")

    def live(self, turns: int) -> None:
        for _ in range(turns):
            does = self.dice.choices([self.change, self.sell, self.work, self.befall], [3, 4, 12, 1])[0]
            does()

    def settle(self) -> None:
        self.dying.clear()
        for _ in range(500):
            self.work()
            if next(iter(self.workers.values())).quiescent():
                if self.dice.random() < 0.3:
                    self.replace_all()
                self.rest()
                return
        raise AssertionError("never quiescent")

    def replace_all(self) -> None:
        """All workers leave, perhaps before one has written a cut, and a single one begins."""
        while self.workers:
            self.workers.popitem()[1].close()
        self.begin("0")

    def rest(self) -> None:
        """Each worker does what it does at rest, in any order."""
        for _ in range(10):
            members = [*self.workers]
            self.dice.shuffle(members)
            for member in members:
                self.workers[member].step()

    def records(self, topic: str, partition: int = 0) -> Records:
        tp = TopicPartition(topic, partition)
        return self.log.read(tp, 0, self.log.end_offsets([tp])[tp], 100_000)

    def noted(self) -> dict[tuple[str, int], list[tuple[int, list[int]]]]:
        """By partition, from which position on the table was read up to which offsets, from the log's bytes."""
        notes, found = self.records("app-cuts"), {}
        for key, value in zip(notes.keys, notes.values, strict=True):
            assert key is not None
            assert value is not None
            if key.startswith(b"tables "):
                topic, partition, position, number, tables = json.loads(value)
                found[topic, partition, number] = position, tables["rates"]
        by_partition: dict[tuple[str, int], list[tuple[int, list[int]]]] = {}
        for (topic, partition, _), version in sorted(found.items()):
            by_partition.setdefault((topic, partition), []).append(version)
        return by_partition

    def rates_at(self, offsets: list[int]) -> dict[bytes, int]:
        """The table before these offsets."""
        table: dict[bytes, int] = {}
        for partition, end in enumerate(offsets):
            records = self.records("rates", partition)
            for offset, key, value in zip(records.offsets, records.keys, records.values, strict=True):
                assert key is not None
                if offset >= end or value == b"x":
                    continue
                table.pop(key, None)
                if value is not None:
                    table[key] = int.from_bytes(value, "big", signed=True)
        return table

    def expected(self) -> Counter[str]:
        """What has to be written, by the records and the notes."""
        found: Counter[str] = Counter()
        for (topic, partition), versions in self.noted().items():
            if topic == "sales":
                records = self.records("sales", partition)
                for offset, value in zip(records.offsets, records.values, strict=True):
                    at = bisect_right(versions, offset, key=lambda version: version[0]) - 1
                    assert at >= 0
                    assert value is not None
                    found[f"{value.decode()}:{self.rates_at(versions[at][1]).get(value[:1])}"] += 1
        return found

    def written(self) -> Counter[str]:
        values: list[Any] = [v for p in range(self.partitions) for v in self.records("out", p).values]
        return Counter(value.decode() for value in values)

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()


def check(seed: int) -> None:
    world = World(seed)
    for _ in range(3):
        world.live(world.dice.randint(20, 80))
        world.settle()
        assert world.written() == world.expected()
        ends = [world.log.end_offsets([tp := TopicPartition("rates", p)])[tp] for p in range(world.rates)]
        assert {versions[-1][1] == ends for versions in world.noted().values()} == {True}
        cut = last_cut(world.log, "app-cuts")
        assert cut is not None
        assert cut.tables == {"rates": ends}
        rates = {key.decode(): rate for key, rate in world.rates_at(ends).items()}
        owners = [worker for worker in world.workers.values() if worker.positions.entry.positions]
        assert [worker.store("rates").all() for worker in owners] == [rates] * len(owners) != []
        bad = {
            (p, offset)
            for p in range(world.rates)
            for records in [world.records("rates", p)]
            for offset, value in zip(records.offsets, records.values, strict=True)
            if value == b"x"
        }
        letters = [dict(headers) for headers in world.records("app-dead-letter").headers or ()]
        told = [(int(letter["eddy.partition"]), int(letter["eddy.offset"])) for letter in letters]
        assert (set(told), len(told)) == (bad, len(bad))
    world.close()


@pytest.mark.parametrize("seeds", [[14_799_004], of_today(20), *parts_of(range(400), 8)])
@pytest.mark.slow
def test_records_are_joined_as_of_the_offsets_that_are_noted_for_them(seeds: Iterable[int]) -> None:
    for seed in seeds:
        check(seed)
