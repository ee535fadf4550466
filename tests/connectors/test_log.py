"""What every log has to keep: each rule and promise of `eddy/connectors/log.py`, on each log there is.

A log may be shared between tests (a broker is), so `name` makes names that are used once; and a
record may take its time, so `drain` and `settle` wait for a condition. Offsets are compared, never
counted: where the control records are is a log's own business.
"""

import pathlib
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from eddy.connectors.local import LocalLog
from eddy.connectors.log import (
    Headers,
    Log,
    Position,
    Records,
    TopicPartition,
    TopicSpec,
)
from eddy.errors import ConnectorError, FencedError, RecordRefusedError
from tests.connectors.conftest import Name
from tests.connectors.steps import (
    commit_one,
    drain,
    drained,
    ends,
    log_of,
    numbered,
    read_all,
    send,
    settle,
    settled_end,
    values_of,
    wait_for,
    write,
)
from tests.waiting import PATIENCE_S, Deadline

Row = tuple[bytes | None, bytes | None]


@pytest.fixture(params=["memory", "disk", "kafka"])
def log(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Log]:
    with closing(log_of(request, tmp_path)) as made:
        yield made


class TestTopics:
    def test_topics_tells_what_was_created(self, log: Log, name: Name) -> None:
        spec = TopicSpec(name("changelog"), 4, {"cleanup.policy": "compact"})
        log.create_topics([spec, TopicSpec(name("plain"), 1)])
        found = log.topics([name("changelog"), name("plain"), name("absent")])
        assert set(found) == {name("changelog"), name("plain")}
        assert found[name("changelog")].partitions == 4
        assert found[name("changelog")].compacted
        assert not found[name("plain")].compacted
        assert set(found) <= set(log.topics())

    def test_partition_counts_are_those_of_all_topics(self, log: Log, topic: str, name: Name) -> None:
        log.create_topics([TopicSpec(name("more"), 2)])
        counts = log.partition_counts()
        assert (counts[topic], counts[name("more")]) == (3, 2)
        assert name("absent") not in counts

    def test_create_makes_none_when_one_exists(self, log: Log, topic: str, name: Name) -> None:
        with pytest.raises(ConnectorError, match="exists"):
            log.create_topics([TopicSpec(name("new"), 1), TopicSpec(topic, 3)])
        assert log.topics([name("new")]) == {}

    @pytest.mark.parametrize("bad", ["", "a/b", "..", "ü", "x" * 250])
    def test_create_refuses_a_name_that_kafka_refuses(self, log: Log, bad: str) -> None:
        with pytest.raises(ConnectorError):
            log.create_topics([TopicSpec(bad, 1)])

    def test_delete_removes_topics_and_passes_over_absent_ones(self, log: Log, topic: str, name: Name) -> None:
        write(log, topic, 0, [b"gone"])
        log.delete_topics([topic, name("absent")])
        assert log.topics([topic]) == {}

    def test_offsets_of_a_new_partition_are_zero(self, log: Log, topic: str) -> None:
        where = TopicPartition(topic, 1)
        assert log.begin_offsets([where]) == log.end_offsets([where]) == {where: 0}

    @pytest.mark.parametrize("bad", ["orders", b"orders", ("orders", 0), 7, None])
    def test_what_is_no_partition_is_refused_by_name(self, log: Log, topic: str, bad: Any) -> None:
        calls: list[Callable[[], object]] = [
            lambda: log.read(bad, 0, 1, 1),
            lambda: log.begin_offsets([bad]),
            lambda: log.end_offsets([TopicPartition(topic, 0), bad]),
            lambda: log.stable_offsets([bad]),
            lambda: log.committed("group", [bad]),
            lambda: log.follower({bad: 0}),
            lambda: log.delete_records({bad: 0}),
            lambda: log.set_positions("group", {bad: Position(0)}),
        ]
        for call in calls:
            with pytest.raises(ConnectorError, match=rf"{re.escape(repr(bad))} is not a partition; .*TopicPartition\("):
                call()

    def test_a_text_is_no_list_of_names_or_partitions(self, log: Log, topic: str) -> None:
        calls: list[Callable[[], object]] = [
            lambda: log.topics(topic),
            lambda: log.delete_topics(topic),
            lambda: log.consumer("group", topic, "0"),
        ]
        for call in calls:
            with pytest.raises(ConnectorError, match=rf"a list of names is needed. Write \['{topic}'\]"):
                call()
        with pytest.raises(ConnectorError, match=f"'{topic}' is not a partition"):
            log.end_offsets(topic)  # type: ignore[arg-type]
        assert log.topics([topic])

    def test_an_absent_partition_is_refused(self, log: Log, topic: str) -> None:
        with pytest.raises(ConnectorError):
            log.end_offsets([TopicPartition(topic, 3)])


