"""What only the embedded log promises: durability, one process a group, refusals, compaction, eviction."""

import os
import pathlib
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from eddy.connectors.local import LocalLog
from eddy.connectors.local.group import range_assignment
from eddy.connectors.log import Log, Position, Records, TopicPartition, TopicSpec
from eddy.errors import ConnectorError, FencedError, RecordRefusedError
from tests.at_once import errors_of
from tests.children import Child
from tests.waiting import PATIENCE_S, Deadline

FILE = "eddy-log.sqlite3"


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "log"


@pytest.fixture
def log(path: pathlib.Path) -> Iterator[LocalLog]:
    """A log on disk with the topic "t" of three partitions."""
    made = LocalLog(path)
    made.create_topics([TopicSpec("t", 3)])
    yield made
    made.close()


def test_a_path_may_be_text(log: LocalLog, path: pathlib.Path) -> None:
    again = LocalLog(str(path))
    assert (again.path, list(again.topics())) == (path, ["t"])
    again.close()


def write(log: Log, topic: str, partition: int, keys: list[bytes], values: list[bytes | None]) -> None:
    producer = log.producer(None)
    producer.begin()
    producer.send(topic, partition, keys, values, [0] * len(keys))
    producer.commit({}, None)


def read_all(log: Log, topic: str, partition: int = 0) -> Records:
    where = TopicPartition(topic, partition)
    return log.read(where, log.begin_offsets([where])[where], log.end_offsets([where])[where], 1 << 30)


