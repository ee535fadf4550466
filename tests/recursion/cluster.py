"""Workers on the embedded log that run one program: they abort, they are killed, and lose their state.

The outputs, read from the log, are held to the naive evaluator whenever the workers have come to rest.
"""

import random
from collections import Counter
from typing import Any

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from tests.children import KilledError, bury
from tests.naive import Bag, Naive
from tests.recursion.programs import Edit, Program
from tests.recursion.rig import Tables, agree, draw, taken
from tests.simulation.witness import KeptStore
from tests.simulation.world import STEPS

__all__ = ["Cluster"]

BEFORE_COMMIT = STEPS[: STEPS.index("committed")]
ROUNDS = 10_000


class Cluster:
    """`members` workers over `partitions`; each epoch may be aborted, or its worker killed."""

    def __init__(self, program: Program, members: int, partitions: int, rng: random.Random) -> None:
        self.rng, self.partitions = rng, partitions
        self.trace: list[str] = [f"{program.name}, {members} workers, {partitions} partitions"]
        self.topology, watched = program.topology()
        self.bound = [name for name in watched if name != "errors"]
        for name, relation in watched.items():
            rows = relation.map(lambda key, value: ((key, value), 1), f"row-of-{name}", eddy.Native, eddy.Native)
            rows.group_by_key().count(f"rows-of-{name}").to(f"out-{name}", eddy.Native, eddy.Int64)
        self.watched = list(watched)
        self.log = LocalLog(None)
        plan = self.topology.plan
        self.log.create_topics(TopicSpec(source.topic, partitions) for source in plan.sources())
        self.log.create_topics(TopicSpec(sink.topic, rng.choice([1, 2])) for sink in plan.sinks())
        self.config = eddy.Config(max_epoch_records=rng.choice([1, 3, 100]), restore_records=rng.choice([2, 1000]))
        self.stores = {f"w{i}": KeptStore() for i in range(members)}
        self.doomed = ""
        self.workers = {member: self._start(member) for member in self.stores}
        self.tables: Tables = {}

    def _start(self, member: str) -> eddy.Worker:
        return eddy.Worker(
            self.topology,
            self.log,
            self.config,
            member=member,
            store=self.stores[member],
            clock=lambda: 0.0,
            observe=self._observe,
        )

    def _observe(self, step: str) -> None:
        if step in BEFORE_COMMIT and self.doomed:
            fate, self.doomed = self.doomed, ""
            self.trace.append(f"{fate} at '{step}'")
            raise eddy.ConnectorError("planned", retriable=True) if fate == "abort" else KilledError
        if step in BEFORE_COMMIT and self.rng.random() < 0.02:
            self.trace.append(f"abort at '{step}'")
            raise eddy.ConnectorError("planned", retriable=True)

    def write(self, edits: list[Edit]) -> None:
        """Write edits to the sources."""
        self.trace.append(f"write {edits}")
        producer = self.log.producer(None)
        producer.begin()
        for topic, key, value in edits:
            data = eddy.Native.encode(key)
            body = None if value is None else eddy.Native.encode(value)
            producer.send(topic, partition_of(data, self.partitions), [data], [body], [0])
        producer.commit({}, None)
        producer.close()
        self.tables = taken(self.tables, edits)

    def settle(self) -> None:
        """Step until nothing is under way."""
        for _ in range(ROUNDS):
            if not sum([self._step(member) for member in list(self.workers)]) and self._quiescent():
                return
        raise AssertionError(f"no end comes: {self.trace}")

    def _quiescent(self) -> bool:
        return not any(worker.restoring for worker in self.workers.values()) and self.workers["w0"].quiescent()

    def _step(self, member: str) -> int:
        try:
            return self.workers[member].step()
        except KilledError:
            self._bury(member)
            return 1

    def _bury(self, member: str) -> None:
        bury(self.workers[member], self.topology.name, self.log)
        self._restart(member)

    def _restart(self, member: str) -> None:
        if self.rng.random() < 0.5:
            self.trace.append(f"{member} loses its state")
            self.stores[member] = KeptStore()
        self.workers[member] = self._start(member)

    def befall(self) -> None:
        """Let something happen at the next epoch, or now."""
        fate = self.rng.choice(["", "abort", "kill", "restart"])
        member = self.rng.choice(list(self.workers))
        if fate == "restart":
            self.trace.append(f"{member} restarts")
            self.workers[member].close()
            self._restart(member)
        else:
            self.doomed = "" if fate == "restart" else fate

    def live(self, program: Program, edits: int = 24) -> int:
        """Take a story of edits through, piece by piece. Returns the number of epochs."""
        left = draw(program, self.rng, edits, mixed=0.0).edits()
        while left:
            size = self.rng.choice([1, 2, 5, 12])
            self.befall()
            self.write(left[:size])
            left = left[size:]
            self.settle()
            self.check()
        epochs = sum(worker.statistics.epochs for worker in self.workers.values())
        for worker in self.workers.values():
            worker.close()
        self.log.close()
        return epochs

    def check(self) -> None:
        """The outputs are what the plan says of the tables."""
        answer = Naive(self.topology.plan, self.tables).sinks()
        if answer.get("out-errors"):
            answer = {topic: Counter() for topic in answer} | {"out-errors": answer["out-errors"]}
        for topic, rows in answer.items():
            agree(f"{topic}: {self.trace}", dict(self.read(topic)), dict(rows))

    def read(self, topic: str) -> Bag:
        """What a sink's topic folds to, as rows."""
        latest: dict[Any, Any] = {}
        for partition in range(self.log.topics([topic])[topic].partitions):
            tp = TopicPartition(topic, partition)
            records = self.log.read(tp, 0, self.log.end_offsets([tp])[tp], 1 << 30)
            for key, value in zip(records.keys, records.values, strict=True):
                assert key is not None
                latest[eddy.Native.decode(key)] = None if value is None else eddy.Int64.decode(value)
        return Counter({(key, value): 1 for key, value in latest.items() if value is not None})
