"""Backfill and verify on a Kafka broker: the same, and a worker goes on behind."""

import dataclasses
import functools
import uuid
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.log import TopicSpec
from eddy.connectors.spark import backfill, verify
from eddy.errors import ConfigurationError
from tests.spark.rig import ancestors, latest_of, write

pytestmark = [pytest.mark.xdist_group("spark-2"), pytest.mark.timeout(1200)]

S = eddy.String


def test_a_worker_goes_on_behind_a_backfill_and_is_verified(broker: str, spark: Any, tmp_path: Path) -> None:
    name = f"spark-{uuid.uuid4().hex[:8]}"
    open_log = functools.partial(KafkaLog, KafkaSettings.of(broker))
    log = open_log()
    log.create_topics(TopicSpec(f"{name}-{topic}", 2, {"retention.ms": "-1"}) for topic in ("nodes", "sizes", "big"))

    def topology() -> eddy.Topology:
        made = eddy.Topology(name)
        ancestors(made.table(f"{name}-nodes", S, S)).group_by_key().count("sizes").to(f"{name}-sizes")
        return made

    def sizes() -> dict[bytes | None, int]:
        return {key: int.from_bytes(value, "big") for key, (_, value) in latest_of(log, f"{name}-sizes").items()}

    write(log, f"{name}-nodes", [(b"b", b"a"), (b"c", b"b"), (b"d", b"b")])
    write(log, f"{name}-nodes", [(b"x", b"a")], commit=False)
    done = backfill(topology(), spark, log, open_log)
    assert done.written[f"{name}-sizes"] == 2
    assert sizes() == {b"a": 3, b"b": 2}
    again = backfill(topology(), spark, log, open_log)
    assert (again.already, again.written) == (True, {})
    write(log, f"{name}-nodes", [(b"e", b"d"), (b"c", None)])
    worker = eddy.Worker(topology(), log, eddy.Config(state_dir=tmp_path))
    worker.run_until_idle()
    worker.step()
    assert sizes() == {b"a": 3, b"b": 2, b"d": 1}
    verdict = verify(topology(), spark, log, open_log)
    assert (verdict.status, verdict.undetermined) == (0, {})
    assert {part.name: part.keys for part in verdict.compared}["ancestors"] == 3
    with pytest.raises(ConfigurationError, match="a worker of it runs on this log"):
        backfill(topology(), spark, log, open_log)
    worker.close()
    log.close()


def test_a_repair_goes_through_the_input(broker: str, spark: Any, tmp_path: Path) -> None:
    name = f"spark-{uuid.uuid4().hex[:8]}"
    open_log = functools.partial(KafkaLog, KafkaSettings.of(broker))
    log = open_log()
    log.create_topics(TopicSpec(f"{name}-{topic}", 2, {"retention.ms": "-1"}) for topic in ("colours", "counts"))
    producer = log.producer(None)
    producer.begin()
    producer.send(f"{name}-colours", log.partitioner(b"a", 2), [b"a"], [b"red"], [1_000])
    producer.commit({}, None)
    producer.close()

    def topology(colour: eddy.Serde[str]) -> eddy.Topology:
        made = eddy.Topology(name)
        table = made.table(f"{name}-colours", S, colour)
        table.group_by(lambda key, colour: (colour, key), key=S, value=S).count("counts").to(f"{name}-counts")
        return made

    def work(topology: eddy.Topology) -> None:
        worker = eddy.Worker(topology, log, eddy.Config(state_dir=tmp_path / "state"))
        worker.run_until_idle()
        worker.step()
        worker.close()

    work(topology(dataclasses.replace(S, decode=lambda data: "blue")))  # it misreads its input
    verdict = verify(topology(S), spark, log, open_log, repair=True)
    assert verdict.status == 1
    assert verdict.repaired is not None
    assert verdict.repaired.written == {f"{name}-colours": 1}, list(verdict.lines())
    work(topology(S))
    assert verify(topology(S), spark, log, open_log).status == 0
    log.close()