class TestRecords:
    def test_null_and_empty_keys_and_values_come_back(self, log: Log, topic: str) -> None:
        rows: list[Row] = [(None, None), (b"", b""), (b"k", None), (None, b"v"), (b"\0\xff", b"x" * 10_000)]
        producer = log.producer(None)
        producer.begin()
        producer.send(topic, 0, [k for k, _ in rows], [v for _, v in rows], range(1, 6))
        producer.commit({}, None)
        records = read_all(log, topic, 0)
        assert list(zip(records.keys, records.values, strict=True)) == rows
        assert list(records.timestamps) == [1, 2, 3, 4, 5]
        assert (records.topic, records.partition, len(records)) == (topic, 0, 5)
        assert records.headers is None

    def test_headers_come_back_in_order_and_repeated(self, log: Log, topic: str) -> None:
        headers: list[Headers] = [(), (("b", b"2"), ("a", b""), ("b", b"1"))]
        producer = log.producer(None)
        producer.begin()
        producer.send(topic, 0, [b"1", b"2"], [b"1", b"2"], [0, 0], headers)
        producer.commit({}, None)
        found = read_all(log, topic, 0).headers
        assert found is not None
        assert list(found) == headers

    def test_order_within_a_partition_is_the_order_of_sending(self, log: Log, topic: str) -> None:
        sent = numbered("v", 1_234)
        producer = log.producer(None)
        for part in (sent[:1_000], sent[1_000:]):
            producer.begin()
            for i in range(0, len(part), 300):
                send(producer, topic, 2, part[i : i + 300])
            producer.commit({}, None)
        records = read_all(log, topic, 2)
        assert list(records.values) == sent
        assert list(records.offsets) == sorted(set(records.offsets))

    def test_read_gives_what_lies_between_and_no_more_than_asked(self, log: Log, topic: str) -> None:
        write(log, topic, 0, numbered("a", 5))
        write(log, topic, 0, numbered("b", 5))
        where = TopicPartition(topic, 0)
        end = log.end_offsets([where])[where]
        wait_for(lambda: log.read(where, 0, end, 100).next_offset == end)
        part = log.read(where, 2, end, 2)
        assert (list(part.values), part.next_offset) == ([b"a2", b"a3"], 4)
        assert list(log.read(where, 1, 3, 100).values) == [b"a1", b"a2"]
        rest = log.read(where, part.next_offset, end, 100)
        assert list(rest.values) == [b"a4", *numbered("b", 5)]
        assert rest.next_offset == end

    def test_read_of_nothing_reaches_the_end(self, log: Log, topic: str) -> None:
        write(log, topic, 0, [b"x"])
        where = TopicPartition(topic, 0)
        end = log.end_offsets([where])[where]
        wait_for(lambda: log.read(where, 1, end, 10).next_offset == end)
        assert log.read(where, end, end, 10).next_offset == end

    def test_a_record_over_the_limit_is_refused_and_none_is_sent(self, log: Log, topic: str) -> None:
        producer = log.producer(None)
        producer.begin()
        with pytest.raises(RecordRefusedError, match=r"1048\d\d\d"):
            producer.send(topic, 0, [b"small", b"big"], [b"x", b"x" * (1 << 20)], [0, 0])
        producer.commit({}, None)
        assert values_of(log, topic) == []

    def test_the_limit_is_the_topics_own(self, log: Log, name: Name) -> None:
        log.create_topics([TopicSpec(name("wide"), 1, {"max.message.bytes": "3000000"})])
        write(log, name("wide"), 0, [b"x" * 1_400_000])
        assert values_of(log, name("wide")) == [b"x" * 1_400_000]

    def test_send_to_an_absent_partition_is_refused(self, log: Log, topic: str) -> None:
        producer = log.producer(None)
        producer.begin()
        with pytest.raises(ConnectorError):
            send(producer, topic, 3, [b"x"])
        producer.abort()

    def test_delete_records_moves_the_first_offset(self, log: Log, topic: str) -> None:
        write(log, topic, 0, numbered("v", 6))
        where = TopicPartition(topic, 0)
        log.delete_records({where: 4})
        assert log.begin_offsets([where]) == {where: 4}
        assert values_of(log, topic) == [b"v4", b"v5"]
        log.delete_records({where: 2})
        assert log.begin_offsets([where]) == {where: 4}

    def test_records_may_be_deleted_up_to_the_end_and_not_beyond(self, log: Log, topic: str) -> None:
        write(log, topic, 0, numbered("v", 6))
        where, end = TopicPartition(topic, 0), settled_end(log, topic)
        log.delete_records({where: end})
        assert log.begin_offsets([where]) == log.end_offsets([where]) == {where: end}
        with pytest.raises(ConnectorError):
            log.delete_records({where: end + 1})


