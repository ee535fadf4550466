"""What is Kafka's own, beside what every log has to keep (`test_log.py`)."""

import logging
import os
import random
import re
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import eddy
from eddy.connectors.kafka import KafkaSettings
from eddy.connectors.kafka.producer import KafkaProducer
from eddy.connectors.kafka.record_columns import gather
from eddy.connectors.log import Consumer, Headers, Log, Poll, Position, TopicPartition, TopicSpec
from eddy.errors import ConfigurationError, ConnectorError, EddyError, SlotTakenError
from eddy.partitioner import partition_of
from tests.connectors.conftest import Name
from tests.connectors.steps import (
    KEPT,
    QUICK_SESSIONS,
    TidyKafkaLog,
    commit_one,
    drain,
    drained,
    numbered,
    read_all,
    send,
    settle,
    values_of,
    wait_for,
    write,
)
from tests.kafka import OwnBroker, Secured
from tests.seeds import DAY
from tests.waiting import PATIENCE_S, Deadline, WaitTimeoutError

Connect = Callable[..., TidyKafkaLog]


@pytest.fixture
def connect(broker: str) -> Iterator[Connect]:
    """Make a log with settings of the test's own."""
    made: list[TidyKafkaLog] = []

    def connect(*pairs: str) -> TidyKafkaLog:
        made.append(TidyKafkaLog(KafkaSettings.of(broker, pairs=pairs)))
        return made[-1]

    yield connect
    for log in made:
        log.close()


@pytest.fixture
def log(connect: Connect) -> Log:
    return connect(*QUICK_SESSIONS)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that may yet end is waited for a second longer, in place of 20."""
    monkeypatch.setattr("eddy.connectors.kafka.admin._LATE_S", 1.0)  # private: the wait itself is all that a test saves


class TestRecords:
    def test_a_timestamp_of_0_becomes_the_time_of_writing(self, log: Log, topic: str) -> None:
        """The client takes 0 for none given; a record without one has that of its writing in Kafka."""
        before_ms = int(time.time() * 1000)
        producer = log.producer(None)
        producer.begin()
        producer.send(topic, 0, [b"a", b"b"], [b"a", b"b"], [0, 1])
        producer.commit({}, None)
        now, then = read_all(log, topic, 0).timestamps
        assert before_ms <= now <= time.time() * 1000
        assert then == 1

    def test_a_topic_with_a_low_limit_is_flushed_as_often_as_its_fullest_partition_has_batches(
        self, log: Log, name: Name, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Records are written in several calls, partition by partition or in turn, and beside another topic."""
        flushes, flush = [], KafkaProducer.flush
        monkeypatch.setattr(KafkaProducer, "flush", lambda self: flushes.append(self) or flush(self))
        low, other = name("low"), name("other")
        log.create_topics([TopicSpec(low, 4, KEPT | {"max.message.bytes": "2000"}), TopicSpec(other, 1, KEPT)])
        dice, count = random.Random(DAY), 600
        values = [dice.randbytes(dice.choice([10, 50, 1_800])) for _ in range(count)]
        homes = sorted(dice.choice([0, 1, 1, 2, 3]) for _ in range(count))
        calls = [slice(0, 300), slice(300, 310), slice(310, count)]
        producer = log.producer(None)
        producer.begin()
        for call in calls:
            mine = values[call]
            producer.send(low, homes[call], [b"k"] * len(mine), mine, [1] * len(mine))
            producer.send(other, 0, [b"k"], [b"x"], [1])
        sent = len(flushes)
        producer.commit({}, None)
        written = [read_all(log, low, partition).values for partition in range(4)]
        assert written == [[v for v, home in zip(values, homes, strict=True) if home == p] for p in range(4)]
        fullest = max(sum(len(value) + 40 for value in part) for part in written)
        assert sent < 2 * fullest // 2_000 + 4 * len(calls), "a batch with a large record may be half empty"

    def test_large_headers_and_names_in_any_language_come_back(self, log: Log, topic: str) -> None:
        headers: list[Headers] = [
            (("größe", b"x" * 10_240), ("größe", b"\0\xff"), ("", b"")),
            tuple((f"h{i}", bytes([i])) for i in range(200)),
            (),
        ]
        producer = log.producer(None)
        producer.begin()
        producer.send(topic, 0, [None] * 3, [b"1", None, b"3"], [1, 2, 3], headers)
        producer.commit({}, None)
        records = read_all(log, topic, 0)
        assert records.headers is not None
        assert list(records.headers) == headers
        assert list(records.keys) == [None] * 3

    def test_large_polls_bring_all_in_order(self, log: Log, topic: str, name: Name) -> None:
        sent = {partition: numbered(f"{partition}-", 20_000) for partition in range(3)}
        for partition, values in sent.items():
            write(log, topic, partition, values)
        consumer = log.consumer(name("group"), [topic], "m")
        came: dict[int, list[bytes | None]] = {partition: [] for partition in range(3)}
        for records in drain(consumer, 60_000, max_records=50_000):
            came[records.partition] += records.values
        assert came == sent

    def test_records_of_several_partitions_are_deleted_at_once(self, log: Log, topic: str) -> None:
        for partition in range(3):
            write(log, topic, partition, numbered("v", 5))
        before = {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 0, TopicPartition(topic, 2): 5}
        log.delete_records(before)
        assert log.begin_offsets(before) == before
        assert [values_of(log, topic, p) for p in range(3)] == [numbered("v", 5)[2:], numbered("v", 5), []]
        log.delete_records({})

    def test_records_of_a_compacted_topic_are_not_deleted(self, log: Log, name: Name) -> None:
        log.create_topics([TopicSpec(name("table"), 1, {"cleanup.policy": "compact"})])
        write(log, name("table"), 0, numbered("v", 3))
        with pytest.raises(ConnectorError, match=name("table")):
            log.delete_records({TopicPartition(name("table"), 0): 2})
        assert values_of(log, name("table")) == numbered("v", 3)


