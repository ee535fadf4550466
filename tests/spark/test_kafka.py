"""Backfill and verify on a Kafka broker: the same, and a worker goes on behind."""

import contextlib
import dataclasses
import functools
import uuid
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.log import TopicSpec
from eddy.connectors.spark import backfill, register, verify, verify_disk
from eddy.errors import ConfigurationError
from tests.spark.rig import ancestors, latest_of, rows_of, write
from tests.spark.source_frames import load, program_in, streamed, topics, worked

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

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
    stored = verify_disk(topology(), log, tmp_path)
    assert stored.status == 0, list(stored.lines())
    assert {part.name: part.keys for store in stored.stores for part in store.compared}["ancestors"] == 3
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


def test_topics_and_tables_are_frames(broker: str, spark: Any, tmp_path: Path) -> None:
    prefix = f"spark-{uuid.uuid4().hex[:8]}-"
    app, family = program_in(tmp_path, prefix)
    log = KafkaLog(KafkaSettings.of(broker))
    log.create_topics([*topics(prefix), TopicSpec(f"{prefix}copies", 2), TopicSpec(f"{prefix}twice", 2)])
    nodes = {"a": family.Node(None, 1), "b": family.Node("a", 2, ("x",)), "c": family.Node("a", 3)}
    log.write(f"{prefix}nodes", nodes, value=eddy.Struct(family.Node))
    register(spark)
    named = {"bootstrap": broker, "kafka.client.id": f"{prefix}client", "app": app}
    with worked(family.topology, log, tmp_path / "state"), contextlib.closing(log.producer(None)) as producer:
        producer.begin()
        producer.send(f"{prefix}nodes", 0, [b"open"], [b"{}"], [1_000])
        producer.flush()
        read = load(spark, topic=f"{prefix}nodes", **named).collect()
        assert {row.key: (row.value.parent, row.value.size, row.value.tags) for row in read} == {
            key: (node.parent, node.size, list(node.tags)) for key, node in nodes.items()
        }
        chosen = load(spark, topic=f"{prefix}nodes", columns="value.size,key", **named)
        assert sorted(map(tuple, chosen.collect())) == sorted((node.size, key) for key, node in nodes.items())
        for table in ("sums", f"{prefix}sizes"):
            found = {row.key: row.value for row in load(spark, table=table, **named).collect()}
            assert found == {"": 1, "a": 5}
        sizes = load(spark, table=f"{prefix}sizes", **named).select("key", "value")
        target = {"bootstrap": broker, "topic": f"{prefix}copies", "value": "int64"}
        for _ in range(2):
            sizes.write.format("eddy").options(job=f"{prefix}copy", **target).mode("append").save()
        assert latest_of(log, f"{prefix}copies").keys() == {b"", b"a"}
        assert len(rows_of(log, f"{prefix}copies")) == 2
        copies = spark.readStream.format("eddy").options(**target).load().selectExpr("key", "value * 2 AS value")
        writer = copies.writeStream.format("eddy").options(job=f"{prefix}twice", **target | {"topic": f"{prefix}twice"})
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        for _ in range(2):
            streamed(lambda: writer.trigger(availableNow=True).start().awaitTermination())
        twice = sorted((key, eddy.Int64.decode(value or b"")) for _, key, value in rows_of(log, f"{prefix}twice"))
        assert twice == [(b"", 2), (b"a", 10)]
        with pytest.raises(Exception, match="topic 'nowhere' does not exist on kafka; an existing topic is needed"):
            load(spark, topic="nowhere", bootstrap=broker)
    log.close()