class TestTransactions:
    """Rules 1 and 2."""

    def test_nothing_shows_before_the_commit(self, log: Log, topic: str, name: Name) -> None:
        producer = log.producer(name("id"))
        consumer = log.consumer(name("group"), [topic], "m")
        settle([consumer], 3)
        producer.begin()
        for partition in range(3):
            send(producer, topic, partition, numbered("v", 3))
        assert consumer.poll(100, 0).records == []
        producer.flush()
        assert [list(records.values) for records in consumer.poll(100, 0).records if records] == []
        assert [list(log.read(TopicPartition(topic, i), 0, 3, 100).values) for i in range(3)] == [[], [], []]
        producer.commit({}, None)
        assert sorted(map(str, drained(consumer, 9))) == sorted(map(str, numbered("v", 3) * 3))

    def test_an_abort_leaves_nothing_but_a_hole(self, log: Log, topic: str) -> None:
        write(log, topic, 0, [b"before"])
        producer = log.producer(None)
        for flushed in (False, True):
            producer.begin()
            send(producer, topic, 0, numbered("dropped", 3))
            if flushed:
                producer.flush()
            producer.abort()
        write(log, topic, 0, [b"after"])
        records = read_all(log, topic, 0)
        assert list(records.values) == [b"before", b"after"]
        assert records.offsets[1] - records.offsets[0] > 1 + 3

    def test_a_reader_steps_over_what_was_aborted(self, log: Log, topic: str, name: Name) -> None:
        consumer = log.consumer(name("group"), [topic], "m")
        settle([consumer], 3)
        producer = log.producer(name("id"))
        producer.begin()
        send(producer, topic, 0, [b"dropped"])
        producer.flush()
        producer.abort()
        where = TopicPartition(topic, 0)
        deadline = Deadline(PATIENCE_S)
        reached = 0
        while reached < log.end_offsets([where])[where]:
            deadline.check("the end of the partition")
            for records in consumer.poll(10, 0.1).records:
                assert len(records) == 0
                reached = records.next_offset

    def test_abort_without_a_transaction_does_nothing(self, log: Log, name: Name) -> None:
        producer = log.producer(name("id"))
        producer.abort()
        producer.begin()
        producer.abort()
        producer.abort()

    def test_a_producer_goes_on_after_an_abort(self, log: Log, topic: str, name: Name) -> None:
        producer = log.producer(name("id"))
        producer.begin()
        send(producer, topic, 0, [b"dropped"])
        producer.abort()
        producer.begin()
        send(producer, topic, 0, [b"kept"])
        producer.commit({}, None)
        assert values_of(log, topic) == [b"kept"]

    def test_close_aborts_what_is_open(self, log: Log, topic: str, name: Name) -> None:
        producer = log.producer(name("id"))
        producer.begin()
        send(producer, topic, 0, [b"dropped"])
        producer.flush()
        producer.close()
        write(log, topic, 0, [b"kept"])
        assert values_of(log, topic) == [b"kept"]

    def test_flush_tells_where_the_partitions_end(self, log: Log, topic: str, name: Name) -> None:
        write(log, topic, 0, numbered("old", 2))
        producer = log.producer(name("id"))
        producer.begin()
        assert producer.flush() == {}
        send(producer, topic, 0, numbered("new", 3))
        send(producer, topic, 1, numbered("new", 1))
        told = producer.flush()
        assert set(told) == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        assert all(end >= told[p] for p, end in log.end_offsets(told).items()), "open transactions count"
        send(producer, topic, 0, [b"last"])
        told = producer.flush()
        producer.commit({}, None)
        for partition in (0, 1):
            offsets = read_all(log, topic, partition).offsets
            assert told[TopicPartition(topic, partition)] == offsets[-1] + 1
        assert all(end >= told[p] for p, end in log.end_offsets(told).items())

    def test_calls_out_of_order_are_refused(self, log: Log, topic: str, name: Name) -> None:
        producer = log.producer(name("id"))
        with pytest.raises(ConnectorError):
            send(producer, topic, 0, [b"x"])
        with pytest.raises(ConnectorError):
            producer.commit({}, None)
        producer.begin()
        with pytest.raises(ConnectorError):
            producer.begin()
        producer.abort()

    def test_two_producers_take_turns(self, log: Log, topic: str, name: Name) -> None:
        one, two = log.producer(name("one")), log.producer(name("two"))
        one.begin()
        two.begin()
        send(one, topic, 0, [b"1"])
        send(two, topic, 0, [b"2"])
        two.commit({}, None)
        one.commit({}, None)
        assert sorted(map(str, values_of(log, topic))) == ["b'1'", "b'2'"]


