"""The engines: each runs a case and returns what its sinks hold.

To add one: a function from a case, a number of partitions and a folder to the
records of each sink in their order by key, and a line in `ENGINES`. One on Kafka takes `Kafka` in
place of the folder, and names of its own: many share a broker. What an engine cannot do goes into
`CANNOT`, with the reason; the suite holds it to that strictly, so that a line goes when it can.
"""

import re
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import eddy
from eddy.cli.exits import HELD
from eddy.cli.wait import Patience, wait_until_quiescent
from eddy.connectors.kafka import KafkaLog
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Headers, Log, Producer, TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from eddy.topology.compiler.circuit_compiler import sink_serdes
from eddy.topology.plan.plan import Sink, TopicPattern
from eddy.topology.plan.topic_steps import TopicRead
from tests.conformance.cases import Case, Record
from tests.faust.rig import FaustWorker
from tests.waiting import PATIENCE_S, Deadline

Written = dict[str, list[tuple[Any, Any]]]
Engine = Callable[[Case, int, Path], Written]


@dataclass(frozen=True)
class Kafka:
    """What all cases on Kafka share: to connect takes longer than to run one."""

    log: Log
    writer: Producer

    @contextmanager
    def topics(self) -> Iterator[str]:
        """Give a prefix of names, and delete all topics that have it: each topic takes a broker's time for ever."""
        prefix = f"{uuid.uuid4().hex[:8]}-"
        yield prefix
        self.log.delete_topics(topic for topic in self.log.partition_counts() if topic.startswith(prefix))


EngineOnKafka = Callable[[Case, int, Kafka], Written]

APPS = Path(__file__).resolve().parents[1] / "faust"


def driver(case: Case, partitions: int, folder: Path) -> Written:
    """TopologyTestDriver: a batch is a `pipe_all` of each topic in turn."""
    topology = case.topology()
    with eddy.TopologyTestDriver(topology, partitions=partitions, topics=case.matching(topology)) as running:
        for batch in case.batches:
            for topic in dict.fromkeys(topic for topic, _, _ in batch):
                running.input(topic).pipe_all([(key, value) for name, key, value in batch if name == topic])
        return {topic: running.output(topic).read_key_values() for topic in case.expected}


def worker_in_memory(case: Case, partitions: int, folder: Path) -> Written:
    """One worker on the embedded log, all in memory."""
    with embedded(None) as log:
        return one(Run(case, log, partitions))


def worker_on_disk(case: Case, partitions: int, folder: Path) -> Written:
    """One worker on the embedded log on disk with RocksDB, started anew for every batch."""
    with embedded(folder / "log") as log:
        run = Run(case, log, partitions)
        for batch in case.batches:
            run.write(batch)
            worker = eddy.Worker(run.topology, log, eddy.Config(state_dir=folder / "state"), clock=lambda: 0.0)
            worker.run_until_idle()
            worker.close()
        return run.read()


def two_workers(case: Case, partitions: int, folder: Path) -> Written:
    """Two workers on the embedded log in memory, a step each in turn, until both say that all is done."""
    with embedded(None) as log:
        return two(Run(case, log, partitions))


def worker_on_kafka(case: Case, partitions: int, kafka: Kafka) -> Written:
    """One worker on Kafka."""
    with kafka.topics() as prefix:
        return one(Run(case, kafka.log, partitions, prefix, kafka.writer))


def two_workers_on_kafka(case: Case, partitions: int, kafka: Kafka) -> Written:
    """Two workers on Kafka, a step each in turn."""
    with kafka.topics() as prefix:
        return two(Run(case, kafka.log, partitions, prefix, kafka.writer))


def faust_in(mode: str) -> EngineOnKafka:
    """A Faust app that hosts the case, in this mode."""
    return lambda case, partitions, kafka: hosted([(case, mode)], partitions, kafka)[0]


def hosted(cases: Sequence[tuple[Case, str]], partitions: int, kafka: Kafka) -> list[Written]:
    """A Faust app that hosts all of these cases at once, each in its mode."""
    assert isinstance(kafka.log, KafkaLog)
    named = ",".join(f"{case.name}={mode}" for case, mode in cases)
    with kafka.topics() as prefix, tempfile.TemporaryDirectory() as home:
        prefixes = (f"{prefix}{number}-" for number in range(len(cases)))
        runs = [
            Run(case, kafka.log, partitions, own, kafka.writer) for (case, _), own in zip(cases, prefixes, strict=True)
        ]
        environment = {"HOSTED": named, "PREFIX": prefix}
        worker = FaustWorker(APPS, "case_app", Path(home), kafka.log.settings.bootstrap, **environment)
        try:
            for batches in zip_longest(*(case.batches for case, _ in cases), fillvalue=[]):
                for run, batch in zip(runs, batches, strict=True):
                    run.write(batch)
                for run in runs:
                    quiescent(run, worker)
        finally:
            worker.kill()
        return [run.read() for run in runs]


def quiescent(run: "Run", worker: FaustWorker) -> None:
    """Wait until all is taken in; what has no finite answer is no obstacle."""
    deadline = Deadline(PATIENCE_S)
    while True:
        assert worker.child.running, worker.child.last_words()
        try:
            wait_until_quiescent(run.log, run.topology, Patience(1.0))
            return
        except SystemExit as end:
            if end.code == HELD:
                return
        deadline.check(f"the end of '{run.case.name}'\n{worker.child.last_words()}")


