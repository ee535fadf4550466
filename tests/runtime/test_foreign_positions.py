"""Positions of an application's group that somebody else writes: counts stay exact, and it is said.

`simulation/test_simulation.py` does the same at random moments, on the embedded log.
"""

import pathlib
import re
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import confluent_kafka
import pytest

import eddy
from eddy.connectors.kafka import KafkaSettings
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Log, Position, TopicPartition, TopicSpec
from eddy.errors import ConnectorError, StateError
from eddy.partitioner import partition_of
from eddy.runtime.own_positions import committed, is_ours, own_positions
from eddy.runtime.quiescence import Counters, last_cut, quiescent
from tests.connectors.steps import KEPT, PATIENCE_S, QUICK_SESSIONS, TidyKafkaLog, log_of, read_all, write
from tests.waiting import Deadline, wait_for


class App:
    """Counts of words from two topics, and what they should be."""

    def __init__(self, log: Log) -> None:
        suffix = uuid.uuid4().hex[:8]
        self.log, self.name = log, f"words-{suffix}"
        self.topics = [f"a-{suffix}", f"b-{suffix}"]
        self.out = f"out-{suffix}"
        log.create_topics([TopicSpec(topic, 2, KEPT) for topic in [*self.topics, self.out]])
        self.topology = eddy.Topology(self.name)
        a, b = (self.topology.stream(topic, eddy.String, eddy.String) for topic in self.topics)
        a.merge(b).group_by(lambda _, word: word, key=eddy.String).count("counts").to(self.out)
        self.inputs = [TopicPartition(topic, p) for topic in self.topics for p in range(2)]
        self.expected: Counter[bytes] = Counter()
        self.times = 1
        self.exchanges: list[TopicPartition] = []

    def write(self) -> None:
        """Some more of each word, in both topics."""
        for topic in self.topics:
            for n in range(6):
                word, more = b"w%d" % n, n + self.times
                write(self.log, topic, partition_of(word, 2), [word] * more)
                self.expected[word] += more
        self.times += 1

    def worker(self) -> eddy.Worker:
        made = eddy.Worker(self.topology, self.log, eddy.Config(purge_interval_s=0.0))
        self.exchanges = [TopicPartition(name, p) for name in made.internal.exchanges for p in range(2)]
        return made

    def quiescent(self) -> bool:
        """As `eddy wait` asks."""
        return quiescent(self.log, self.name, self.inputs, self.exchanges)

    def run(self, worker: eddy.Worker) -> None:
        """Until nothing is left."""
        deadline = Deadline(PATIENCE_S)
        while worker.step(0.05) or worker.restoring or not self.quiescent():
            deadline.check("quiescence")
        assert self.counts() == self.expected

    def stop(self, worker: eddy.Worker) -> None:
        worker.close()
        wait_for(lambda: not self.log.groups().get(self.name), PATIENCE_S)

    def counts(self) -> dict[bytes, int]:
        found: dict[bytes | None, bytes | None] = {}
        for partition in range(2):
            records = read_all(self.log, self.out, partition)
            found |= dict(zip(records.keys, records.values, strict=True))
        return {key: eddy.Int64.decode(value) for key, value in found.items() if key and value}


@pytest.fixture(params=["memory", "disk", "kafka"])
def log(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Log]:
    with closing(log_of(request, tmp_path)) as made:
        yield made


@pytest.fixture
def app(log: Log) -> App:
    return App(log)