class TestOpenTransactions:
    """Those of others hold back what lies behind their first record, and positions that they will move."""

    def test_read_stops_before_one_and_goes_on_when_it_ends(self, log: Log, topic: str, name: Name) -> None:
        where = TopicPartition(topic, 0)
        write(log, topic, 0, [b"before"])
        other = log.producer(name("other"))
        other.begin()
        send(other, topic, 0, [b"held"])
        other.flush()
        write(log, topic, 0, [b"behind"])
        end = log.end_offsets([where])[where]
        records = log.read(where, 0, end, 100)
        assert list(records.values) == [b"before"]
        assert records.next_offset < end
        other.commit({}, None)
        wait_for(lambda: log.read(where, 0, end, 100).next_offset == end)
        assert values_of(log, topic) == [b"before", b"held", b"behind"]

    def test_a_group_waits_for_one_and_takes_all_when_it_ends(self, log: Log, topic: str, name: Name) -> None:
        other = log.producer(name("other"))
        other.begin()
        send(other, topic, 0, [b"held"])
        other.flush()
        write(log, topic, 0, [b"behind"])
        consumer = log.consumer(name("group"), [topic], "m")
        settle([consumer], 3)
        assert [records for records in consumer.poll(10, 0.2).records if records] == []
        other.abort()
        assert [value for records in drain(consumer, 1) for value in records.values] == [b"behind"]

    def test_committed_waits_for_one_that_moves_it(self, log: Log, connect: Connect, topic: str, name: Name) -> None:
        where, group = TopicPartition(topic, 0), name("group")
        consumer = commit_first(log, where, group, name("other"))
        held = held_position(connect(), name("other"), where, group, consumer.group_metadata())
        ended = threading.Timer(0.5, held.commit_transaction, [10.0])
        ended.start()
        try:
            assert log.committed(group, [where]) == {where: Position(2, "second")}
        finally:
            ended.join()

    def test_committed_is_as_before_where_one_times_out(
        self, log: Log, connect: Connect, topic: str, name: Name
    ) -> None:
        where, group = TopicPartition(topic, 0), name("group")
        consumer = commit_first(log, where, group, name("other"))
        quick = connect("producer.transaction.timeout.ms=4000")
        held_position(quick, name("other"), where, group, consumer.group_metadata())
        assert log.committed(group, [where]) == {where: Position(1, "first")}


def commit_first(log: Log, where: TopicPartition, group: str, transactional_id: str) -> Consumer:
    """A member of a group, after a transaction that has moved the group's position to 1."""
    consumer = log.consumer(group, [where.topic], "m")
    settle([consumer], 3)
    producer = log.producer(transactional_id)
    producer.begin()
    producer.commit({where: Position(1, "first")}, consumer.group_metadata())
    return consumer