class TestPositions:
    """Rules 1 and 5."""

    def test_positions_move_with_the_records(self, log: Log, topic: str, name: Name) -> None:
        group, where = name("group"), TopicPartition(topic, 0)
        write(log, topic, 0, numbered("in", 4))
        consumer = log.consumer(group, [topic], "m")
        drain(consumer, 4)
        producer = log.producer(name("id"))
        producer.begin()
        send(producer, topic, 1, [b"out"])
        producer.flush()
        assert log.committed(group, [where]) == {}
        producer.commit({where: Position(4, "note ü")}, consumer.group_metadata())
        assert log.committed(group, [where, TopicPartition(topic, 1)]) == {where: Position(4, "note ü")}
        assert log.committed(name("another"), [where]) == {}

    def test_positions_stay_when_the_transaction_is_aborted(self, log: Log, topic: str, name: Name) -> None:
        consumer = log.consumer(name("group"), [topic], "m")
        settle([consumer], 3)
        producer = log.producer(name("id"))
        producer.begin()
        producer.commit({TopicPartition(topic, 0): Position(0, "first")}, consumer.group_metadata())
        producer.begin()
        send(producer, topic, 0, [b"x"])
        producer.abort()
        committed = log.committed(name("group"), [TopicPartition(topic, 0)])
        assert committed == {TopicPartition(topic, 0): Position(0, "first")}

    def test_positions_alone_write_no_control_record(self, log: Log, topic: str, name: Name) -> None:
        write(log, topic, 0, [b"x"])
        settled_end(log, topic)
        before = ends(log, topic)
        consumer = log.consumer(name("group"), [topic], "m")
        drain(consumer, 1)
        producer = log.producer(name("id"))
        producer.begin()
        producer.commit(before, consumer.group_metadata())
        assert ends(log, topic) == before == log.committed(name("group"), before)

    def test_positions_without_a_group_are_refused(self, log: Log, topic: str) -> None:
        producer = log.producer(None)
        producer.begin()
        with pytest.raises(ConnectorError):
            producer.commit({TopicPartition(topic, 0): Position(0)}, None)
        producer.abort()

    def test_a_new_member_starts_at_the_committed_position(self, log: Log, topic: str, name: Name) -> None:
        write(log, topic, 0, numbered("v", 5))
        first = log.consumer(name("group"), [topic], "m")
        drain(first, 5)
        producer = log.producer(name("id"))
        producer.begin()
        producer.commit({TopicPartition(topic, 0): Position(3)}, first.group_metadata())
        first.close()
        second = log.consumer(name("group"), [topic], "m")
        assert drained(second, 2) == [b"v3", b"v4"]

    def test_a_poll_does_not_commit(self, log: Log, topic: str, name: Name) -> None:
        write(log, topic, 0, numbered("v", 5))
        first = log.consumer(name("group"), [topic], "m")
        drain(first, 5)
        first.close()
        assert log.committed(name("group"), [TopicPartition(topic, 0)]) == {}
        assert len(drained(log.consumer(name("group"), [topic], "m"), 5)) == 5

    def test_a_position_before_the_first_offset_is_an_error(self, log: Log, topic: str, name: Name) -> None:
        write(log, topic, 0, numbered("v", 6))
        where = TopicPartition(topic, 0)
        consumer = log.consumer(name("group"), [topic], "m")
        drain(consumer, 6)
        producer = log.producer(name("id"))
        producer.begin()
        producer.commit({where: Position(2)}, consumer.group_metadata())
        log.delete_records({where: 5})
        consumer.seek({where: 2})
        with pytest.raises(ConnectorError, match=rf"\b2\b.*{topic}.*\b5\b"):
            drain(consumer, 1)
        with pytest.raises(ConnectorError, match=rf"\b2\b.*{topic}.*\b5\b"):
            log.read(where, 2, 6, 10)
        consumer.seek({where: 5})
        assert drained(consumer, 1) == [b"v5"]

    def test_without_a_position_a_group_starts_at_the_first_offset(self, log: Log, topic: str, name: Name) -> None:
        write(log, topic, 0, numbered("v", 6))
        log.delete_records({TopicPartition(topic, 0): 4})
        assert drained(log.consumer(name("group"), [topic], "m"), 2) == [b"v4", b"v5"]


