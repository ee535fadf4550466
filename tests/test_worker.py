"""The worker between polls: what a log may do, what must not be lost by it, and what ends a trouble."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.local.consumer import LocalConsumer
from eddy.connectors.local.producer import LocalProducer
from eddy.connectors.log import Poll, TopicPartition, TopicSpec
from eddy.errors import ConnectorError, IndeterminateCommitError
from eddy.runtime.isolation import Isolation, Part
from eddy.runtime.lifecycle import Event, WorkerState
from eddy.state.memory import MemoryStore
from tests.waiting import PATIENCE_S


def counts() -> eddy.Topology:
    topology = eddy.Topology("counts")
    words = topology.stream("words", key=eddy.String, value=eddy.String)
    words.group_by_key().count("count").to("counted", key=eddy.String, value=eddy.Int64)
    return topology


def write(log: LocalLog, *words: str, value: str = "", partition: int = 0, topic: str = "words") -> None:
    producer = log.producer(None)
    producer.begin()
    producer.send(topic, partition, [word.encode() for word in words], [value.encode()] * len(words), [0] * len(words))
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


@pytest.fixture
def log() -> Iterator[LocalLog]:
    with closing(LocalLog(None)) as made:
        made.create_topics([TopicSpec("words", 2), TopicSpec("counted", 1)])
        yield made


class Once:
    """Raises an error at one step of an epoch, once it is armed."""

    def __init__(self, step: str, error: BaseException) -> None:
        self._step, self._error, self.armed = step, error, False

    def __call__(self, step: str) -> None:
        if self.armed and step == self._step:
            self.armed = False
            raise self._error


def lost_answer() -> Once:
    return Once("committed", IndeterminateCommitError("no answer"))


def in_turn(workers: Iterable[eddy.Worker], rounds: int = 6) -> None:
    for _ in range(rounds):
        for worker in workers:
            worker.step()


def interrupting(method: Callable[[LocalProducer], None]) -> Callable[[LocalProducer], None]:
    """The method of transactional producers, interrupted the first time."""
    interrupts = [KeyboardInterrupt()]

    def interrupted(producer: LocalProducer) -> None:
        if producer._id is not None and interrupts:  # private: who has one
            raise interrupts.pop()
        method(producer)

    return interrupted


def test_epoch_whose_undoing_is_interrupted_is_undone(log: LocalLog, monkeypatch: pytest.MonkeyPatch) -> None:
    away = Once("begun", eddy.ConnectorError("away", retriable=True))
    with closing(eddy.Worker(counts(), log, observe=away)) as worker:
        worker.run_until_idle()
        write(log, "a", "b")
        away.armed = True
        monkeypatch.setattr(LocalProducer, "abort", interrupting(LocalProducer.abort))
        with pytest.raises(KeyboardInterrupt):
            worker.run_until_idle()
        worker.run_until_idle()
        assert worker.statistics.written == 2
    assert latest(log) == {"a": 1, "b": 1}


def test_store_and_group_are_left_though_closing_the_producer_is_interrupted(
    log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Store(MemoryStore):
        open = True

        def close(self) -> None:
            self.open = False

    store = Store()
    worker = eddy.Worker(counts(), log, member="a", store=store)
    worker.step()
    monkeypatch.setattr(LocalProducer, "close", interrupting(LocalProducer.close))
    with pytest.raises(KeyboardInterrupt):
        worker.close()
    assert not store.open
    with closing(eddy.Worker(counts(), log, member="b")) as other:
        other.step()
        assert len(other.positions.entry.positions) == 2, "the closed one owns nothing"


def test_rows_that_are_cut_are_counted_once_though_their_epoch_is_undone(log: LocalLog) -> None:
    topology = eddy.Topology("round")
    words = topology.stream("words", key=eddy.String, value=eddy.String)
    turns = words.recursively(
        lambda rows: rows.filter(lambda key, value: True), name="turns", limit=2, on_limit="return"
    )
    turns.to("counted")
    away = Once("flushed", eddy.ConnectorError("away", retriable=True))
    with closing(eddy.Worker(topology, log, observe=away)) as worker:
        worker.run_until_idle()
        away.armed = True
        write(log, "a")
        worker.run_until_idle()
        assert (worker.statistics.aborts, worker.statistics.cut_rows) == (1, 1)


def test_error_after_the_commit_is_no_reason_to_take_the_records_again(log: LocalLog) -> None:
    late = Once("stored", eddy.DataError("late"))
    with closing(eddy.Worker(counts(), log, observe=late)) as worker:
        worker.run_until_idle()
        write(log, "a", "b")
        late.armed = True
        with pytest.raises(eddy.DataError, match="late"):
            worker.run_until_idle()
        worker.run_until_idle()
    where = TopicPartition("counted", 0)
    assert sorted(log.read(where, 0, log.end_offsets([where])[where], 10).keys) == [b"a", b"b"]  # type: ignore[type-var]


def test_tables_are_those_of_the_log_when_a_worker_is_idle_after_a_lost_answer(log: LocalLog) -> None:
    lost = lost_answer()
    with closing(eddy.Worker(counts(), log, observe=lost)) as worker:
        worker.run_until_idle()
        lost.armed = True
        write(log, "a")
        worker.run_until_idle()
        assert not lost.armed
        assert worker.store("count").all() == {"a": 1}


def test_trouble_ends_when_a_commit_of_unknown_end_is_found_in_the_log(log: LocalLog) -> None:
    """A worker that does not lead has no cut to write, which would end it as well."""
    lost = lost_answer()
    with (
        closing(eddy.Worker(counts(), log, member="a")) as leader,
        closing(eddy.Worker(counts(), log, member="b", observe=lost)) as worker,
    ):
        in_turn([leader, worker])
        assert {tp.partition for tp in worker.positions.entry.positions} == {1}
        lost.armed = True
        write(log, "a", partition=1)
        in_turn([leader, worker])
        assert worker.statistics.aborts == 1
        assert worker.quiescent()
        assert worker.trouble is None


def test_trouble_ends_when_all_partitions_are_another_workers(log: LocalLog) -> None:
    others: list[eddy.Worker] = []

    def usurp(step: str) -> None:
        if step == "begun" and worker.statistics.records and not others:
            others.extend(eddy.Worker(counts(), log, member=member) for member in "ab")
            in_turn(others)

    worker = eddy.Worker(counts(), log, member="c", observe=usurp)
    try:
        write(log, "a")
        worker.run_until_idle()
        write(log, "b")
        worker.step()
        assert worker.trouble is not None
        in_turn([worker, *others])
        assert worker.statistics.fences == 1
        assert not worker.positions.entry.positions
        assert worker.trouble is None
    finally:
        for each in [worker, *others]:
            each.close()


def test_later_record_mends_one_that_took_long_to_be_found(log: LocalLog) -> None:
    """Both in one epoch: a worker that retries few records would never take the later one in."""
    topology = eddy.Topology("lengths")
    words = topology.table("words", key=eddy.String, value=eddy.String)
    words.map_values(lambda word: 1 // len(word)).to("counted", value=eddy.Int64)
    now = 0.0
    with closing(eddy.Worker(topology, log, eddy.Config(max_epoch_s=1.0), clock=lambda: now)) as worker:
        write(log, "a", "b")
        for _ in range(2):  # both together, then, as it took long, the first one alone
            worker.step()
            now += 2.0
        with pytest.raises(eddy.DataError, match="offset 0 key b'a'"):
            worker.step()
        write(log, "a", "b", value="x")
        worker.run_until_idle()
    assert latest(log) == {"a": 1, "b": 1}


def test_epoch_without_records_that_failed_gives_way_to_records(log: LocalLog) -> None:
    now = 0.0
    with closing(eddy.Worker(counts(), log, clock=lambda: now)) as worker:
        worker.run_until_idle()
        worker.lifecycle.on(Event.REJECTED)
        worker._failing._isolation = Isolation(Part([]), now)  # private: an outage at this moment
        now += 10.0
        write(log, "a")
        in_turn([worker], 3)
        assert worker.statistics.records == 1


def test_commits_whose_outcome_is_never_known_end_though_empty_polls_lie_between(
    log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def observe(step: str) -> None:
        if step == "begun" and worker._epoch is not None and worker._epoch.computed:  # private: at its commit alone
            raise IndeterminateCommitError("no answer to a commit")

    def go_on() -> None:
        nonlocal now
        for _ in range(100):
            now += 5.0
            worker.step()

    log.create_topics([TopicSpec("names", 1), TopicSpec("out", 1)])
    topology = eddy.Topology("names")
    topology.table("names", key=eddy.String, value=eddy.String).to("out")
    with closing(eddy.Worker(topology, log, eddy.Config(retry_s=60.0), clock=lambda: now, observe=observe)) as worker:
        in_turn([worker], 2)
        write(log, "a", topic="names")
        poll, polls = LocalConsumer.poll, 0

        def every_second_one(consumer: LocalConsumer, *args: Any) -> Poll:
            nonlocal polls
            polls += worker.state is WorkerState.PROCESSING
            return Poll() if worker.state is WorkerState.PROCESSING and polls % 2 == 0 else poll(consumer, *args)

        monkeypatch.setattr(LocalConsumer, "poll", every_second_one)
        with pytest.raises(ConnectorError, match="no answer to a commit"):
            go_on()


def test_troubles_of_a_worker_without_partitions_do_not_add_up(log: LocalLog, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    with (
        closing(eddy.Worker(counts(), log, member="a")) as a,
        closing(eddy.Worker(counts(), log, member="b")) as b,
        closing(eddy.Worker(counts(), log, eddy.Config(retry_s=60.0), member="c", clock=lambda: now)) as worker,
    ):
        in_turn([a, b])

        def failing(*args: Any) -> Poll:
            raise ConnectorError("the brokers are away", retriable=True)

        for _ in range(3):
            with monkeypatch.context() as away:
                away.setattr(LocalConsumer, "poll", failing)
                worker.step()
            for _ in range(5):
                now += 100.0
                in_turn([worker, a, b], 1)
            assert worker.trouble is None


def test_a_worker_that_lost_a_commit_is_not_idle_before_its_records_are_processed(log: LocalLog) -> None:
    armed = False

    def observe(step: str) -> None:
        nonlocal armed
        if step == "committed" and armed:
            armed = False
            raise IndeterminateCommitError("no answer")

    with closing(eddy.Worker(counts(), log, observe=observe)) as worker:
        worker.run_until_idle()
        write(log, "a")
        armed = True
        in_turn([worker], 1)
        assert not armed
        assert not worker.idle()
        worker.run_until_idle()
        assert worker.idle()
    assert latest(log) == {"a": 1}


def test_a_moment_without_an_answer_does_not_end_a_wait_for_quiescence(
    log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([ConnectorError("the brokers are away", retriable=True)])
    quiescent = eddy.Worker.quiescent

    def once_away(worker: eddy.Worker) -> bool:
        for error in answers:
            raise error
        return quiescent(worker)

    with eddy.run(counts(), log) as running:
        monkeypatch.setattr(eddy.Worker, "quiescent", once_away)
        write(log, "a")
        running.wait_idle(PATIENCE_S)
        assert running.alive
    assert latest(log) == {"a": 1}