def test_counts_stay_exact_where_the_group_is_deleted_or_its_offsets_are_reset(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    app.write()
    app.run(worker := app.worker())
    for positions in (None, dict.fromkeys(app.inputs, 0), app.log.end_offsets(app.inputs)):
        app.stop(worker)
        app.write()
        if positions is None:
            app.log.delete_group(app.name)
        else:
            at = positions if not any(positions.values()) else app.log.end_offsets(app.inputs)
            app.log.set_positions(app.name, {tp: Position(offset) for tp, offset in at.items()})
        assert not app.quiescent()
        caplog.clear()
        app.run(worker := app.worker())
        said = [line for line in caplog.messages if "positions that eddy did not write are not used" in line]
        assert len(said) == 1, said
        assert re.search(
            r"its group has (no position|position \d+) in '[ab]-\w+' partition 0, the states are at", said[0]
        )
        found = app.log.committed(app.name, app.inputs)
        assert all(tp in found and is_ours(found[tp]) for tp in app.inputs)
    worker.close()


def test_a_first_start_takes_the_positions_of_the_group(app: App) -> None:
    app.write()
    app.expected.clear()
    ends = app.log.end_offsets(app.inputs)
    app.log.set_positions(app.name, {tp: Position(end, "somebody's note") for tp, end in ends.items()})
    app.write()
    app.run(worker := app.worker())
    worker.close()


def test_states_whose_positions_nothing_tells_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Those of an earlier release, which wrote positions with a note and recorded none."""
    app = App(log := LocalLog(None))
    app.write()
    app.run(worker := app.worker())
    worker.close()
    cuts = f"{app.name}-cuts"
    cut = last_cut(log, cuts)
    assert cut is not None
    log.delete_topics([cuts])
    log.create_topics([TopicSpec(cuts, 1, {"cleanup.policy": "compact"})])
    producer = log.producer(None)
    producer.begin()
    producer.send(cuts, 0, [b"cut"], [cut.encode()], [0])
    producer.commit({}, None)
    noted = log.committed(app.name, app.inputs)
    assert own_positions(log, app.name, app.inputs).trusted == noted
    log.set_positions(app.name, {tp: Position(at.offset) for tp, at in noted.items()})
    assert {tp: at.offset for tp, at in committed(log, app.name, app.inputs).items()} == {
        tp: at.offset for tp, at in noted.items()
    }
    log.delete_group(app.name)
    assert not app.quiescent()
    with pytest.raises(
        StateError, match=r"its group has no position in 'a-\w+' partition 0; the states have processed"
    ):
        app.worker().step()


def test_a_note_is_that_of_an_epoch() -> None:
    for counters in (Counters(), Counters(3, 2, {"a-b.c": -1}, 7, 8, 1)):
        assert is_ours(Position(0, counters.note()))
    for note in ("", "AgAAAYxP3dXX", "7", "0 0 later", "text of somebody"):
        assert not is_ours(Position(0, note))


def test_a_console_consumer_takes_partitions_and_nothing_of_them_is_lost_or_processed(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = TidyKafkaLog(KafkaSettings.of(broker, pairs=QUICK_SESSIONS))
    app = App(log)
    app.write()
    app.run(worker := app.worker())
    console = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": app.name,
            "client.id": "console-consumer",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": 6000,
            "auto.offset.reset": "latest",
            "auto.commit.interval.ms": 100,
        }
    )
    try:
        console.subscribe(app.topics[:1])
        wait_for(lambda: worker.step(0.05) is not None and console.poll(0.05) is None and console.assignment(), 40.0)
        taken = {TopicPartition(tp.topic, tp.partition) for tp in console.assignment()}
        assert taken
        app.write()
        ends = log.end_offsets(taken)

        def read_by_the_console() -> bool:
            worker.step(0.05)
            console.poll(0.05)
            found = log.committed(app.name, taken)
            return found.keys() == taken and all(found[tp].offset >= ends[tp] - 1 for tp in taken)

        wait_for(read_by_the_console, 40.0)
        assert [line for line in caplog.messages if "client 'console-consumer' on 127.0.0.1 is a member" in line]
        for _ in range(10):
            worker.step(0.05)
        assert not any(map(is_ours, log.committed(app.name, taken).values()))
        assert not app.quiescent()
        assert log.strangers(app.name) == ["client 'console-consumer' on 127.0.0.1"]
    finally:
        console.close()
    app.run(worker)
    assert log.strangers(app.name) == []
    worker.close()
    log.close()


def test_who_is_in_a_group_is_asked_only_for_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that does not say hinders nobody."""

    def silent(group: str) -> list[str]:
        raise ConnectorError("no answer", retriable=True)

    app = App(LocalLog(None))
    monkeypatch.setattr(app.log, "strangers", silent)
    app.write()
    app.run(worker := app.worker())
    worker.close()