class TestPolls:
    def test_poll_brings_columns_of_each_partition(self, log: Log, topic: str, name: Name) -> None:
        for partition in range(3):
            write(log, topic, partition, numbered(f"p{partition}-", 4))
        came = drain(log.consumer(name("group"), [topic], "m"), 12)
        by_partition = {
            p: [value for records in came if records.partition == p for value in records.values] for p in range(3)
        }
        assert by_partition == {p: numbered(f"p{p}-", 4) for p in range(3)}
        for records in came:
            assert len(records.offsets) == len(records.timestamps) == len(records.keys)
            assert not records.offsets or records.next_offset > records.offsets[-1]

    def test_the_last_next_offset_is_the_end(self, log: Log, topic: str, name: Name) -> None:
        write(log, topic, 0, numbered("v", 4))
        consumer = log.consumer(name("group"), [topic], "m")
        where = TopicPartition(topic, 0)
        position = 0
        deadline = Deadline(PATIENCE_S)
        while position < log.end_offsets([where])[where]:
            deadline.check("the end of the partition")
            for records in consumer.poll(3, 0.1).records:
                position = records.next_offset
        assert position == log.end_offsets([where])[where]

    @pytest.mark.parametrize("limit", [1, 2, 7, 100])
    def test_poll_keeps_its_limit_and_is_fair(self, log: Log, topic: str, name: Name, limit: int) -> None:
        for partition, count in enumerate((5, 40, 41)):
            write(log, topic, partition, numbered("v", count))
        consumer = log.consumer(name("group"), [topic], "m")
        first_polls: list[Records] = []
        count = 0
        deadline = Deadline(PATIENCE_S)
        while count < 86:
            deadline.check("86 records")
            poll = consumer.poll(limit, 0.1)
            assert sum(map(len, poll.records)) <= limit
            if count < 30:
                first_polls += poll.records
            count += sum(map(len, poll.records))
        assert count == 86
        if isinstance(log, LocalLog):  # Kafka is fair by what it fetches, up to a mebibyte of each partition in turn
            assert {records.partition for records in first_polls if records} == {0, 1, 2}

    @pytest.mark.parametrize("limit", [1, 300, 2_000])
    def test_poll_keeps_its_bytes_or_brings_one_record(self, log: Log, topic: str, name: Name, limit: int) -> None:
        sent = {p: [b"%d" % n + b"x" * (n * n * (p + 1) % 400) for n in range(12)] for p in range(3)}
        for partition, values in sent.items():
            write(log, topic, partition, values)
        consumer = log.consumer(name("group"), [topic], "m")
        came: dict[int, list[bytes | None]] = {p: [] for p in range(3)}
        where = {TopicPartition(topic, p): 0 for p in range(3)}
        deadline = Deadline(PATIENCE_S)
        while where != log.end_offsets(where):
            deadline.check(f"the ends, beyond {where}")
            polled = consumer.poll(1_000, 0.1, limit).records
            assert sum(map(Records.bytes, polled)) <= limit or sum(map(len, polled)) == 1
            for records in polled:
                came[records.partition] += records.values
                where[TopicPartition(topic, records.partition)] = records.next_offset
        assert came == sent

    def test_poll_without_records_returns_after_its_timeout(self, log: Log, topic: str, name: Name) -> None:
        consumer = log.consumer(name("group"), [topic], "m")
        settle([consumer], 3)
        started, deadline = time.monotonic(), Deadline(PATIENCE_S)
        assert consumer.poll(10, 0.05).records == []
        assert time.monotonic() - started > 0.04
        deadline.check("the end of the poll")

    def test_seek_moves_the_next_poll(self, log: Log, topic: str, name: Name) -> None:
        write(log, topic, 0, numbered("v", 5))
        consumer = log.consumer(name("group"), [topic], "m")
        drain(consumer, 5)
        consumer.seek({TopicPartition(topic, 0): 3})
        assert drained(consumer, 2) == [b"v3", b"v4"]
        consumer.seek({TopicPartition(topic, 0): 0})
        assert drained(consumer, 5) == numbered("v", 5)

    def test_seek_back_after_an_abort_brings_the_same_again(self, log: Log, topic: str, name: Name) -> None:
        log.create_topics([TopicSpec(name("out"), 1)])
        where = TopicPartition(topic, 0)
        write(log, topic, 0, numbered("v", 5))
        consumer = log.consumer(name("group"), [topic], "m")
        producer = log.producer(name("id"))
        settle([consumer], 3)
        position = 0
        for count, aborts in ((2, True), (2, False), (3, True), (3, False)):
            consumer.seek({where: position})
            records = drain(consumer, count, max_records=count)
            producer.begin()
            for part in records:
                producer.send(name("out"), 0, part.keys, part.values, part.timestamps)
            if aborts:
                producer.abort()
            else:
                position = records[-1].next_offset
                producer.commit({where: Position(position)}, consumer.group_metadata())
        assert values_of(log, name("out")) == numbered("v", 5)

    def test_paused_partitions_bring_nothing_until_resumed(self, log: Log, topic: str, name: Name) -> None:
        consumer = log.consumer(name("group"), [topic], "m")
        settle([consumer], 3)
        paused = TopicPartition(topic, 0)
        consumer.pause([paused])
        write(log, topic, 0, [b"held"])
        write(log, topic, 1, [b"free"])
        assert drained(consumer, 1) == [b"free"]
        assert [records for records in consumer.poll(10, 0.05).records if records] == []
        assert paused in consumer.assignment()
        consumer.resume([paused])
        assert drained(consumer, 1) == [b"held"]


