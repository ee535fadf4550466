"""The worker between polls: what a log may do, and what must not be lost by it."""

from collections.abc import Iterable

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.local.consumer import LocalConsumer
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.state.memory import MemoryStore


def counts() -> eddy.Topology:
    topology = eddy.Topology("counts")
    words = topology.stream("words", key=eddy.String, value=eddy.String)
    words.group_by_key().count("count").to("counted", key=eddy.String, value=eddy.Int64)
    return topology


def write(log: LocalLog, *words: str) -> None:
    producer = log.producer(None)
    producer.begin()
    producer.send("words", 0, [word.encode() for word in words], [b""] * len(words), [0] * len(words))
    producer.commit({}, None)


def test_records_that_come_during_a_restore_are_taken_in_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is assigned its partitions anew may bring some although they are paused."""
    log = LocalLog(None)
    log.create_topics([TopicSpec("words", 1), TopicSpec("counted", 1)])
    write(log, *"abcabcabc")
    first = eddy.Worker(counts(), log, store=MemoryStore())
    first.run_until_idle()
    first.close()
    write(log, *"abc")
    monkeypatch.setattr(LocalConsumer, "pause", lambda consumer, partitions: None)
    second = eddy.Worker(counts(), log, eddy.Config(restore_records=1), store=MemoryStore())
    for _ in range(20):
        second.step()
    assert second.statistics.restored > 1, "there was no time in which records could come"
    assert second.quiescent()
    second.close()
    counted = latest(log)
    assert counted == dict.fromkeys("abc", 4)


def latest(log: LocalLog) -> dict[str, int]:
    where = TopicPartition("counted", 0)
    records = log.read(where, 0, log.end_offsets([where])[where], 1_000)
    return dict(pairs(records.keys, records.values))


def pairs(keys: Iterable[bytes | None], values: Iterable[bytes | None]) -> Iterable[tuple[str, int]]:
    for key, value in zip(keys, values, strict=True):
        assert key is not None
        assert value is not None
        yield key.decode(), eddy.Int64.decode(value)
