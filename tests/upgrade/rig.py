"""Runs an application on an embedded log in a folder: records in, a worker until idle, tables out."""

import random
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from eddy.topology.compiler.circuit_compiler import sink_serdes
from tests.upgrade.applications import PARTITIONS, Application

__all__ = ["produce", "run", "tables"]


def produce(folder: Path, application: Application, seed: int, events: int) -> None:
    """Write records in one transaction; topics that are missing are made."""
    plan = application.build().plan
    sources = {source.topic: source for source in plan.sources()}
    rng = random.Random(seed)
    with closing(LocalLog(folder / "log")) as log:
        names = [*sources, *(sink.topic for sink in plan.sinks())]
        log.create_topics(TopicSpec(name, PARTITIONS) for name in names if name not in log.topics())
        producer = log.producer(None)
        producer.begin()
        for topic, key, value in [application.event(rng) for _ in range(events)]:
            data = sources[topic].key.encode(key)
            body = None if value is None else sources[topic].value.encode(value)
            producer.send(topic, partition_of(data, PARTITIONS), [data], [body], [0])
        producer.commit({}, None)
        producer.close()


def run(folder: Path, application: Application, wall: Callable[[], float] = time.time, **settings: Any) -> eddy.Worker:
    """One worker, until all is taken in. `wall`: seconds since 1970."""
    config = eddy.Config(state_dir=folder / "state", **settings)
    with closing(LocalLog(folder / "log")) as log:
        worker = eddy.Worker(application.build(), log, config, wall=wall)
        try:
            worker.run_until_idle()
            assert worker.quiescent()
        finally:
            worker.close()
    return worker


def tables(folder: Path, application: Application) -> dict[str, dict[Any, bytes]]:
    """By output topic the latest value of each key, as it is written."""
    found: dict[str, dict[Any, bytes]] = {}
    plan = application.build().plan
    counts = {node.topic: PARTITIONS for node in (*plan.sources(), *plan.sinks())}
    with closing(LocalLog(folder / "log")) as log:
        for sink, (key, _) in sink_serdes(plan, counts).items():
            latest: dict[Any, bytes | None] = {}
            for partition in range(PARTITIONS):
                where = TopicPartition(sink.topic, partition)
                records = log.read(where, 0, log.end_offsets([where])[where], 1_000_000)
                latest |= zip(map(key.decode, records.keys), records.values, strict=True)
            found[sink.topic] = {k: data for k, data in latest.items() if data is not None}
    return found