class TestGroups:
    """Rules 3 and 4."""

    def test_a_group_of_one_owns_all_and_is_told_so(self, log: Log, topic: str, name: Name) -> None:
        consumer = log.consumer(name("group"), [topic], "m")
        assert consumer.assignment() == frozenset()
        polls = settle([consumer], 3)
        told = [poll for poll in polls if poll.assigned]
        assert [(poll.revoked, poll.assigned) for poll in told] == [(frozenset(), consumer.assignment())]
        assert consumer.assignment() == {TopicPartition(topic, i) for i in range(3)}

    def test_equal_partitions_of_all_topics_go_to_the_same_member(self, log: Log, topic: str, name: Name) -> None:
        log.create_topics([TopicSpec(name("other"), 3)])
        members = [log.consumer(name("group"), [topic, name("other")], f"m{i}") for i in range(2)]
        settle(members, 6)
        for member in members:
            owned = member.assignment()
            assert {p.partition for p in owned if p.topic == topic} == {p.partition for p in owned if p.topic != topic}

    def test_partitions_move_between_three_members(self, log: Log, topic: str, name: Name) -> None:
        a, b, c = members = [log.consumer(name("group"), [topic], member) for member in "abc"]
        settle(members, 3)
        assert [len(member.assignment()) for member in members] == [1, 1, 1]
        b.close()
        polls = settle([a, c], 3)
        assert any(poll.revoked for poll in polls)
        assert a.assignment() | c.assignment() == {TopicPartition(topic, i) for i in range(3)}
        for member in (a, c):
            member.close()
        wait_for(lambda: log.groups().get(name("group"), 0) == 0)

    def test_a_pause_ends_with_the_assignment(self, log: Log, topic: str, name: Name) -> None:
        """A worker that was restoring owns less all at once, and has nothing left to restore, and to resume."""
        a = log.consumer(name("group"), [topic], "a")
        settle([a], 3)
        a.pause(a.assignment())
        b = log.consumer(name("group"), [topic], "b")
        settle([a, b], 3)
        for partition in range(3):
            write(log, topic, partition, [b"%d" % partition])
        for member in (a, b):
            drain(member, len(member.assignment()))

    def test_what_was_revoked_brings_no_records(self, log: Log, topic: str, name: Name) -> None:
        a = log.consumer(name("group"), [topic], "a")
        settle([a], 3)
        b = log.consumer(name("group"), [topic], "b")
        settle([a, b], 3)
        for partition in range(3):
            write(log, topic, partition, [str(partition).encode()])
        for member in (a, b):
            owned = member.assignment()
            for records in drain(member, len(owned)):
                assert TopicPartition(records.topic, records.partition) in owned

    def test_a_stale_generation_commits_nothing(self, log: Log, topic: str, name: Name) -> None:
        a = log.consumer(name("group"), [topic], "a")
        settle([a], 3)
        stale = a.group_metadata()
        b = log.consumer(name("group"), [topic], "b")
        settle([a, b], 3)
        producer = log.producer(name("id"))
        producer.begin()
        send(producer, topic, 0, [b"never"])
        with pytest.raises(FencedError):
            producer.commit({TopicPartition(topic, 0): Position(0)}, stale)
        producer.close()
        assert values_of(log, topic) == []
        assert log.committed(name("group"), [TopicPartition(topic, 0)]) == {}
        again = log.producer(name("id"))
        again.begin()
        mine = min(a.assignment())
        again.commit({mine: Position(0)}, a.group_metadata())
        assert log.committed(name("group"), [mine]) == {mine: Position(0)}

    def test_a_restart_under_the_same_name_takes_the_place(self, log: Log, topic: str, name: Name) -> None:
        old = log.consumer(name("group"), [topic], "m")
        settle([old], 3)
        new = log.consumer(name("group"), [topic], "m")
        settle([new], 3)
        assert log.groups()[name("group")] == 1
        producer = log.producer(name("id"))
        producer.begin()
        with pytest.raises(FencedError):
            producer.commit({TopicPartition(topic, 0): Position(0)}, old.group_metadata())
        with pytest.raises(FencedError):
            drain(old, 1)
        old.close()
        settle([new], 3)

    def test_a_member_may_ask_for_other_topics(self, log: Log, topic: str, name: Name) -> None:
        log.create_topics([TopicSpec(name("later"), 3)])
        members = [log.consumer(name("group"), [topic], member) for member in "ab"]
        settle(members, 3)
        for partition in range(3):
            write(log, name("later"), partition, [b"%d" % partition])
        members[0].subscribe([topic, name("later")])
        settle(members, 6)
        taken = {tp for tp in members[0].assignment() if tp.topic == name("later")}
        assert len(taken) == 3, "nobody else asks for it"
        members[1].subscribe([name("later"), topic])
        polls = settle(members, 6)
        for number in range(3):  # range: partition i of both is at one member
            owners = {m for m in members for tp in m.assignment() if tp.partition == number}
            assert len(owners) == 1
        found = [value for poll in polls for records in poll.records for value in records.values]
        deadline = Deadline()
        while not {b"0", b"1", b"2"} <= set(found):
            deadline.check(f"the records of the new topic; {found} came")
            found += [v for member in members for records in member.poll(10, 0.1).records for v in records.values]
        for member in members:
            member.subscribe([name("later")])
        settle(members, 3)
        with suppress(ConnectorError):  # Kafka's client learns it later
            members[0].subscribe([name("absent")])
            assert "absent" not in {tp.topic for tp in members[0].assignment()}
        for member in members:
            member.close()

    def test_groups_counts_members(self, log: Log, topic: str, name: Name) -> None:
        members = [log.consumer(name("group"), [topic], member) for member in "ab"]
        settle(members, 3)
        assert log.groups()[name("group")] == 2
        producer = log.producer(name("id"))
        producer.begin()
        mine = min(members[0].assignment())
        producer.commit({mine: Position(0)}, members[0].group_metadata())
        for member in members:
            member.close()
        wait_for(lambda: log.groups()[name("group")] == 0)

    def test_delete_group_forgets_positions_once_it_is_empty(self, log: Log, topic: str, name: Name) -> None:
        consumer = log.consumer(name("group"), [topic], "m")
        settle([consumer], 3)
        producer = log.producer(name("id"))
        producer.begin()
        where = TopicPartition(topic, 0)
        producer.commit({where: Position(0)}, consumer.group_metadata())
        with pytest.raises(ConnectorError, match="member"):
            log.delete_group(name("group"))
        consumer.close()
        wait_for(lambda: log.groups()[name("group")] == 0)
        log.delete_group(name("group"))
        assert log.committed(name("group"), [where]) == {}
        assert name("group") not in log.groups()

    def test_set_positions_moves_a_group_without_members(self, log: Log, topic: str, name: Name) -> None:
        first, other = TopicPartition(topic, 0), TopicPartition(topic, 2)
        producer = log.producer(None)  # positions are to be of records that are there
        producer.begin()
        producer.send(topic, 0, [b"k"] * 7, [b"v"] * 7, [0] * 7)
        producer.commit({}, None)
        log.set_positions(name("group"), {first: Position(7), other: Position(0, "0 0 @tick=5")})
        log.set_positions(name("group"), {first: Position(3)})
        found = log.committed(name("group"), [first, TopicPartition(topic, 1), other])
        assert found == {first: Position(3), other: Position(0, "0 0 @tick=5")}
        consumer = log.consumer(name("group"), [topic], "m")
        settle([consumer], 3)
        with pytest.raises(ConnectorError):
            log.set_positions(name("group"), {first: Position(1)})
        consumer.close()

    def test_an_absent_topic_is_refused_or_owns_nothing(self, log: Log, name: Name) -> None:
        with pytest.raises(ConnectorError):
            log.consumer(name("group"), [name("absent")], "m").poll(1, 1.0)