def rows(log: Log, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    records = read_all(log, topic)
    return list(zip(records.offsets, records.keys, records.values, strict=True))


def child(path: pathlib.Path, body: str) -> Child:
    """A Python process that runs `body` with `log` open on `path`."""
    lines = [
        "import pathlib, resource, signal, sys",
        "from eddy.connectors.local import LocalLog",
        "from eddy.connectors.log import Position, TopicPartition, TopicSpec",
        f"log = LocalLog(pathlib.Path({str(path)!r}))",
        body,
    ]
    return Child(path.parent, [sys.executable, "-c", "\n".join(lines)])


class TestDurability:
    def test_all_is_there_after_reopening(self, path: pathlib.Path, log: LocalLog) -> None:
        log.create_topics([TopicSpec("c", 2, {"cleanup.policy": "compact"})])
        consumer = log.consumer("g", ["t"], "m")
        consumer.poll(10, 0)
        producer = log.producer("id")
        producer.begin()
        producer.send("t", 0, [b"a", None], [b"1", None], [5, 6], [(("h", b"x"),), ()])
        producer.commit({TopicPartition("t", 0): Position(0, "note")}, consumer.group_metadata())
        before = read_all(log, "t")
        consumer.close()
        log.close()
        again = LocalLog(path)
        assert read_all(again, "t") == before
        assert again.topics()["c"] == TopicSpec("c", 2, {"cleanup.policy": "compact"})
        assert again.committed("g", [TopicPartition("t", 0)]) == {TopicPartition("t", 0): Position(0, "note")}
        assert again.groups() == {"g": 0}
        again.close()

    def test_an_open_transaction_is_gone_after_reopening(self, path: pathlib.Path) -> None:
        log = LocalLog(path)
        log.create_topics([TopicSpec("t", 1)])
        producer = log.producer("id")
        producer.begin()
        producer.send("t", 0, [b"k"], [b"v"], [0])
        producer.flush()
        log.close()
        with_rest = LocalLog(path)
        assert rows(with_rest, "t") == []
        with_rest.close()

    def test_a_producer_of_an_earlier_process_is_fenced(self, path: pathlib.Path, log: LocalLog) -> None:
        zombie = log.producer("id")
        zombie.begin()
        zombie.send("t", 0, [b"k"], [b"v"], [0])
        other = LocalLog(path)
        other.producer("id")
        with pytest.raises(FencedError, match="'id' was taken over"):
            zombie.commit({}, None)
        assert rows(other, "t") == []
        other.close()

    def test_a_killed_process_leaves_whole_transactions(self, path: pathlib.Path, log: LocalLog) -> None:
        """Each transaction has its number as value, in three partitions, and in the position's note."""
        body = """
consumer = log.consumer("g", ["t"], "m")
consumer.poll(1, 0)
producer = log.producer("id")
partitions = [TopicPartition("t", p) for p in range(3)]
tag = max((int(position.metadata) for position in log.committed("g", partitions).values()), default=0)
while True:
    tag += 1
    producer.begin()
    for partition in range(3):
        producer.send("t", partition, [None] * 500, [b"%d" % tag] * 500, [0] * 500)
    positions = {p: Position(0, str(tag)) for p in partitions}
    producer.commit(positions, consumer.group_metadata())
    print(tag, flush=True)
"""
        told = 0
        for kill_after in (1, 4, 9):
            with child(path, body) as other:
                for _ in range(kill_after):
                    told = int(other.next_line())
            found = [list(read_all(log, "t", p).values) for p in range(3)]
            last = len(found[0]) // 500
            assert last >= told
            assert found == [[b"%d" % tag for tag in range(1, last + 1) for _ in range(500)]] * 3
            partitions = [TopicPartition("t", p) for p in range(3)]
            assert {p.metadata for p in log.committed("g", partitions).values()} == {str(last)}

    def test_a_full_disk_is_reported_and_what_was_there_stays(self, path: pathlib.Path, log: LocalLog) -> None:
        limit = 2 << 20
        body = f"""
from eddy.errors import ConnectorError
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
producer = log.producer(None)
for size in (10, {2 * limit}, 20):
    producer.begin()
    for partition in range(3):
        producer.send("t", partition, [b"k"] * 100, [b"x" * (size // 100)] * 100, [0] * 100)
    try:
        producer.commit({{}}, None)
        print("committed", flush=True)
    except ConnectorError as error:
        producer.abort()
        print(error.retriable, error, flush=True)
"""
        with child(path, body) as other:
            assert other.next_line() == "committed"
            refused = other.next_line()
            assert other.next_line() == "committed"
        assert refused.startswith(f"False local log {path}: ")
        assert "room on the disk" in refused
        assert [len(read_all(log, "t", p)) for p in range(3)] == [200] * 3


class TestProcesses:
    def test_a_second_process_cannot_run_the_group(self, path: pathlib.Path, log: LocalLog) -> None:
        consumer = log.consumer("family", ["t"], "m")
        body = """
from eddy.errors import ConnectorError
print(log.groups(), flush=True)
try:
    log.consumer("family", ["t"], "m")
except ConnectorError as error:
    print(error, flush=True)
log.consumer("another", ["t"], "m")
sys.stdin.readline()
log.consumer("family", ["t"], "m")
print("joined", flush=True)
sys.stdin.readline()
"""
        with child(path, body) as other:
            assert other.next_line() == "{'family': 1}"
            message = other.next_line()
            assert f"group 'family' is owned by process {os.getpid()};" in message
            assert "Stop it first" in message
            consumer.close()
            other.write("\n")
            assert other.next_line() == "joined"
            assert log.groups() == {"family": 1, "another": 1}
            with pytest.raises(ConnectorError, match="has 1 members"):
                log.delete_group("family")
        assert log.groups() == {}

    def test_a_waiting_poll_sees_what_another_process_writes(self, path: pathlib.Path, log: LocalLog) -> None:
        consumer = log.consumer("g", ["t"], "m")
        consumer.poll(10, 0)
        body = """
print("ready", flush=True)
sys.stdin.readline()
producer = log.producer(None)
producer.begin()
producer.send("t", 1, [b"k"], [b"v"], [7])
producer.commit({}, None)
"""
        with child(path, body) as other:
            assert other.next_line() == "ready"
            deadline = Deadline(PATIENCE_S / 2)
            other.write("\n")
            (records,) = consumer.poll(10, PATIENCE_S).records
            deadline.check("what another process writes")
        assert (records.partition, list(records.values)) == (1, [b"v"])
        consumer.close()

    @pytest.mark.slow
    def test_processes_may_open_a_new_log_at_the_same_moment(self, tmp_path: pathlib.Path) -> None:
        imports = "from eddy.connectors.local import LocalLog"
        assert not errors_of("LocalLog(path).close()", imports, tmp_path, times=60, processes=4)

    def test_one_writer_at_a_time_and_the_other_may_try_again(self, path: pathlib.Path) -> None:
        one, two = LocalLog(path, busy_timeout_s=0.01), LocalLog(path, busy_timeout_s=0.01)
        one.create_topics([TopicSpec("t", 1)])
        first, second, elsewhere = one.producer("1"), one.producer("2"), two.producer("3")
        producers = (first, second, elsewhere)
        for i, producer in enumerate(producers):
            producer.begin()
            producer.send("t", 0, [b"k"], [b"%d" % i], [0])
        first.flush()
        for blocked in (second, elsewhere):
            with pytest.raises(ConnectorError) as refused:
                blocked.commit({}, None)
            assert refused.value.retriable
        for producer in producers:
            producer.commit({}, None)
        assert list(read_all(two, "t").values) == [b"0", b"1", b"2"]
        one.close()
        two.close()


class TestThreads:
    def test_a_waiting_poll_sees_what_another_thread_writes(self) -> None:
        log = LocalLog()
        log.create_topics([TopicSpec("t", 1)])
        consumer = log.consumer("g", ["t"], "m")
        consumer.poll(10, 0)
        thread = threading.Thread(target=write, args=(log, "t", 0, [b"k"], [b"v"]))
        deadline = Deadline(PATIENCE_S / 2)
        thread.start()
        assert [list(records.values) for records in consumer.poll(10, PATIENCE_S).records] == [[b"v"]]
        deadline.check("what another thread writes")
        thread.join()
        log.close()

    @pytest.mark.parametrize("on_disk", [False, True])
    def test_a_producer_fenced_at_any_moment_commits_all_or_nothing(self, path: pathlib.Path, on_disk: bool) -> None:
        log = LocalLog(path if on_disk else None)
        log.create_topics([TopicSpec("t", 2)])
        committed: list[bytes] = []

        def work() -> None:
            for i in range(100):
                producer, value = log.producer("id"), b"%d-%d" % (threading.get_ident(), i)
                try:
                    producer.begin()
                    for partition in range(2):
                        producer.send("t", partition, [value], [value], [0])
                    if i % 2:
                        producer.flush()
                    producer.commit({}, None)
                    committed.append(value)
                except FencedError:
                    producer.close()

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for partition in range(2):
            assert sorted(map(str, read_all(log, "t", partition).values)) == sorted(map(str, committed))
        log.close()


class TestRefusals:
    def test_a_directory_of_something_else_is_refused(self, path: pathlib.Path) -> None:
        path.mkdir()
        (path / "notes.txt").write_text("mine")
        with pytest.raises(ConnectorError, match=r"holds 1 other files \('notes.txt', …\) and no eddy log"):
            LocalLog(path)
        assert [entry.name for entry in path.iterdir()] == ["notes.txt"]

    def test_a_file_is_refused(self, path: pathlib.Path) -> None:
        path.write_text("mine")
        with pytest.raises(ConnectorError, match="cannot be used as a directory"):
            LocalLog(path)
        assert path.read_text() == "mine"

    @pytest.mark.parametrize("content", [b"not a database" * 1_000, None], ids=["garbage", "foreign"])
    def test_a_file_that_is_no_log_is_left_as_it_is(self, path: pathlib.Path, content: bytes | None) -> None:
        path.mkdir()
        if content is None:
            foreign = sqlite3.connect(path / FILE)
            foreign.execute("CREATE TABLE accounts (id)")
            foreign.close()
        else:
            (path / FILE).write_bytes(content)
        before = (path / FILE).read_bytes()
        with pytest.raises(ConnectorError, match=r"is damaged|of another application"):
            LocalLog(path)
        assert (path / FILE).read_bytes() == before
        assert [entry.name for entry in path.iterdir()] == [FILE]

    def test_a_newer_schema_is_refused(self, path: pathlib.Path) -> None:
        LocalLog(path).close()
        newer = sqlite3.connect(path / FILE)
        newer.execute("PRAGMA user_version = 2")
        newer.close()
        with pytest.raises(ConnectorError, match=r"newer eddy \(schema 2\); this one reads schema 1"):
            LocalLog(path)

    def test_damage_is_reported_where_it_is_read(self, path: pathlib.Path) -> None:
        log = LocalLog(path)
        log.create_topics([TopicSpec("t", 1)])
        write(log, "t", 0, [b"k"] * 5_000, [b"v" * 50] * 5_000)
        log.close()
        content = bytearray((path / FILE).read_bytes())
        content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
        (path / FILE).write_bytes(content)
        damaged = LocalLog(path)
        with pytest.raises(ConnectorError, match="is damaged"):
            read_all(damaged, "t")
        damaged.close()

    @pytest.mark.parametrize("group", ["", "a/b", "..", "x" * 201])
    def test_a_group_that_is_no_file_name_is_refused(self, log: LocalLog, group: str) -> None:
        with pytest.raises(ConnectorError, match="group name"):
            log.consumer(group, ["t"], "m")

    def test_topics_that_make_no_sense_are_refused(self, log: LocalLog) -> None:
        with pytest.raises(ConnectorError, match="0 partitions"):
            log.create_topics([TopicSpec("u", 0)])
        with pytest.raises(ConnectorError, match=r"max\.message\.bytes=many"):
            log.create_topics([TopicSpec("u", 1, {"max.message.bytes": "many"})])

    def test_columns_of_different_lengths_are_refused(self, log: LocalLog) -> None:
        producer = log.producer(None)
        producer.begin()
        with pytest.raises(ConnectorError, match=r"columns of \[1, 2\] entries"):
            producer.send("t", 0, [b"k"], [b"v", b"w"], [0])

    def test_a_producer_knows_the_limits_of_a_topic_that_was_made_anew(self, path: pathlib.Path, log: LocalLog) -> None:
        other, producer = LocalLog(path), log.producer(None)
        large = ("t", 0, [None], [bytes(2_000)], [0])
        producer.begin()
        producer.send(*large)
        producer.commit({}, None)
        producer.begin()
        other.delete_topics(["t"])
        with pytest.raises(ConnectorError, match="no partition 0 of topic 't'"):
            producer.send(*large)
        other.create_topics([TopicSpec("t", 1, {"max.message.bytes": "1000", "cleanup.policy": "compact"})])
        with pytest.raises(RecordRefusedError, match="takes up to 1000"):
            producer.send("t", 0, [b"k"], [bytes(2_000)], [0])
        with pytest.raises(RecordRefusedError, match="has no key"):
            producer.send("t", 0, [None], [b"v"], [0])
        producer.send("t", 0, [b"k"], [b"v"], [0])
        producer.commit({}, None)
        other.close()
        assert rows(log, "t") == [(0, b"k", b"v")]

    def test_a_closed_log_says_so(self, path: pathlib.Path) -> None:
        log = LocalLog(path)
        log.close()
        log.close()
        with pytest.raises(ConnectorError, match="closed"):
            log.topics()

    def test_a_position_behind_the_end_is_refused(self, log: LocalLog) -> None:
        consumer = log.consumer("g", ["t"], "m")
        consumer.poll(1, 0)
        consumer.seek({TopicPartition("t", 0): 5})
        with pytest.raises(ConnectorError, match="position 5 of t-0 lies after its end 0"):
            consumer.poll(1, 0)
        with pytest.raises(ConnectorError, match="does not own"):
            consumer.seek({TopicPartition("u", 0): 0})
        consumer.close()


class TestCompaction:
    @pytest.fixture(params=["memory", "disk"])
    def compacted(self, request: pytest.FixtureRequest, path: pathlib.Path) -> Iterator[LocalLog]:
        log = LocalLog(None if request.param == "memory" else path)
        log.create_topics([TopicSpec("c", 1, {"cleanup.policy": "compact"}), TopicSpec("d", 1)])
        yield log
        log.close()

    def test_the_latest_record_of_each_key_stays_at_its_offset(self, compacted: LocalLog) -> None:
        for topic in ("c", "d"):
            write(compacted, topic, 0, [b"a", b"b", b"a", b"b"], [b"1", b"2", b"3", None])
        write(compacted, "c", 0, [b"c"], [b"4"])
        end = compacted.end_offsets([TopicPartition("c", 0)])
        compacted.compact()
        assert rows(compacted, "c") == [(2, b"a", b"3"), (3, b"b", None), (5, b"c", b"4")]
        assert len(rows(compacted, "d")) == 4
        assert compacted.end_offsets([TopicPartition("c", 0)]) == end
        compacted.compact("c", drop_tombstones=True)
        assert rows(compacted, "c") == [(2, b"a", b"3"), (5, b"c", b"4")]

    def test_what_a_group_has_read_stays_until_it_has_read_what_replaced_it(self, compacted: LocalLog) -> None:
        write(compacted, "c", 0, [b"a", b"a", b"a"], [b"1", b"2", b"3"])
        consumer, producer = compacted.consumer("g", ["c"], "m"), compacted.producer("id")
        consumer.poll(1, 0)
        for position, left in ((2, [b"2", b"3"]), (3, [b"3"])):
            producer.begin()
            producer.commit({TopicPartition("c", 0): Position(position)}, consumer.group_metadata())
            compacted.compact()
            assert [value for _, _, value in rows(compacted, "c")] == left

    def test_a_record_without_key_is_refused(self, compacted: LocalLog) -> None:
        producer = compacted.producer(None)
        producer.begin()
        with pytest.raises(RecordRefusedError, match="record 1 of 2 has no key"):
            producer.send("c", 0, [b"k", None], [b"v", b"v"], [0, 0])

    @pytest.mark.parametrize(("keys", "left"), [(10, 10), (60_001, 120_002)])
    def test_closing_compacts_what_is_mostly_out_of_date(self, path: pathlib.Path, keys: int, left: int) -> None:
        log = LocalLog(path)
        log.create_topics([TopicSpec("c", 1, {"cleanup.policy": "compact"})])
        column = [b"%d" % (i % keys) for i in range(120_002)]
        write(log, "c", 0, column, list(column))
        log.consumer("g", ["c"], "m").close()
        log.close()
        again = LocalLog(path)
        assert len(read_all(again, "c")) == left
        again.close()


class TestEviction:
    def test_a_member_thrown_out_is_fenced_until_it_polls(self) -> None:
        log = LocalLog()
        log.create_topics([TopicSpec("t", 2)])
        everything = {TopicPartition("t", 0), TopicPartition("t", 1)}
        consumer = log.consumer("g", ["t"], "m")
        consumer.poll(1, 0)
        log.evict("g", "m")
        assert log.groups() == {}
        producer = log.producer("id")
        producer.begin()
        with pytest.raises(FencedError, match="no longer in it"):
            producer.commit({TopicPartition("t", 0): Position(0)}, consumer.group_metadata())
        poll = consumer.poll(1, 0)
        assert poll.revoked == everything
        assert poll.assigned == everything
        assert log.groups() == {"g": 1}
        log.close()

    def test_the_others_take_over_at_their_next_poll(self) -> None:
        log = LocalLog()
        log.create_topics([TopicSpec("t", 2)])
        a, b = log.consumer("g", ["t"], "a"), log.consumer("g", ["t"], "b")
        for consumer in (a, b):
            consumer.poll(1, 0)
        log.evict("g", "a")
        poll = b.poll(1, 0)
        assert poll.revoked == {TopicPartition("t", 1)}
        assert poll.assigned == {TopicPartition("t", 0), TopicPartition("t", 1)}
        log.close()

    def test_the_news_of_an_assignment_survive_a_read_that_fails(self) -> None:
        log = LocalLog()
        log.create_topics([TopicSpec("t", 1)])
        where = TopicPartition("t", 0)
        write(log, "t", 0, [b"k"] * 3, [b"v"] * 3)
        first = log.consumer("g", ["t"], "m")
        first.poll(1, 0)
        producer = log.producer("id")
        producer.begin()
        producer.commit({where: Position(1)}, first.group_metadata())
        log.delete_records({where: 2})
        second = log.consumer("g", ["t"], "m")
        assert second.poll(1, 0).assigned == {where}
        with pytest.raises(ConnectorError, match="position 1 of t-0 lies before its first offset 2"):
            second.poll(1, 0)
        second.seek({where: 2})
        assert [list(records.offsets) for records in second.poll(1, 0).records] == [[2]]
        log.close()

    def test_a_generation_without_change_is_not_reported(self) -> None:
        log = LocalLog()
        log.create_topics([TopicSpec("t", 1)])
        a = log.consumer("g", ["t"], "a")
        a.poll(1, 0)
        before = a.group_metadata()
        b = log.consumer("g", ["t"], "b")
        assert a.poll(1, 0) == b.poll(1, 0)
        assert a.group_metadata() != before
        log.close()


class TestWaiting:
    def test_waits_run_on_the_clock_and_sleep_that_are_given(self) -> None:
        now = 0.0
        at_sleep: Callable[[], None] | None = None

        def sleep(seconds: float) -> None:
            nonlocal now
            now += seconds
            if at_sleep is not None:
                at_sleep()

        log = LocalLog(clock=lambda: now, sleep=sleep)
        log.create_topics([TopicSpec("t", 1)])
        consumer = log.consumer("g", ["t"], "m")
        consumer.poll(1, 0)
        assert consumer.poll(1, 3_600.0).records == []
        assert now == pytest.approx(3_600.0)
        assert consumer.poll(1, 0).records == []
        assert now == pytest.approx(3_600.0)
        at_sleep = lambda: write(log, "t", 0, [b"k"], [b"v"])  # noqa: E731
        assert len(consumer.poll(1, 3_600.0).records) == 1
        assert now < 3_601.0
        log.close()


@pytest.mark.parametrize(("partitions", "members"), [(1, 3), (3, 2), (7, 3), (8, 5), (12, 4)])
def test_range_deals_consecutive_partitions_evenly(partitions: int, members: int) -> None:
    names = [f"m{i}" for i in range(members)]
    dealt = range_assignment({name: {"t": partitions} for name in names})
    numbers = [sorted(partition.partition for partition in dealt[name]) for name in names]
    assert [number for owned in numbers for number in owned] == list(range(partitions))
    sizes = list(map(len, numbers))
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1