def held_position(log: Log, transactional_id: str, where: TopicPartition, group: str, metadata: object):  # type: ignore[no-untyped-def]  # private: a commit that never ends
    """The client of a transaction that has moved a position to 2, and is left open."""
    import confluent_kafka

    producer = log.producer(transactional_id)
    producer.begin()
    client = producer._client  # type: ignore[attr-defined]
    client.send_offsets_to_transaction([confluent_kafka.TopicPartition(*where, 2, "second")], metadata, 10.0)
    return client


class TestProducers:
    def test_one_is_made_anew_after_a_commit_that_took_long(self, own_broker: OwnBroker, name: Name) -> None:
        """A late request of the old one could end the next transaction; the new one's epoch fences it."""
        broker = own_broker()
        broker.start()
        log = TidyKafkaLog(KafkaSettings.of(broker.bootstrap))
        log.create_topics([TopicSpec(name("topic"), 1, KEPT)])
        producer = log.producer(name("id"))
        commit_one(producer, name("topic"))
        count, took_s, deadline = 2, 0.0, Deadline(PATIENCE_S)
        while took_s < 1.5:
            deadline.check(f"a commit that takes long; the last one took {took_s} s")
            producer.begin()
            client = producer._client  # private: the old one
            send(producer, name("topic"), 0, [b"x"])
            producer.flush()
            broker.pause()
            began, resumed = time.monotonic(), threading.Timer(3.0, broker.resume)
            resumed.start()
            producer.commit({}, None)
            took_s, count = time.monotonic() - began, count + 1
            resumed.join()
        assert producer._client is client  # private: still the old one
        commit_one(producer, name("topic"))
        assert producer._client is not client  # private: the new one
        assert values_of(log, name("topic")) == [b"x"] * count
        log.close()

    def test_one_that_aborts_at_once_after_commits_goes_on(self, log: Log, name: Name) -> None:
        out, partitions = name("out"), range(40)
        log.create_topics([TopicSpec(out, len(partitions))])
        producer = log.producer(name("id"))
        for turn in range(40):  # the end of a commit reaches many partitions while the next transaction has begun
            column = [b"%d" % turn] * len(partitions)
            producer.begin()
            producer.send(out, partitions, column, column, [1_000] * len(partitions))
            if turn % 2:
                time.sleep(turn % 4 * 0.003)  # pause: partitions are refused until the commit has ended
                producer.abort()
            else:
                producer.commit({}, None)
        producer.close()
        assert [values_of(log, out, at) for at in partitions] == [[b"%d" % turn for turn in range(0, 40, 2)]] * 40

    def test_one_is_refused_in_a_forked_process(self, log: Log, topic: str, name: Name) -> None:
        """The client's threads stay behind in the parent: a call would wait for ever."""
        producer = log.producer(name("id"))
        told, tell = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, which is what is tried
            child = os.fork()
        if child == 0:
            try:
                producer.begin()
            except ConnectorError as error:
                os.write(tell, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(tell)
        with os.fdopen(told) as answer:
            assert "forked" in answer.read()
        commit_one(producer, topic)
        assert values_of(log, topic) == [b"x"]


class TestSecrets:
    def test_no_error_and_no_line_shows_a_password(
        self, secured_broker: Secured, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
    ) -> None:
        caplog.set_level(logging.DEBUG)
        password = "kept-to-itself-4711"
        client = secured_broker.client("eddy", password)
        settings = KafkaSettings.of(pairs=[f"{key}={value}" for key, value in client.items()])
        log = TidyKafkaLog(settings)
        with pytest.raises(ConfigurationError, match="uthentication") as refused:
            log.topics()
        log.close()
        error = "".join(traceback.format_exception(refused.value))
        told = [repr(settings), str(settings), repr(log), error, caplog.text, *capfd.readouterr()]
        assert not [text for text in told if password in text]


class TestGroups:
    def test_equal_partitions_of_two_topics_go_to_the_same_of_three_members(self, log: Log, name: Name) -> None:
        topics = [name("a"), name("b")]
        log.create_topics(TopicSpec(topic, 5) for topic in topics)
        members = [log.consumer(name("group"), topics, f"m{i}") for i in range(3)]
        settle(members, 10)
        for member in members:
            owned = member.assignment()
            mine = [{p.partition for p in owned if p.topic == topic} for topic in topics]
            assert mine[0] == mine[1]
            assert len(mine[0]) in {1, 2}

    def test_a_restart_takes_its_place_and_the_others_notice_nothing(self, log: Log, topic: str, name: Name) -> None:
        stays, leaves = (log.consumer(name("group"), [topic], member) for member in "ab")
        settle([stays, leaves], 3)
        before = stays.assignment(), leaves.assignment()
        leaves.close()
        back = log.consumer(name("group"), [topic], "b")
        polls: list[Poll] = []
        deadline = Deadline(PATIENCE_S)
        while not back.assignment():
            deadline.check("its share")
            polls += [stays.poll(10, 0.05)]
            back.poll(10, 0.05)
        polls += [stays.poll(10, 0.05) for _ in range(5)]
        assert not [poll for poll in polls if poll.assigned or poll.revoked]
        assert (stays.assignment(), back.assignment()) == before

    @pytest.mark.parametrize(("before", "after"), [("a", "ab"), ("ab", "a"), ("a", "b")])
    def test_a_restart_with_other_topics_gets_all_of_those_and_no_others(
        self, log: Log, name: Name, before: str, after: str
    ) -> None:
        """By itself a static member that comes back would get what it had, whatever it asks for."""
        log.create_topics(TopicSpec(name(stem), 2) for stem in "ab")
        old = log.consumer(name("group"), [name(stem) for stem in before], "m")
        settle([old], 2 * len(before))
        old.close()
        new = log.consumer(name("group"), [name(stem) for stem in after], "m")
        settle([new], 2 * len(after))
        assert {partition.topic for partition in new.assignment()} == {name(stem) for stem in after}

    @pytest.mark.usefixtures("impatient")
    def test_a_member_that_asks_for_other_topics_while_it_joins_joins_once(self, connect: Connect, name: Name) -> None:
        """A second request without a member id, once the group rests, would get no partition of the other topics."""
        log, group = connect("consumer.heartbeat.interval.ms=100"), name("group")
        log.create_topics([TopicSpec(name("first"), 2), TopicSpec(name("later"), 2)])
        a = log.consumer(group, [name("first")], "a")
        settle([a], 2)
        b = log.consumer(group, [name("first")], "b")

        def joining() -> str | None:
            b.poll(10, 0.01)  # `a` does not poll, so that its partitions are not given up
            return log._admin.holder(group, f"{group}-b")  # private: asked by starts of workers only

        wait_for(joining)
        joined = joining()
        b.subscribe([name("first"), name("later")])
        settle([a, b], 4)
        assert {tp.topic for tp in a.assignment()} == {name("first")}, "it has not asked for others"
        assert joining() == joined
        a.close()
        b.close()

    def test_a_name_whose_holder_reads_other_topics_is_taken(self, connect: Connect, name: Name) -> None:
        """It is left alone: what it owns cannot be had."""
        log = connect("consumer.session.timeout.ms=8000", "consumer.heartbeat.interval.ms=200")
        log.create_topics(TopicSpec(name(stem), 2) for stem in "ab")
        holder = log.consumer(name("group"), [name("a")], "m")
        settle([holder], 2)
        with pytest.raises(SlotTakenError, match=f"{name('group')}-m") as refused:
            log.consumer(name("group"), [name("b")], "m")
        assert re.search(r" has not ended within [\d.]+ s", str(refused.value))  # not that it was lost
        settle([holder], 2)

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_two_workers_share_the_work_by_either_protocol(self, connect: Connect, name: Name, protocol: str) -> None:
        """KIP-848 is a matter of two settings: the broker assigns, by the same `range`."""
        assignor = ["group.remote.assignor=range"] if protocol == "consumer" else []
        log = connect(f"group.protocol={protocol}", *assignor)
        log.create_topics([TopicSpec(name("in"), 4, KEPT), TopicSpec(name("out"), 4, KEPT)])
        topology = eddy.Topology(name("app"))
        words = topology.stream(name("in"), eddy.String, eddy.String)
        words.group_by(lambda _, word: word, key=eddy.String).count("counts").to(name("out"))
        workers = [eddy.Worker(topology, log, member=member) for member in "01"]
        counts: dict[bytes, int] = {}
        for turn in range(3):
            if turn == 2:
                workers[1].close()
                workers[1] = eddy.Worker(topology, log, member="1")
            for n in range(7):
                word = b"w%d" % n
                counts[word] = counts.get(word, 0) + 10 + n
                write(log, name("in"), partition_of(word, 4), [word] * (10 + n))
            deadline = Deadline(PATIENCE_S)
            while sum(worker.step(0.01) for worker in workers) or not workers[0].quiescent():
                deadline.check("quiescence")
        assert all(worker.statistics.records for worker in workers)
        for worker in workers:
            worker.close()
        found = {}
        for partition in range(4):
            records = read_all(log, name("out"), partition)
            found |= dict(zip(records.keys, records.values, strict=True))
        assert found == {word: eddy.Int64.encode(count) for word, count in counts.items()}


def test_what_was_paused_goes_on_at_once(log: Log, topic: str, name: Name) -> None:
    """As after a restore, when all was paused: left alone, the client looks again when it wakes, once a second."""
    consumer = log.consumer(name("group"), [topic], "m")
    settle([consumer], 3)
    took_s = []
    for round_ in range(5):
        consumer.pause(consumer.assignment())
        consumer.poll(10, 0.3)
        write(log, topic, round_ % 3, [b"held"])
        began = time.monotonic()
        consumer.resume(consumer.assignment())
        assert drained(consumer, 1) == [b"held"]
        took_s.append(time.monotonic() - began)
    if min(took_s) >= 0.3:
        raise WaitTimeoutError(f"resumed partitions, after {took_s} s")


def test_a_position_after_a_control_record_waits_a_moment_for_records(
    log: Log, topic: str, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that only moves a position would delay the epoch of the next record."""
    monkeypatch.setattr("eddy.connectors.kafka.consumer.SETTLE_S", PATIENCE_S)
    consumer = log.consumer(name("group"), [topic], "m")
    settle([consumer], 3)
    write(log, topic, 0, [b"first"])
    assert drained(consumer, 1) == [b"first"]
    later = threading.Timer(0.3, write, (log, topic, 1, [b"second"]))  # after the end of partition 0 has arrived
    later.start()
    polled = consumer.poll(10, PATIENCE_S).records
    later.join()
    assert [value for records in polled for value in records.values] == [b"second"]


def test_a_position_after_a_control_record_is_returned_without_records(log: Log, topic: str, name: Name) -> None:
    """After a moment, long before the poll's timeout; of a poll without a timeout at once."""
    consumer = log.consumer(name("group"), [topic], "m")
    settle([consumer], 3)
    where = TopicPartition(topic, 0)
    for timeout_s in (2 * PATIENCE_S, 0.0):
        write(log, topic, 0, [b"v"])
        reached, deadline = drain(consumer, 1)[-1].next_offset, Deadline(PATIENCE_S)
        while reached < log.end_offsets([where])[where]:
            reached = max((r.next_offset for r in consumer.poll(10, timeout_s).records), default=reached)
            deadline.check("the position at the end")


def test_a_poll_without_records_asks_the_client_seldom(
    log: Log, topic: str, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer is an event or the end of the wait, of which the client counts whole milliseconds."""
    consumer, asked = log.consumer(name("group"), [topic], "m"), list[float]()
    settle([consumer], 3)
    consumer.poll(10, 0.3)  # the ends of the partitions
    counted: Any = lambda *arguments: (asked.append(arguments[5]), gather(*arguments))  # noqa: E731
    monkeypatch.setattr("eddy.connectors.kafka.consumer.gather", counted)
    for _ in range(10):
        assert not consumer.poll(10, 0.02).records
    assert len(asked) < 50, asked


def test_stable_offsets_stop_before_an_open_transaction(log: Log, name: Name) -> None:
    topic = name("topic")
    log.create_topics([TopicSpec(topic, 2, KEPT)])
    write(log, topic, 0, [b"x"])
    first, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    wait_for(lambda: log.stable_offsets([first]) == log.end_offsets([first]))
    stable = log.stable_offsets([first])[first]
    producer = log.producer(None)
    producer.begin()
    producer.send(topic, 0, [b"y"], [b"y"], [0])
    producer.flush()
    assert log.stable_offsets([first, other]) == {first: stable, other: 0}
    producer.commit({}, None)
    producer.close()
    wait_for(lambda: log.stable_offsets([first]) == log.end_offsets([first]))
    assert log.stable_offsets([first])[first] > stable
    assert log.stable_offsets([]) == {}


def test_a_topic_that_does_not_exist_is_named(log: Log) -> None:
    for attempt in (
        lambda: log.begin_offsets([TopicPartition("absent", 0)]),
        lambda: log.consumer("group", ["absent"], "m"),
    ):
        with pytest.raises(EddyError, match="absent"):
            attempt()