ENGINES: dict[str, Engine] = {
    "test driver": driver,
    "worker in memory": worker_in_memory,
    "worker on disk": worker_on_disk,
    "two workers": two_workers,
}

ON_KAFKA: dict[str, EngineOnKafka] = {
    "worker on Kafka": worker_on_kafka,
    "two workers on Kafka": two_workers_on_kafka,
}

ON_FAUST: dict[str, EngineOnKafka] = {f"Faust, mode={mode}": faust_in(mode) for mode in ("worker", "agents")}
"""A Faust worker is a process of its own, so they take long."""

ON_KAFKA |= ON_FAUST

CANNOT: dict[tuple[str, str], str] = {
    ("Faust, mode=agents", "topics-by-a-pattern"): "Faust subscribes once, so agents are refused",
}
"""(engine, case) to the reason why not."""


@contextmanager
def embedded(path: Path | None) -> Iterator[LocalLog]:
    log = LocalLog(path)
    try:
        yield log
    finally:
        log.close()


def prefixed(case: Case, prefix: str) -> eddy.Topology:
    """The case's topology, with `prefix` before the names of application and topics."""
    topology = case.topology(prefix)
    for node in topology.plan.nodes:
        if isinstance(node, TopicRead | Sink):
            object.__setattr__(node, "topic", prefix + node.topic)  # a plan is not made to be changed; here it is
        elif isinstance(node, TopicPattern):
            object.__setattr__(node, "pattern", re.compile(re.escape(prefix) + node.pattern.pattern))
    return topology


class Run:
    """A case on a log, with its topics made. The names of application and topics get `prefix` before them."""

    def __init__(self, case: Case, log: Log, partitions: int, prefix: str = "", writer: Producer | None = None) -> None:
        self.case, self.log, self.partitions, self.prefix = case, log, partitions, prefix
        self.writer = writer or log.producer(None)
        self.numbers: Iterator[int] | None = None  # to be put into headers
        self.topology = prefixed(case, prefix)
        plan = self.topology.plan
        ends = [*plan.sources(), *plan.global_tables(), *plan.sinks()]
        matching = (prefix + topic for topic in case.matching(self.topology, prefix))
        self.counts = dict.fromkeys(sorted({*(node.topic for node in ends), *matching}), partitions)
        # Times are those of 1970 here, which a broker would find old.
        log.create_topics(TopicSpec(name, partitions, {"retention.ms": "-1"}) for name in self.counts)

    def write(self, batch: list[Record]) -> None:
        """Write a batch, each record to the partition of its key."""
        if not batch:
            return
        plan = self.topology.plan
        sources: dict[str, TopicRead] = {node.topic: node for node in (*plan.sources(), *plan.global_tables())}
        self.writer.begin()
        for time_ms, (topic, key, value) in enumerate(batch, 1):
            name = self.prefix + topic
            source = sources.get(name) or next(node.each for node in self.topology.plan.patterns())
            assert source.key is not None
            assert source.value is not None
            data = None if key is None else source.key.encode(key)
            home = 0 if data is None else partition_of(data, self.partitions)
            body = None if value is None else source.value.encode(value)
            self.writer.send(name, home, [data], [body], [time_ms], self._headers())
        self.writer.commit({}, None)

    def _headers(self) -> list[Headers] | None:
        """The number of a record, from 0 on, where records are numbered."""
        if self.numbers is None:
            return None
        return [(("number", b"%d" % next(self.numbers)),)]

    def numbers_of(self, topic: str) -> dict[str, list[int]]:
        """For each key, written as a string, the numbers that came with what was written to a topic."""
        found: dict[str, list[int]] = {}
        for partition in range(self.partitions):
            tp = TopicPartition(self.prefix + topic, partition)
            for key, _, headers in self._records(tp):
                assert key is not None
                found.setdefault(key.decode(), []).append(int(dict(headers)["number"]))
        return found

    def read(self) -> Written:
        """What the sinks hold."""
        written: Written = {}
        for sink, (key, value) in sink_serdes(self.topology.plan, self.counts).items():
            assert isinstance(sink, Sink)
            found = written.setdefault(sink.topic.removeprefix(self.prefix), [])
            for partition in range(self.partitions):
                for data, body, _ in self._records(TopicPartition(sink.topic, partition)):
                    found.append(
                        (None if data is None else key.decode(data), None if body is None else value.decode(body))
                    )
        return written

    def _records(self, partition: TopicPartition) -> Iterator[tuple[bytes | None, bytes | None, Headers]]:
        position, end = 0, self.log.end_offsets([partition])[partition]
        while position < end:
            records = self.log.read(partition, position, end, 1_000)
            position = records.next_offset
            headers = records.headers or [()] * len(records)
            yield from zip(records.keys, records.values, headers, strict=True)


def one(run: Run) -> Written:
    """One worker, until it is idle after each batch."""
    worker = eddy.Worker(run.topology, run.log, clock=lambda: 0.0)
    for batch in run.case.batches:
        run.write(batch)
        worker.run_until_idle()
    worker.close()
    return run.read()


def two(run: Run) -> Written:
    """Two workers, until nothing is under way anywhere after each batch."""
    workers = [eddy.Worker(run.topology, run.log, member=member, clock=lambda: 0.0) for member in "01"]
    for batch in run.case.batches:
        run.write(batch)
        deadline = Deadline(PATIENCE_S)
        while sum(worker.step() for worker in workers) or not workers[0].quiescent():
            deadline.check("the workers' end")
    for worker in workers:
        worker.close()
    return run.read()