class TestFencing:
    """Rule 3, for producers."""

    @pytest.mark.parametrize("flushed", [False, True])
    def test_a_zombie_commits_nothing(self, log: Log, topic: str, name: Name, flushed: bool) -> None:
        zombie = log.producer(name("id"))
        zombie.begin()
        send(zombie, topic, 0, [b"zombie"])
        if flushed:
            zombie.flush()
        successor = log.producer(name("id"))
        successor.begin()
        send(successor, topic, 0, [b"successor"])
        with pytest.raises(FencedError):
            zombie.commit({}, None)
        zombie.close()
        successor.commit({}, None)
        assert values_of(log, topic) == [b"successor"]

    def test_a_fenced_producer_is_done(self, log: Log, topic: str, name: Name) -> None:
        zombie = log.producer(name("id"))
        log.producer(name("id")).close()
        for _ in range(2):
            with pytest.raises(FencedError):
                commit_one(zombie, topic)
        zombie.close()
        assert values_of(log, topic) == []

    def test_producers_without_an_id_fence_nobody(self, log: Log, topic: str) -> None:
        producers = [log.producer(None) for _ in range(2)]
        for producer in producers:
            commit_one(producer, topic)
        assert values_of(log, topic) == [b"x", b"x"]


class TestFollower:
    """Reading without a group."""

    def test_a_follower_reads_committed_records_of_all_partitions_past_control_records(
        self, log: Log, topic: str
    ) -> None:
        written = {0: numbered("a", 30), 1: numbered("b", 5), 2: []}
        for partition, values in written.items():
            write(log, topic, partition, values)
        aborted = log.producer(None)
        aborted.begin()
        send(aborted, topic, 2, [b"never"])
        aborted.flush()
        aborted.abort()
        aborted.close()
        partitions = [TopicPartition(topic, p) for p in written]
        follower = log.follower(dict.fromkeys(partitions, 0))
        taken: dict[int, list[bytes | None]] = {p: [] for p in written}
        reached = dict.fromkeys(partitions, 0)
        goal = {tp: end for tp, end in log.end_offsets(partitions).items() if written[tp.partition]}
        deadline = Deadline(PATIENCE_S)
        while any(reached[tp] < end for tp, end in goal.items()):
            deadline.check(goal)
            for records in follower.poll(7, 0.1):
                taken[records.partition] += records.values
                reached[TopicPartition(topic, records.partition)] = records.next_offset
        assert taken == written
        follower.pause([partitions[0]])
        write(log, topic, 0, [b"later"])
        write(log, topic, 1, [b"now"])
        while b"now" not in taken[1]:
            deadline.check()
            for records in follower.poll(7, 0.1):
                taken[records.partition] += records.values
        assert b"later" not in taken[0]
        follower.resume([partitions[0]])
        while b"later" not in taken[0]:
            deadline.check()
            for records in follower.poll(7, 0.1):
                taken[records.partition] += records.values
        follower.close()

    def test_a_follower_says_where_its_position_is_not_kept(self, log: Log, topic: str) -> None:
        write(log, topic, 0, [b"x"])
        follower = log.follower({TopicPartition(topic, 0): 1_000})

        def follow() -> None:
            deadline = Deadline(PATIENCE_S)
            while True:
                deadline.check("an error")
                follower.poll(1, 0.1)

        with pytest.raises(ConnectorError, match="anew"):
            follow()
        follower.close()

    def test_a_log_opened_again_reads_what_the_first_one_wrote(self, log: Log, topic: str) -> None:
        write(log, topic, 0, [b"x"])
        other = log.reopened()
        assert values_of(other, topic) == [b"x"]
        if other is not log:
            other.close()
