"""The engines: each runs a case and returns what its sinks hold.

To add one (Kafka, Faust, Spark): a function from a case, a number of partitions and a folder to
the records of each sink in their order by key, and a line in `ENGINES`. What it cannot do goes into
`CANNOT`, with the reason; the suite holds it to that strictly, so that a line goes when it can.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from eddy.topology.compile import sink_serdes
from tests.conformance.cases import Case

Written = dict[str, list[tuple[Any, Any]]]
Engine = Callable[[Case, int, Path], Written]


def driver(case: Case, partitions: int, folder: Path) -> Written:
    """TopologyTestDriver: a batch is a `pipe_all` of each topic in turn."""
    with eddy.TopologyTestDriver(case.topology(), partitions=partitions) as running:
        for batch in case.batches:
            for topic in dict.fromkeys(topic for topic, _, _ in batch):
                running.input(topic).pipe_all([(key, value) for name, key, value in batch if name == topic])
        return {topic: running.output(topic).read_key_values() for topic in case.expected}


def worker_in_memory(case: Case, partitions: int, folder: Path) -> Written:
    """One worker on the embedded log, all in memory."""
    with _log(case, partitions, None) as log:
        worker = eddy.Worker(case.topology(), log, clock=lambda: 0.0)
        for batch in case.batches:
            _write(case, log, batch)
            worker.run_until_idle()
        worker.close()
        return _read(case, log)


def worker_on_disk(case: Case, partitions: int, folder: Path) -> Written:
    """One worker on the embedded log on disk with RocksDB, started anew for every batch."""
    with _log(case, partitions, folder / "log") as log:
        for batch in case.batches:
            _write(case, log, batch)
            worker = eddy.Worker(case.topology(), log, eddy.Config(state_dir=folder / "state"), clock=lambda: 0.0)
            worker.run_until_idle()
            worker.close()
        return _read(case, log)


def two_workers(case: Case, partitions: int, folder: Path) -> Written:
    """Two workers on the embedded log in memory, a step each in turn, until both say that all is done."""
    with _log(case, partitions, None) as log:
        workers = [eddy.Worker(case.topology(), log, member=member, clock=lambda: 0.0) for member in "01"]
        for batch in case.batches:
            _write(case, log, batch)
            while sum(worker.step() for worker in workers) or not workers[0].quiescent():
                pass
        for worker in workers:
            worker.close()
        return _read(case, log)


ENGINES: dict[str, Engine] = {
    "test driver": driver,
    "worker in memory": worker_in_memory,
    "worker on disk": worker_on_disk,
    "two workers": two_workers,
}

CANNOT: dict[tuple[str, str], str] = {}
"""(engine, case) to the reason why not."""


@contextmanager
def _log(case: Case, partitions: int, path: Path | None) -> Iterator[LocalLog]:
    log = LocalLog(path)
    plan = case.topology().plan
    names = {node.topic for node in plan.sources()} | {node.topic for node in plan.sinks()}
    log.create_topics(TopicSpec(name, partitions) for name in sorted(names))
    try:
        yield log
    finally:
        log.close()


def _write(case: Case, log: LocalLog, batch: list[tuple[str, Any, Any]]) -> None:
    specs = log.topics()
    sources = {source.topic: source for source in case.topology().plan.sources()}
    producer = log.producer(None)
    producer.begin()
    for time, (topic, key, value) in enumerate(batch):
        source = sources[topic]
        assert source.key is not None
        assert source.value is not None
        data = source.key.encode(key)
        body = None if value is None else source.value.encode(value)
        producer.send(topic, partition_of(data, specs[topic].partitions), [data], [body], [time])
    producer.commit({}, None)
    producer.close()


def _read(case: Case, log: LocalLog) -> Written:
    counts = {name: spec.partitions for name, spec in log.topics().items()}
    written: Written = {}
    for sink, (key, value) in sink_serdes(case.topology().plan, counts).items():
        topic = sink.topic  # type: ignore[attr-defined]
        found = written.setdefault(topic, [])
        for partition in (TopicPartition(topic, p) for p in range(counts[topic])):
            position, end = 0, log.end_offsets([partition])[partition]
            while position < end:
                records = log.read(partition, position, end, 1_000)
                position = records.next_offset
                for data, body in zip(records.keys, records.values, strict=True):
                    assert data is not None
                    found.append((key.decode(data), None if body is None else value.decode(body)))
    return written
