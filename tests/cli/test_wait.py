"""`eddy wait`: when it ends, readers of committed records may read all results."""

import random
import uuid
from collections.abc import Iterable, Iterator
from datetime import timedelta

import pytest

import eddy
from eddy.cli import wait
from eddy.cli.status import print_status
from eddy.cli.wait import Patience, wait_until_quiescent
from eddy.connectors.kafka import KafkaSettings
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Log, Records, TopicPartition, TopicSpec
from tests.connectors.steps import QUICK_SESSIONS, TidyKafkaLog
from tests.waiting import wait_for

S = eddy.String
PATIENCE_S = 60.0


def topology(name: str = "app") -> eddy.Topology:
    """Each record in one of two topics."""
    made = eddy.Topology(name)
    rows = made.stream(f"{name}-in", key=S, value=S)
    rows.filter(lambda _, value: int(value) % 2).to(f"{name}-odd")
    rows.filter(lambda _, value: not int(value) % 2).to(f"{name}-even")
    return made


def send(log: Log, topic: str, partitions: int, values: Iterable[str]) -> None:
    data = [value.encode() for value in values]
    producer = log.producer(None)
    producer.begin()
    producer.send(topic, [number % partitions for number in range(len(data))], data, data, [0] * len(data))
    producer.commit({}, None)
    producer.close()


def read(log: Log, topic: str, partitions: int) -> set[int]:
    """The records that a reader of committed ones may read now."""
    found: set[int] = set()
    for partition in range(partitions):
        at = TopicPartition(topic, partition)
        records = log.read(at, 0, log.end_offsets([at])[at], 10_000)
        found.update(int(value or b"") for value in records.values)
    return found


class LateLog(LocalLog):
    """Once `dice` is given, the ends of transactions reach partitions one after the other, as on several brokers.

    Meanwhile another program writes to the outputs, and always has a transaction open there.
    """

    dice: random.Random | None = None

    def late(self, seed: int, outputs: dict[str, int]) -> None:
        self.dice, self.outputs = random.Random(seed), outputs
        partitions = [TopicPartition(topic, p) for topic, count in outputs.items() for p in range(count)]
        self.reached = {tp: self.dice.randint(0, end) for tp, end in self.end_offsets(partitions).items()}

    def reach(self, timeout_s: float) -> None:
        super().reach(timeout_s)
        if self.dice is not None:
            topic = self.dice.choice(list(self.outputs))
            arrived = [tp for tp in self.reached if self.dice.random() < 0.3]
            self.reached |= {tp: max(self.reached[tp], end) for tp, end in self.end_offsets(arrived).items()}
            send(self, topic, self.outputs[topic], ["-1"] * self.outputs[topic])

    def stable_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.reached.get(tp, end) for tp, end in super().stable_offsets(partitions).items()}

    def read(self, partition: TopicPartition, start: int, end: int, max_records: int) -> Records:
        reached = end if self.dice is None else min(end, self.reached.get(partition, end))
        return super().read(partition, start, reached, max_records)


def case(seed: int) -> None:
    """A random application, which has taken everything in; then `eddy wait`, and a reader."""
    dice = random.Random(seed)
    counts = {"app-in": dice.randint(1, 3), "app-odd": dice.randint(1, 3), "app-even": dice.randint(1, 3)}
    log = LateLog(None)
    log.create_topics(TopicSpec(name, count) for name, count in counts.items())
    numbers = range(dice.randint(1, 40))
    send(log, "app-in", counts["app-in"], map(str, numbers))
    worker = eddy.Worker(topology(), log, eddy.Config(max_epoch_records=dice.randint(1, 20)))
    worker.run_until_idle()
    worker.close()
    log.late(seed, {"app-odd": counts["app-odd"], "app-even": counts["app-even"]})
    wait_until_quiescent(log, topology(), Patience(PATIENCE_S))
    for topic, rest in (("app-odd", 1), ("app-even", 0)):
        assert read(log, topic, counts[topic]) - {-1} == {number for number in numbers if number % 2 == rest}


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "POLL_S", 0.0)


def test_all_results_may_be_read_when_it_ends() -> None:
    for seed in range(30):
        case(seed)


def test_the_law_finds_a_wait_that_only_asks_for_positions(monkeypatch: pytest.MonkeyPatch) -> None:  # private: planted
    monkeypatch.setattr(wait._Waiting, "_unreadable", lambda waiting: None)
    with pytest.raises(AssertionError):
        test_all_results_may_be_read_when_it_ends()


@pytest.fixture
def kafka(broker: str) -> Iterator[TidyKafkaLog]:
    log = TidyKafkaLog(KafkaSettings.of(broker, pairs=QUICK_SESSIONS))
    yield log
    log.close()


def test_open_transaction_in_an_output_on_kafka_is_waited_for(
    kafka: TidyKafkaLog, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    kafka.create_topics(TopicSpec(f"{name}-{stem}", 1, {"retention.ms": "-1"}) for stem in ("in", "odd", "even"))
    others = kafka.producer(None)
    others.begin()
    others.send(f"{name}-odd", 0, [b"x"], [b"-1"], [0])
    others.flush()
    send(kafka, f"{name}-in", 1, ["1", "2"])
    worker = eddy.Worker(topology(name), kafka)
    wait_for(lambda: not worker.step(0.05) and worker.idle(), PATIENCE_S)
    with pytest.raises(SystemExit):
        wait_until_quiescent(kafka, topology(name), Patience(1.0))
    assert f"readers may not read {name}-odd-0 from offset 0 on" in capsys.readouterr().err
    others.commit({}, None)
    others.close()
    wait_until_quiescent(kafka, topology(name), Patience(PATIENCE_S))
    assert (read(kafka, f"{name}-odd", 1), read(kafka, f"{name}-even", 1)) == ({-1, 1}, {2})
    worker.close()


def test_a_global_table_is_waited_for_until_every_worker_has_read_it(capsys: pytest.CaptureFixture[str]) -> None:
    made = eddy.Topology("app")
    names = made.global_table("names", S, S)
    made.stream("in", S, S).join(names, lambda one, other: other, value=S, select=lambda one: one).to("out")
    log = LocalLog(None)
    log.create_topics(TopicSpec(topic, 2) for topic in ("names", "in", "out"))
    workers = [eddy.Worker(made, log, eddy.Config(cut_interval_s=0.0), member=member) for member in "01"]

    def stepped(*some: eddy.Worker) -> bool:
        return sum(worker.step() for worker in some) == 0 and all(worker.idle() for worker in some)

    wait_for(lambda: stepped(*workers) and all(worker.positions.entry.positions for worker in workers))
    wait_until_quiescent(log, made, Patience(PATIENCE_S))
    send(log, "names", 2, ["ch", "de", "fr"])
    for _ in range(10):
        workers[0].step()
    with pytest.raises(SystemExit):
        wait_until_quiescent(log, made, Patience(0.2))
    assert "the global table of names is 5 offsets behind at a worker" in capsys.readouterr().err
    assert (workers[0].lags()["names"], workers[0].quiescent()) == (5, False)
    print_status(log, made, "json")
    assert '"global_tables":[{"topic":"names","lag":5}]' in capsys.readouterr().out
    wait_for(lambda: stepped(*workers))
    wait_until_quiescent(log, made, Patience(PATIENCE_S))
    print_status(log, made, "table")
    assert "global table" in capsys.readouterr().out
    for worker in workers:
        worker.close()


def test_workers_that_have_not_found_out_about_topics_are_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    """In an hour they look; a start looks at once. No record is in the topic that is deleted, and in the new one."""
    made = eddy.Topology("app")
    windows = eddy.TimeWindows(timedelta(milliseconds=10))
    made.stream(pattern="in-.*", key=S, value=S).group_by_key().windowed_by(windows, "close").count("n").to("out")
    log = LocalLog(None)
    log.create_topics(TopicSpec(topic, 2) for topic in ("in-a", "in-b", "out"))

    def workers() -> list[eddy.Worker]:
        started = [eddy.Worker(made, log, eddy.Config(topics_interval_s=3600.0), member=member) for member in "01"]
        wait_for(lambda: not sum(worker.step() for worker in started) and all(worker.idle() for worker in started))
        return started

    def wait_in_vain() -> str:
        with pytest.raises(SystemExit):
            wait_until_quiescent(log, made, Patience(0.0))
        return capsys.readouterr().err

    first = workers()
    wait_until_quiescent(log, made, Patience(PATIENCE_S))
    log.delete_topics(["in-b"])
    assert "in-a-0 has not found out yet that topics were created or deleted" in wait_in_vain()
    assert not first[0].quiescent()
    for worker in first:
        worker.close()
    second = workers()
    wait_until_quiescent(log, made, Patience(PATIENCE_S))
    log.delete_topics(["in-a"])
    log.create_topics([TopicSpec("in-a", 2)])
    assert "in-a-0 has not found out yet that topics were created or deleted" in wait_in_vain()
    assert not second[0].quiescent()
    for worker in second:
        worker.close()
    for worker in workers():
        wait_until_quiescent(log, made, Patience(PATIENCE_S))
        worker.close()
    log.close()
